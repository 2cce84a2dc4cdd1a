//! Lower-case hexadecimal text: each value has exactly one form.

pub(crate) use base16ct::lower::encode_string as encode;

/// Decodes pairs of lower-case digits; `None` for anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    base16ct::lower::decode_vec(text).ok()
}

pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_text_stands_for_a_value() {
        assert_eq!(encode(&[0, 0xa5, 0xff]), "00a5ff");
        assert_eq!(decode("00a5ff"), Some(vec![0, 0xa5, 0xff]));
        assert_eq!(decode_array::<2>("00a5ff"), None);
        for bad in ["0", "0A", "0g", " 0", "0x", "é0"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
