//! An archive whose earlier part has a key that is lost.

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
    for _ in 0..2 {
        archive.write(1);
        let mut receiver = archive
            .cmd(&["binlog", "receive", &archive.store.root_url(), SERVER, "--rpo=1s"])
            .args([
                format!("--login-file={}", archive.path("login")),
                format!("--encrypt-key-file={}", archive.path(key)),
                format!("--state-dir={}", archive.path("state")),
            ])
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
