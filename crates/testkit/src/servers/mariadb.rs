//! A real MariaDB server on a scratch data directory, reachable only by its socket.
//!
//! ```no_run
//! use xb_testkit::mariadb::{MariaDb, Sample};
//!
//! let server = MariaDb::start();
//! server.load_sample(Sample::SMALL);
//! let writer = server.start_writing();
//! let backup: Vec<String> = server.backup_command();
//! // ... run it, restore and prepare into `datadir` ...
//! # let datadir = std::path::Path::new("");
//! writer.stop();
//! let copy = MariaDb::start_on(datadir);
//! assert_eq!(copy.checksums("shop"), server.checksums("shop"));
//! copy.assert_written();
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::command::{Cmd, Ran};
use crate::process::daemon::{Daemon, Scratch};
use crate::process::tools::find;
use crate::process::until;
use crate::servers::listens;
use crate::servers::new_data::{as_user, copy_new_data};

/// Time limit for the start of a server, including recovery: longer than that takes on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Size of the redo log. A server that finds another one makes its log anew.
const LOG_SIZE: &str = "--innodb-log-file-size=64M";
/// The data set, the same that `scripts/quickstart` uses.
const SAMPLE: &str = include_str!("../../../../scripts/sample.sql");
/// Tables of the writer: one of each engine, always written in this order, and accounts whose sum
/// no transaction changes.
const WRITER: &str = "
CREATE DATABASE live;
USE live;
CREATE TABLE stop (id INT) ENGINE=InnoDB;
CREATE TABLE w_innodb (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB;
CREATE TABLE w_aria (id INT PRIMARY KEY, v CHAR(32)) ENGINE=Aria;
CREATE TABLE w_myisam (id INT PRIMARY KEY, v CHAR(32)) ENGINE=MyISAM;
CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB;
INSERT INTO account SELECT seq, 1000 FROM seq_0_to_99;
DELIMITER //
CREATE PROCEDURE write_on()
BEGIN
  DECLARE n INT DEFAULT 0;
  REPEAT
    SET n = n + 1;
    INSERT INTO w_innodb VALUES (n, MD5(n));
    INSERT INTO w_aria VALUES (n, MD5(n));
    INSERT INTO w_myisam VALUES (n, MD5(n));
    START TRANSACTION;
    UPDATE account SET balance = balance - 1 WHERE id = n MOD 100;
    UPDATE account SET balance = balance + 1 WHERE id = (n * 7 + 1) MOD 100;
    COMMIT;
    DO SLEEP(0.001);
  UNTIL EXISTS (SELECT 1 FROM stop) END REPEAT;
END //
";

/// Size of the data set that [`MariaDb::load_sample`] creates.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Rows of the large table, about 1.6 KiB each.
    pub big_rows: u32,
    /// Number of small tables, over three engines.
    pub small_tables: u32,
}

impl Sample {
    /// A stream of about 60 MiB.
    pub const SMALL: Self = Self { big_rows: 10_000, small_tables: 10 };
}

/// A running server. When dropped, it is killed and its own data directory is removed.
#[derive(Debug)]
pub struct MariaDb {
    daemon: Daemon,
    socket: PathBuf,
    datadir: PathBuf,
    // The last field, so that the directory is removed after the server is gone.
    scratch: Scratch,
}

fn is_zone(option: &str) -> bool {
    option.starts_with("TZ=")
}

/// What a server is asked to do later: it writes no log of what it does when its files are created, and they say nothing
/// about connections. Most tests have a value of their own, and would have files of their own.
const LATER: [&str; 18] = [
    "--bind-address",
    "--binlog-",
    "--gtid-",
    "--log-bin",
    "--log-slave-updates",
    "--max-allowed-packet",
    "--plugin-maturity",
    "--port",
    "--rpl-semi-sync-",
    "--server-id",
    "--skip-networking",
    "--skip-slave-start",
    "--slave-",
    "--ssl-",
    "--sync-binlog",
    "--sync-master-info",
    "--sync-relay-log",
    "--tls-version",
];

/// Whether the files of a new server depend on this option.
fn counts(option: &str) -> bool {
    !is_zone(option) && !LATER.iter().any(|later| option.starts_with(later))
}

