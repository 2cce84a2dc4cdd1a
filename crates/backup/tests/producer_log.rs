//! The log of a program that writes without end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use xb_backup::ProducerLog;

#[test]
fn a_log_ends_at_its_limit_and_the_last_lines_stay_at_hand() {
    let folder = tempfile::tempdir().unwrap();
    let log = ProducerLog::create_in(folder.path(), "monday").unwrap();
    let line = vec![b'x'; 8 << 20];
    for _ in 0..7 {
        log.line(&line);
    }
    assert_eq!(log.error(), None);
    log.line(&line);
    log.line(b"the last one");
    let error = log.error().unwrap();
    assert!(error.contains("64 MiB"), "{error}");
    assert_eq!(log.tail().last().unwrap(), "the last one");
    assert!(std::fs::metadata(log.path().unwrap()).unwrap().len() <= 64 << 20);
}
