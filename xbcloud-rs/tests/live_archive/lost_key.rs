//! An archive whose earlier part has a key that is lost, or none.

use xb_testkit::command::{Cmd, Ran, Signal};
use xb_testkit::store::Store;

use crate::support::archive::{Archive, SERVER};

fn restore(archive: &Archive, stop: &str, key: &str, more: &[&str]) -> Ran {
    archive
        .cmd(&["restore", &archive.store.url(""), SERVER, "--dry-run", "--accept-unsealed"])
        .args([format!("--until={stop}"), format!("--encrypt-key-file={}", archive.path(key))])
        .args(more)
        .run()
}

/// Stores all that the server has with this key, by two connections.
fn store_with(archive: &Archive, key: &str) {
    store(archive, Some(format!("--encrypt-key-file={}", archive.path(key))));
}

fn store(archive: &Archive, seal: Option<String>) {
    for _ in 0..2 {
        archive.write(1);
        let mut receiver = archive
            .cmd(&["binlog", "receive", &archive.store.root_url(), SERVER, "--rpo=1s"])
            .args([
                format!("--login-file={}", archive.path("login")),
                format!("--state-dir={}", archive.path("state")),
            ])
            .args(seal.clone())
            .spawn();
        receiver.until_handled(Signal::TERM);
        archive.wait(&mut receiver);
        receiver.signal(Signal::TERM);
        let _ = receiver.wait().expect(0);
    }
}

fn last(archive: &Archive) -> String {
    archive.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned()
}

/// As after a change of keys: the earlier part needs the earlier key, and only that part.
#[test]
fn a_stream_of_another_key_is_needed_only_for_what_lies_in_it() {
    let archive = Archive::new(Store::folder());
    let other = archive.path("other");
    let _ = std::fs::copy(archive.path("key"), &other).unwrap();
    std::fs::write(&other, [b'k'; 32]).unwrap();
    store_with(&archive, "key");
    let _ = archive.back_up("one");
    store_with(&archive, "key");
    let of_first = last(&archive);
    store_with(&archive, "other");
    let _ = archive.back_up("two");
    store_with(&archive, "other");
    let of_second = last(&archive);

    for stop in ["latest", &of_second] {
        let shown = restore(&archive, stop, "other", &[]).expect(0).stdout_text();
        assert!(shown.contains(&format!("last transaction: {of_second}")), "{stop}: {shown}");
    }
    let locked = |ran: Ran| {
        let said = ran.expect(4).stderr_text();
        assert!(said.contains(" of the archive: wrong key file"), "{said}");
        assert!(said.contains("give the key of this stream, too"), "{said}");
    };
    locked(restore(&archive, &of_first, "other", &[]));
    // The later part may have the end, but no GTID a second time.
    locked(restore(&archive, "latest", "key", &[]));
    let shown = restore(&archive, &of_first, "key", &[]).expect(0).stdout_text();
    assert!(shown.contains(&format!("last transaction: {of_first}")), "{shown}");
    let shown = restore(&archive, "latest", "key", &["--accept-lost-end"]).expect(0).stdout_text();
    assert!(shown.contains(&format!("last transaction: {of_first}")), "{shown}");

    let verify = |key: &str| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["binlog", "verify", &archive.store.root_url()])
            .args(archive.store.options())
            .arg(format!("--encrypt-key-file={}", archive.path(key)))
            .run()
    };
    let verified = verify("other").expect(4);
    let (shown, said) = (verified.stdout_text(), verified.stderr_text());
    assert!(!shown.contains("boundary") && shown.contains("problem: keys: wrong"), "{shown}");
    assert!(said.contains("all else is whole"), "{said}");
}

fn verify(archive: &Archive) -> Ran {
    archive
        .cmd(&["binlog", "verify", &archive.store.root_url()])
        .arg(format!("--encrypt-key-file={}", archive.path("key")))
        .run()
}

