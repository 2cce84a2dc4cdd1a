use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::contract::datadir::Layout;

/// Puts the old data of the last swap back.
fn back(
    data: &Path,
    is_data: impl Fn(&OsStr, &Metadata) -> bool,
    before: impl FnMut() -> io::Result<()>,
) -> Result<bool, SwapError> {
    take_back(&Layout::of(data).unwrap(), &FolderLocks::default(), is_data, before)
}

/// Returns the contents of a directory as names and texts, without `#sql-xb`.
fn content(folder: &Path) -> BTreeMap<String, String> {
    let mut content = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != WORK_DIR && name != ".journal" {
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

/// Creates a data directory, a separate redo directory and the journal for both, and begins the
/// swap.
fn scene() -> (TempDir, PathBuf, PathBuf, Journal) {
    let scratch = tempfile::tempdir().unwrap();
    let base = std::fs::canonicalize(scratch.path()).unwrap();
    let (data, redo) = (base.join("data"), base.join("redo"));
    put(&data, &OLD_NAMES, "old");
    put(&data, &KEPT, "old");
    put(&redo, &REDO, "old");
    put(&redo, &["foreign.txt"], "old");
    for folder in [&data, &redo] {
        make_folders(folder).unwrap();
        make_old(folder).unwrap();
    }
    put(&data.join("#sql-xb/.new"), &NEW_NAMES, "new");
    put(&redo.join("#sql-xb/.new"), &REDO, "new");
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
        && content(&data.join("#sql-xb/.old")) == expected(&OLD_NAMES, "old", &[])
        && content(&redo.join("#sql-xb/.old")) == expected(&REDO, "old", &[])
}

fn is_old(data: &Path, redo: &Path) -> bool {
    content(data) == expected(&OLD_NAMES, "old", &KEPT)
        && content(redo) == expected(&REDO, "old", &["foreign.txt"])
        && content(&data.join("#sql-xb/.new")) == expected(&NEW_NAMES, "new", &[])
}

/// Lets `steps` renames happen, and then simulates a crash.
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

/// Files that a server leaves if it is started without `mysql/`: InnoDB and Aria create theirs
/// first.
const STRAYS: [&str; 5] =
    ["ibdata1", "ib_logfile0", "undo001", "aria_log.00000001", "aria_log_control"];

fn start_a_server(data: &Path, redo: &Path) -> usize {
    let missing = |path: &PathBuf| !path.exists();
    let in_data = STRAYS.map(|name| data.join(name));
    let made: Vec<_> =
        in_data.into_iter().chain([redo.join("ib_logfile0")]).filter(missing).collect();
    for path in &made {
        std::fs::write(path, "stray").unwrap();
    }
    made.len()
}

fn strays(folders: [&Path; 2]) -> usize {
    let list = |folder: &Path| std::fs::read_dir(folder.join("#sql-xb/.old/.stray")).ok();
    folders.into_iter().filter_map(list).map(Iterator::count).sum()
}

/// Removes what only tests of stray files create.
fn forget_strays(folders: [&Path; 2]) {
    for folder in folders {
        let _ = std::fs::remove_dir_all(folder.join("#sql-xb/.old/.stray"));
    }
}

#[test]
fn a_server_that_was_started_in_the_middle_is_no_obstacle() {
    for crash in 1..STEPS {
        for (second, forward) in [(3, true), (3, false)] {
            let (_scratch, data, redo, journal) = scene();
            assert!(finish(&data, &journal, crash_after(crash)).is_err());
            let mut made = start_a_server(&data, &redo);
            // A second crash, in the middle of the repair.
            let way = |left: usize| match forward {
                true => finish(&data, &interrupted(&data).unwrap().unwrap(), crash_after(left)),
                false => roll_back(&data, &interrupted(&data).unwrap().unwrap(), crash_after(left)),
            };
            if way(second).is_err() {
                made += start_a_server(&data, &redo);
                way(usize::MAX).unwrap();
            }
            assert_eq!(strays([&data, &redo]), made, "kept aside after step {crash}");
            forget_strays([&data, &redo]);
            let is_right = if forward { is_new } else { is_old };
            assert!(is_right(&data, &redo), "{forward} after step {crash} and {second}");
        }
    }
}

#[test]
fn files_that_are_to_stay_are_not_taken_for_strays() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    put(&data, &["mysql", "undo001.x", "undo1"], "old");
    std::fs::write(data.join("undo002"), "kept").unwrap();
    make_folders(&data).unwrap();
    put(&data.join("#sql-xb/.new"), &["mysql"], "new");
    let journal = plan(vec![data.clone()], |_, name, _| name == "mysql").unwrap();
    begin(&data, &journal).unwrap();
    let read = interrupted(&data).unwrap().unwrap();
    finish(&data, &read, || Ok(())).unwrap();
    assert_eq!(std::fs::read(data.join("undo002")).unwrap(), b"kept");
    assert!(data.join("undo1").is_dir(), "a schema may have that name");
    assert_eq!(strays([&data, &data]), 0);
}

#[test]
fn foreign_files_are_put_aside() {
    let (_scratch, data, redo, journal) = scene();
    assert!(finish(&data, &journal, crash_after(OLD_NAMES.len() + REDO.len() + 3)).is_err());
    // A server was forced to start on this data.
    std::fs::create_dir(data.join("mysql")).unwrap();
    finish(&data, &journal, || Ok(())).unwrap();
    assert!(data.join("#sql-xb/.old/.stray/mysql").is_dir());
    forget_strays([&data, &redo]);
    assert!(is_new(&data, &redo));
}

#[test]
fn without_all_that_is_new_nothing_begins() {
    for lost in NEW_NAMES {
        let (_scratch, data, redo, journal) = scene();
        std::fs::rename(data.join("#sql-xb/.new").join(lost), data.join("#sql-xb/elsewhere"))
            .unwrap();
        let error = finish(&data, &journal, crash_after(0)).unwrap_err();
        assert!(matches!(&error, SwapError::Lost { name, .. } if name == lost), "{error}");
        roll_back(&data, &journal, || Ok(())).unwrap();
        assert_eq!(content(&data), expected(&OLD_NAMES, "old", &KEPT), "{lost}");
        assert_eq!(content(&redo), expected(&REDO, "old", &["foreign.txt"]));
    }
}

#[test]
fn old_data_that_vanishes_ends_no_exchange_but_cannot_come_back() {
    for crash in [0, 6, STEPS - 1] {
        for name in OLD_NAMES {
            let (_scratch, data, redo, journal) = scene();
            // The operator moves the data by hand, but not the names that begin with a dot.
            let vanish = |path: PathBuf| {
                let _ = std::fs::remove_dir_all(&path);
                let _ = std::fs::remove_file(path);
            };
            vanish(data.join(name));
            let error = roll_back(&data, &journal, || Ok(())).unwrap_err();
            assert!(matches!(error, SwapError::Lost { .. }), "{error}");
            assert!(!data.join("#sql-xb/.old").join(OLD_NAMES[2]).exists(), "nothing was renamed");
            if finish(&data, &journal, crash_after(crash)).is_err() {
                let journal = interrupted(&data).unwrap().unwrap();
                assert!(roll_back(&data, &journal, || Ok(())).is_err());
                finish(&data, &journal, || Ok(())).unwrap();
            }
            assert_eq!(content(&data), expected(&NEW_NAMES, "new", &KEPT), "{name} {crash}");
            assert_eq!(content(&redo), expected(&REDO, "new", &["foreign.txt"]));
        }
    }
}

#[test]
fn a_page_of_the_gcache_may_go_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    put(&data, &["mysql", "gcache.page.000001"], "old");
    make_folders(&data).unwrap();
    put(&data.join("#sql-xb/.new"), &["mysql"], "new");
    let journal = plan(vec![data.clone()], |_, _, _| true).unwrap();
    begin(&data, &journal).unwrap();
    std::fs::remove_file(data.join("gcache.page.000001")).unwrap();
    assert!(finish(&data, &journal, crash_after(1)).is_err());
    roll_back(&data, &journal, || Ok(())).unwrap();
    assert_eq!(content(&data), expected(&["mysql"], "old", &[]));
}

