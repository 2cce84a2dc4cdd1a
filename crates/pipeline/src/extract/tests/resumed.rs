//! Files that an earlier run left unfinished, and names that the stream gives away twice.

use xb_reader::{RelPath, crc32};

use super::*;
use crate::{ExtractLog, FileDecoding, PartialFileState};

/// Keeps nothing.
struct NoLog;

impl ExtractLog for NoLog {
    fn proven(&self, _: &RelPath, _: u64, _: u64, _: u64, _: u32) {}
    fn overwritten(&self, _: u64) {}
    fn whole(&self, _: &RelPath, _: u64, _: &RelPath, _: u64, _: Option<u32>) {}
    fn taken_back(&self, _: &RelPath) {}
}

#[test]
fn nothing_beyond_the_proven_bytes_stays_where_the_stream_has_zeros() {
    let dir = TempDir::new().unwrap();
    let kept = TargetDir::kept_folder(dir.path());
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("3"), [&[1; 4096][..], &[9; 12_000]].concat()).unwrap();
    let target = TargetDir::open_kept(dir.path()).unwrap();
    let path = RelPath::new(b"shop/t.ibd").unwrap();
    let crc = crc32(&[1; 4096]);
    let begun = vec![PartialFileState { path, number: 3, upto: 4096, crc }];
    let decoding = FileDecoding { decompress: true, ..FileDecoding::default() };
    let options = options(2).with_decoding(decoding);
    let mut extractor =
        Extractor::resumable(target, options, Arc::new(NoLog), Some(begun)).unwrap();
    let rest = stream(|w| {
        w.payload("shop/t.ibd", 4096, &[0; 8192])?;
        w.end("shop/t.ibd")
    });
    extractor.feed(Bytes::from(rest)).unwrap();
    extractor.finish().unwrap();
    let found = fs::read(dir.path().join("shop/t.ibd")).unwrap();
    assert!(found == [&[1; 4096][..], &[0; 8192]].concat());
}

#[test]
fn a_rename_onto_a_finished_file_of_the_stream_replaces_it() {
    for (threads, is_open) in [(1, false), (3, false), (1, true), (3, true)] {
        let bytes = stream(|w| {
            w.payload("d/m1.MYD", 0, b"renamed")?;
            if !is_open {
                w.end("d/m1.MYD")?;
            }
            w.payload("d/m9.MYD", 0, b"to be replaced")?;
            w.end("d/m9.MYD")?;
            w.rename("d/m1.MYD", "d/m9.MYD")?;
            if is_open {
                w.end("d/m9.MYD")?;
            }
            w.payload("d/m1.MYD", 0, b"another")?;
            w.end("d/m1.MYD")
        });
        let dir = TempDir::new().unwrap();
        let report = extract(dir.path(), &bytes, 1 << 20, options(threads)).unwrap();
        assert_eq!(report.files, 2);
        let found = tree(dir.path());
        assert_eq!(found["d/m9.MYD"], b"renamed");
        assert_eq!(found["d/m1.MYD"], b"another");
        // A file that was there before the stream is never replaced.
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/m8.MYD"), "mine").unwrap();
        let bytes = stream(|w| {
            w.end("d/m1.MYD")?;
            w.rename("d/m1.MYD", "d/m8.MYD")
        });
        extract(dir.path(), &bytes, 1 << 20, options(threads)).unwrap_err();
        assert_eq!(fs::read(dir.path().join("d/m8.MYD")).unwrap(), b"mine");
    }
}