impl MariaDb {
    /// Starts a server on a new data directory.
    ///
    /// # Panics
    /// If a program is missing or the server does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`MariaDb::start`], with further server options, which also apply to the creation of
    /// its files. `TZ=ZONE` among them is the time zone of its system.
    ///
    /// # Panics
    /// As [`MariaDb::start`].
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        let scratch = Scratch::in_memory();
        let datadir = scratch.join("data");
        let own: Vec<&str> = options.iter().copied().filter(|each| counts(each)).collect();
        copy_new_data(&[LOG_SIZE], &own, &datadir);
        Self::run(scratch, datadir, options)
    }

    /// Starts a server on an existing data directory, such as a restored and prepared one. The
    /// directory stays after the server ends.
    ///
    /// # Panics
    /// As [`MariaDb::start`].
    #[must_use]
    pub fn start_on(datadir: &Path) -> Self {
        Self::start_on_with(datadir, &[])
    }

    /// Like [`MariaDb::start_on`], with further server options.
    ///
    /// # Panics
    /// As [`MariaDb::start`].
    #[must_use]
    pub fn start_on_with(datadir: &Path, options: &[&str]) -> Self {
        Self::run(Scratch::new(), datadir.to_path_buf(), options)
    }

    /// Shuts the server down cleanly and returns its data directory.
    ///
    /// # Panics
    /// If the server does not end.
    #[must_use]
    pub fn shut_down(self) -> Scratch {
        self.sql("SHUTDOWN");
        let status = self.daemon.wait(START_LIMIT).expect("the server does not end");
        assert!(status.success(), "the server failed: {}", self.daemon.log());
        self.scratch
    }

    /// Kills the server, as a crash does, and returns its data directory.
    #[must_use]
    pub fn kill(self) -> Scratch {
        let Self { daemon, scratch, .. } = self;
        drop(daemon);
        scratch
    }

    fn run(scratch: Scratch, datadir: PathBuf, options: &[&str]) -> Self {
        let socket = scratch.join("sock");
        let mut args = vec![
            "--no-defaults".to_owned(),
            format!("--datadir={}", datadir.display()),
            format!("--socket={}", socket.display()),
            format!("--pid-file={}", scratch.join("pid").display()),
            format!("--tmpdir={}", scratch.path().display()),
            "--skip-networking".to_owned(),
            // A client of a busy machine may need longer than the ten seconds that a server gives it.
            "--connect-timeout=300".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
            // The data need not survive a machine crash.
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
            "--innodb-doublewrite=0".to_owned(),
            LOG_SIZE.to_owned(),
            "--innodb-buffer-pool-size=192M".to_owned(),
        ];
        args.extend(as_user());
        let (zones, options): (Vec<&str>, Vec<&str>) =
            options.iter().partition(|option| is_zone(option));
        args.extend(options.iter().map(|option| (*option).to_owned()));
        let mut program = find("mariadbd");
        if !zones.is_empty() {
            let words = zones.iter().map(|zone| (*zone).to_owned());
            args = words.chain([program.display().to_string()]).chain(args).collect();
            program = find("env");
        }
        let daemon = Daemon::start(&program, &args, &scratch.join("log"));
        let server = Self { daemon, socket, datadir, scratch };
        server.daemon.wait_ready("mariadbd", START_LIMIT, || {
            listens(&server.socket) && server.client("SELECT 1").code() == 0
        });
        server
    }

    /// The data directory.
    #[must_use]
    pub fn datadir(&self) -> &Path {
        &self.datadir
    }

    /// The Unix socket; `root` logs in there without a password.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs statements; returns the rows as lines with tabs between columns.
    ///
    /// # Panics
    /// With the client's message, if a statement fails.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.client(statements).expect(0).stdout_text()
    }

    fn client(&self, statements: &str) -> Ran {
        self.client_command().stdin_bytes(statements).run()
    }

    fn client_command(&self) -> Cmd {
        Cmd::new(find("mariadb")).args(self.client_args())
    }

    fn client_args(&self) -> [String; 6] {
        [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            format!("--socket={}", self.socket.display()),
            "--batch".to_owned(),
            "--skip-column-names".to_owned(),
            "--default-character-set=utf8mb4".to_owned(),
        ]
    }

    /// Waits until the newest binary log has the event that names the log itself. A thread in the background writes it at any
    /// time after a rotation, behind the last transaction, too; nothing but transactions follows it.
    ///
    /// # Panics
    /// If the server does not answer, or has no binary log.
    pub fn wait_for_checkpoint(&self) {
        let status = self.sql("SHOW MASTER STATUS");
        let log = status.split('\t').next().unwrap_or_default();
        let events = format!("SHOW BINLOG EVENTS IN '{log}'");
        let is_it = |line: &str| line.contains("\tBinlog_checkpoint\t") && line.ends_with(log);
        until("the log has its checkpoint", || self.sql(&events).lines().any(is_it));
    }

    /// Loads the data set.
    ///
    /// # Panics
    /// If the server rejects it.
    pub fn load_sample(&self, sample: Sample) {
        let Sample { big_rows, small_tables } = sample;
        self.sql(&format!("SET @big_rows={big_rows}, @small_tables={small_tables};\n{SAMPLE}"));
    }

    /// Returns `CHECKSUM TABLE` of every table whose schema begins with `schema` (empty: every schema
    /// except the server's own), by full name. It includes the history of versioned tables, and the
    /// state of sequences.
    ///
    /// A table with a virtual column has none that is the same on two servers: equal rows give different
    /// sums, because the column is in them or not. Its sum is that of its rows as a client reads them.
    ///
    /// # Panics
    /// If there is no table, or one has no checksum.
    #[must_use]
    pub fn checksums(&self, schema: &str) -> BTreeMap<String, u64> {
        let sums = self.for_all_tables("CHECKSUM TABLE", "'VIEW'", schema);
        let parse = |line: &str| {
            let (name, sum) = line.split_once('\t').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), sum.parse().unwrap_or_else(|_| panic!("no checksum: {line}")))
        };
        let mut sums: BTreeMap<String, u64> = sums.lines().map(parse).collect();
        let virtuals = self.sql(&format!(
            "SELECT CONCAT(table_schema, '.', table_name), GROUP_CONCAT('QUOTE(`', column_name, '`)')
             FROM information_schema.columns WHERE table_schema LIKE '{schema}%'
             GROUP BY table_schema, table_name HAVING MAX(extra LIKE '%VIRTUAL GENERATED%')"
        ));
        for (name, columns) in virtuals.lines().filter_map(|line| line.split_once('\t')) {
            let Some(sum) = sums.get_mut(name) else { continue };
            let (schema, table) = name.split_once('.').unwrap_or_default();
            let rows = self.sql(&format!(
                "SELECT COALESCE(SUM(CRC32(CONCAT_WS(0x23, {columns}))), 0) FROM `{schema}`.`{table}`"
            ));
            *sum = rows.trim().parse().unwrap_or_else(|_| panic!("no sum of {name}: {rows}"));
        }
        sums
    }

    /// Asserts that `CHECK TABLE` finds no fault in any table of those schemas.
    ///
    /// # Panics
    /// With the faults it found.
    pub fn check_tables(&self, schema: &str) {
        // A sequence has no CHECK TABLE.
        let said = self.for_all_tables("CHECK TABLE", "'VIEW', 'SEQUENCE'", schema);
        // A MyISAM file that was open for writing when the server was asked to flush it may still
        // be marked as open in its header; the next line judges its rows.
        let in_use = "\twarning\t1 client is using or hasn't closed the table properly";
        let fine = |line: &&str| line.ends_with("\tstatus\tOK") || line.ends_with(in_use);
        let bad: Vec<&str> = said.lines().filter(|line| !fine(line)).collect();
        assert!(bad.is_empty(), "CHECK TABLE: {}", bad.join("\n"));
    }

    /// Runs a statement with all tables that are of none of these types. A type that a later server
    /// adds is included.
    fn for_all_tables(&self, statement: &str, except: &str, schema: &str) -> String {
        let tables = self.sql(&format!(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
             WHERE table_type NOT IN ({except}) AND table_schema LIKE '{schema}%' AND table_schema
             NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1"
        ));
        assert!(!tables.is_empty(), "no tables in {schema:?}");
        let list: Vec<&str> = tables.lines().collect();
        self.sql(&format!("{statement} {}", list.join(", ")))
    }

    /// Returns the command line of a streaming backup of this server with two copying threads.
    #[must_use]
    pub fn backup_command(&self) -> Vec<String> {
        vec![
            find("mariadb-backup").display().to_string(),
            "--no-defaults".to_owned(),
            "--backup".to_owned(),
            "--stream=xbstream".to_owned(),
            "--parallel=2".to_owned(),
            "--user=root".to_owned(),
            format!("--socket={}", self.socket.display()),
            format!("--datadir={}", self.datadir.display()),
            format!("--target-dir={}", self.scratch.path().display()),
        ]
    }

    /// Copies the files of a table, with which another one like it can be imported.
    ///
    /// # Panics
    /// If the table cannot be exported.
    pub fn export(&self, schema: &str, table: &str, into: &Path) {
        let files = self.datadir.join(schema).join(table);
        let statements = format!(
            "FLUSH TABLES {table} FOR EXPORT; system cp {0}.ibd {0}.cfg {1}; UNLOCK TABLES",
            files.display(),
            into.display()
        );
        let client = Cmd::new(find("mariadb")).args(["--no-defaults", "--user=root", schema]);
        let client = client.arg(format!("--socket={}", self.socket.display()));
        let _ = client.arg("--execute").arg(&statements).run().expect(0);
    }

    /// Saves a streaming backup of this server in a file.
    ///
    /// # Panics
    /// If the backup fails.
    pub fn save_stream(&self, file: &Path) {
        let command = self.backup_command();
        let _ = Cmd::new(&command[0]).args(&command[1..]).stdout_file(file).run().expect(0);
    }

    /// Starts writing into tables of three engines, until the writer is stopped.
    ///
    /// # Panics
    /// If the server refuses.
    #[must_use]
    pub fn start_writing(&self) -> Writer<'_> {
        self.sql(WRITER);
        let mut args = self.client_args().to_vec();
        args.extend(["--execute=CALL live.write_on()".to_owned()]);
        let client = Daemon::start(&find("mariadb"), &args, &self.scratch.join("writer.log"));
        let writer = Writer { server: self, client };
        let first = "SELECT COUNT(*) > 0 FROM live.w_myisam";
        writer.client.wait_ready("the writer", START_LIMIT, || self.sql(first) == "1\n");
        writer
    }

    /// Asserts that the writer's data is from one moment: rows from 1 without a gap in each engine,
    /// the same number in each up to the one row being written, and no torn transaction.
    ///
    /// # Panics
    /// With the numbers, if that does not hold.
    pub fn assert_written(&self) -> u64 {
        self.check_tables("live");
        let rows = ["w_innodb", "w_aria", "w_myisam"].map(|table| {
            let facts = self.sql(&format!(
                "SELECT COUNT(*), MIN(id), MAX(id), SUM(v <> MD5(id)) FROM live.{table}"
            ));
            let rows: u64 = facts.split('\t').next().unwrap_or_default().parse().expect("count");
            assert_eq!(facts, format!("{rows}\t1\t{rows}\t0\n"), "{table}");
            rows
        });
        let [innodb, aria, myisam] = rows;
        let in_step = innodb >= aria && aria >= myisam && myisam + 1 >= innodb;
        assert!(in_step, "not of one moment: InnoDB {innodb}, Aria {aria}, MyISAM {myisam} rows");
        assert_eq!(self.sql("SELECT COUNT(*), SUM(balance) FROM live.account"), "100\t100000\n");
        innodb
    }
}