#[test]
fn a_kept_name_cannot_be_received() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    put(&data, &["mysql", "my_keyring"], "old");
    make_folders(&data).unwrap();
    put(&data.join("#sql-xb/.new"), &["mysql", "my_keyring"], "new");
    let error = plan(vec![data], |_, name, _| name == "mysql").unwrap_err();
    assert!(matches!(&error, SwapError::KeptEntry { name, .. } if name == "my_keyring"), "{error}");
}

#[test]
fn a_folder_that_is_not_mounted_is_waited_for() {
    let (scratch, data, redo, journal) = scene();
    assert!(finish(&data, &journal, crash_after(2)).is_err());
    let away = scratch.path().join("away");
    std::fs::rename(&redo, &away).unwrap();
    std::fs::create_dir(&redo).unwrap();
    assert!(finish(&data, &journal, || Ok(())).is_err());
    assert!(roll_back(&data, &journal, || Ok(())).is_err());
    assert!(!redo.join("#sql-xb").exists());
    std::fs::remove_dir(&redo).unwrap();
    std::fs::rename(&away, &redo).unwrap();
    finish(&data, &journal, || Ok(())).unwrap();
    assert!(is_new(&data, &redo));
}

#[test]
fn a_copy_of_a_data_directory_leaves_the_original_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, copy) = (scratch.path().join("data"), scratch.path().join("copy"));
    put(&data, &["mysql"], "old");
    make_folders(&data).unwrap();
    put(&data.join("#sql-xb/.new"), &["mysql"], "new");
    begin(&data, &plan(vec![data.clone()], |_, _, _| true).unwrap()).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(&data).arg(&copy).status();
    assert!(copied.unwrap().success());
    let found = interrupted(&copy).unwrap().unwrap();
    finish(&copy, &found, || Ok(())).unwrap();
    assert_eq!(content(&copy), expected(&["mysql"], "new", &[]));
    assert_eq!(content(&data), expected(&["mysql"], "old", &[]));

    // In directories elsewhere, the owner of a file is unknown.
    let (scratch, data, redo, _) = scene();
    let copy = scratch.path().join("copy");
    std::fs::rename(&data, &copy).unwrap();
    let error = interrupted(&copy).unwrap_err();
    assert!(matches!(error, SwapError::Elsewhere { .. }), "{error}");
    std::fs::rename(&copy, &data).unwrap();
    finish(&data, &interrupted(&data).unwrap().unwrap(), || Ok(())).unwrap();
    assert!(is_new(&data, &redo));
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = proptest::collection::vec(
        any::<u8>().prop_filter("no name", |b| *b != 0 && *b != b'/'),
        1..12,
    );
    (0..2_usize, name).prop_filter_map("leads elsewhere", |(folder, name)| {
        use std::os::unix::ffi::OsStringExt as _;
        let elsewhere = matches!(&name[..], b"." | b".." | b"#sql-xb");
        (!elsewhere).then(|| Entry { folder, name: std::ffi::OsString::from_vec(name) })
    })
}

