//! Small files whose chunks are interleaved, as by a producer with several threads.

use super::*;

/// `count` files of different lengths in groups of `group`: all contents, then all ends.
fn groups(count: usize, group: usize) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let name = |n: usize| format!("d{}/f{n:04}", n / 50);
    let bytes = |n: usize| content(n, 20 + n * 13 % 4000);
    let stream = stream(|w| {
        for first in (0..count).step_by(group) {
            let files = first..count.min(first + group);
            for n in files.clone() {
                let bytes = bytes(n);
                let half = bytes.len() / 2;
                w.payload(name(n), 0, &bytes[..half])?;
                w.payload(name(n), half as u64, &bytes[half..])?;
            }
            files.rev().try_for_each(|n| w.end(name(n)))?;
        }
        Ok(())
    });
    (stream, (0..count).map(|n| (name(n), bytes(n))).collect())
}

#[test]
fn all_files_come_out() {
    for (group, threads, step) in
        [(1, 1, 1 << 20), (16, 2, 1 << 20), (300, 4, 1 << 20), (16, 3, 777)]
    {
        let (bytes, files) = groups(900, group);
        let dir = TempDir::new().unwrap();
        let report = extract(dir.path(), &bytes, step, options(threads)).unwrap();
        assert_eq!(report.files, 900);
        assert!(tree(dir.path()) == files, "groups of {group}");
    }
}

#[test]
fn the_first_failure_in_the_stream_is_reported() {
    let (good, files) = groups(64, 16);
    let end = good.len() - 1;
    let spot = |at: usize| {
        // A byte of payload, not of a head.
        let magic = |at: usize| good[at..].windows(8).position(|w| w == b"XBSTCK01");
        at + magic(at).unwrap() - 1
    };
    let (first, second) = (spot(100), spot(end / 2));
    for damaged in [&[first][..], &[second], &[first, second]] {
        let mut bytes = good.clone();
        damaged.iter().for_each(|at| bytes[*at] ^= 1);
        let dir = TempDir::new().unwrap();
        let error = extract(dir.path(), &bytes, 1 << 20, options(3)).unwrap_err();
        let ExtractCause::Decode(DecodeError::Checksum { position, path, .. }) = &error.cause
        else {
            panic!("{error}")
        };
        let position = usize::try_from(*position).unwrap();
        assert!(position < damaged[0] && damaged[0] < position + 5000, "{position}: {error}");
        let found = tree(dir.path());
        assert!(!found.contains_key(&path.to_string()));
        assert!(found.iter().all(|(name, bytes)| files[name] == *bytes));
        assert_eq!(error.report.files, found.len() as u64);
    }
}

#[test]
fn a_name_that_is_taken_fails_and_keeps_the_other_file() {
    let (bytes, _) = groups(40, 8);
    for threads in [1, 3] {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("d0")).unwrap();
        fs::write(dir.path().join("d0/f0011"), "by another").unwrap();
        let error = extract(dir.path(), &bytes, 1 << 20, options(threads)).unwrap_err();
        assert!(error.to_string().starts_with("d0/f0011: already exists"), "{error}");
        assert_eq!(fs::read(dir.path().join("d0/f0011")).unwrap(), b"by another");
        assert!(!dir.path().join(".xb-partial").exists());
    }
}
