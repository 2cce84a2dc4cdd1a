//! Copies of backups with the archived binary log of their server.

use std::path::{Path, PathBuf};

use xb_repo::archive::ended::{EndedStream, encode};
use xb_repo::names::RunId;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::s3::{Bucket, bucket, options_for};

use crate::many_segments::object;
use crate::support::logged_shop::{ROWS, Shop, age, copy_folder, into, newest_stream, segments};

/// Copies a backup with its log to the folder `vault`.
fn copy(shop: &Shop, name: &str, vault: &str) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "copy", &shop.place(name), "--unverified", "--with-binlog"])
        .arg(format!("file://{}/", shop.scratch.join(vault).display()))
        .arg("--max-backoff=50")
        .args(shop.key())
        .run()
}

/// The shop as seen from the folder of a copy.
fn rows_of(shop: &Shop, vault: &str, name: &str, stop: &str) -> Result<String, String> {
    let target = tempfile::tempdir_in(shop.scratch.path()).unwrap();
    let place = format!("file://{}/{name}", shop.scratch.join(vault).display());
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "restore", &place])
        .env("STATE_DIRECTORY", shop.scratch.join("nothing"))
        .args(shop.key())
        .args([format!("--until={stop}"), into(target.path())])
        .run();
    if ran.code() != 0 {
        return Err(ran.stderr_text());
    }
    Ok(MariaDb::start_on_with(target.path(), &["--server-id=99"]).sql(ROWS))
}

/// The records of the streams in the archive of a folder, which have all ended.
fn ended_streams(root: &Path) -> Vec<EndedStream> {
    let folders = std::fs::read_dir(root.join(".xb-binlog/shop")).unwrap();
    let streams = folders.map(|folder| {
        let folder = folder.unwrap().path();
        let id = RunId::parse(folder.file_name().unwrap().to_str().unwrap()).unwrap();
        let [head, keys, alive, end] =
            ["head", "keys", "alive", "end"].map(|name| std::fs::read(folder.join(name)).unwrap());
        EndedStream { id, head, keys, alive, end, heads: Vec::new() }
    });
    streams.collect()
}

/// Exit status and output of `binlog verify` on a copy.
fn verified(shop: &Shop, vault: &str) -> (i32, String) {
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", "verify"])
        .arg(format!("file://{}", shop.scratch.join(vault).display()))
        .env("STATE_DIRECTORY", shop.scratch.join("nothing"))
        .args(shop.key())
        .run();
    (ran.code(), ran.stdout_text() + &ran.stderr_text())
}

/// Keeps the newest backup of a folder, and the log that it needs.
fn prune(root: &Path) -> String {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "prune", "--keep-last=1", "--yes"])
        .arg(format!("file://{}", root.display()))
        .run()
        .expect(0)
        .stderr_text()
}

/// Names and bytes of the archive in a folder, without `alive`.
fn archived(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    for stream in std::fs::read_dir(folder.join(".xb-binlog/shop")).unwrap() {
        for file in std::fs::read_dir(stream.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if !path.ends_with("alive") {
                let bytes = std::fs::read(&path).unwrap();
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
            }
        }
    }
    files
}

fn is_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_str().unwrap().parse::<u64>().is_ok())
}

/// Segments of the archive in a folder.
fn segments_in(root: &Path) -> Vec<PathBuf> {
    archived(root).into_keys().filter(|path| is_segment(path)).map(|name| root.join(name)).collect()
}

