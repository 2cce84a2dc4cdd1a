//! The head of a redo log, from a stream or from a server's directory.

use xb_pages::{REDO_HEAD, RedoHeader, RedoRecords, RedoStart};

/// Any bytes as the head of a redo log; with one more bit, their checksum is right.
pub(crate) fn head(data: &[u8]) {
    let Some((how, head)) = data.split_first() else { return };
    let mut head = head.to_vec();
    if how & 1 == 1
        && let Some((block, _)) = head.split_first_chunk_mut::<512>()
    {
        let sum = xb_frame::crc32c(&block[..508]);
        block[508..].copy_from_slice(&sum.to_be_bytes());
    }
    if let Some(header) = RedoHeader::of_head(&head) {
        assert!(head.len() >= 512 && header.creator.len() <= 32);
    }
    if let Some(start) = RedoStart::of_head(&head) {
        assert!(start.checkpoint > 0);
    }
    if let Some(records) = RedoRecords::of_head(&head) {
        let content = head.get(REDO_HEAD..).unwrap_or_default();
        let (mut whole, mut pieces) = (records.clone(), records);
        whole.feed(content);
        content.chunks(usize::from(*how) + 1).for_each(|piece| pieces.feed(piece));
        assert_eq!(whole.intact(), pieces.intact());
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let of = |format: u32| {
        let mut seed = vec![0; 1 + (12 << 10)];
        seed[0] = 1;
        seed[1..5].copy_from_slice(&format.to_be_bytes());
        seed[17..33].copy_from_slice(b"MariaDB 10.11.19");
        seed
    };
    vec![of(0x5068_7973), of(0x5048_5953), of(0xf09f_979d), of(6)]
}
