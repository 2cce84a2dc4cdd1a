use proptest::prelude::*;
use xb_reader::{RelPath, TargetDir, crc32};

use super::head::{FORMAT, JOURNAL, NEW_JOURNAL, RestoreIdentity, is_unfinished, path};
use super::line::Line;
use super::load::{load, parse};
use super::write::{Journal, STEP};
use crate::cancel::CancelToken;
use crate::restore::clone::state::is_fetched;
use crate::restore::fetch::Interrupted;
use crate::restore::journal::head::forget;
use crate::selection::Resumable;

fn lines() -> Vec<Line> {
    let path = |name: &str| name.as_bytes().to_vec();
    vec![
        Line::Checkpoint { number: 0, path: path("a/b.ibd"), upto: 10, taken: 40, crc: 1 },
        Line::Whole { number: 1, path: path("c.lz4"), name: path("c"), size: 3, crc: Some(2) },
        Line::Synced { upto: 100 },
        Line::Checkpoint { number: 0, path: path("a/b.ibd"), upto: 20, taken: 80, crc: 3 },
        Line::Overwritten { number: 2 },
    ]
}

#[test]
fn a_torn_end_is_left_out_and_a_reboot_leaves_what_was_synced() {
    let text: String = lines().iter().map(Line::text).collect();
    for cut in 0..=text.len() {
        let left = parse(&text.as_bytes()[..cut], 0, true);
        let whole_lines = text[..cut].matches('\n').count();
        let upto = left.begun.get(&0).map(|file| file.upto);
        assert_eq!(upto, [None, Some(10), Some(10), Some(10), Some(20), Some(20)][whole_lines]);
        assert_eq!(left.whole.len(), usize::from(whole_lines > 1));
    }
    let first = lines()[0].text().len() as u64;
    let mut all = lines();
    all[2] = Line::Synced { upto: first };
    let text: String = all.iter().map(Line::text).collect();
    let left = parse(text.as_bytes(), 0, false);
    assert_eq!(left.begun[&0].upto, 10);
    assert_eq!((left.whole.len(), left.doubtful), (0, [b"c".to_vec()].into()));
}

#[test]
fn what_was_taken_back_is_not_proven_until_it_is_whole_again() {
    let path = |name: &str| name.as_bytes().to_vec();
    let whole = |number, crc| Line::Whole {
        number,
        path: path("c.lz4"),
        name: path("c"),
        size: 3,
        crc: Some(crc),
    };
    let lines = [whole(1, 2), Line::TakenBack { name: path("c") }, whole(2, 3)];
    for (count, expected) in [(1, Some(1)), (2, None), (3, Some(2))] {
        let text: String = lines[..count].iter().map(Line::text).collect();
        let left = parse(text.as_bytes(), 0, true);
        let found = left.whole.get(&path("c")).map(|file| file.number);
        assert_eq!(found, expected);
        assert_eq!(left.doubtful.contains(&path("c")), expected.is_none());
        assert_eq!(left.changes_names, count > 1);
    }
}

fn about() -> RestoreIdentity {
    let text = |text: &str| text.to_owned();
    RestoreIdentity {
        format: FORMAT,
        name: text("n"),
        run: text("r"),
        manifest: text("m"),
        decompress: true,
        files: text(""),
    }
}

#[test]
fn a_journal_replaces_a_link_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("data");
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "keep me").unwrap();
    let kept = TargetDir::kept_folder(&target);
    std::fs::create_dir_all(&kept).unwrap();
    for name in [JOURNAL, NEW_JOURNAL] {
        std::os::unix::fs::symlink(&precious, kept.join(name)).unwrap();
    }
    let folder = TargetDir::open_kept(&target).unwrap();
    let loaded = load(&folder, &target, &about(), &CancelToken::new());
    assert!(loaded.is_err(), "a link was followed");
    let journal = Journal::begin(&folder, &about(), None, false).unwrap();
    journal.log().taken_back(&RelPath::new(b"a").unwrap());
    assert_eq!(std::fs::read(&precious).unwrap(), b"keep me");
    assert!(std::fs::symlink_metadata(path(&target)).unwrap().is_file());
    drop(journal);
    drop(folder);
    forget(&target).unwrap();
    assert!(!kept.exists());
}