proptest! {
    #[test]
    fn journals_read_back(old in proptest::collection::vec(entry(), 0..5), new in proptest::collection::vec(entry(), 0..5), goes_back: bool) {
        let journal = Journal { folders: vec!["/d d".into(), "/r%".into()], stay: new.clone(), gone: old.clone(), was: new.iter().cloned().map(|entry| EngineState { entry, bytes: 7, nanos: u128::MAX }).collect(), old, new, goes_back };
        prop_assert_eq!(Journal::parse(&journal.encode()), Ok(journal));
    }

    #[test]
    fn a_cut_journal_is_refused(old in proptest::collection::vec(entry(), 0..4), cut in 0.0..1.0_f64) {
        let text = Journal { folders: vec!["/d".into(), "/r".into()], old, ..Journal::default() }.encode();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let cut = (text.len() as f64 * cut) as usize;
        prop_assert!(Journal::parse(&text[..cut]).is_err());
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(xb-sst-journal 1\n)?((home|folder|way|out|in|stay|gone|end) [/0-9a-z% ]{0,8}\n?){0,5}\\PC{0,10}") {
        let _ = Journal::parse(&text);
    }
}

/// A swap that is finished, and a server that has worked on the new data since.
fn swapped_and_used() -> (TempDir, PathBuf, PathBuf) {
    let (scratch, data, redo, journal) = scene();
    finish(&data, &journal, || Ok(())).unwrap();
    put(&data, &["later", "ib_logfile7", "ib_logfile8"], "server");
    std::fs::remove_dir_all(data.join("added")).unwrap();
    std::fs::remove_dir(redo.join("#sql-xb/.new")).unwrap();
    // A later transfer was killed while it received.
    put(&data.join("#sql-xb/.new"), &["ibdata1", "mysql", "half"], "half");
    (scratch, data, redo)
}

fn is_schema(name: &std::ffi::OsStr, _: &std::fs::Metadata) -> bool {
    name == "later"
}

