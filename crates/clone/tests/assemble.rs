//! Made-up clones put together: whole, interrupted at every step, and refused when anything about them is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use xb_clone::{
    CloneInfo, Error, assemble, binlog_position, check_extracted, exposed_keys, exposed_redo,
    has_shared_keys, is_assembled, remove_parts,
};
use xb_pages::FirstPage;
use xb_reader::TargetDir;
use xb_testkit::clone::{MadeClone, PAGE, content};
use xb_testkit::daemon::Scratch;

/// Puts a clone together, and ends it before the change of this number.
fn run(dir: &Path, changes: usize) -> Result<CloneInfo, Error> {
    let target = TargetDir::open_kept(dir).unwrap();
    let left = Cell::new(changes);
    assemble(&target, false, &|| match left.get().checked_sub(1) {
        Some(less) => {
            left.set(less);
            false
        }
        None => true,
    })
}

fn finished(dir: &Path, clone: &MadeClone) {
    let target = TargetDir::open_kept(dir).unwrap();
    assert!(is_assembled(&target).unwrap());
    remove_parts(&target).unwrap();
    remove_parts(&target).unwrap();
    clone.assert_is_in(dir);
}

#[test]
fn a_clone_is_put_together() {
    for is_encrypted in [false, true] {
        let (clone, scratch) = (MadeClone::new(is_encrypted), Scratch::new());
        clone.extract(scratch.path());
        let done = run(scratch.path(), usize::MAX).unwrap();
        assert_eq!(
            done.moved().unwrap(),
            [
                ("/far/away/shop/moved.ibd".to_owned(), "shop/moved.ibd".to_owned()),
                ("/far/away/general.ibd".to_owned(), "general.ibd".to_owned()),
            ]
        );
        assert_eq!(done.empty_tables, ["shop.gone (MyISAM)"]);
        assert_eq!(done.is_encrypted(), is_encrypted);
        let target = TargetDir::open_kept(scratch.path()).unwrap();
        let exposed = exposed_keys(&target, &done).unwrap();
        drop(target);
        // Nothing but the constant protects them.
        assert_eq!(exposed.is_empty(), !is_encrypted, "{exposed:?}");
        let redo = ["#innodb_redo/#ib_redo0", "#innodb_redo/#ib_redo1"];
        assert_eq!(exposed.iter().filter(|name| redo.contains(&name.as_str())).count(), {
            if is_encrypted { 2 } else { 0 }
        });
        for name in exposed.into_iter().filter(|name| !redo.contains(&name.as_str())) {
            let file = std::fs::read(scratch.path().join(&name)).unwrap();
            let page_size = done
                .files
                .iter()
                .find(|file| name.ends_with(&file.name))
                .map(|file| file.page_size);
            let page = &file[..usize::try_from(page_size.unwrap_or(done.page_size)).unwrap()];
            assert!(FirstPage::of(page).unwrap().is_intact(page), "{name}");
        }
        finished(scratch.path(), &clone);
    }
}

/// A server that has decrypted a tablespace does not always remove its key.
#[test]
fn a_key_of_a_tablespace_that_is_not_encrypted_any_more_is_not_exposed() {
    const FLAGS: usize = 54;
    let (clone, scratch) = (MadeClone::new(true), Scratch::new());
    clone.extract(scratch.path());
    let done = run(scratch.path(), usize::MAX).unwrap();
    let target = TargetDir::open_kept(scratch.path()).unwrap();
    let redo = ["#innodb_redo/#ib_redo0", "#innodb_redo/#ib_redo1"];
    assert_eq!(exposed_redo(&target).unwrap(), redo);
    for name in redo {
        std::fs::write(scratch.path().join(name), "of a server that has wrapped it").unwrap();
    }
    assert_eq!(exposed_keys(&target, &done).unwrap(), ["shop/first.ibd", "shop/second.ibd"]);
    let path = scratch.path().join("shop/first.ibd");
    let mut bytes = std::fs::read(&path).unwrap();
    let flags = u32::from_be_bytes(*bytes[FLAGS..].first_chunk().unwrap());
    bytes[FLAGS..FLAGS + 4].copy_from_slice(&(flags & !(1 << 13)).to_be_bytes());
    std::fs::write(path, bytes).unwrap();
    assert_eq!(exposed_keys(&target, &done).unwrap(), ["shop/second.ibd"]);
}

