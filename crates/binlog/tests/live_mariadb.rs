//! Logs of a running MariaDB server, compared with what the server lists in them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use listing::{gtid, listed, ours, read, transactions};
use xb_binlog::{Event, GtidPosition, LogEnd};
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
         CREATE ROLE r; DROP TABLE m;",
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
    let mut position = GtidPosition::default();
    let (mut all, mut groups) = (Vec::new(), Vec::new());
    for (n, name) in names.iter().enumerate() {
        let log = std::fs::read(server.datadir().join(name)).unwrap();
        let (entries, end) = read(&log, 60_000);
        match names.get(n + 1) {
            Some(next) => {
                assert!(matches!(&end, Ok(LogEnd::Rotated(to)) if to.file == *next), "{end:?}");
            }
            None => assert_eq!(end, Ok(LogEnd::InUse)),
        }
        let text = server.sql(&format!("SHOW BINLOG EVENTS IN '{name}'"));
        // Without the first column, the name of the log.
        let text = text.lines().filter_map(|line| line.split_once('\t'));
        let text: String = text.map(|(_, rest)| format!("{rest}\n")).collect();
        assert_eq!(ours(&entries), listed(&text), "{name}");
        let (found, is_open) = transactions(&entries).unwrap();
        assert!(!is_open, "{name}");
        for entry in &entries {
            match &entry.event {
                Event::GtidList(list) => assert_eq!(list.position(), position, "{name}"),
                Event::MariaDbBegin(begin) => {
                    position.advance(begin.gtid);
                    groups.extend(begin.commit_id);
                }
                _ => {}
            }
        }
        all.extend(found.iter().map(gtid));
    }
    assert!(all.len() > 60, "{all:?}");
    assert!(groups.len() == 2 && groups[0] == groups[1], "{groups:?}");
    assert_eq!(position, server.sql("SELECT @@gtid_binlog_pos").trim().parse().unwrap());
}