/// As after sealing was turned on: what is not sealed is history, and needs a word only if it is needed.
#[test]
fn an_unsealed_part_before_the_sealed_one_is_needed_only_for_what_lies_in_it() {
    let archive = Archive::new(Store::folder());
    let seal = format!("--encrypt-key-file={}", archive.path("key"));
    let back_up = |name: &str| {
        let _ = archive
            .cmd(&["backup", SERVER, "--quiet", &seal, &archive.store.url(name), "--"])
            .args(archive.server.backup_command())
            .run()
            .expect(0);
    };
    store(&archive, None);
    back_up("one");
    store(&archive, None);
    let of_unsealed = last(&archive);
    store_with(&archive, "key");
    back_up("two");
    store_with(&archive, "key");
    let of_sealed = last(&archive);

    let restore = |name: &str, stop: &str, more: &[&str]| {
        let words = ["restore", &archive.store.url(name), SERVER, "--dry-run", &seal];
        archive.cmd(&words).arg(format!("--until={stop}")).args(more).run()
    };
    let ends_at = |ran: Ran, gtid: &str| {
        let shown = ran.expect(0).stdout_text();
        assert!(shown.contains(&format!("last transaction: {gtid}")), "{gtid}: {shown}");
    };
    ends_at(restore("", "latest", &[]), &of_sealed);
    ends_at(restore("two", &of_sealed, &[]), &of_sealed);
    for stop in ["latest", &of_unsealed] {
        let said = restore("one", stop, &[]).expect(1).stderr_text();
        assert!(said.contains("it is not sealed, but a key was given"), "{stop}: {said}");
        assert!(said.contains("add --accept-unsealed"), "{stop}: {said}");
    }
    ends_at(restore("one", "latest", &["--accept-unsealed"]), &of_sealed);
    ends_at(restore("one", &of_unsealed, &["--accept-unsealed"]), &of_unsealed);
    let shown = verify(&archive).expect(0).stdout_text();
    assert!(shown.contains("a restore that needs it also needs --accept-unsealed"), "{shown}");

    // Anyone who can write to the store could have put it there.
    store(&archive, None);
    let of_end = last(&archive);
    for more in [&[][..], &["--accept-unsealed"]] {
        for stop in ["latest", &of_end] {
            let said = restore("", stop, more).expect(1).stderr_text();
            assert!(said.contains("and no sealed stream follows it"), "{stop}: {said}");
            assert!(said.contains("--accept-lost-end"), "{stop}: {said}");
        }
        ends_at(restore("", &of_sealed, more), &of_sealed);
    }
    ends_at(restore("", "latest", &["--accept-lost-end"]), &of_sealed);
    let shown = verify(&archive).expect(7).stdout_text();
    assert!(shown.contains("it is not sealed, but a key was given"), "{shown}");
    // The receiver compares it with the server's log, and seals the rest.
    store_with(&archive, "key");
    ends_at(restore("", "latest", &["--accept-unsealed"]), &last(&archive));
    let _ = verify(&archive).expect(0);
}

/// The word that a run is given holds for its verification, too.
#[test]
fn a_run_verifies_with_the_word_that_it_was_given() {
    let archive = Archive::new(Store::folder());
    store(&archive, None);
    let run = |name: &str, more: &[&str]| {
        archive
            .cmd(&["run", &archive.store.url(name), SERVER, "--quiet"])
            .args(["--verify=restore", "--until=latest"])
            .arg(format!("--encrypt-key-file={}", archive.path("key")))
            .args(more)
            .arg("--")
            .args(archive.server.backup_command())
            .run()
    };
    let said = run("one", &[]).expect(1).stderr_text();
    assert!(said.contains("add --accept-unsealed"), "{said}");
    let _ = run("two", &["--accept-unsealed"]).expect(0);
    // Nothing that it needs is without a seal.
    store_with(&archive, "key");
    let _ = run("three", &[]).expect(0);
}
