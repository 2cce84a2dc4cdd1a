//! Streams of the shape that xtrabackup 8.0, 8.4 and 9.x and mariadb-backup write, cut at every chunk
//! boundary: only a whole stream counts as complete.

use crate::common::wrapped::wrapped;
use bytes::Bytes;
use xb_pipeline::{EndRule, InspectOptions, InspectReport, Inspector};
use xb_reader::ChunkWriter;

/// A producer: its version, and the tablespace files of a full and of an incremental backup.
struct Shape {
    info: &'static str,
    command: &'static str,
    /// Tablespaces outside the schemas.
    system: &'static [&'static str],
    /// Other files before and after the info file.
    last: [&'static [&'static str]; 2],
    prefix: &'static str,
}

const OF_MYSQL: &[&str] = &["ibdata1", "mysql.ibd", "undo_001", "undo_002"];

const SHAPES: [Shape; 6] = [
    Shape {
        info: "tool_name = xtrabackup\ntool_version = 8.0.35-31\n",
        command: "--backup",
        system: OF_MYSQL,
        last: [&["xtrabackup_binlog_info", "ib_buffer_pool"], &["xtrabackup_tablespaces"]],
        prefix: "xtrabackup_",
    },
    Shape {
        info: "tool_name = xtrabackup\ntool_version = 8.4.0-7\n",
        command: "--backup --transition-key=... --stream=xbstream",
        system: OF_MYSQL,
        last: [&["xtrabackup_keys"], &["xtrabackup_tablespaces"]],
        prefix: "xtrabackup_",
    },
    // The file with the keys comes last.
    Shape {
        info: "tool_name = xtrabackup\ntool_version = 9.1.0-1\n",
        command: "--backup --generate-transition-key",
        system: OF_MYSQL,
        last: [&[], &["xtrabackup_tablespaces", "xtrabackup_keys"]],
        prefix: "xtrabackup_",
    },
    // Incremental.
    Shape {
        info: "tool_name = xtrabackup\ntool_version = 9.1.0-1\n",
        command: "--backup --incremental-lsn=5",
        system: OF_MYSQL,
        last: [&["12.ren", "13.del"], &["xtrabackup_tablespaces"]],
        prefix: "xtrabackup_",
    },
    Shape {
        info: "tool_name = mariadb-backup\ntool_version = 10.11.19-MariaDB\n",
        command: "--backup",
        system: &["ibdata1", "ibdata2", "undo001"],
        last: [&["aria_log_control", "aria_log.00000001"], &[]],
        prefix: "xtrabackup_",
    },
    Shape {
        info: "tool_name = mariadb-backup\ntool_version = 11.8.6-MariaDB\n",
        command: "--backup",
        system: &["ibdata1", "ibdata2", "undo001"],
        last: [&["aria_log_control", "aria_log.00000001"], &[]],
        prefix: "mariadb_backup_",
    },
];

/// Every combination of compression and encryption.
const WRAPPINGS: [&str; 8] =
    ["", ".lz4", ".zst", ".qp", ".xbcrypt", ".lz4.xbcrypt", ".zst.xbcrypt", ".qp.xbcrypt"];

/// The files of a stream, in order, with their content.
fn files(shape: &Shape, wrapping: &str) -> Vec<(String, Vec<u8>)> {
    let info = format!("uuid = 1\n{}tool_command = {}\n", shape.info, shape.command);
    let (kind, halves) = match shape.command.contains("--incremental") {
        true => ("incremental", &["meta", "delta"][..]),
        false => ("full-backuped", &[][..]),
    };
    let mut names: Vec<String> = Vec::new();
    for tablespace in shape.system.iter().chain(&["d/t.ibd", "d/new.ibd.new"]) {
        names.extend(halves.iter().map(|half| format!("{tablespace}.{half}")));
        names.extend(halves.is_empty().then(|| (*tablespace).to_owned()));
    }
    names.extend(shape.last[0].iter().chain(&["d/t.sdi"]).map(|name| (*name).to_owned()));
    let content = |name: &String| match name.starts_with("aria_log.") {
        true => "a page".repeat(3000),
        false => format!("content of {name}"),
    };
    let mut files: Vec<(String, String)> =
        names.into_iter().map(|name| (name.clone(), content(&name))).collect();
    let settings = match shape.system.contains(&"ibdata2") {
        true => {
            "[mysqld]\ninnodb_data_file_path=ibdata1:12M;ibdata2:12M\ninnodb_undo_tablespaces=1\n"
        }
        false => "[mysqld]\n",
    };
    files.push(("backup-my.cnf".to_owned(), settings.to_owned()));
    files.push((format!("{}logfile", shape.prefix), "redo".to_owned()));
    files.push((
        format!("{}checkpoints", shape.prefix),
        format!("backup_type = {kind}\nfrom_lsn = 0\nto_lsn = 5\n"),
    ));
    files.push((format!("{}info", shape.prefix), info));
    files.extend(shape.last[1].iter().map(|name| ((*name).to_owned(), "{}".to_owned())));
    let wrap = |(name, content): (String, String)| {
        // No version compresses or encrypts this one.
        let wrapping = if name.ends_with("_checkpoints") { "" } else { wrapping };
        (format!("{name}{wrapping}"), wrapped(wrapping, content.as_bytes()))
    };
    files.into_iter().map(wrap).collect()
}