#[test]
fn a_copy_takes_roll_ups_of_streams_along() {
    let shop = Shop::new();
    for id in 1..3 {
        let receiver = shop.receive();
        if id == 1 {
            let _ = shop.back_up("full", &[]);
        }
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'one')"));
        shop.wait_for(&receiver);
        receiver.stop();
    }
    let (here, there) = (shop.scratch.join("shop"), shop.scratch.join("vault"));
    std::fs::create_dir(&there).unwrap();
    let streams = ended_streams(&here);
    let rolled = here.join(".xb-binlog/shop/.streams");
    std::fs::create_dir(&rolled).unwrap();
    let [first, second] = [&streams[0].id, &streams[1].id].map(|id| rolled.join(id.to_string()));
    std::fs::write(&first, object(encode(&streams[..1]))).unwrap();
    // Twice: the second time, everything is there.
    for _ in 0..2 {
        let said = copy(&shop, "full", "vault").expect(0).stderr_text();
        assert_eq!(archived(&there), archived(&here), "{said}");
        assert_eq!(verified(&shop, "vault").0, 0);
    }
    let line = copy(&shop, "full", "vault").expect(0).stderr_text();
    assert!(line.contains("in 0 segments"), "{line}");
    // One that is damaged is left out, and one with another stream's records.
    let mut wrong = streams.clone();
    wrong[1].end = streams[0].end.clone();
    let cut = object(encode(&streams))[..900].to_vec();
    for wrong in [cut, object(encode(&wrong))] {
        std::fs::write(&second, wrong).unwrap();
        let _ = copy(&shop, "full", "vault").expect(0);
        std::fs::remove_file(&second).unwrap();
        assert_eq!(archived(&there), archived(&here));
    }
    assert_eq!(rows_of(&shop, "vault", "full", "latest").unwrap(), shop.rows());
}

#[test]
fn a_copy_takes_the_log_along_and_later_only_what_is_new() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one'); FLUSH BINARY LOGS");
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two'); INSERT INTO d.m VALUES (1)");
    shop.wait_for(&receiver);
    let rows = shop.rows();
    let here = shop.scratch.join("shop");
    let there = shop.scratch.join("vault");
    std::fs::create_dir(&there).unwrap();
    // The receiver is at work.
    let said = copy(&shop, "full", "vault").expect(0).stderr_text();
    assert!(said.contains("the log of shop: copied"), "{said}");
    assert_eq!(rows_of(&shop, "vault", "full", "latest").unwrap(), rows);
    assert_eq!(verified(&shop, "vault").0, 0, "{}", verified(&shop, "vault").1);
    receiver.stop();
    // A second stream.
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.t VALUES (3, 'three')");
    shop.wait_for(&receiver);
    receiver.stop();
    let before = archived(&there).len();
    let newer = archived(&here).len() - before;
    let said = copy(&shop, "full", "vault").expect(0).stderr_text();
    assert_eq!(archived(&there), archived(&here), "{said}");
    let line = said.split_once("the log of shop: copied, ").unwrap().1;
    let line = line.split_once(" segment").unwrap().0;
    let segments: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(segments > 0 && segments <= newer, "{newer}: {said}");
    assert_eq!(rows_of(&shop, "vault", "full", "latest").unwrap(), shop.rows());
    let said = copy(&shop, "full", "vault").expect(0).stderr_text();
    assert!(said.contains(" in 0 segments"), "{said}");
    // The next copy writes the segments that an interrupted one did not; until then nothing is claimed.
    let whole = archived(&there);
    // Head and keys of a stream are written before its segments.
    let is_later = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == "end" || name.parse::<u64>().is_ok()
    };
    let segments: Vec<&PathBuf> = whole.keys().filter(is_later).collect();
    for (nth, path) in segments.iter().enumerate().filter(|(nth, _)| nth % 2 == 1) {
        std::fs::remove_file(there.join(path)).unwrap();
        let refused = rows_of(&shop, "vault", "full", "latest");
        let is_refused = refused.as_ref().is_err_and(|text| !text.contains("panicked"));
        assert!(is_refused || refused.as_ref() == Ok(&shop.rows()), "{nth}: {path:?}: {refused:?}");
    }
    let _ = copy(&shop, "full", "vault").expect(0);
    assert_eq!(archived(&there), whole);
    assert_eq!(verified(&shop, "vault").0, 0);
    // Without its head, a stream's segments cannot be judged, and are compared byte by byte.
    let head = whole.keys().find(|path| path.ends_with("head")).unwrap();
    std::fs::remove_file(there.join(head)).unwrap();
    let _ = copy(&shop, "full", "vault").expect(0);
    assert_eq!(archived(&there), whole);
}