/// A server continues in the last file of the redo log, and keeps the key that the clone has there.
#[test]
fn the_key_of_the_redo_log_is_exposed_only_if_it_protects_something() {
    let (clone, scratch) = (MadeClone::new(true), Scratch::new());
    clone.extract(scratch.path());
    let mut done = run(scratch.path(), usize::MAX).unwrap();
    let target = TargetDir::open_kept(scratch.path()).unwrap();
    // A later server has other files.
    let log = scratch.path().join("#innodb_redo");
    std::fs::rename(log.join("#ib_redo1"), log.join("#ib_redo9")).unwrap();
    std::fs::copy(log.join("#ib_redo9"), log.join("#ib_redo10_tmp")).unwrap();
    let redo = ["#innodb_redo/#ib_redo0", "#innodb_redo/#ib_redo9"];
    assert_eq!(exposed_redo(&target).unwrap(), redo);
    assert!(exposed_keys(&target, &done).unwrap().ends_with(&redo.map(str::to_owned)));
    done.files.iter_mut().for_each(|file| file.is_encrypted = false);
    let exposed = exposed_keys(&target, &done).unwrap();
    assert!(!exposed.iter().any(|name| name.starts_with("#innodb_redo")), "{exposed:?}");
}

/// Encryption is changed in place only where many tables share a tablespace: there, or in the redo log, is a key then.
#[test]
fn keys_that_a_change_of_encryption_has_are_seen() {
    const KEY: usize = 10390;
    let seen = |change: &dyn Fn(&Path)| {
        let (clone, scratch) = (MadeClone::new(false), Scratch::new());
        clone.extract(scratch.path());
        let done = run(scratch.path(), usize::MAX).unwrap();
        let target = TargetDir::open_kept(scratch.path()).unwrap();
        remove_parts(&target).unwrap();
        change(scratch.path());
        has_shared_keys(&target, &done).unwrap()
    };
    let write = |dir: &Path, name: &str, at: usize, with: &[u8]| {
        let mut bytes = std::fs::read(dir.join(name)).unwrap();
        bytes[at..at + with.len()].copy_from_slice(with);
        std::fs::write(dir.join(name), bytes).unwrap();
    };
    let key = [&b"lCC\0\0\0\x05"[..], &[b'a'; 36], &[7; 68]].concat();
    assert!(!seen(&|_| ()));
    assert!(!seen(&|dir| write(dir, "shop/plain.ibd", KEY, &key)));
    assert!(seen(&|dir| write(dir, "general.ibd", KEY, &key)));
    // Its flags say that it is encrypted, and the key is not there.
    let flags: u32 = 0x4821 | 1 << 13;
    assert!(seen(&|dir| write(dir, "general.ibd", 54, &flags.to_be_bytes())));
    assert!(seen(&|dir| write(dir, "general.ibd", 54, &[0xff; 4])));
    // Behind the head of each file of the redo log; across the ends of its blocks it is tested beside the code.
    for index in 0..2 {
        let name = format!("#innodb_redo/#ib_redo{index}");
        assert!(seen(&|dir| write(dir, &name, 4096 + 100, &key)), "{name}");
        assert!(seen(&|dir| write(dir, &name, 65536 - 200, &key)), "{name}");
    }
    // From one file to the next.
    assert!(seen(&|dir| {
        write(dir, "#innodb_redo/#ib_redo0", 65536 - 4 - 20, &key[..20]);
        write(dir, "#innodb_redo/#ib_redo1", 2048 + 12, &key[20..]);
    }));
    // A server has begun another redo log.
    let rename = |dir: &Path, from: &str, to: &str| {
        let log = dir.join("#innodb_redo");
        std::fs::rename(log.join(from), log.join(to)).unwrap();
    };
    assert!(seen(&|dir| {
        rename(dir, "#ib_redo1", "#ib_redo3");
        rename(dir, "#ib_redo0", "#ib_redo2");
    }));
    // An encrypted redo log, of which no record can be read.
    let (clone, scratch) = (MadeClone::new(true), Scratch::new());
    clone.extract(scratch.path());
    let done = run(scratch.path(), usize::MAX).unwrap();
    assert!(has_shared_keys(&TargetDir::open_kept(scratch.path()).unwrap(), &done).unwrap());
}

