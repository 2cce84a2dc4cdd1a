//! Swaps and roll-backs that were killed when nothing was left to move: only the journal was left. A server works on the
//! data for weeks before anything of ours runs again.

use std::ffi::OsStr;
use std::path::Path;

use crate::harness::{Scene, start_on, tree};
use crate::present_data::{
    GALERA, WORK, ask_in_vain, by_hand, join_by_write_sets, read, succeeds, text,
};
use xb_sst::Layout;
use xb_sst::swap::{self, FolderLocks};

/// What finds the journal.
type Way = fn(&Scene);

const WAYS: [(&str, Way); 3] = [
    ("recover", |scene| {
        let done = by_hand("recover", &scene.data("joiner"));
        assert!(done.status.success(), "{}", text(&done));
    }),
    ("a transfer without a donor", |scene| drop(ask_in_vain(scene))),
    // The server has asked for them from the position of this data.
    ("write sets", |scene| join_by_write_sets(scene, &[])),
];

/// A joiner that has a schema of its own.
fn scene() -> Scene {
    let scene = Scene::new();
    std::fs::create_dir(scene.data("joiner").join("own")).unwrap();
    std::fs::write(scene.data("joiner").join("own/t.ibd"), "old").unwrap();
    scene
}

/// Does what servers do: writes, drops one schema and makes another, and files of its storage engines.
fn work_on(data: &Path, dropped: &str) {
    std::fs::remove_dir_all(data.join(dropped)).unwrap();
    std::fs::create_dir_all(data.join("later")).unwrap();
    for name in
        ["ibdata1", "later/t.ibd", "undo007", "aria_log.00000009", "ib_logfile1", "binlog.000008"]
    {
        std::fs::write(data.join(name), WORK).unwrap();
    }
    start_on(data);
}

/// Returns the files of the data.
fn files(data: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = tree(data);
    files.retain(|(name, _)| !name.starts_with("#sql-xb/"));
    files
}

fn journal(data: &Path) -> std::path::PathBuf {
    data.join("#sql-xb/journal")
}

#[test]
fn a_swap_of_which_only_the_journal_is_left_moves_nothing() {
    for (name, way) in WAYS {
        let scene = scene();
        let data = scene.data("joiner");
        succeeds(&scene, &[]);
        std::fs::rename(data.join("#sql-xb/.old/.journal"), journal(&data)).unwrap();
        work_on(&data, "shop");
        let before = files(&data);
        way(&scene);
        assert_eq!(files(&data), before, "{name}");
        assert!(!journal(&data).exists() && !data.join("#sql-xb/.old/.stray").exists(), "{name}");
        // The way back is still there.
        let back = by_hand("roll-back", &data);
        assert!(back.status.success(), "{name}: {}", text(&back));
        assert_eq!(read(data.join("own/t.ibd")), "old");
        assert_eq!(read(data.join("#sql-xb/.new/later/t.ibd")), WORK);
    }
}

/// Someone needs the room.
#[test]
fn nothing_is_moved_if_the_old_data_was_removed_by_hand() {
    for (name, way) in WAYS {
        let scene = scene();
        let data = scene.data("joiner");
        succeeds(&scene, &[]);
        std::fs::rename(data.join("#sql-xb/.old/.journal"), journal(&data)).unwrap();
        std::fs::remove_dir_all(data.join("#sql-xb/.old")).unwrap();
        work_on(&data, "shop");
        let before = files(&data);
        way(&scene);
        assert_eq!(files(&data), before, "{name}");
        assert!(!journal(&data).exists(), "{name}");
    }
}

/// The journal goes after the record of the old data: it may be there with that or without.
#[test]
fn a_roll_back_of_which_only_the_journal_is_left_moves_nothing() {
    for (name, way) in WAYS {
        for is_kept in [true, false] {
            let scene = scene();
            let data = scene.data("joiner");
            succeeds(&scene, &[]);
            let kept = std::fs::read(data.join("#sql-xb/.old/.journal")).unwrap();
            std::fs::create_dir(data.join("later")).unwrap();
            let is_data = |name: &OsStr, _: &_| !GALERA.iter().any(|of_galera| name == *of_galera);
            let mut begun = None;
            let note = || {
                begun = swap::interrupted(&data).unwrap();
                Ok(())
            };
            let layout = Layout::of(&data).unwrap();
            assert!(swap::take_back(&layout, &FolderLocks::default(), is_data, note).unwrap());
            swap::begin(&data, &begun.unwrap()).unwrap();
            if is_kept {
                std::fs::write(data.join("#sql-xb/.old/.journal"), kept).unwrap();
            }
            work_on(&data, "own");
            let before = files(&data);
            way(&scene);
            assert_eq!(files(&data), before, "{name}");
            assert!(!journal(&data).exists() && !data.join("#sql-xb/.old/.stray").exists());
            assert!(data.join("#sql-xb/.new/shop").exists());
            let back = by_hand("roll-back", &data);
            assert!(text(&back).contains("no old data"), "{}", text(&back));
        }
    }
}

/// Who begins it again finds it done.
#[test]
fn a_roll_back_that_was_killed_at_its_end_is_finished_by_hand() {
    let scene = scene();
    let data = scene.data("joiner");
    succeeds(&scene, &[]);
    let mut begun = None;
    let is_data = |name: &OsStr, _: &_| !GALERA.iter().any(|of_galera| name == *of_galera);
    let note = || {
        begun = swap::interrupted(&data).unwrap();
        Ok(())
    };
    let layout = Layout::of(&data).unwrap();
    assert!(swap::take_back(&layout, &FolderLocks::default(), is_data, note).unwrap());
    swap::begin(&data, &begun.unwrap()).unwrap();
    let done = by_hand("roll-back", &data);
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("nothing was left to move"), "{}", text(&done));
    assert!(!journal(&data).exists());
    assert_eq!(read(data.join("own/t.ibd")), "old");
}
