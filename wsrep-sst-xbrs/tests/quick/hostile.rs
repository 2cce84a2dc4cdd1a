//! A donor that sends anything at all: the joiner refuses it, its data stays, and nothing is written elsewhere. The donor is a
//! program of its own here, because ours checks what it sends.

use crate::harness::{Ended, STATE, Scene};
use serde_json::json;
use xb_frame::{Codec, StreamHeader, StreamId, StreamWriter as Frames, crc32c};
use xb_testkit::stream::StreamWriter;
use xb_wire::{Announcement, Donor, Security, TransferError, connect};

type Stream = StreamWriter<Vec<u8>>;

/// Files that the joiner cannot do without, then `more`, and the file that comes last.
fn backup(more: impl FnOnce(&mut Stream)) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    out.file("ibdata1", &[7; 70_000], 1 << 14).file("mysql/user.frm", b"new", 99);
    out.file("xtrabackup_checkpoints", b"backup_type = full-backuped\nto_lsn = 1\n", 99);
    out.file("xtrabackup_galera_info", format!("{STATE} 7\n").as_bytes(), 99);
    more(&mut out);
    out.info();
    out.finish()
}

/// A backup whose files are all as they should be, except one.
fn instead(name: &str, content: &[u8]) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let checkpoints = b"backup_type = full-backuped\nto_lsn = 1\n";
    let galera = format!("{STATE} 7\n");
    for (own, bytes) in [
        ("ibdata1", &b"new"[..]),
        ("mysql/user.frm", b"new"),
        ("xtrabackup_checkpoints", checkpoints),
        ("xtrabackup_galera_info", galera.as_bytes()),
    ] {
        out.file(own, if own == name { content } else { bytes }, 99);
    }
    out.info();
    out.finish()
}

/// The stream as a donor packs it, in frames of these bytes.
fn packed(plain: &[u8], frame: usize) -> Vec<u8> {
    let header = StreamHeader::new(StreamId([7; 16]));
    let mut frames = Frames::new(&header);
    let mut stream = header.encode().to_vec();
    for piece in plain.chunks(frame) {
        let len = u32::try_from(piece.len()).unwrap();
        stream.extend(frames.data_frame(0, Codec::None, len, len, crc32c(piece)).unwrap());
        stream.extend(piece);
        if frames.index_due() {
            stream.extend(frames.index_frame().unwrap_or_default());
        }
    }
    stream.extend(frames.finish().bytes);
    stream
}

/// Sends a stream to a joiner; returns how that ended for both.
fn send(scene: &Scene, stream: Vec<u8>) -> (Ended, Result<(), TransferError>) {
    let mut joiner = scene.joiner().start();
    let announcement = Announcement::parse(&joiner.ready(), None).unwrap();
    let offer = json!({
        "format": 1, "state": STATE, "family": "mariadb", "program": "a stranger's",
        "what": {"full": {"bytes": 100_000, "disk": 100_000, "compress": "none"}},
    });
    let donor = Donor { security: Security::OneTime, ..Donor::default() };
    let mut outgoing = connect(&announcement, offer.to_string().as_bytes(), donor).unwrap();
    // The joiner may refuse it before all has arrived.
    let sent = outgoing.send(stream.into()).and_then(|()| outgoing.finish());
    (joiner.wait(), sent)
}

#[track_caller]
fn is_refused(scene: &Scene, kind: &str, stream: Vec<u8>) {
    let (joiner, sent) = send(scene, stream);
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{kind}: {}", joiner.log);
    assert!(sent.is_err(), "{kind}: the donor was told that all is well");
    scene.assert_untouched();
}

/// Paths below the scene, except those of the joiner.
fn outside(scene: &Scene) -> Vec<String> {
    let names = crate::harness::tree(scene.scratch.path()).into_iter().map(|(name, _)| name);
    names.filter(|name| !name.starts_with("joiner/") && !name.ends_with(".log")).collect()
}

#[test]
fn the_stream_of_these_tests_is_accepted() {
    let scene = Scene::new();
    let (joiner, sent) = send(&scene, packed(&backup(|_| {}), 1 << 16));
    sent.unwrap();
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    let scene = Scene::new();
    let before = outside(&scene);
    let absolute = scene.scratch.join("escaped").display().to_string();
    let (long, deep) = ("n".repeat(300), "d/".repeat(3000) + "f");
    let names = [
        "../escaped",
        "shop/../../escaped",
        "shop/..",
        "..",
        ".",
        "",
        "/",
        "//",
        "/escaped",
        &absolute,
        "shop//x.ibd",
        "shop/./x.ibd",
        "shop/",
        "shop/x\0y.ibd",
        "\0",
        &long,
        &deep,
        "ibdata1/x",
        "mysql/user.frm/x",
        "mysql",
        "#sql-xb/.new/../../escaped",
    ];
    for name in names {
        let kind = format!("a file {:.40}", name.escape_debug().to_string());
        is_refused(
            &scene,
            &kind,
            packed(
                &backup(|out| {
                    out.file(name, b"evil", 9);
                }),
                999,
            ),
        );
    }
    // Names that come later.
    for name in ["../escaped", &absolute, "shop/../../escaped", "", "x\0", &long] {
        let kind = format!("the new name {:.40}", name.escape_debug().to_string());
        let stream = backup(|out| {
            out.file("shop/x.ibd", b"x", 9).rename("shop/x.ibd", name);
        });
        is_refused(&scene, &kind, packed(&stream, 999));
        let stream = backup(|out| {
            out.remove(name);
        });
        is_refused(&scene, &format!("removal of {kind}"), packed(&stream, 999));
    }
    assert_eq!(outside(&scene), before);
}