/// The source may be lost before the copy is continued.
#[test]
fn a_copy_that_was_interrupted_between_two_streams_is_not_the_latest() {
    let shop = Shop::new();
    let mut first = None;
    for id in 1..3 {
        let receiver = shop.receive();
        if id == 1 {
            let _ = shop.back_up("full", &[]);
        }
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
        receiver.stop();
        first.get_or_insert_with(|| newest_stream(&shop));
    }
    let streams = std::fs::read_dir(shop.scratch.join("shop/.xb-binlog/shop")).unwrap();
    let mut streams = streams.map(|stream| stream.unwrap().path());
    let newest = streams.find(|stream| Some(stream) != first.as_ref()).unwrap();
    let newest = Path::new(".xb-binlog/shop").join(newest.file_name().unwrap());
    for object in ["head", "keys", "000000000000", "end"] {
        // Nothing can be written there.
        let vault = shop.scratch.join(object);
        let blocked = vault.join(&newest).join(object);
        std::fs::create_dir_all(&blocked).unwrap();
        let said = copy(&shop, "full", object).expect_failure().stderr_text();
        std::fs::remove_dir(&blocked).unwrap();
        let refused = rows_of(&shop, object, "full", "latest").unwrap_err();
        assert!(!refused.contains("panicked"), "{object}: {refused}");
        let _ = copy(&shop, "full", object).expect(0);
        let rows = rows_of(&shop, object, "full", "latest");
        assert_eq!(rows.as_ref(), Ok(&shop.rows()), "{object}: {said}");
    }
    // Its first object alone.
    let vault = shop.scratch.join("head");
    let head = std::fs::read(vault.join(&newest).join("head")).unwrap();
    std::fs::remove_dir_all(vault.join(".xb-binlog")).unwrap();
    std::fs::create_dir_all(vault.join(&newest)).unwrap();
    std::fs::write(vault.join(&newest).join("head"), head).unwrap();
    let (status, said) = verified(&shop, "head");
    assert_eq!(status, 7, "{said}");
    assert!(said.contains("only its head is stored"), "{said}");
}