/// Ended before each change in turn, and each time continued from where it ended.
#[test]
fn one_that_was_ended_at_any_step_is_continued() {
    ended_at_any_step(&MadeClone::new(true));
}

#[test]
fn one_beside_which_ddl_ran_is_continued_too() {
    ended_at_any_step(&MadeClone::new(true).with_ddl());
}

#[test]
fn effects_of_ddl_count_only_if_it_could_run() {
    for (at, field, value) in [
        ("/files/3", "name", json!("shop/other.ibd")),
        ("/files/6", "is_removed", json!(true)),
        ("/files/3", "is_late", json!(true)),
    ] {
        let mut clone = MadeClone::new(false);
        clone.info.pointer_mut(at).unwrap()[field] = value;
        let _ = refused(&clone, at);
    }
    // Two files of one name, and names of the restore's own.
    for (at, value) in [
        ("/files/4/name", "shop/first.ibd"),
        ("/files/3/path", "shop/first.ibd"),
        ("/files/3/path", "xb_clone.patches"),
        ("/files/8/path", "shop/late.ibd"),
        ("/files/8/name", "#innodb_redo/#ib_redo0"),
    ] {
        let mut clone = MadeClone::new(false).with_ddl();
        *clone.info.pointer_mut(at).unwrap() = json!(value);
        let _ = refused(&clone, at);
    }
}

fn ended_at_any_step(clone: &MadeClone) {
    let mut steps = 0;
    loop {
        let scratch = Scratch::new();
        clone.extract(scratch.path());
        match run(scratch.path(), steps) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::Cancelled), "{error}"),
        }
        // No server would find a redo log.
        assert!(!scratch.path().join("#innodb_redo").exists(), "step {steps}");
        // A page of which only a part was written.
        for name in ["shop/plain.ibd", "shop/first.ibd", "shop/second.ibd"] {
            let path = scratch.path().join(name);
            // It may be on its way to another name.
            let Ok(mut bytes) = std::fs::read(&path) else { continue };
            let is_begun = scratch.path().join("xb_clone.redo").exists();
            if is_begun && name != "shop/plain.ibd" {
                bytes[PAGE / 2..PAGE].fill(0xee);
                std::fs::write(path, bytes).unwrap();
            }
        }
        let again = run(scratch.path(), steps / 2);
        assert!(again.is_err_and(|error| matches!(error, Error::Cancelled)));
        run(scratch.path(), usize::MAX).unwrap();
        finished(scratch.path(), clone);
        steps += 1;
    }
    assert!(steps > 25, "{steps}");
}

#[test]
fn a_clone_that_was_put_together_is_not_changed() {
    let (clone, scratch) = (MadeClone::new(true), Scratch::new());
    clone.extract(scratch.path());
    run(scratch.path(), usize::MAX).unwrap();
    // As a server that has started on it.
    std::fs::write(scratch.path().join("shop/plain.ibd"), "newer").unwrap();
    let before = content(scratch.path());
    run(scratch.path(), 0).unwrap();
    assert!(content(scratch.path()) == before);
}

