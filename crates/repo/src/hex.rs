//! Lower-case hexadecimal text: each value has one.

pub use base16ct::lower::encode_string as hex;

/// Decodes exactly `N` bytes from lower-case digits.
pub fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    base16ct::lower::decode_vec(digits).ok()?.try_into().ok()
}