#[test]
fn a_copy_of_a_log_with_a_hole_names_it_and_claims_nothing() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    for id in 1..4 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x'); FLUSH BINARY LOGS"));
    }
    shop.wait_for(&receiver);
    receiver.stop();
    for vault in ["vault", "other", "third"] {
        std::fs::create_dir(shop.scratch.join(vault)).unwrap();
    }
    let all = segments(&shop);
    let (damaged, last) = (&all[all.len() - 2], all.len() - 2);
    let whole = std::fs::read(damaged).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(damaged, &flipped).unwrap();
    let said = copy(&shop, "full", "vault").expect(7).stderr_text();
    assert!(said.contains(&format!("segment {last}: damaged")), "{said}");
    let text = rows_of(&shop, "vault", "full", "latest").unwrap_err();
    assert!(text.contains("missing"), "{text}");
    assert_eq!(verified(&shop, "vault").0, 7);
    // Once it is mended, the rest follows.
    std::fs::write(damaged, &whole).unwrap();
    let _ = copy(&shop, "full", "vault").expect(0);
    assert_eq!(rows_of(&shop, "vault", "full", "latest").unwrap(), shop.rows());
    // One that is missing.
    std::fs::remove_file(damaged).unwrap();
    let said = copy(&shop, "full", "other").expect(7).stderr_text();
    assert!(said.contains(&format!("segment {last} is missing")), "{said}");
    let text = rows_of(&shop, "other", "full", "latest").unwrap_err();
    assert!(text.contains("missing"), "{text}");
    std::fs::write(damaged, &whole).unwrap();
    // One that is another one there stays.
    let path = damaged.strip_prefix(shop.scratch.join("shop")).unwrap();
    let wrong = shop.scratch.join("vault").join(path);
    std::fs::write(&wrong, std::fs::read(&all[0]).unwrap()).unwrap();
    let said = copy(&shop, "full", "vault").expect(7).stderr_text();
    assert!(said.contains("the destination has another one"), "{said}");
    assert_eq!(std::fs::read(&wrong).unwrap(), std::fs::read(&all[0]).unwrap());
    // Another archive is not mixed with this one.
    let id = "0123456789abcdef0123456789abcdef";
    let foreign = shop.scratch.join("third/.xb-binlog/shop").join(id);
    copy_folder(&newest_stream(&shop), &foreign);
    let said = copy(&shop, "full", "third");
    assert_ne!(said.code(), 0);
    assert!(said.stderr_text().contains("archives are never mixed"), "{}", said.stderr_text());
    assert_eq!(std::fs::read_dir(foreign.parent().unwrap()).unwrap().count(), 1);
    // A place without an archive is refused before anything is copied.
    std::fs::remove_dir_all(shop.scratch.join("shop/.xb-binlog")).unwrap();
    std::fs::create_dir(shop.scratch.join("empty")).unwrap();
    let said = copy(&shop, "full", "empty");
    assert!(said.stderr_text().contains("is not archived"), "{}", said.stderr_text());
    assert_eq!(std::fs::read_dir(shop.scratch.join("empty")).unwrap().count(), 0);
}

#[test]
fn a_copied_log_begins_where_the_backups_there_need_it() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("old", &[]);
    for id in 1..4 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x'); FLUSH BINARY LOGS"));
    }
    shop.wait_for(&receiver);
    receiver.stop();
    // By the clocks, all of that was long before the next backup.
    let _ = age(&shop, 0);
    let receiver = shop.receive();
    let _ = shop.back_up("new", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (9, 'nine')");
    shop.wait_for(&receiver);
    receiver.stop();
    let (here, there) = (shop.scratch.join("shop"), shop.scratch.join("vault"));
    std::fs::create_dir(&there).unwrap();
    let _ = copy(&shop, "new", "vault").expect(0);
    assert!(archived(&there).keys().any(|path| path.to_str().unwrap().contains("floor-")));
    assert!(archived(&there).len() < archived(&here).len());
    assert_eq!(rows_of(&shop, "vault", "new", "latest").unwrap(), shop.rows());
    assert_eq!(verified(&shop, "vault").0, 0, "{}", verified(&shop, "vault").1);
    // It has no log for an older one, and says so.
    let said = copy(&shop, "old", "vault").expect(7).stderr_text();
    assert!(said.contains("at the destination only") && said.contains("was removed"), "{said}");
    assert!(rows_of(&shop, "vault", "old", "latest").is_err());
}