/// A folder that cannot be looked into may hold the journal of a restore, or the state of a clone.
#[test]
fn an_error_is_no_absence_of_a_journal() {
    let target = tempfile::tempdir().unwrap();
    assert!(!is_unfinished(target.path()).unwrap() && !is_fetched(target.path()).unwrap());
    std::os::unix::fs::symlink(".xb-partial", target.path().join(".xb-partial")).unwrap();
    assert!(is_unfinished(target.path()).is_err() && is_fetched(target.path()).is_err());
    assert!(forget(target.path()).is_err());
}

#[test]
fn a_run_killed_while_it_removed_its_last_folder_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let kept = TargetDir::kept_folder(dir.path());
    let holder = kept.parent().unwrap();
    for left in [holder, &kept] {
        std::fs::create_dir_all(left).unwrap();
        forget(dir.path()).unwrap();
        assert!(!holder.exists());
    }
    forget(dir.path()).unwrap();
    assert!(!holder.exists());
}

#[test]
fn no_number_is_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let folder = TargetDir::open_kept(dir.path()).unwrap();
    let name = |name: &str| RelPath::new(name.as_bytes()).unwrap();
    let journal = Journal::begin(&folder, &about(), None, false).unwrap();
    let begun = vec![0; usize::try_from(STEP).unwrap()];
    std::fs::write(TargetDir::kept_folder(dir.path()).join("0"), &begun).unwrap();
    journal.log().proven(&name("big"), 0, STEP, STEP, crc32(&begun));
    std::fs::write(dir.path().join("small"), "x").unwrap();
    journal.log().whole(&name("small"), 5, &name("small"), 1, Some(crc32(b"x")));
    drop((journal, folder));
    let folder = TargetDir::open_kept(dir.path()).unwrap();
    let state = load(&folder, dir.path(), &about(), &CancelToken::new()).unwrap().unwrap();
    let kept = [b"big".to_vec(), b"small".to_vec()].into();
    let mut left = Interrupted { folder, state };
    left.keep(&Resumable { kept, ..Resumable::default() }).unwrap();
    assert!(left.state.keeps(0) && left.state.files() == 1);
    // A complete file's number stays in the journal: an unfinished one that got it again would be forgotten.
    assert_eq!(left.folder.begin(&name("next")).unwrap().number(), 6);
}

#[test]
fn a_journal_that_cannot_be_corrected_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let folder = TargetDir::open_kept(dir.path()).unwrap();
    let journal = Journal::begin(&folder, &about(), None, false).unwrap();
    let name = RelPath::new(b"a").unwrap();
    let log = journal.log();
    log.proven(&name, 0, STEP, STEP, 1);
    journal.fail();
    let len = || std::fs::metadata(path(dir.path())).unwrap().len();
    log.proven(&name, 0, 2 * STEP, STEP, 2);
    assert!(len() > 0, "what was proven stays so");
    log.overwritten(0);
    assert_eq!(len(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes, 0, true);
    }

    #[test]
    fn lines_come_back(number: u64, upto: u64, taken: u64, crc: u32, path in "[a-z]{1,8}(/[a-z.]{1,8}x)?") {
        let path = path.into_bytes();
        for line in [
            Line::Checkpoint { number, path: path.clone(), upto, taken, crc },
            Line::Whole { number, path: path.clone(), name: path.clone(), size: upto, crc: Some(crc) },
            Line::Whole { number, path: path.clone(), name: path.clone(), size: upto, crc: None },
            Line::Overwritten { number },
            Line::Synced { upto },
            Line::TakenBack { name: path.clone() },
        ] {
            let text = line.text();
            prop_assert_eq!(Line::parse(text.trim_end_matches('\n').as_bytes()), Some(line));
        }
    }
}
