//! Logs of a running MariaDB server, compared with what the server lists in them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use listing::{gtid, listed, ours, read};
use xb_binlog::{
    Barrier, Event, GtidState, History, LogEnd, RelayError, RelayPlan, RelayWriter, ReplayStop,
    StatementDoubt,
};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::tools::find;

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

/// A session that stays.
struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Client {
    fn new(server: &MariaDb) -> Self {
        let mut child = Command::new(find("mariadb"))
            .args(["--no-defaults", "--user=root", "--unbuffered", "--batch", "--local-infile=1"])
            .arg("--skip-column-names")
            .arg(format!("--socket={}", server.socket().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Returns the first line of the answer.
    fn run(&mut self, text: &str) -> String {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{text};\nSELECT 'done';\n").as_bytes()).unwrap();
        let mut lines = self.out.by_ref().lines().map(Result::unwrap);
        let first = lines.next().expect("the client ended with an error");
        if first != "done" {
            assert!(lines.any(|line| line == "done"), "{text}");
        }
        first
    }

    fn end(mut self, server: &MariaDb) {
        let id = self.run("SELECT CONNECTION_ID()");
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        let ask = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
        xb_testkit::until("the session has ended", || server.sql(&ask) == "0\n");
    }
}

/// What a replay of the log from here on says about temporary tables that existed before.
fn older_tables(server: &MariaDb, from: (&str, u64), start: &str) -> &'static str {
    let log = std::fs::read(server.datadir().join(from.0)).unwrap();
    let length = u32::from_le_bytes(log[13..17].try_into().unwrap()) as usize;
    let mut writer = RelayWriter::new(RelayPlan {
        start: start.parse().unwrap(),
        stop: ReplayStop::End,
        servers: 0,
        leave_out: BTreeSet::new(),
        may_leave_out_ddl: false,
        never_ended: BTreeSet::new(),
        outside: Default::default(),
    });
    writer.begin_log(from.0, &log[4..4 + length], from.1).unwrap();
    let all = writer.push(&log[usize::try_from(from.1).unwrap()..], &mut Vec::new());
    match all.and_then(|()| writer.finish()) {
        Ok(end) => end.doubts.get(&StatementDoubt::TemporaryTable).map_or("known", |_| "doubt"),
        Err(RelayError::Temporary(_)) => "refused",
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_statement_on_an_older_temporary_table_is_never_taken_for_another() {
    let options = [
        "--log-bin=bin",
        "--server-id=3",
        "--local-infile=1",
        "--log-bin-trust-function-creators=1",
    ];
    let server = MariaDb::start_with(&options);
    server.sql(
        "CREATE DATABASE a; CREATE DATABASE b; CREATE TABLE a.t (id INT) ENGINE=InnoDB; CREATE TABLE a.r (id INT) ENGINE=InnoDB;
         DELIMITER //
         CREATE FUNCTION a.f() RETURNS INT BEGIN DELETE FROM a.t; RETURN 1; END //",
    );
    let rows = server.datadir().join("rows.txt");
    std::fs::write(&rows, "1\n2\n").unwrap();
    let load = format!(
        "SET SESSION binlog_format = STATEMENT; LOAD DATA LOCAL INFILE '{}' INTO TABLE t",
        rows.display()
    );
    let many = format!(
        "CREATE TEMPORARY TABLE b.x (id INT); {}",
        "INSERT INTO b.x VALUES (1); ".repeat(17)
    );
    let (many_joined, many) = (
        format!("{many} DELETE t FROM t LEFT JOIN b.x ON x.id = t.id"),
        format!("{many} DELETE FROM t"),
    );
    let long = format!(
        "CREATE TEMPORARY TABLE b.x (id INT); DELETE /*! {} */ t FROM t LEFT JOIN b.x ON x.id = t.id",
        " ".repeat(1100)
    );
    let mut wrong = Vec::new();
    for (has_older, after, open, ended) in [
        (true, "DELETE FROM t", "doubt", "refused"),
        (true, "CREATE TEMPORARY TABLE b.t (id INT); DELETE FROM t", "doubt", "refused"),
        (true, "CREATE TEMPORARY TABLE `T` (id INT); DELETE FROM t", "doubt", "refused"),
        (true, &many_joined, "doubt", "refused"),
        (true, &many, "doubt", "refused"),
        (true, &long, "doubt", "refused"),
        (true, "SET sql_mode = ANSI_QUOTES; DELETE FROM \"t\"", "doubt", "refused"),
        (
            true,
            "SET sql_mode = ANSI_QUOTES; CREATE TEMPORARY TABLE b.x (id INT); DELETE t FROM t LEFT JOIN b.x ON x.id = t.id",
            "doubt",
            "refused",
        ),
        (true, "SET sql_quote_show_create = 0; DELETE FROM t", "doubt", "refused"),
        (
            true,
            "CREATE TEMPORARY TABLE b.x (id INT); INSERT INTO b.x SELECT f()",
            "doubt",
            "refused",
        ),
        (true, "DELETE FROM t; CREATE OR REPLACE TEMPORARY TABLE t (id INT)", "refused", "refused"),
        (true, "DELETE FROM t; DROP TABLE t", "refused", "refused"),
        (true, "DELETE FROM t; DROP TEMPORARY TABLE IF EXISTS t", "refused", "refused"),
        (true, "ALTER TABLE t RENAME u; INSERT INTO u VALUES (1)", "doubt", "refused"),
        (
            true,
            "CREATE TEMPORARY TABLE b.x (id INT); INSERT INTO t SELECT id FROM b.x",
            "doubt",
            "refused",
        ),
        (true, "INSERT INTO t VALUES (LENGTH('connection_id()'))", "doubt", "refused"),
        (
            true,
            "START TRANSACTION; INSERT INTO r VALUES (1); DELETE FROM t; COMMIT",
            "doubt",
            "refused",
        ),
        (true, "RENAME TABLE t TO u", "known", "refused"),
        (true, &load, "doubt", "refused"),
        (
            false,
            "CREATE TEMPORARY TABLE `my tab` (id INT); INSERT INTO `my tab` VALUES (1)",
            "known",
            "known",
        ),
        (
            false,
            "CREATE TEMPORARY TABLE `a.b` (id INT); INSERT INTO `a.b` VALUES (1)",
            "known",
            "known",
        ),
        (
            false,
            "CREATE TEMPORARY TABLE `a``b` (id INT); INSERT INTO `a``b` VALUES (1)",
            "known",
            "known",
        ),
        (false, "CREATE TEMPORARY\nTABLE nl (id INT); INSERT INTO nl VALUES (1)", "known", "known"),
        (
            false,
            "SET sql_mode = ANSI_QUOTES; CREATE TEMPORARY TABLE \"q \"\"t\" (id INT); INSERT INTO \"q \"\"t\" VALUES (1)",
            "known",
            "known",
        ),
        (
            false,
            "SET STATEMENT max_statement_time = 10 FOR CREATE TEMPORARY TABLE s (id INT); INSERT INTO s VALUES (1)",
            "known",
            "known",
        ),
        (
            false,
            "CREATE TEMPORARY TABLE r1 (id INT); RENAME TABLE r1 TO r2; ALTER TABLE r2 RENAME r3; INSERT INTO r3 VALUES (1)",
            "known",
            "known",
        ),
        (false, "CREATE SEQUENCE d3; DROP SEQUENCE d3", "known", "known"),
        (
            false,
            "CREATE TEMPORARY TABLE c SELECT * FROM t; INSERT INTO r SELECT id FROM c",
            "doubt",
            "known",
        ),
        (
            false,
            "CREATE TEMPORARY TABLE c SELECT 1 id; INSERT INTO r SELECT id FROM c; DROP TEMPORARY TABLE c",
            "known",
            "known",
        ),
        (false, "INSERT INTO r VALUES (CONNECTION_ID())", "known", "known"),
        (
            false,
            "SET SESSION binlog_format = ROW; CREATE TEMPORARY TABLE c SELECT 1 id; CREATE TABLE l LIKE c; ANALYZE TABLE c",
            "known",
            "known",
        ),
    ] {
        let mut client = Client::new(&server);
        client.run("SET SESSION binlog_format = MIXED; USE a");
        if has_older {
            client.run("CREATE TEMPORARY TABLE a.t (id INT)");
        }
        let status = server.sql("SHOW MASTER STATUS");
        let mut fields = status.split('\t');
        let from = (fields.next().unwrap(), fields.next().unwrap().parse().unwrap());
        let start = server.sql("SELECT @@gtid_binlog_pos");
        client.run(after);
        let found_open = older_tables(&server, from, start.trim());
        client.end(&server);
        let found = (found_open, older_tables(&server, from, start.trim()));
        if found != (open, ended) {
            wrong.push((after, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