/// It is the record by which `prune` says where a stream begins.
#[test]
fn a_floor_that_cannot_be_read_is_named_with_what_to_do() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("old", &[]);
    for id in 1..4 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x'); FLUSH BINARY LOGS"));
        shop.wait_for(&receiver);
    }
    let _ = shop.back_up("new", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (9, 'nine')");
    shop.wait_for(&receiver);
    receiver.stop();
    let _ = age(&shop, 0);
    let (here, there) = (shop.scratch.join("shop"), shop.scratch.join("vault"));
    let text = prune(&here);
    assert!(text.contains("binary log of shop: removed"), "{text}");
    let is_floor = |path: &PathBuf| path.to_str().unwrap().contains("/floor-");
    let floor = here.join(archived(&here).into_keys().find(is_floor).unwrap());
    let whole = std::fs::read(&floor).unwrap();
    std::fs::create_dir(&there).unwrap();
    std::fs::write(&floor, &whole[..whole.len() / 2]).unwrap();
    let ran = copy(&shop, "new", "vault");
    let said = ran.stderr_text();
    assert_ne!(ran.code(), 0, "{said}");
    let name = floor.file_name().unwrap().to_str().unwrap();
    for part in ["the archive of shop: ", name, "put this object back", "leave out --with-binlog"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    std::fs::write(&floor, &whole).unwrap();
    let _ = copy(&shop, "new", "vault").expect(0);
    assert_eq!(rows_of(&shop, "vault", "new", "latest").unwrap(), shop.rows());
}

/// The hole is named and judged, and both sides of it can be used.
#[test]
fn a_copied_log_has_a_hole_where_the_source_had_pruned_before_it_was_copied() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("old", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'x'); FLUSH BINARY LOGS");
    shop.server.sql("INSERT INTO d.t VALUES (2, 'x')");
    let copied = shop.gtid();
    let rows = shop.rows();
    shop.wait_for(&receiver);
    let (here, there) = (shop.scratch.join("shop"), shop.scratch.join("vault"));
    std::fs::create_dir(&there).unwrap();
    let _ = copy(&shop, "old", "vault").expect(0);
    // None of this is copied, and then the source removes it.
    for id in 3..6 {
        shop.server.sql(&format!("FLUSH BINARY LOGS; INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    }
    let lost = shop.gtid();
    shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (6, 'x')");
    shop.wait_for(&receiver);
    let _ = shop.back_up("new", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (7, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    // Both archives were received long ago, by the clocks. Their segments stay the same ones.
    let copied_segments = segments_in(&there);
    let _ = age(&shop, 0);
    for path in copied_segments {
        let name = path.strip_prefix(&there).unwrap();
        std::fs::copy(here.join(name), &path).unwrap();
    }
    let text = prune(&here);
    assert!(text.contains("binary log of shop: removed"), "{text}");
    for _ in 0..2 {
        let said = copy(&shop, "new", "vault").expect(0).stderr_text();
        assert!(said.contains(", up to bin."), "{said}");
    }
    assert_eq!(rows_of(&shop, "vault", "new", "latest").unwrap(), shop.rows());
    // The older backup reaches the hole, and no farther.
    assert_eq!(rows_of(&shop, "vault", "old", &copied).unwrap(), rows);
    for stop in [&lost, "latest"] {
        let text = rows_of(&shop, "vault", "old", stop).unwrap_err();
        assert!(text.contains("were removed before they could be copied"), "{text}");
    }
    let (code, text) = verified(&shop, "vault");
    assert!(code == 7 && text.contains("were removed before they could be copied"), "{text}");
    assert!(!text.contains("missing") && !text.contains("damaged"), "{text}");
    // `prune` crosses the hole, and then no backup needs it.
    let text = prune(&there);
    assert!(text.contains("binary log of shop: removed"), "{text}");
    assert_eq!(verified(&shop, "vault").0, 0, "{}", verified(&shop, "vault").1);
    assert_eq!(rows_of(&shop, "vault", "new", "latest").unwrap(), shop.rows());
    let left = |root: &Path| {
        archived(root).into_keys().filter(|path| is_segment(path)).collect::<Vec<_>>()
    };
    assert_eq!(left(&there), left(&here));
}

/// A copy may overtake the removal at the source: then it lacks what is in the middle.
#[test]
fn a_hole_whose_end_was_copied_is_named_and_crossed_by_prune() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("old", &[]);
    for id in 1..5 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x'); FLUSH BINARY LOGS"));
        shop.wait_for(&receiver);
    }
    let _ = shop.back_up("new", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (7, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    // By the clocks, all of that was long before the newer backup.
    let _ = age(&shop, 0);
    let (here, there) = (shop.scratch.join("shop"), shop.scratch.join("vault"));
    std::fs::create_dir(&there).unwrap();
    let _ = copy(&shop, "old", "vault").expect(0);
    std::fs::remove_file(&segments_in(&there)[1]).unwrap();
    let text = prune(&here);
    assert!(text.contains("binary log of shop: removed"), "{text}");
    let said = copy(&shop, "new", "vault").expect(0).stderr_text();
    assert!(said.contains("segments 1 to 1 of stream"), "{said}");
    let said = copy(&shop, "new", "vault").expect(0).stderr_text();
    assert!(!said.contains("segments 1 to 1 of stream"), "{said}");
    let (code, text) = verified(&shop, "vault");
    assert!(code == 7 && text.contains("were removed before they could be copied"), "{text}");
    assert!(!text.contains("missing"), "{text}");
    let text = prune(&there);
    assert!(text.contains("binary log of shop: removed"), "{text}");
    assert_eq!(verified(&shop, "vault").0, 0, "{}", verified(&shop, "vault").1);
    assert_eq!(rows_of(&shop, "vault", "new", "latest").unwrap(), shop.rows());
}

/// A listing that leaves out a stream would hide the newest transactions.
#[test]
fn a_listing_that_leaves_out_a_stream_is_noticed() {
    let shop = Shop::new();
    for id in 1..3 {
        let receiver = shop.receive();
        if id == 1 {
            let _ = shop.back_up("full", &[]);
        }
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
        receiver.stop();
    }
    let here = shop.scratch.join("shop");
    let bucket = bucket();
    upload(&here, "shop", &bucket);
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let copied = |vault: &str, rules: Vec<Rule>| {
        std::fs::create_dir(shop.scratch.join(vault)).unwrap();
        proxy.set_rules(rules);
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "copy", &bucket.url("shop/full"), "--unverified"])
            .args(["--with-binlog", "--max-backoff=50"])
            .arg(format!("file://{}/", shop.scratch.join(vault).display()))
            .args(options_for(&proxy.endpoint()))
            .args(shop.key())
            .run()
    };
    let newest = newest_stream(&shop);
    let id = newest.file_name().unwrap().to_str().unwrap();
    let hidden: &'static str = format!("/{id}/").leak();
    // The listing of folders, and that of objects.
    for (nth, before) in ["&", "?"].into_iter().enumerate() {
        let part = format!("{before}list-type=2&prefix=shop%2F.xb-binlog%2Fshop");
        let rule = || Rule::new("GET", &part, Action::Edit(Edit::Hide(hidden)));
        let vault = format!("always{nth}");
        let always = copied(&vault, vec![rule()]);
        if nth == 0 {
            let said = always.expect_failure().stderr_text();
            assert!(said.contains("name different streams: try again"), "{said}");
            assert!(!shop.scratch.join(&vault).join(".xb-binlog").exists(), "{said}");
        } else {
            // What the folders show is read by name, but for the roll-up of its heads, which only saves requests.
            let _ = always.expect(0);
            let both = [here.clone(), shop.scratch.join(&vault)].map(|root| {
                let mut files = archived(&root);
                files.retain(|path, _| !path.to_str().unwrap().contains("/.heads-"));
                files
            });
            assert_eq!(both[0], both[1]);
        }
        // One answer of that kind hides nothing.
        let vault = format!("once{nth}");
        let _ = copied(&vault, vec![rule().times(1)]).expect(0);
        assert_eq!(archived(&shop.scratch.join(&vault)), archived(&here));
        assert!(shop.scratch.join(&vault).join(".xb-binlog/shop").join(id).join("alive").exists());
    }
}

/// Puts the files of a folder into a bucket.
fn upload(folder: &Path, key: &str, bucket: &Bucket) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let key = format!("{key}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => upload(&entry.path(), &key, bucket),
            false => bucket.put(&key, &std::fs::read(entry.path()).unwrap()),
        }
    }
}
