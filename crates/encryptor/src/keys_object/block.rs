//! The keys object in front of a native file: the same text, in a block with spare room.

use super::{KeysObject, KeysObjectError, MAX_KEYS_OBJECT};

/// The first eight bytes of a keys block; its last two digits are the version.
pub(crate) const BLOCK_MAGIC: [u8; 8] = *b"XBRKEY01";

/// Length of the head of a block in bytes.
pub const BLOCK_HEAD_LEN: usize = 32;

/// The length of a block is a multiple of this.
pub const BLOCK_UNIT: usize = 4096;

/// Longest block in bytes.
pub const MAX_BLOCK: usize = 1 << 20;

/// Minimum spare room after the text in a new block, for slots that a rewrap adds.
const SPARE: usize = 1024;

/// Length of the part of the head that its own checksum covers.
const CHECKED: usize = BLOCK_HEAD_LEN - 4;

/// The fields of a block's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockHead {
    /// Length of the whole block, including this head: the native stream begins after it.
    pub block_len: usize,
    /// Length of the keys object's text.
    pub text_len: usize,
    /// CRC-32C of the text.
    pub text_crc: u32,
}

/// Returns whether `prefix`, the first bytes of an input, begins a keys block. Pass at least eight bytes.
#[must_use]
pub fn is_keys_block(prefix: &[u8]) -> bool {
    prefix.starts_with(&BLOCK_MAGIC)
}

impl BlockHead {
    /// Parses the first [`BLOCK_HEAD_LEN`] bytes of a block.
    ///
    /// # Errors
    /// [`KeysObjectError::Block`]
    pub fn parse(bytes: &[u8; BLOCK_HEAD_LEN]) -> Result<Self, KeysObjectError> {
        let field = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).copied();
        let number = |at| u32::from_le_bytes(field(at).unwrap_or_default());
        if !is_keys_block(bytes) {
            return Err(block("it does not start with XBRKEY01"));
        }
        if number(CHECKED) != crc32c(bytes.get(..CHECKED).unwrap_or_default()) {
            return Err(block("the checksum of its header is wrong"));
        }
        let length = |at| usize::try_from(number(at)).unwrap_or(usize::MAX);
        let head = Self { block_len: length(8), text_len: length(12), text_crc: number(16) };
        if bytes.get(20..CHECKED) != Some(&[0; 8]) {
            return Err(block("reserved bytes of its header are not 0"));
        }
        let fits = head.block_len <= MAX_BLOCK && head.block_len.is_multiple_of(BLOCK_UNIT);
        if !fits || head.text_len > MAX_KEYS_OBJECT || head.block_len < least(head.text_len) {
            return Err(block("its lengths are invalid"));
        }
        Ok(head)
    }

    fn encode(self) -> Result<[u8; BLOCK_HEAD_LEN], KeysObjectError> {
        let number = |len: usize| u32::try_from(len).map_err(|_| block("too long"));
        let mut head = [0; BLOCK_HEAD_LEN];
        let fields = BLOCK_MAGIC
            .into_iter()
            .chain(number(self.block_len)?.to_le_bytes())
            .chain(number(self.text_len)?.to_le_bytes())
            .chain(self.text_crc.to_le_bytes());
        head.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        let crc = crc32c(head.get(..CHECKED).unwrap_or_default());
        head.iter_mut().skip(CHECKED).zip(crc.to_le_bytes()).for_each(|(to, from)| *to = from);
        Ok(head)
    }
}

impl KeysObject {
    /// Makes a new block with this keys object, with room for one or two more slots.
    ///
    /// # Errors
    /// None for keys objects made by this crate.
    pub fn encode_block(&self) -> Result<Vec<u8>, KeysObjectError> {
        self.encode_block_of(least(self.encode().len() + SPARE))
    }

    /// Makes a block of exactly this length, to overwrite an old one in place.
    ///
    /// # Errors
    /// [`KeysObjectError::NoRoom`] contains the length needed; [`KeysObjectError::Block`] if no block
    /// can have this length.
    pub fn encode_block_of(&self, block_len: usize) -> Result<Vec<u8>, KeysObjectError> {
        let text = self.encode();
        let needed = least(text.len());
        if block_len < needed {
            return Err(KeysObjectError::NoRoom { needed, got: block_len });
        }
        if block_len > MAX_BLOCK || !block_len.is_multiple_of(BLOCK_UNIT) {
            return Err(block("no block has this length"));
        }
        let head = BlockHead { block_len, text_len: text.len(), text_crc: crc32c(text) };
        let mut bytes = head.encode()?.to_vec();
        bytes.extend_from_slice(text);
        bytes.resize(block_len, 0);
        Ok(bytes)
    }
}

/// Parses a whole block. `bytes` must be exactly as long as its head states.
///
/// # Errors
/// [`KeysObjectError::Block`], and the errors of [`KeysObject::parse`].
pub fn parse_block(bytes: &[u8]) -> Result<KeysObject, KeysObjectError> {
    let (head, rest) = bytes.split_first_chunk().ok_or_else(|| block("it is truncated"))?;
    let head = BlockHead::parse(head)?;
    if bytes.len() != head.block_len {
        return Err(block("it is truncated, or has extra bytes"));
    }
    let (text, padding) =
        rest.split_at_checked(head.text_len).ok_or_else(|| block("its lengths are invalid"))?;
    if crc32c(text) != head.text_crc {
        return Err(block("the checksum of its text is wrong"));
    }
    if padding.iter().any(|&byte| byte != 0) {
        return Err(block("its padding is not 0"));
    }
    KeysObject::parse(text)
}

/// Minimum length of a block with this length of text.
fn least(text_len: usize) -> usize {
    (text_len + BLOCK_HEAD_LEN).next_multiple_of(BLOCK_UNIT)
}

fn block(reason: &'static str) -> KeysObjectError {
    KeysObjectError::Block { reason }
}

#[allow(clippy::cast_possible_truncation, reason = "the upper half of a CRC-32 is zero")]
fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
