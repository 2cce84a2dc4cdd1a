//! Members from other programs: the expected output, and those that must be refused.

use crate::common::{Vector, decode, encode, error, sha256, zstd};
use xb_compressor::{CodecError, ErrorLocation, FileCodec, Format, Member};
use xb_testkit::vectors;

#[test]
fn good_ones_give_their_plain_bytes() {
    for vector in Vector::good() {
        let outcome = decode(vector.member(), &vector.bytes);
        let (size, hash) = vector.plain.unwrap();
        let totals = outcome.end.unwrap_or_else(|error| panic!("{}: {error}", vector.file));
        assert_eq!((totals.plain, totals.stored), (size, vector.bytes.len() as u64));
        assert_eq!(sha256(&outcome.plain), hash, "{}", vector.file);
    }
}

/// Checks the kind of error, and that nothing after the fault is accepted.
#[test]
fn bad_ones_are_refused() {
    let place = |format, position| ErrorLocation { format, position };
    let expected = |file: &str| match file {
        "bad-bad-header.qp" => CodecError::Magic {
            place: place(Format::Qpress, 0),
            part: "a qpress archive",
            got: b"qpress11".to_vec(),
        },
        "bad-adler-wrong.qp" => CodecError::Checksum {
            place: place(Format::Qpress, 47),
            part: "the packet",
            expected: 0xa8be_a484,
            got: 0xa8be_a485,
        },
        "bad-truncated.qp" => {
            CodecError::Cut { place: place(Format::Qpress, 143_141), part: "the block sequence" }
        }
        "bad-header-checksum-wrong.lz4" => CodecError::Checksum {
            place: place(Format::Lz4, 4),
            part: "the frame header",
            expected: 0x7e,
            got: 0x7f,
        },
        "bad-content-checksum-wrong.lz4" => CodecError::Checksum {
            place: place(Format::Lz4, 160_610),
            part: "the content",
            expected: 0xefc6_9ceb,
            got: 0xeec6_9ceb,
        },
        "bad-truncated.lz4" => {
            CodecError::Cut { place: place(Format::Lz4, 160_610), part: "a content checksum" }
        }
        "bad-checksum-wrong.zst" | "bad-flip.zst" => CodecError::Damaged {
            place: place(Format::Zstd, 0),
            what: "the content does not match its checksum",
        },
        "bad-truncated.zst" => {
            CodecError::Cut { place: place(Format::Zstd, 89_094), part: "a frame" }
        }
        other => panic!("no expectation for {other}"),
    };
    let whole = |file: &str| {
        let of = format!("t.csv-ccs65536.{}", file.rsplit('.').next().unwrap());
        let good = Vector::good().find(|good| good.file == of || good.file == "t.csv.zst").unwrap();
        decode(good.member(), &good.bytes).plain
    };
    let bad: Vec<_> = Vector::all().into_iter().filter(|vector| vector.plain.is_none()).collect();
    assert_eq!(bad.len(), 9);
    for vector in bad {
        let outcome = decode(vector.member(), &vector.bytes);
        assert_eq!(outcome.end, Err(expected(&vector.file)), "{}", vector.file);
        // A block with its own checksum is not output at all.
        let most = match vector.file.as_str() {
            "bad-bad-header.qp" | "bad-adler-wrong.qp" | "bad-header-checksum-wrong.lz4" => 0,
            _ => 300_000,
        };
        assert!(outcome.plain.len() <= most);
        assert!(whole(&vector.file).starts_with(&outcome.plain), "{}", vector.file);
    }
}

/// The whole collection, if it is present beside the checkout.
#[test]
fn the_collection() {
    for vector in vectors::collection("compress") {
        let member = Member::of_name(vector.name.as_bytes()).unwrap().1;
        let outcome = decode(member, &vector.bytes());
        match &vector.plain {
            None => assert!(outcome.end.is_err(), "{}", vector.name),
            Some(files) => {
                let (_, size, hash) = &files[0];
                assert_eq!(outcome.end.unwrap().plain, *size, "{}", vector.name);
                assert_eq!(sha256(&outcome.plain), *hash, "{}", vector.name);
            }
        }
    }
}

/// Where the format leaves no choice, our bytes are the same as those of the stock tools.
#[test]
fn empty_members_are_written_as_stock_does() {
    assert_eq!(encode(FileCodec::Lz4, b""), vectors::read("compress/zero-byte-write.lz4"));
    assert_eq!(encode(zstd(1), b""), vectors::read("compress/zero-byte-write.zst"));
}

/// A file that is never written to: in two of the formats it has no frame at all.
#[test]
fn a_member_of_no_bytes() {
    for member in [Member::Lz4, Member::Zstd] {
        assert_eq!(decode(member, b"").end.unwrap().plain, 0);
    }
    assert_eq!(
        error(Member::Qpress, b"").to_string(),
        "qpress file at byte 0: the input ends inside the archive header"
    );
}