/// The background writer; killed when dropped.
#[derive(Debug)]
pub struct Writer<'a> {
    server: &'a MariaDb,
    client: Daemon,
}

impl Writer<'_> {
    /// Returns the number of rows written so far.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.server.sql("SELECT COUNT(*) FROM live.w_innodb").trim().parse().expect("count")
    }

    /// Stops writing after the current row; returns the number of rows written.
    ///
    /// # Panics
    /// If the writer had already ended.
    pub fn stop(self) -> u64 {
        assert!(self.client.ended().is_none(), "the writer failed: {}", self.client.log());
        self.server.sql("INSERT INTO live.stop VALUES (1)");
        let status = self.client.wait(START_LIMIT).expect("the writer does not end");
        assert!(status.success(), "the writer failed: {}", self.client.log());
        self.rows()
    }
}

/// Prepares a restored backup, so that a server can start on it.
///
/// # Panics
/// If mariadb-backup fails.
pub fn prepare(dir: &Path) {
    let _ = Cmd::new(find("mariadb-backup"))
        .args(["--no-defaults", "--prepare"])
        .arg(format!("--target-dir={}", dir.display()))
        .run()
        .expect(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the whole harness against the stock tools alone.
    #[test]
    fn a_stock_backup_with_writes_going_on_is_of_one_moment() {
        let server = MariaDb::start();
        server.load_sample(Sample::SMALL);
        let writer = server.start_writing();
        let scratch = Scratch::new();
        let (stream, dir) = (scratch.join("stream"), scratch.dir("restored"));
        let before = writer.rows();
        server.save_stream(&stream);
        let unpack = Cmd::new(find("mbstream")).args(["-x", "-C"]).arg(&dir);
        let _ = unpack.stdin_file(&stream).run().expect(0);
        prepare(&dir);
        let after = writer.stop();

        let copy = MariaDb::start_on(&dir);
        let rows = copy.assert_written();
        assert!(before <= rows && rows <= after, "{before} <= {rows} <= {after}");
        let sums = server.checksums("shop");
        assert!(sums.len() >= 9);
        assert!(
            sums.contains_key("shop.versions") && sums.contains_key("shop.numbers"),
            "{sums:?}"
        );
        assert_eq!(copy.checksums("shop"), sums);
        assert_eq!(copy.checksums("many"), server.checksums("many"));
        assert_eq!(server.assert_written(), after);
    }
}
