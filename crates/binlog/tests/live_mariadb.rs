//! Logs of a running MariaDB server, compared with what the server lists in them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use listing::{gtid, listed, ours, read};
use xb_binlog::{Barrier, Event, GtidState, History, LogEnd};
use xb_testkit::mariadb::MariaDb;

#[test]
fn a_running_servers_logs_are_read_as_it_lists_them() {
    let options =
        ["--log-bin=bin", "--server-id=3", "--binlog-format=MIXED", "--plugin-maturity=unknown"];
    let server = MariaDb::start_with(&options);
    server.sql(
        "CREATE DATABASE d; USE d;
         CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT) ENGINE=InnoDB;
         CREATE TABLE m LIKE t; ALTER TABLE m ENGINE=MyISAM;
         INSERT INTO t (v) VALUES (UUID()), (REPEAT('x', 3000000));
         SET gtid_domain_id = 9; INSERT INTO m (v) SELECT v FROM t; SET gtid_domain_id = 0;
         FLUSH BINARY LOGS;
         SET GLOBAL binlog_checksum = NONE;
         UPDATE t SET v = 'y'; CREATE TEMPORARY TABLE p (id INT); INSERT INTO p VALUES (1);
         SET GLOBAL binlog_checksum = CRC32; SET GLOBAL log_bin_compress = 1;
         DELIMITER //
         CREATE PROCEDURE fill() BEGIN DECLARE n INT DEFAULT 0; REPEAT SET n = n + 1;
         INSERT INTO t (v) VALUES (REPEAT(n, 1000)); UNTIL n = 50 END REPEAT; END //
         DELIMITER ;
         CALL fill();
         XA START 'x'; DELETE FROM t WHERE id = 2; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';
         CREATE ROLE r; DROP TABLE m; CREATE TABLE s (id INT) ENGINE=InnoDB;
         ALTER TABLE s /* because of a long comment, which makes this statement so long that the server
         compresses it in its log, as it does from a quarter of a KiB on: so that what it does is hidden
         behind a compressed text, and has to be decompressed before anything can be said about it */
         DISCARD TABLESPACE;
         SET timestamp = 1000000000; BEGIN; DELETE FROM t WHERE id = 1; SET timestamp = 1000000005;
         COMMIT; SET timestamp = DEFAULT;
         XA START 'held'; INSERT INTO t (v) VALUES ('held'); XA END 'held'; XA PREPARE 'held';",
    );
    // Two transactions that wait for each other are committed in one group.
    server.sql(
        "FLUSH BINARY LOGS; SET GLOBAL binlog_commit_wait_count = 2;
         SET GLOBAL binlog_commit_wait_usec = 30000000",
    );
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| server.sql("INSERT INTO d.t (v) VALUES ('together')"));
        }
    });
    let names = server.sql("SHOW BINARY LOGS");
    let names: Vec<&str> = names.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(names.len() >= 4, "{names:?}");
    let mut history = History::new(names[0], None);
    let (mut all, mut groups, mut barriers) = (Vec::new(), Vec::new(), Vec::new());
    for (n, name) in names.iter().enumerate() {
        let file = server.datadir().join(name);
        // A checkpoint may be written at any moment.
        let (log, text) = loop {
            let log = std::fs::read(&file).unwrap();
            let text = server.sql(&format!("SHOW BINLOG EVENTS IN '{name}'"));
            if log == std::fs::read(&file).unwrap() {
                break (log, text);
            }
        };
        let (entries, end) = read(&log, 60_000);
        match names.get(n + 1) {
            Some(next) => {
                assert!(matches!(&end, Ok(LogEnd::Rotated(to)) if to.file == *next), "{end:?}");
            }
            None => assert_eq!(end, Ok(LogEnd::InUse)),
        }
        // Without the first column, the name of the log.
        let text = text.lines().filter_map(|line| line.split_once('\t'));
        let text: String = text.map(|(_, rest)| format!("{rest}\n")).collect();
        assert_eq!(ours(&entries), listed(&text), "{name}");
        assert_eq!(history.log(), *name);
        for entry in &entries {
            let step = history.push(entry).unwrap();
            all.extend(step.ended);
            barriers.extend(step.barrier);
            if let Event::MariaDbBegin(begin) = &entry.event {
                groups.extend(begin.commit_id);
            }
        }
        assert_eq!(history.open(), None, "{name}");
    }
    assert!(all.len() > 60, "{all:?}");
    assert!(groups.len() == 2 && groups[0] == groups[1], "{groups:?}");
    assert_eq!(barriers, [Barrier::Tablespace]);
    let held: Vec<_> = history.prepared().map(|xid| xid.global.clone()).collect();
    assert_eq!(held, [b"held".to_vec()]);
    // The time of a transaction is that of its COMMIT.
    let times: Vec<u32> =
        all.iter().map(|each| each.seconds).filter(|time| *time < 1_100_000_000).collect();
    assert_eq!(times, [1_000_000_005]);
    let last = all.last().map(gtid).unwrap();
    let position = server.sql("SELECT @@gtid_binlog_pos");
    assert!(position.contains(&last), "{last} {position}");
    assert_eq!(history.gtids(), Some(&position.trim().parse::<GtidState>().unwrap()));
}
