//! Bytes as hexadecimal digits.

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n & 15)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(*b)]).collect()
}

/// Fills `out` from exactly as many digits as it needs, in lower or upper case.
pub(crate) fn from_hex(text: &str, out: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != out.len().checked_mul(2)? {
        return None;
    }
    let value = |c: u8| char::from(c).to_digit(16).and_then(|n| u8::try_from(n).ok());
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = value(high)? << 4 | value(low)?;
    }
    Some(())
}
