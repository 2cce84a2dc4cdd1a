//! A real MariaDB server sends its binary logs; what is sent equals its files.

use std::collections::BTreeMap;
use std::time::Duration;

use xb_binlog::{ChecksumKind, Event, History, SentEvent, SentReader};
use xb_mysql::{Account, Client, Dump, DumpItem, Error, Replica, Start, Target, Timeouts};
use xb_testkit::mariadb::MariaDb;

const TIMEOUTS: Timeouts =
    Timeouts { login: Duration::from_secs(60), reply: Some(Duration::from_secs(60)) };
const SILENCE: Duration = Duration::from_secs(60);

fn start_server(options: &[&str]) -> MariaDb {
    let mut all = vec!["--log-bin=bin", "--server-id=3", "--max-allowed-packet=128M"];
    all.extend(options);
    MariaDb::start_with(&all)
}

fn dump(server: &MariaDb, start: &Start) -> Result<Dump, Error> {
    let target = Target::Socket(server.socket().to_owned());
    let account = Account { user: b"root".to_vec(), ..Account::default() };
    let client = Client::connect(&target, &account, TIMEOUTS)?;
    let replica = Replica {
        server_id: 77,
        host: "archive".to_owned(),
        heartbeat: Duration::from_millis(500),
        acknowledges: false,
    };
    client.dump(&replica, start, SILENCE)
}

fn at(log: &str, offset: u32) -> Start {
    Start::Position { log: log.to_owned(), offset }
}

/// Everything sent up to the first sign of life: the bytes of each log behind its offset, and the history.
struct Received {
    logs: BTreeMap<String, (u64, Vec<u8>)>,
    history: History,
    made_up: Vec<String>,
}

fn receive(server: &MariaDb, start: &Start, history: History) -> Result<Received, Error> {
    let mut dump = dump(server, start)?;
    let checksums = match dump.has_checksums() {
        true => ChecksumKind::Crc32,
        false => ChecksumKind::None,
    };
    let mut reader = SentReader::new(checksums);
    let mut got = Received { logs: BTreeMap::new(), history, made_up: Vec::new() };
    loop {
        let is_idle = dump.next(|dumped| {
            let DumpItem::Event(part) = dumped else { panic!("the server ends") };
            let (mut input, mut bytes) = (part.bytes, Vec::new());
            let mut is_idle = false;
            loop {
                let position = reader.position().cloned();
                let sent = reader.next(&mut input, &mut bytes).unwrap();
                if let Some(position) = position {
                    let log = got.logs.entry(position.log().to_owned());
                    let log = log.or_insert_with(|| (position.offset(), Vec::new()));
                    log.1.append(&mut bytes);
                }
                let Some(sent) = sent else { break };
                got.history.push(sent.entry()).unwrap();
                if let SentEvent::Artificial(entry) = &sent {
                    is_idle |= matches!(entry.event, Event::Heartbeat);
                    got.made_up.push(entry.header.event_type.name().unwrap().to_owned());
                }
            }
            if part.is_last {
                reader.end_packet().unwrap();
            }
            is_idle
        })?;
        if is_idle {
            return Ok(got);
        }
    }
}

fn changes(server: &MariaDb) {
    server.sql(
        "CREATE DATABASE d; USE d; SET GLOBAL max_allowed_packet = 134217728;
         CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT) ENGINE=InnoDB;
         CREATE TABLE m (v TEXT) ENGINE=MyISAM; INSERT INTO m VALUES ('m');
         SET SESSION binlog_format = ROW;
         INSERT INTO t (v) VALUES (UUID()), (REPEAT('x', 100000));
         FLUSH BINARY LOGS;
         SET GLOBAL binlog_checksum = NONE;
         INSERT INTO t (v) VALUES ('without');
         SET GLOBAL binlog_checksum = CRC32; SET GLOBAL log_bin_compress = 1;
         INSERT INTO t (v) VALUES (REPEAT('compressed', 1000));
         SET GLOBAL log_bin_compress = 0;
         XA START 'x'; DELETE FROM t WHERE id = 2; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';
         FLUSH BINARY LOGS;",
    );
    // A row event of more than 16 MiB.
    server.sql("INSERT INTO d.t (v) VALUES (REPEAT('large', 4000000)); FLUSH BINARY LOGS");
    // What is sent is compared with what the file has a moment later.
    server.wait_for_checkpoint();
}

fn names(server: &MariaDb) -> Vec<String> {
    let names = server.sql("SHOW BINARY LOGS");
    names.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

/// The file of a log, as it is sent: without the mark that it is being written.
fn file(server: &MariaDb, name: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(server.datadir().join(name)).unwrap();
    bytes[4 + 17] &= !1;
    bytes
}

#[test]
fn a_dump_equals_the_files_of_the_server() {
    let server = start_server(&[]);
    changes(&server);
    let names = names(&server);
    assert!(names.len() >= 5, "{names:?}");
    let got = receive(&server, &at(&names[0], 4), History::new(&names[0], None)).unwrap();
    assert_eq!(got.logs.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    for (name, (offset, bytes)) in &got.logs {
        assert_eq!(*offset, 4);
        // The server may write a checkpoint into the newest one at any time.
        let file = file(&server, name);
        let is_newest = Some(name) == names.last();
        assert!(file[4..].starts_with(bytes), "{name} differs");
        assert!(is_newest || file.len() == bytes.len() + 4, "{name} has more");
    }
    let position = server.sql("SELECT @@gtid_binlog_pos");
    assert_eq!(got.history.gtids().unwrap().to_string(), position.trim());

    // From the last log's second event on: a description that is made up comes first.
    let last = names.last().unwrap();
    let got = receive(&server, &at(last, 256), History::new(last, None)).unwrap();
    let (offset, bytes) = &got.logs[last];
    assert_eq!(*offset, 256);
    assert!(*bytes == file(&server, last)[256..]);
    assert_eq!(got.made_up, ["Rotate", "Format_desc", "Heartbeat"]);
}

#[test]
fn a_server_names_the_log_it_cannot_send() {
    let server = start_server(&[]);
    changes(&server);
    let names = names(&server);
    // The server keeps a log until its engines need it no longer.
    xb_testkit::until("they are purged", || {
        server.sql(&format!("PURGE BINARY LOGS TO '{}'", names[2]));
        self::names(&server)[0] == names[2]
    });
    let refused = |start: Start| match receive(&server, &start, History::new("", None)) {
        Err(Error::Server(error)) => (error.code, error.message),
        Err(other) => panic!("{start:?}: {other}"),
        Ok(got) => panic!("{start:?}: {:?}", got.logs.keys()),
    };
    for start in [
        at(&names[0], 4),
        at("bin.009999", 4),
        at(&names[3], 2_000_000_000),
        at(&names[3], 300),
        Start::Gtids("0-3-999999".to_owned()),
    ] {
        let (code, message) = refused(start);
        assert_eq!(code, 1236, "{message}");
    }
    server.sql("CREATE USER plain@localhost IDENTIFIED BY 'x'");
    let target = Target::Socket(server.socket().to_owned());
    let account =
        Account { user: b"plain".to_vec(), password: b"x".to_vec().into(), ..Account::default() };
    let client = Client::connect(&target, &account, TIMEOUTS).unwrap();
    let replica =
        Replica { server_id: 78, host: String::new(), heartbeat: SILENCE, acknowledges: false };
    let refused = client.dump(&replica, &at(&names[2], 4), SILENCE).unwrap_err();
    assert!(
        matches!(&refused, Error::Server(error) if error.code == 1227 || error.code == 1045),
        "{refused}"
    );
}