#[test]
fn chunks_that_do_not_add_up_are_refused() {
    let scene = Scene::new();
    let name = "shop/x.ibd";
    type Kind = (&'static str, fn(&mut Stream, &str));
    let kinds: [Kind; 21] = [
        ("a wrong checksum", |out, name| {
            out.payload_with_crc(name, 0, b"abc", 7).end(name);
        }),
        ("a gap", |out, name| {
            out.payload(name, 5, b"abc").end(name);
        }),
        ("an overlap", |out, name| {
            out.payload(name, 0, b"abc").payload(name, 1, b"abc").end(name);
        }),
        ("bytes twice", |out, name| {
            out.payload(name, 0, b"abc").payload(name, 0, b"abc").end(name);
        }),
        ("the last offset", |out, name| {
            out.payload(name, u64::MAX, b"abc").end(name);
        }),
        ("half of all offsets", |out, name| {
            out.payload(name, u64::MAX / 2, b"abc").end(name);
        }),
        ("no end", |out, name| {
            out.payload(name, 0, b"abc");
        }),
        ("two ends", |out, name| {
            out.payload(name, 0, b"abc").end(name).end(name);
        }),
        ("bytes after the end", |out, name| {
            out.file(name, b"abc", 9).payload(name, 3, b"d");
        }),
        ("a file twice", |out, name| {
            out.file(name, b"abc", 9).file(name, b"abc", 9);
        }),
        ("an unknown chunk", |out, name| {
            out.raw(b"XBSTCK01\0X\x01\0\0\0a").file(name, b"", 9);
        }),
        ("another magic", |out, name| {
            out.raw(b"XBSTCK02\0P\x01\0\0\0a").file(name, b"", 9);
        }),
        ("a path of 4 GiB", |out, _| {
            out.raw(b"XBSTCK01\0P\xff\xff\xff\xffabc");
        }),
        ("a payload of 16 EiB", |out, _| {
            out.raw(
                b"XBSTCK01\0P\x01\0\0\0a\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0",
            );
        }),
        ("a map beyond its payload", |out, name| {
            out.sparse(name, 0, &[(0, 100)], b"abc").end(name);
        }),
        ("a map short of its payload", |out, name| {
            out.sparse(name, 0, &[(0, 1)], b"abc").end(name);
        }),
        ("a map of 4 Gi entries", |out, _| {
            out.raw(b"XBSTCK01\0S\x01\0\0\0a\xff\xff\xff\xff");
        }),
        ("blocks that nobody has promised", |out, name| {
            out.flags(1).sparse(name, 0, &[(16384, 4)], b"page").flags(0).end(name);
        }),
        ("a new name of nothing", |out, name| {
            out.rename(name, "shop/y.ibd");
        }),
        ("a file in place of a directory", |out, _| {
            out.file("a/b", b"abc", 9).file("a", b"abc", 9);
        }),
        ("a directory in place of a file", |out, _| {
            out.file("a", b"abc", 9).file("a/b", b"abc", 9);
        }),
    ];
    for (kind, change) in kinds {
        is_refused(&scene, kind, packed(&backup(|out| change(out, name)), 1 << 16));
    }
}

#[test]
fn backups_that_are_not_whole_are_refused() {
    let scene = Scene::new();
    let whole = backup(|_| {});
    let frames = packed(&whole, 1 << 14);
    let mut kinds: Vec<(String, Vec<u8>)> = vec![
        ("nothing".to_owned(), Vec::new()),
        ("an empty stream".to_owned(), packed(b"", 1)),
        ("no frames".to_owned(), whole.clone()),
        ("no chunks".to_owned(), packed(&[b'?'; 100_000], 1 << 14)),
        ("zeros".to_owned(), packed(&[0; 100_000], 1 << 14)),
        ("a stream in a stream".to_owned(), packed(&frames, 1 << 14)),
        ("a second stream".to_owned(), [frames.clone(), frames.clone()].concat()),
        ("bytes after the end".to_owned(), [&frames[..], b"more"].concat()),
    ];
    for part in 1..8 {
        let at = |bytes: &[u8]| bytes.len() * part / 8;
        kinds.push((format!("{part}/8 of the frames"), frames[..at(&frames)].to_vec()));
        kinds.push((format!("{part}/8 of the chunks"), packed(&whole[..at(&whole)], 1 << 14)));
        let mut flipped = frames.clone();
        let place = at(&frames);
        flipped[place] ^= 1;
        kinds.push((format!("a flipped bit at {part}/8"), flipped));
    }
    for (name, content) in [
        ("xtrabackup_checkpoints", &b""[..]),
        ("xtrabackup_galera_info", b""),
        ("xtrabackup_galera_info", b"nonsense"),
        ("xtrabackup_galera_info", b"00000000-0000-0000-0000-000000000000:5 7\n"),
        ("xtrabackup_galera_info", b"9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:-1 7\n"),
        ("xtrabackup_galera_info", b"9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:41 7\n"),
        ("xtrabackup_galera_info", b"9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a12:42 7\n"),
    ] {
        kinds.push((
            format!("{name} with {}", content.escape_ascii()),
            packed(&instead(name, content), 99),
        ));
    }
    for name in ["shop/x.ibd.qp", "shop/x.ibd.zst", "shop/x.ibd.lz4", "xtrabackup_keys"] {
        let stream = backup(|out| {
            out.file(name, b"nothing that this codec knows", 9);
        });
        kinds.push((format!("a file {name}"), packed(&stream, 1 << 14)));
    }
    for (kind, stream) in kinds {
        is_refused(&scene, &kind, stream);
    }
}