fn is_back(data: &Path, redo: &Path) -> bool {
    let stray = data.join("#sql-xb/.old/.stray");
    content(data) == expected(&OLD_NAMES, "old", &KEPT)
        && content(redo) == expected(&REDO, "old", &["foreign.txt"])
        && data.join("#sql-xb/.new/later").exists()
        && !data.join("#sql-xb/.new/half").exists()
        && stray.join("ib_logfile8").exists()
        && stray.join("ib_logfile7").exists()
}

#[test]
fn a_finished_swap_is_rolled_back_after_a_server_created_files() {
    let (_scratch, data, redo) = swapped_and_used();
    assert!(back(&data, is_schema, || Ok(())).unwrap());
    assert!(is_back(&data, &redo));
    assert_eq!((interrupted(&data).unwrap(), last(&data).unwrap()), (None, None));
    assert!(!back(&data, is_schema, || Ok(())).unwrap(), "there is nothing left to take back");
}

#[test]
fn after_a_crash_at_any_step_back_the_next_start_continues_to_the_old_data() {
    let mut crashes = 0;
    for crash in 0.. {
        let (_scratch, data, redo) = swapped_and_used();
        let mut begun = None;
        let mut crash_at = crash_after(crash);
        let noting = || {
            begun = interrupted(&data).unwrap();
            crash_at()
        };
        if back(&data, is_schema, noting).is_ok() {
            break;
        }
        if crash == 0 {
            // An error takes the journal along; a kill does not.
            begin(&data, &begun.unwrap()).unwrap();
        }
        crashes += 1;
        for second in [0, 1, crash, usize::MAX] {
            let Some(journal) = interrupted(&data).unwrap() else { break };
            assert!(journal.goes_back, "{crash}");
            // The files of the storage engines that the server has created go first.
            if !data.join("ib_logfile7").exists() && !data.join("ib_logfile8").exists() {
                let is_begun = data.join("#sql-xb/.new/mysql").exists();
                assert_ne!(is_begun, data.join("mysql").exists(), "{crash}");
                let moved = std::fs::read_dir(data.join("#sql-xb/.new")).unwrap().count();
                assert!(is_begun || moved == 0, "{crash}: a server would start without all data");
            }
            let _ = roll_back(&data, &journal, crash_after(second));
        }
        assert!(is_back(&data, &redo), "{crash}");
        assert_eq!((interrupted(&data).unwrap(), last(&data).unwrap()), (None, None), "{crash}");
    }
    assert!(crashes > STEPS, "{crashes}");
}

/// Between the last rename and the removal of the journal.
#[test]
fn a_crash_after_the_last_step_back_leaves_no_journal_of_old_data() {
    for is_kept in [true, false] {
        let (_scratch, data, redo) = swapped_and_used();
        let kept = std::fs::read(kept_journal_path(&data)).unwrap();
        let mut journal = None;
        let note = || {
            journal = interrupted(&data).unwrap();
            Ok(())
        };
        assert!(back(&data, is_schema, note).unwrap());
        begin(&data, &journal.unwrap()).unwrap();
        if is_kept {
            std::fs::write(kept_journal_path(&data), kept).unwrap();
        }
        roll_back(&data, &interrupted(&data).unwrap().unwrap(), || Ok(())).unwrap();
        assert!(is_back(&data, &redo));
        assert_eq!((interrupted(&data).unwrap(), last(&data).unwrap()), (None, None));
        assert!(!back(&data, is_schema, || Ok(())).unwrap());
    }
}

#[test]
fn a_way_back_whose_first_rename_fails_leaves_no_journal() {
    let (_scratch, data, redo) = swapped_and_used();
    let before = (content(&data), content(&redo));
    let error = back(&data, is_schema, crash_after(0)).unwrap_err();
    assert!(matches!(error, SwapError::NothingMoved { .. }), "{error}");
    assert_eq!((content(&data), content(&redo)), before);
    assert_eq!(interrupted(&data).unwrap(), None, "the server can start");
    assert!(back(&data, is_schema, crash_after(1)).is_err());
    assert!(interrupted(&data).unwrap().is_some(), "something was moved");
}

