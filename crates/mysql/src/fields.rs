//! The fields that packets consist of: integers, strings with a length, strings with an end.

use crate::error::Error;

/// Reads the fields of one packet. Every length is checked against what is left.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// The packet's kind, for errors.
    packet: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(packet: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, packet }
    }

    pub(crate) fn malformed<T>(&self) -> Result<T, Error> {
        Err(Error::Malformed { packet: self.packet })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return self.malformed();
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else { return self.malformed() };
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    /// An integer that says its own size: one byte below 251, or a mark and 2, 3 or 8 bytes.
    pub(crate) fn integer(&mut self) -> Result<u64, Error> {
        match self.u8()? {
            small @ 0..=0xfa => Ok(small.into()),
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [a, b, c] = self.array()?;
                Ok(u32::from_le_bytes([a, b, c, 0]).into())
            }
            0xfe => self.array().map(u64::from_le_bytes),
            // 0xfb is NULL in a row, 0xff an error.
            _ => self.malformed(),
        }
    }

    /// A string after its length, an [`integer`](Self::integer).
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Error> {
        match usize::try_from(self.integer()?) {
            Ok(length) => self.bytes(length),
            Err(_) => self.malformed(),
        }
    }

    /// A string before a NUL.
    pub(crate) fn until_nul(&mut self) -> Result<&'a [u8], Error> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return self.malformed();
        };
        let string = self.bytes(end)?;
        self.bytes(1)?;
        Ok(string)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that every byte was read.
    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { self.malformed() }
    }
}

/// Appends an integer that says its own size.
pub(crate) fn put_integer(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    match value {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => out.extend([&[0xfc], &bytes[..2]].concat()),
        0x1_0000..=0xff_ffff => out.extend([&[0xfd], &bytes[..3]].concat()),
        _ => out.extend([&[0xfe], &bytes[..]].concat()),
    }
}

/// Appends a string after its length.
pub(crate) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_integer(out, string.len() as u64);
    out.extend_from_slice(string);
}

/// Appends a string and a NUL.
pub(crate) fn put_with_nul(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(string);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_beyond_the_packet_is_refused() {
        let huge = [&[0xfe], &u64::MAX.to_le_bytes()[..], b"abc"].concat();
        for bytes in [&huge[..], &[4, 1, 2, 3], &[0xfc, 1], &[0xfb], &[0xff], &[]] {
            assert!(Fields::new("test", bytes).string().is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_and_strings_come_back(value: u64, string: Vec<u8>) {
            let mut out = Vec::new();
            put_integer(&mut out, value);
            put_string(&mut out, &string);
            let mut fields = Fields::new("test", &out);
            prop_assert_eq!(fields.integer().ok(), Some(value));
            prop_assert_eq!(fields.string().ok(), Some(&string[..]));
            prop_assert!(fields.end().is_ok());
        }
    }
}
