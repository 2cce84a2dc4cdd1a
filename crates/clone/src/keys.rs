//! The keys of encrypted tables, which a donor sends in clear.
//!
//! A server has them wrapped by the master key of its keyring, of which a restore knows nothing. It also accepts
//! keys that are wrapped by the constant with which InnoDB creates its first files, and wraps them anew by its
//! own master key when it starts.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use crc_fast::{CrcAlgorithm, checksum};

/// InnoDB's constant: 32 bytes, the rest of them zeros.
const CONSTANT: &[u8; 16] = b"DefaultMasterKey";
/// Beginning of a key, in the third version of its format; the earlier ones are those of MySQL 5.7.
const MARK: &[u8; 3] = b"lCC";
const OLD_MARKS: [&[u8; 3]; 2] = [b"lCA", b"lCB"];
/// Offsets from the mark: number of the master key, key and IV, their CRC-32C.
const NUMBER: std::ops::Range<usize> = 3..7;
const KEY: std::ops::Range<usize> = 43..107;
const SUM: std::ops::Range<usize> = 107..111;
/// Bytes of all of it.
pub(crate) const LEN: usize = SUM.end;
/// The block that has the key, in the head of a file of the redo log. What looks like a damaged key in another one is a
/// position in the log.
const REDO_BLOCK: std::ops::Range<usize> = 1024..1536;

/// Content of the place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyContent {
    /// No key.
    Nothing,
    /// A key in clear.
    Clear,
    /// A key that is wrapped by the constant.
    Wrapped,
    /// Something that begins as a key, but is none that is known.
    Unknown,
}

/// Says what these bytes begin with.
pub(crate) fn find(bytes: &[u8]) -> KeyContent {
    let mark = bytes.get(..MARK.len()).unwrap_or_default();
    if OLD_MARKS.iter().any(|old| mark == *old) {
        return KeyContent::Unknown;
    }
    if mark != MARK {
        return KeyContent::Nothing;
    }
    let (Some(key), Some(sum)) = (bytes.get(KEY), bytes.get(SUM)) else {
        return KeyContent::Unknown;
    };
    let is_key = |key: &[u8]| crc32c(key).to_be_bytes() == *sum;
    if is_key(key) {
        return KeyContent::Clear;
    }
    let mut plain = key.to_vec();
    let cipher = cipher();
    for block in plain.chunks_exact_mut(16) {
        if let Ok(block) = <&mut Array<u8, _>>::try_from(block) {
            cipher.decrypt_block(block);
        }
    }
    if is_key(&plain) { KeyContent::Wrapped } else { KeyContent::Unknown }
}

/// A key and IV as a donor has them in a first page, in clear.
pub(crate) fn clear(key: &[u8]) -> Vec<u8> {
    let mut bytes = MARK.to_vec();
    // The number of no master key, and a UUID of none.
    bytes.extend([0; 4]);
    bytes.extend([b'0'; 36]);
    bytes.extend(key);
    bytes.extend(crc32c(key).to_be_bytes());
    bytes
}

/// Wraps a key in clear, with which these bytes begin.
pub(crate) fn wrap(bytes: &mut [u8]) {
    if let Some(number) = bytes.get_mut(NUMBER) {
        number.fill(0);
    }
    let cipher = cipher();
    for block in bytes.get_mut(KEY).unwrap_or_default().chunks_exact_mut(16) {
        if let Ok(block) = <&mut Array<u8, _>>::try_from(block) {
            cipher.encrypt_block(block);
        }
    }
}

/// Offset of a key in the head of the redo log; `None` if there is none.
pub(crate) fn offset_in_redo(head: &[u8]) -> Option<usize> {
    head.windows(LEN).position(|bytes| find(bytes) != KeyContent::Nothing)
}

