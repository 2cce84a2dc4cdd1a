//! Shared by the tests: vectors, and members read and written in pieces.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)] // each test crate uses its part of it

use serde_json::Value;
use sha2::{Digest, Sha256};
use xb_compressor::{
    CodecError, FileCodec, FileCodecLimits, FileDecoder, FileEncoder, FileTotals, Member, State,
    ZstdLevel,
};
use xb_testkit::vectors;

/// One line of `fixtures/compress/vectors.jsonl`.
pub struct Vector {
    pub file: String,
    pub bytes: Vec<u8>,
    /// Size and SHA-256; `None` if the vector must be refused.
    pub plain: Option<(u64, String)>,
}

impl Vector {
    pub fn all() -> Vec<Self> {
        let list = String::from_utf8(vectors::read("compress/vectors.jsonl")).unwrap();
        let all: Vec<Self> =
            list.lines().map(|line| Self::new(&serde_json::from_str(line).unwrap())).collect();
        assert!(all.len() > 30, "vectors are missing");
        all
    }

    pub fn good() -> impl Iterator<Item = Self> {
        Self::all().into_iter().filter(|vector| vector.plain.is_some())
    }

    fn new(line: &Value) -> Self {
        let file = line["file"].as_str().unwrap().to_owned();
        let stored = |name: &Value| vectors::read(&format!("compress/{}", name.as_str().unwrap()));
        let index = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let bytes = if line["of"].is_null() {
            stored(&line["file"])
        } else {
            let mut bytes = stored(&line["of"]);
            if line["cut"].is_null() {
                bytes[index(&line["at"])] = u8::try_from(index(&line["byte"])).unwrap();
            } else {
                bytes.truncate(index(&line["cut"]));
            }
            assert_eq!(sha256(&bytes), line["sha256"].as_str().unwrap(), "{file}");
            bytes
        };
        let plain = line["plain"].as_object().map(|files| {
            assert_eq!(files.len(), 1);
            let facts = files.values().next().unwrap();
            (facts["size"].as_u64().unwrap(), facts["sha256"].as_str().unwrap().to_owned())
        });
        Self { file, bytes, plain }
    }

    pub fn member(&self) -> Member {
        Member::of_name(self.file.as_bytes()).unwrap().1
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The output of a decoder, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub plain: Vec<u8>,
    pub end: Result<FileTotals, CodecError>,
}

/// Decodes with input pieces and output buffers of the given lengths, each list in turn.
pub fn decode_with(
    decoder: FileDecoder,
    mut member: &[u8],
    inputs: &[usize],
    outputs: &[usize],
) -> Outcome {
    let mut plain = Vec::new();
    let end = drive(decoder, &mut member, inputs, outputs, &mut plain);
    Outcome { plain, end }
}

fn drive(
    mut decoder: FileDecoder,
    member: &mut &[u8],
    inputs: &[usize],
    outputs: &[usize],
    plain: &mut Vec<u8>,
) -> Result<FileTotals, CodecError> {
    let mut outputs = outputs.iter().cycle();
    let mut inputs = inputs.iter().cycle();
    let mut buffer = vec![0; *outputs.clone().take(8).max().unwrap()];
    loop {
        let (mut piece, rest) = member.split_at((*inputs.next().unwrap()).min(member.len()));
        let last = rest.is_empty();
        *member = rest;
        loop {
            let out = &mut buffer[..*outputs.next().unwrap()];
            let progress = decoder.decode(&mut piece, out)?;
            plain.extend_from_slice(&out[..progress.written]);
            match progress.state {
                State::OutputFull => assert_eq!(progress.written, out.len()),
                State::NeedsInput | State::Finished => break,
                State::NeedsMemory(_) => panic!("only metered decoders ask"),
            }
        }
        assert!(piece.is_empty(), "it says that it has taken all");
        if last {
            return decoder.finish();
        }
    }
}

/// Decodes in one piece.
pub fn decode(member: Member, stored: &[u8]) -> Outcome {
    decode_with(FileDecoder::new(member).unwrap(), stored, &[usize::MAX], &[1 << 20])
}

pub fn error(member: Member, stored: &[u8]) -> CodecError {
    decode(member, stored).end.expect_err("accepted as complete")
}

/// A decoder with small limits, so that small tests reach them.
pub fn limited(member: Member, max_window: u64, max_qpress_block: u32) -> FileDecoder {
    let mut limits = FileCodecLimits::default();
    (limits.max_window, limits.max_qpress_block) = (max_window, max_qpress_block);
    FileDecoder::with_limits(member, limits).unwrap()
}

/// Encodes with input pieces and output buffers of the given lengths, each list in turn.
pub fn encode_with(
    codec: FileCodec,
    mut plain: &[u8],
    inputs: &[usize],
    outputs: &[usize],
) -> (Vec<u8>, FileTotals) {
    let mut encoder = FileEncoder::new(codec).unwrap();
    let mut stored = Vec::new();
    let mut outputs = outputs.iter().cycle();
    let mut inputs = inputs.iter().cycle();
    let mut buffer = vec![0; *outputs.clone().take(8).max().unwrap()];
    while !plain.is_empty() {
        let (mut piece, rest) = plain.split_at((*inputs.next().unwrap()).min(plain.len()));
        plain = rest;
        loop {
            let out = &mut buffer[..*outputs.next().unwrap()];
            let progress = encoder.encode(&mut piece, out).unwrap();
            stored.extend_from_slice(&out[..progress.written]);
            match progress.state {
                State::OutputFull => assert_eq!(progress.written, out.len()),
                State::NeedsInput => break,
                State::Finished | State::NeedsMemory(_) => panic!("an encoder knows no end"),
            }
        }
        assert!(piece.is_empty());
    }
    let (tail, totals) = encoder.finish().unwrap();
    stored.extend(tail);
    (stored, totals)
}

pub fn encode(codec: FileCodec, plain: &[u8]) -> Vec<u8> {
    encode_with(codec, plain, &[usize::MAX], &[1 << 20]).0
}

pub fn zstd(level: u8) -> FileCodec {
    FileCodec::Zstd(ZstdLevel::new(level).unwrap())
}
