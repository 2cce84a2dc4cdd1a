//! Random bytes from the system.

/// The system returned no random bytes, so nothing can be encrypted.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot get random bytes from the system: {0}")]
pub struct NoRandom(#[from] getrandom::Error);

/// Returns `N` bytes from the system's random generator.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], NoRandom> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