/// Wraps the key in the head of a file of the redo log. Returns whether there is one.
///
/// # Errors
/// If it has an unknown form.
pub(crate) fn wrap_in_redo(head: &mut [u8]) -> Result<bool, ()> {
    let (mut has_key, mut at) = (false, 0);
    while let Some(bytes) = head.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let content = find(bytes);
        match content {
            KeyContent::Clear => wrap(bytes),
            KeyContent::Unknown if REDO_BLOCK.contains(&at) => return Err(()),
            KeyContent::Wrapped | KeyContent::Unknown | KeyContent::Nothing => {}
        }
        let is_key = matches!(content, KeyContent::Clear | KeyContent::Wrapped);
        has_key |= is_key;
        at += if is_key { LEN } else { 1 };
    }
    Ok(has_key)
}

/// Returns whether the head of a file of the redo log has a key in clear, or one that is wrapped by the constant.
pub(crate) fn is_exposed_in_redo(head: &[u8]) -> bool {
    let is_exposed = |bytes: &[u8]| matches!(find(bytes), KeyContent::Clear | KeyContent::Wrapped);
    head.windows(LEN).any(is_exposed)
}

fn cipher() -> Aes256 {
    let mut key = [0; 32];
    key[..CONSTANT.len()].copy_from_slice(CONSTANT);
    Aes256::new(&key.into())
}

fn crc32c(bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = checksum(CrcAlgorithm::Crc32Iscsi, bytes).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key as a donor sends it.
    fn clear() -> Vec<u8> {
        let key: Vec<u8> = (0..64).collect();
        let mut bytes = MARK.to_vec();
        bytes.extend([0, 0, 0, 7]);
        bytes.extend([b'u'; 36]);
        bytes.extend(&key);
        bytes.extend(crc32c(&key).to_be_bytes());
        bytes
    }

    #[test]
    fn a_key_is_wrapped_by_the_constant() {
        let mut bytes = clear();
        assert_eq!(find(&bytes), KeyContent::Clear);
        wrap(&mut bytes);
        assert_eq!(find(&bytes), KeyContent::Wrapped);
        assert_eq!((&bytes[..7], &bytes[107..]), (&b"lCC\0\0\0\0"[..], &clear()[107..]));
        // As `openssl enc -aes-256-ecb -nopad -K 44656661756c744d61737465724b6579 (and 16 zero bytes)` has it.
        assert_eq!(bytes[43..47], OPENSSL, "{:x?}", &bytes[43..59]);
    }

    const OPENSSL: [u8; 4] = [0xb3, 0x1c, 0xef, 0xb4];

    #[test]
    fn a_wrong_key_differs_from_an_unknown_one() {
        let mut other = clear();
        other[50] ^= 1;
        for (bytes, found) in [
            (&other[..], KeyContent::Unknown),
            (&clear()[..110], KeyContent::Unknown),
            (b"lCA", KeyContent::Unknown),
            (b"lCB and more", KeyContent::Unknown),
            (b"lC", KeyContent::Nothing),
            (&[0; 200], KeyContent::Nothing),
            (&[], KeyContent::Nothing),
        ] {
            assert_eq!(find(bytes), found, "{bytes:?}");
        }
        let head = [&[0; 1040][..], &clear(), &[0; 100]].concat();
        assert_eq!(offset_in_redo(&head), Some(1040));
        assert_eq!(offset_in_redo(&head[..1040]), None);
    }

    #[test]
    fn a_position_in_the_log_is_no_damaged_key() {
        let with = |at: usize, bytes: &[u8]| {
            let mut head = vec![0; 2048];
            head[at..at + bytes.len()].copy_from_slice(bytes);
            head
        };
        assert_eq!(wrap_in_redo(&mut with(520, b"lCA")), Ok(false));
        assert_eq!(wrap_in_redo(&mut with(1072, b"lCA")), Err(()));
        let mut head = with(1072, &clear());
        head[8..11].copy_from_slice(b"lCC");
        assert!(is_exposed_in_redo(&head));
        assert_eq!(wrap_in_redo(&mut head), Ok(true));
        assert_eq!(find(&head[1072..]), KeyContent::Wrapped);
        assert!(is_exposed_in_redo(&head));
        // As the key of a server that is wrapped by its own master key.
        head[1072 + 50] ^= 1;
        assert!(!is_exposed_in_redo(&head));
    }
}