/// Writes a stream in chunks of 20 bytes; returns it with the ends of its chunks.
fn stream(files: &[(String, Vec<u8>)]) -> (Vec<u8>, Vec<usize>) {
    cut(files, 20)
}

/// Writes a stream in chunks of `size` bytes; returns it with the ends of its chunks.
fn cut(files: &[(String, Vec<u8>)], size: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    for (name, content) in files {
        for (n, piece) in content.chunks(size).enumerate() {
            let mut writer = ChunkWriter::new(Vec::new());
            writer.payload(name, (n * size) as u64, piece).unwrap();
            all.extend(writer.finish().unwrap());
            ends.push(all.len());
        }
        let mut writer = ChunkWriter::new(Vec::new());
        writer.end(name).unwrap();
        all.extend(writer.finish().unwrap());
        ends.push(all.len());
    }
    (all, ends)
}

fn inspect(stream: &[u8]) -> Result<InspectReport, String> {
    let mut inspector = Inspector::new(InspectOptions {
        rule: EndRule::KnownProducer,
        decoding: false,
        cipher: None,
        pages: false,
        memory: 16 << 20,
    });
    inspector.feed(&Bytes::copy_from_slice(stream)).map_err(|error| error.to_string())?;
    inspector.finish().map_err(|error| error.to_string())
}

#[test]
fn only_a_whole_stream_is_complete() {
    for shape in &SHAPES {
        for wrapping in WRAPPINGS {
            // The content of an encrypted info file behind the last known file is unknown.
            let keys_last = shape.last[1].last() == Some(&"xtrabackup_keys");
            if keys_last && wrapping.ends_with(".xbcrypt") {
                continue;
            }
            let (all, ends) = stream(&files(shape, wrapping));
            let what = format!("{} {wrapping}", shape.info);
            for end in &ends {
                let outcome = inspect(&all[..*end]);
                assert_eq!(
                    outcome.is_ok(),
                    *end == all.len(),
                    "{what} cut at {end} of {}: {outcome:?}",
                    all.len()
                );
            }
        }
    }
}

/// The end of a stream does not show what is left out before it.
#[test]
fn a_stream_without_a_file_that_every_backup_has_is_not_complete() {
    let others = ["d/t.ibd", "d/new.ibd.new", "d/t.sdi", "12.ren", "13.del", "ib_buffer_pool"];
    // Without the kind of the backup, nothing is known.
    let other = |name: &str| {
        others.contains(&name) || name.ends_with("binlog_info") || name.ends_with("checkpoints")
    };
    for shape in &SHAPES {
        for wrapping in ["", ".zst"] {
            let all = files(shape, wrapping);
            for left_out in 0..all.len() {
                let mut files = all.clone();
                let (name, _) = files.remove(left_out);
                let name = name.strip_suffix(wrapping).unwrap_or(&name);
                let outcome = inspect(&stream(&files).0);
                assert_eq!(outcome.is_ok(), other(name), "{} {name}: {outcome:?}", shape.info);
            }
        }
    }
}

/// However a redo log is cut into chunks, at most its head is kept, and none of a packed one.
#[test]
fn the_head_of_the_redo_log_is_kept() {
    let log: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    let last = files(&SHAPES[4], "").into_iter().find(|(name, _)| name.ends_with("_info")).unwrap();
    for (name, len) in
        [("ib_logfile0", log.len()), ("xtrabackup_logfile", 700), ("ib_logfile0.qp", 9)]
    {
        for chunk in [500, 13_000, 50_000] {
            let all = cut(&[(name.to_owned(), log[..len].to_vec()), last.clone()], chunk).0;
            let found = inspect(&all).unwrap();
            let kept = found.scanned.described.get(name).map(Vec::as_slice);
            let expected = &log[..len.min(12 << 10)];
            assert_eq!(kept, Some(expected).filter(|_| !name.ends_with(".qp")), "{name} {chunk}");
        }
    }
}

#[test]
fn the_small_files_are_read_through_compression() {
    for wrapping in ["", ".lz4", ".zst", ".qp"] {
        let found = inspect(&stream(&files(&SHAPES[0], wrapping)).0).unwrap();
        let described = &found.scanned.described;
        assert!(described.contains_key("xtrabackup_info"), "{wrapping}: {described:?}");
        assert!(described.contains_key("xtrabackup_checkpoints"), "{wrapping}: {described:?}");
    }
}