/// A directory below a scratch directory.
fn inner(scratch: &Scratch) -> std::path::PathBuf {
    let dir = scratch.join("in/dir");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Refused, and not one byte is changed.
fn refused(clone: &MadeClone, what: &str) -> String {
    let scratch = Scratch::new();
    let dir = inner(&scratch);
    clone.extract(&dir);
    let before = content(scratch.path());
    let error = run(&dir, usize::MAX).expect_err(what);
    assert!(matches!(error, Error::Damaged(_) | Error::Refused(_) | Error::Target(_)), "{error}");
    assert!(content(scratch.path()) == before, "{what}: {error}");
    error.to_string()
}

#[test]
fn damage_is_refused_before_a_byte_is_written() {
    let sound = MadeClone::new(true);
    let mut clone = sound.clone();
    clone.info["patches"] = json!(sound.patches.len() + 1);
    assert!(refused(&clone, "a patch is missing").contains("8 of 9 patches"), "count");
    let mut clone = sound.clone();
    drop(clone.patches.remove(0));
    let _ = refused(&clone, "another patch is missing");
    let mut clone = sound.clone();
    clone.files[4].1.truncate(100);
    clone.patches.retain(|(is_redo, index, ..)| *is_redo || *index != 4);
    clone.info["patches"] = json!(clone.patches.len());
    let _ = refused(&clone, "a first page is cut");
    // The second table's first page is in no patch.
    let mut clone = sound.clone();
    clone.files[5].1[9000] ^= 1;
    assert!(refused(&clone, "a first page is damaged").contains("first page"));
    let mut clone = sound.clone();
    clone.info["files"][5]["space"] = json!(7);
    assert!(refused(&clone, "a first page of another tablespace").contains("of tablespace"));
    let mut clone = sound.clone();
    clone.files[5].1.extend([0; PAGE]);
    let _ = refused(&clone, "a file is too long");
    // Longer by what a redo log may have behind its end, and by one byte more.
    let mut clone = sound.clone();
    clone.patches[5].2 = 65536 - 6000 + 513;
    let _ = refused(&clone, "the redo log is too long");
    let mut clone = sound.clone();
    clone.patches.retain(|(is_redo, index, offset, _)| !(*is_redo && *index == 0 && *offset == 0));
    clone.info["patches"] = json!(clone.patches.len());
    assert!(refused(&clone, "the redo log has no head").contains("head of the redo log"));
    // Each file of the redo log has a key, and none may be left in clear.
    for index in 0..2 {
        let mut clone = sound.clone();
        let mut of_redo = clone.patches.iter_mut();
        let head = of_redo.find(|patch| (patch.0, patch.1, patch.2) == (true, index, 0)).unwrap();
        head.3[1072 + 50] ^= 1;
        let error = refused(&clone, "a key of the redo log is damaged");
        assert!(error.contains(&format!("the key of the redo log {index}")), "{error}");
    }
}

/// A server could start on a redo log from the stream, and notes of a restore that are not its own would be believed.
#[test]
fn nothing_in_a_stream_is_taken_for_a_part_of_a_restore() {
    let clone = MadeClone::new(true);
    for name in [
        "#innodb_redo/#ib_redo0",
        "#clone/#status_fix",
        "xb_clone.redo/#ib_redo0",
        "xb_clone.moved",
        "xb_clone.heads",
        "xb_clone.heads.new",
    ] {
        let scratch = Scratch::new();
        clone.extract(scratch.path());
        let target = TargetDir::open_kept(scratch.path()).unwrap();
        check_extracted(&target, &[b"ibdata1".to_vec(), b"xb_clone.json".to_vec()]).unwrap();
        let path = scratch.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "theirs").unwrap();
        let error = check_extracted(&target, &[]).unwrap_err();
        assert!(matches!(&error, Error::Damaged(_)), "{name}: {error}");
        let first = name.split('/').next().unwrap();
        assert!(error.to_string().contains(&format!("it has {first},")), "{name}: {error}");
    }
}

/// Options, components and keys that a server believes, because they lie beside its data.
#[test]
fn a_clone_brings_nothing_but_data() {
    let clone = MadeClone::new(true);
    let scratch = Scratch::new();
    clone.extract(scratch.path());
    let target = TargetDir::open_kept(scratch.path()).unwrap();
    for name in ["mysqld-auto.cnf", "mysqld.my", "my.cnf", "private_key.pem", "binlog.index"] {
        let error = check_extracted(&target, &[name.as_bytes().to_vec()]).unwrap_err().to_string();
        assert!(error.contains(&format!("it has {name}, which is no file of it")), "{error}");
    }
    // Nor below a folder; what begins like the clone's own files is its own only at the top.
    for name in
        ["shop/foreign.ibd", "shop/xb_clone.x", "other/backup-my.cnf", "xb_clone.outside/99"]
    {
        let paths =
            [b"shop/plain.ibd".to_vec(), b"xb_clone.json".to_vec(), name.as_bytes().to_vec()];
        check_extracted(&target, &paths[..2]).unwrap();
        let error = check_extracted(&target, &paths).unwrap_err().to_string();
        assert!(error.contains(&format!("it has {name}, which is no file of it")), "{error}");
    }
}