#[test]
fn only_a_swap_that_has_moved_nothing_is_overtaken() {
    for crash in [0, 1, STEPS - 1] {
        let (_scratch, data, redo, journal) = scene();
        assert!(finish(&data, &journal, crash_after(crash)).is_err());
        let journal = interrupted(&data).unwrap().unwrap();
        assert!(!is_overtaken(&journal).unwrap(), "{crash}: no server has written");
        std::fs::remove_file(redo.join("ib_logfile1")).unwrap_or_default();
        assert!(!is_overtaken(&journal).unwrap(), "{crash}: it may not be mounted");
        let _ = std::fs::write(redo.join("ib_logfile0"), "server");
        assert_eq!(is_overtaken(&journal).unwrap(), crash == 0, "{crash}");
    }
}

/// Before, what a server has made is in the way; then it is that server's.
#[test]
fn only_at_its_end_has_a_swap_nothing_left_to_move() {
    let check = |data: &Path, redo: &Path, is_done: bool, crash: usize| {
        for _ in ["as it was", "with the files of a server"] {
            let journal = interrupted(data).unwrap().unwrap();
            assert_eq!(has_moved_all(&journal).unwrap(), is_done, "{crash}");
            let _ = start_a_server(data, redo);
        }
    };
    for crash in 0..=STEPS {
        let (_scratch, data, redo, journal) = scene();
        let is_done = finish(&data, &journal, crash_after(crash)).is_ok();
        if is_done {
            std::fs::rename(kept_journal_path(&data), journal_path(&data)).unwrap();
        }
        check(&data, &redo, is_done, crash);
    }
    for crash in 0.. {
        let (_scratch, data, redo) = swapped_and_used();
        let (mut begun, mut crash_at) = (None, crash_after(crash));
        let noting = || {
            begun = interrupted(&data).unwrap();
            crash_at()
        };
        let is_done = back(&data, is_schema, noting).is_ok();
        begin(&data, &begun.unwrap()).unwrap();
        check(&data, &redo, is_done, crash);
        if is_done {
            break;
        }
    }
}

/// An operator fills the data directory by hand when the transfer did not come back.
#[test]
fn old_data_that_has_made_room_does_not_take_later_data_with_it() {
    for crash in 0..=OLD_NAMES.len() {
        let scratch = tempfile::tempdir().unwrap();
        let data = std::fs::canonicalize(scratch.path()).unwrap();
        put(&data, &OLD_NAMES, "old");
        make_folders(&data).unwrap();
        make_old(&data).unwrap();
        let journal = plan(vec![data.clone()], |_, _, _| true).unwrap();
        begin(&data, &journal).unwrap();
        let is_done = finish(&data, &journal, crash_after(crash)).is_ok();
        if is_done {
            put(&data, &["mysql", "ibdata1"], "later");
        }
        assert_eq!(has_moved_all(&journal).unwrap(), is_done, "{crash}");
    }
}

/// Servers and people remove such files, and servers make them again.
#[test]
fn a_temporary_tablespace_does_not_show_that_anything_was_moved() {
    let scratch = tempfile::tempdir().unwrap();
    let data = std::fs::canonicalize(scratch.path()).unwrap();
    put(&data, &["mysql", "ibdata1", "ibtmp1"], "old");
    make_folders(&data).unwrap();
    make_old(&data).unwrap();
    put(&data.join("#sql-xb/.new"), &["mysql", "ibdata1"], "new");
    let journal = plan(vec![data.clone()], |_, _, _| true).unwrap();
    begin(&data, &journal).unwrap();
    finish(&data, &journal, || Ok(())).unwrap();
    let mut begun = None;
    let kill = || {
        begun = interrupted(&data).unwrap();
        Err(io::Error::other("killed"))
    };
    assert!(back(&data, is_schema, kill).is_err());
    std::fs::remove_file(data.join("#sql-xb/.old/ibtmp1")).unwrap();
    put(&data, &["ibdata1", "ibtmp1"], "of a server");
    assert!(is_overtaken(&begun.unwrap()).unwrap());
}

#[test]
fn old_data_that_is_not_whole_is_not_put_back() {
    let (_scratch, data, redo) = swapped_and_used();
    std::fs::remove_dir_all(data.join("#sql-xb/.old/shop")).unwrap();
    let before = (content(&data), content(&redo));
    let error = back(&data, is_schema, || Ok(())).unwrap_err();
    assert!(matches!(&error, SwapError::OldIsNotWhole { name, .. } if name == "shop"), "{error}");
    assert_eq!((content(&data), content(&redo)), before);
    assert_eq!(interrupted(&data).unwrap(), None, "the server can start");
}
