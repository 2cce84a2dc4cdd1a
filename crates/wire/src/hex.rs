//! Bytes as hexadecimal digits.

pub(crate) use base16ct::lower::encode_string as to_hex;

/// Fills `out` from exactly as many digits as it needs, in lower or upper case.
pub(crate) fn from_hex(text: &str, out: &mut [u8]) -> Option<()> {
    let wanted = out.len();
    let decoded = base16ct::mixed::decode(text, out).ok()?;
    (decoded.len() == wanted).then_some(())
}