/// The positions in the files are then those of an earlier time.
#[test]
fn the_clone_of_a_server_without_a_binary_log_has_no_position_in_one() {
    let (clone, scratch) = (MadeClone::new(false), Scratch::new());
    clone.extract(scratch.path());
    let mut info = run(scratch.path(), usize::MAX).unwrap();
    let target = TargetDir::open_kept(scratch.path()).unwrap();
    // The page in which it would be is not one of a server.
    assert!(info.has_binlog && binlog_position(&target, &info).is_err());
    info.has_binlog = false;
    assert_eq!(binlog_position(&target, &info).unwrap(), None);
}

#[test]
fn no_link_is_followed() {
    let clone = MadeClone::new(false);
    for (name, is_dir) in [
        ("ibdata1", false),
        ("shop/plain.ibd", false),
        ("shop", true),
        ("xb_clone.patches", false),
        ("xb_clone.json", false),
        ("xb_clone.outside", true),
        ("xb_clone.redo", true),
        ("xb_clone.heads", false),
        ("xb_clone.heads.new", false),
        ("#clone", true),
        ("mysql", true),
        ("backup-my.cnf", false),
        ("general.ibd", false),
    ] {
        let (scratch, outside) = (Scratch::new(), Scratch::new());
        clone.extract(scratch.path());
        let (place, other) = (scratch.path().join(name), outside.path().join("theirs"));
        match (place.exists(), is_dir) {
            (true, _) => std::fs::rename(&place, &other).unwrap(),
            (false, true) => std::fs::create_dir(&other).unwrap(),
            (false, false) => std::fs::write(&other, "theirs").unwrap(),
        }
        std::os::unix::fs::symlink(&other, &place).unwrap();
        let before = content(outside.path());
        let done = run(scratch.path(), usize::MAX);
        // A link where only a new file goes is replaced, never followed.
        assert!(done.is_err() || name == "xb_clone.heads.new", "{name}");
        assert!(content(outside.path()) == before, "{name}");
    }
}

/// Every value in the description, by its path.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), all))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, value)| places(value, &format!("{at}/{n}"), all));
        }
        _ => all.push(at.to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Whatever the info states and the patches hold, nothing outside of the directory is touched, and a clone that
    /// is not refused stays within what its info states.
    #[test]
    fn nothing_is_written_outside(
        at: prop::sample::Index,
        value in prop_oneof![
            Just(json!("../x")), Just(json!("/x")), Just(json!("")), Just(json!("a//b")),
            Just(json!("shop/plain.ibd")), Just(json!("xb_clone.json")), Just(json!("mysql")),
            Just(json!("#innodb_redo/#ib_redo0")), Just(json!(u64::MAX)), Just(json!(0)),
            Just(json!(1)), Just(json!(1 << 24)), Just(json!(-1)), Just(Value::Null),
        ],
        patch: Option<(prop::sample::Index, u32, u64)>,
        is_ddl: bool,
    ) {
        let mut clone = MadeClone::new(true);
        if is_ddl {
            clone = clone.with_ddl();
        }
        let mut all = Vec::new();
        places(&clone.info, "", &mut all);
        let place: &String = at.get(&all);
        *clone.info.pointer_mut(place).unwrap() = value;
        if let Some((which, index, offset)) = patch {
            let number = which.index(clone.patches.len());
            (clone.patches[number].1, clone.patches[number].2) = (index % 20, offset);
        }
        let scratch = Scratch::new();
        let dir = inner(&scratch);
        clone.extract(&dir);
        std::fs::write(scratch.path().join("in/x"), "theirs").unwrap();
        let before = content(scratch.path());
        let outcome = run(&dir, usize::MAX);
        let after = content(scratch.path());
        let is_inside = |name: &&String| name.starts_with("in/dir/");
        prop_assert!(after.keys().filter(|name| !is_inside(name)).eq(["in/x"]));
        if outcome.is_err() {
            prop_assert!(after == before);
        }
    }
}
