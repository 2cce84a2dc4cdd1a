//! Numbers in index records: unsigned LEB128 in the shortest form; signed numbers in zigzag.

/// Maximum length of a number: ten groups of seven bits hold 64 bits.
pub(super) const MAX_LEN: usize = 10;

/// Appends `value`.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let group = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            return out.push(group);
        }
        out.push(group | 0x80);
    }
}

/// Takes a number from the front of `bytes`. `None` if it is cut short, exceeds 64 bits, or is not
/// in the shortest form.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for at in 0..MAX_LEN {
        let byte = *bytes.get(at)?;
        let group = u64::from(byte & 0x7f);
        if at == MAX_LEN - 1 && group > 1 {
            return None;
        }
        value |= group << (7 * at);
        if byte & 0x80 == 0 {
            if byte == 0 && at > 0 {
                return None;
            }
            *bytes = bytes.get(at + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Appends the signed difference from `from` to `to`; both are at most `MAX_POSITION`.
pub(super) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from).cast_signed();
    put(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
}

/// Takes a signed difference and adds it to `from`. `None` as in [`take`], or if the result is
/// below zero or above 2^63 - 1.
pub(super) fn take_step(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let zigzag = take(bytes)?;
    let step = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
    let to = i64::try_from(from).ok()?.checked_add(step)?;
    u64::try_from(to).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_POSITION;

    #[test]
    fn known_bytes() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn refuses_cut_long_and_large_numbers() {
        for bad in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x80; 11],
        ] {
            assert_eq!(take(&mut &bad[..]), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn values_return(value: u64, rest: [u8; 2]) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert!(out.len() <= MAX_LEN);
            out.extend(rest);
            let mut bytes = &out[..];
            prop_assert_eq!(take(&mut bytes), Some(value));
            prop_assert_eq!(bytes, &rest[..]);
        }

        #[test]
        fn steps_return(from in 0..=MAX_POSITION, to in 0..=MAX_POSITION) {
            let mut out = Vec::new();
            put_step(&mut out, from, to);
            prop_assert_eq!(take_step(&mut &out[..], from), Some(to));
        }
    }
}
