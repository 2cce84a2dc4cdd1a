//! Questions of a donor about the joiner's old data, and the stream that it then sends.

use xb_reader::{ChunkReader, ChunkWriter, Dialect, Item, Limits, MapEntry};
use xb_sst::parsers::{complete, is_question};

/// A question with its length in front, a reply of 8 bytes, and a stream: no panic, and a stream that fits is one without
/// chunks that lack blocks, however it is cut.
pub(crate) fn delta(data: &[u8]) {
    let _ = is_question(data);
    let Some((len, rest)) = data.split_first_chunk() else { return };
    let Some((question, rest)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else {
        return;
    };
    let Some((reply, stream)) = rest.split_at_checked(8) else { return };
    let whole = complete(question, reply, stream, usize::MAX);
    assert_eq!(whole, complete(question, reply, stream, 7));
    let Some(whole) = whole else { return };
    let mut reader = ChunkReader::new(&whole[..], Dialect::Auto, Limits::default());
    while let Ok(Some(item)) = reader.next() {
        if let Item::Chunk(head, _) = item {
            let is_sparse = matches!(head.kind, xb_reader::ChunkKind::Sparse { .. });
            assert!(!is_sparse || head.flags & xb_reader::FLAG_IGNORABLE == 0);
        }
    }
}

pub(crate) fn delta_seeds() -> Vec<Vec<u8>> {
    let name = b"t.ibd";
    let mut question =
        [&0_u64.to_le_bytes()[..], &40_000_u32.to_le_bytes(), &5_u16.to_le_bytes(), name].concat();
    question.extend([9; 48]);
    let chunk = |map: &[MapEntry], bytes: &[u8]| {
        let mut chunk = Vec::new();
        let written = ChunkWriter::new(&mut chunk).sparse(name, 0, map, bytes);
        if let (Ok(()), Some(flags)) = (written, chunk.get_mut(8)) {
            *flags = xb_reader::FLAG_IGNORABLE;
        }
        let _ = ChunkWriter::new(&mut chunk).end(name);
        chunk
    };
    let seed = |reply: u64, stream: Vec<u8>| {
        let len = u16::try_from(question.len()).unwrap_or(0).to_le_bytes();
        [&len[..], &question, &reply.to_le_bytes(), &stream].concat()
    };
    vec![
        question.clone(),
        seed(7, chunk(&[MapEntry { skip: 40_000, len: 0 }], b"")),
        seed(
            5,
            chunk(
                &[MapEntry { skip: 16384, len: 16384 }, MapEntry { skip: 7232, len: 0 }],
                &[3; 16384],
            ),
        ),
        seed(1, chunk(&[MapEntry { skip: 16384, len: 23616 }], &[3; 23616])),
    ]
}
