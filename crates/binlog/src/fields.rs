//! Reads numbers and byte strings from the front of a slice.

/// The fields of an event that have not been read. Every read checks the length: `None` if the bytes
/// are too few, or not what the encoding allows.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a little-endian number of `len` bytes, at most 8.
    pub(crate) fn uint(&mut self, len: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..len)?.copy_from_slice(self.bytes(len)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// Reads a length-encoded integer of the client/server protocol: one byte below 251, or a byte
    /// that states 2, 3 or 8 more. ("Protocol Basics: Integers", MySQL Source Code Documentation)
    pub(crate) fn lenenc(&mut self) -> Option<u64> {
        match self.u8()? {
            small @ ..=250 => Some(u64::from(small)),
            252 => self.uint(2),
            253 => self.uint(3),
            254 => self.uint(8),
            251 | 255 => None,
        }
    }

    /// Reads a variable-length integer of MySQL's serialization library: the number of one bits at
    /// the low end of the first byte is the number of further bytes; the value is in the bits above
    /// them and the zero that ends them. ("MySQL Serialization Library", MySQL Source Code
    /// Documentation)
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        match first.trailing_ones() {
            8 => self.u64(),
            more @ 0..8 => {
                let high = self.uint(usize::try_from(more).ok()?)?;
                let low = u64::from(first) >> (more + 1);
                // 7 - more bits of the first byte count. With seven more bytes it has none.
                Some(high << (7 - more) | low)
            }
            _ => None,
        }
    }

    /// Reads a signed integer of the same library that must not be negative: its sign is the lowest
    /// bit of the number.
    pub(crate) fn natural(&mut self) -> Option<u64> {
        let raw = self.varint()?;
        (raw & 1 == 0).then_some(raw >> 1)
    }

    /// Reads text of a length that the same library states.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.bytes(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Option<u64> {
        let mut fields = Fields::new(bytes);
        fields.varint().filter(|_| fields.rest().is_empty())
    }

    #[test]
    fn variable_length_integers_have_one_to_nine_bytes() {
        assert_eq!(varint(&[0x76]), Some(59));
        assert_eq!(varint(&[0x49, 0x03]), Some(210));
        assert_eq!(varint(&[0xc3, 0x02, 0x0b]), Some(90_200));
        let micros = [0x7f, 0x15, 0x83, 0x22, 0x2d, 0x5c, 0x2e, 0x06];
        assert_eq!(varint(&micros), Some(1_739_823_289_369_365));
        let most = [0xff, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(varint(&most), Some(0x0807_0605_0403_0201));
        for len in 0..9 {
            assert_eq!(varint(&most[..len]), None);
        }
        assert_eq!(Fields::new(&[4]).natural(), Some(1));
        assert_eq!(Fields::new(&[6]).natural(), None, "-2");
    }

    #[test]
    fn length_encoded_integers_state_their_size() {
        assert_eq!(Fields::new(&[250]).lenenc(), Some(250));
        assert_eq!(Fields::new(&[252, 0x1d, 1]).lenenc(), Some(285));
        assert_eq!(Fields::new(&[253, 1, 0, 1]).lenenc(), Some(65_537));
        assert_eq!(Fields::new(&[254, 0, 0, 0, 0, 1, 0, 0, 0]).lenenc(), Some(1 << 32));
        for bad in [&[251][..], &[255], &[252, 1], &[254, 0, 0, 0, 0, 1, 0, 0], &[]] {
            assert_eq!(Fields::new(bad).lenenc(), None, "{bad:?}");
        }
    }
}
