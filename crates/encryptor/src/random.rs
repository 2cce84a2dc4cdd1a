//! Random bytes from the system.

/// The system gave no random bytes. Nothing can be encrypted then.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the system gives no random bytes: {0}")]
pub struct NoRandom(#[from] getrandom::Error);

/// `N` bytes from the system's generator.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], NoRandom> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
