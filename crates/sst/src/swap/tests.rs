use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// What lies in a folder: names to contents, our own folder left out.
fn content(folder: &Path) -> BTreeMap<String, String> {
    let mut content = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != OURS && name != ".journal" {
            let file =
                if entry.path().is_dir() { entry.path().join("t.ibd") } else { entry.path() };
            content.insert(name, std::fs::read_to_string(file).unwrap());
        }
    }
    content
}

fn put(folder: &Path, names: &[&str], text: &str) {
    std::fs::create_dir_all(folder).unwrap();
    for name in names {
        let path = folder.join(name);
        if name.contains('.') || name.starts_with("ib") {
            std::fs::write(path, text).unwrap();
        } else {
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("t.ibd"), text).unwrap();
        }
    }
}

fn expected(names: &[&str], text: &str, kept: &[&str]) -> BTreeMap<String, String> {
    let named = |names: &[&str], text: &str| {
        names.iter().map(|n| ((*n).to_owned(), text.to_owned())).collect::<Vec<_>>()
    };
    named(names, text).into_iter().chain(named(kept, "old")).collect()
}

const OLD_NAMES: [&str; 6] = ["mysql", "ibdata1", "ib_logfile0", "shop", "gone", "a b.MYD"];
const NEW_NAMES: [&str; 6] = ["mysql", "ibdata1", "ib_logfile0", "shop", "added", "aria_log.1"];
const KEPT: [&str; 2] = ["galera.cache", "x.pem"];
const REDO: [&str; 2] = ["ib_logfile0", "ib_logfile1"];

/// A data directory and a folder for redo elsewhere, and the journal for both, begun.
fn scene() -> (TempDir, PathBuf, PathBuf, Journal) {
    let scratch = tempfile::tempdir().unwrap();
    let (data, redo) = (scratch.path().join("data"), scratch.path().join("redo"));
    put(&data, &OLD_NAMES, "old");
    put(&data, &KEPT, "old");
    put(&redo, &REDO, "old");
    put(&redo, &["foreign.txt"], "old");
    for folder in [&data, &redo] {
        make_folders(folder).unwrap();
    }
    put(&data.join(".xb/new"), &NEW_NAMES, "new");
    put(&redo.join(".xb/new"), &REDO, "new");
    let journal = plan(vec![data.clone(), redo.clone()], |folder, name, _| {
        let name = name.to_str().unwrap();
        if folder == 0 { !KEPT.contains(&name) } else { name.starts_with("ib_logfile") }
    })
    .unwrap();
    begin(&data, &journal).unwrap();
    (scratch, data, redo, journal)
}

fn is_new(data: &Path, redo: &Path) -> bool {
    content(data) == expected(&NEW_NAMES, "new", &KEPT)
        && content(redo) == expected(&REDO, "new", &["foreign.txt"])
        && content(&data.join(".xb/old")) == expected(&OLD_NAMES, "old", &[])
        && content(&redo.join(".xb/old")) == expected(&REDO, "old", &[])
}

fn is_old(data: &Path, redo: &Path) -> bool {
    content(data) == expected(&OLD_NAMES, "old", &KEPT)
        && content(redo) == expected(&REDO, "old", &["foreign.txt"])
        && content(&data.join(".xb/new")) == expected(&NEW_NAMES, "new", &[])
}

/// Lets so many renames happen, and then crashes.
fn crash_after(steps: usize) -> impl FnMut() -> io::Result<()> {
    let mut left = steps;
    move || match left.checked_sub(1) {
        Some(rest) => {
            left = rest;
            Ok(())
        }
        None => Err(io::Error::other("crash")),
    }
}

const STEPS: usize = OLD_NAMES.len() + NEW_NAMES.len() + 2 * REDO.len();

#[test]
fn an_exchange_exchanges() {
    let (_scratch, data, redo, journal) = scene();
    let mut steps = 0;
    finish(&data, &journal, || {
        steps += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(steps, STEPS);
    assert!(is_new(&data, &redo));
    assert_eq!(interrupted(&data).unwrap(), None);
    assert_eq!(last(&data).unwrap(), Some(journal));
}

#[test]
fn after_a_crash_at_any_step_the_next_start_finishes_or_takes_it_back() {
    for crash in 0..STEPS {
        let (_scratch, data, redo, journal) = scene();
        assert!(finish(&data, &journal, crash_after(crash)).is_err());
        if crash > 0 {
            assert!(!data.join("mysql").exists(), "step {crash}: no server may start on this");
        }
        let found = interrupted(&data).unwrap().expect("a journal");
        assert_eq!(found, journal);
        finish(&data, &found, || Ok(())).unwrap();
        assert!(is_new(&data, &redo), "forward after step {crash}");

        for second in [0, crash / 2, crash] {
            let (_scratch, data, redo, journal) = scene();
            assert!(finish(&data, &journal, crash_after(crash)).is_err());
            let crashed_again = roll_back(&data, &journal, crash_after(second)).is_err();
            assert_eq!(crashed_again, second < crash, "as many steps back as forth");
            if crashed_again {
                roll_back(&data, &journal, || Ok(())).unwrap();
            }
            assert!(is_old(&data, &redo), "back after step {crash} and {second}");
            assert_eq!(interrupted(&data).unwrap(), None);
        }
    }
}

#[test]
fn what_was_changed_meanwhile_is_not_overwritten() {
    let (_scratch, data, _redo, journal) = scene();
    assert!(finish(&data, &journal, crash_after(OLD_NAMES.len() + 3)).is_err());
    // Somebody has started a server on it, by force.
    std::fs::create_dir(data.join("mysql")).unwrap();
    let error = finish(&data, &journal, || Ok(())).unwrap_err();
    assert!(matches!(error, SwapError::Lost { .. }), "{error}");
    assert!(interrupted(&data).unwrap().is_some());
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = proptest::collection::vec(
        any::<u8>().prop_filter("no name", |b| *b != 0 && *b != b'/'),
        1..12,
    );
    (0..2_usize, name).prop_filter_map("leads elsewhere", |(folder, name)| {
        use std::os::unix::ffi::OsStringExt as _;
        let elsewhere = matches!(&name[..], b"." | b".." | b".xb");
        (!elsewhere).then(|| Entry { folder, name: std::ffi::OsString::from_vec(name) })
    })
}

proptest! {
    #[test]
    fn journals_read_back(old in proptest::collection::vec(entry(), 0..5), new in proptest::collection::vec(entry(), 0..5)) {
        let journal = Journal { folders: vec!["/d d".into(), "/r%".into()], old, new };
        prop_assert_eq!(Journal::parse(&journal.encode()), Ok(journal));
    }

    #[test]
    fn a_cut_journal_is_refused(old in proptest::collection::vec(entry(), 0..4), cut in 0.0..1.0_f64) {
        let text = Journal { folders: vec!["/d".into(), "/r".into()], old, new: Vec::new() }.encode();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let cut = (text.len() as f64 * cut) as usize;
        prop_assert!(Journal::parse(&text[..cut]).is_err());
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(xb-sst-journal 1\n)?((folder|out|in|end) [/0-9a-z% ]{0,8}\n?){0,5}\\PC{0,10}") {
        let _ = Journal::parse(&text);
    }
}
