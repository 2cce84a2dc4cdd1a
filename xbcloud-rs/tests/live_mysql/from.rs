//! `backup --from`: a real MySQL is cloned into a store.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Signal};
use xb_testkit::daemon::Scratch;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::ports::free_port;

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

struct Site {
    server: MySql,
    port: u16,
    scratch: Scratch,
}

impl Site {
    fn new() -> Self {
        Self::with(MySql::start_with)
    }

    /// The server that `start` starts with the options that it is given.
    fn with(start: impl FnOnce(&[&str]) -> MySql) -> Self {
        let port = free_port();
        let network = [format!("--port={port}"), "--bind-address=127.0.0.1".to_owned()];
        let mut options = vec![
            "--skip-networking=OFF",
            "--log-bin=binlog",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ];
        options.extend(network.iter().map(String::as_str));
        let server = start(&options);
        server.sql(
            "CREATE USER backup@'%' IDENTIFIED BY 'secret' REQUIRE SSL; CREATE DATABASE t; USE t;
             CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(100)); INSERT INTO a VALUES (1, 'one');",
        );
        let scratch = Scratch::new();
        std::fs::write(scratch.join("login"), "[client]\nuser=backup\npassword=secret\n").unwrap();
        Self { server, port, scratch }
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.scratch.join("root").join(name).display())
    }

    /// Options that name the server.
    fn source(&self) -> [String; 2] {
        let login = format!("--login-file={}", self.scratch.join("login").display());
        [format!("--from=mysql://127.0.0.1:{}", self.port), login]
    }

    fn command(&self, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .args(self.source())
            .env("HOME", self.scratch.path())
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).run()
    }

    /// Runs it at a terminal, and types `answer`. What it says is in stdout.
    fn ask(&self, args: &[&str], answer: &str) -> Ran {
        let program = env!("CARGO_BIN_EXE_xbcloud-rs");
        let words = [&[program], args].concat().join("' '");
        let command = format!("'{words}' '{}'", self.source().join("' '"));
        Cmd::new("/usr/bin/script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("HOME", self.scratch.path())
            .stdin_bytes(answer)
            .run()
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(sql)
    }

    fn list(&self) -> Value {
        let args = ["list", "--json", &self.url("")];
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).run().expect(0);
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

/// The statements that `check` prints for the server.
fn statements(text: &str) -> Vec<String> {
    let fixes = text.lines().filter_map(|line| line.split_once("fix: on the server: "));
    fixes.map(|(_, sql)| sql.to_owned()).collect()
}

#[test]
fn a_newcomer_is_led_to_a_backup() {
    if skipped() {
        return;
    }
    let site = Site::new();
    let root = site.url("");
    std::fs::create_dir(site.scratch.join("root")).unwrap();

    // Nothing proves who the server is: the fingerprint is printed, nothing is sent.
    let ran = site.run(&["backup", &site.url("a")]).expect(2);
    let text = ran.stderr_text();
    let (_, found) = text.split_once("set ssl-fp = ").unwrap_or_else(|| panic!("{text}"));
    let pin = format!("--ssl-fp={}", &found[..64]);
    // At a terminal, it asks once: without a yes there is no clone.
    for answer in ["n\n", "\n", "yeah\n"] {
        let asked = site.ask(&["backup", &site.url("a")], answer).expect(2).stdout_text();
        assert!(asked.contains(&found[..64]) && asked.contains("[y/N]"), "{asked}");
    }
    assert_eq!(site.list().as_array().unwrap().len(), 0);
    let other = format!("--ssl-fp={}", "00".repeat(32));
    let text = site.run(&["backup", &site.url("a"), &other]).expect(6).stderr_text();
    assert!(text.contains("has the fingerprint"), "{text}");
    let checked = site.run(&["check", &root]).expect(1).stdout_text();
    assert!(checked.contains("tls") && checked.contains(&found[..64]), "{checked}");

    // The check prints the statements that are missing, and they suffice.
    let checked = site.run(&["check", &root, &pin]).expect(1).stdout_text();
    let sql = statements(&checked);
    assert_eq!(sql.len(), 2, "{checked}");
    sql.iter().for_each(|sql| drop(site.sql(sql)));
    let checked = site.run(&["check", &root, &pin]).expect(0).stdout_text();
    assert!(checked.contains("a clone can begin now"), "{checked}");

    let text = site.run(&["backup", &site.url("a"), &pin]).expect(0).stderr_text();
    assert!(text.contains("a: complete"), "{text}");
    let line = &site.list()[0];
    assert_eq!((&line["kind"], &line["restorable"]), (&"full".into(), &true.into()), "{line}");
    assert_eq!(line["mysql_clone"]["page_size"], 16384);
    let uuid = site.sql("SELECT @@server_uuid");
    let to = line["mysql_clone"]["gtids_to"].as_str().unwrap();
    assert!(to.starts_with(uuid.trim()), "{to}");
    // A yes at a terminal pins the certificate, and tells the line that spares the question.
    let asked = site.ask(&["backup", &site.url("asked")], "y\n").expect(0).stdout_text();
    assert!(asked.contains(&format!("ssl-fp = {}", &found[..64])), "{asked}");
    assert!(asked.contains("asked: complete"), "{asked}");
    // By an authority that signed the server's certificate, too.
    let ca = format!("--ssl-ca={}", site.server.datadir().join("ca.pem").display());
    let _ = site.run(&["backup", &site.url("b"), &ca]).expect(0);
}

#[test]
fn a_clone_that_loses_or_reveals_data_is_refused() {
    if skipped() {
        return;
    }
    let site = Site::new();
    std::fs::create_dir(site.scratch.join("root")).unwrap();
    site.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%';
              CREATE TABLE t.old (id INT) ENGINE=MyISAM;");
    let ca = format!("--ssl-ca={}", site.server.datadir().join("ca.pem").display());
    let backup = |name: &str, more: &[&str]| {
        let url = site.url(name);
        site.run(&[&["backup", &url, &ca], more].concat())
    };
    let text = backup("a", &[]).expect(6).stderr_text();
    assert!(text.contains("t.old (MyISAM)"), "{text}");
    let text = backup("a", &["--allow-empty-tables"]).expect(0).stderr_text();
    assert!(text.contains("t.old (MyISAM)"), "{text}");
    assert_eq!(site.list()[0]["mysql_clone"]["empty_tables"]["tables"], 1);
    site.sql("DROP TABLE t.old; CREATE TABLE t.secret (id INT PRIMARY KEY) ENCRYPTION='Y'");
    let text = backup("b", &[]).expect(6).stderr_text();
    assert!(text.contains("t/secret.ibd is encrypted"), "{text}");
    let key = site.scratch.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key.display());
    let _ = backup("b", &[&key]).expect(0);

    // A clone that a signal ends leaves nothing, and the server takes the next one.
    let url = site.url("c");
    let args = ["backup", &url, &ca, &key, "--limit-rate=1M", "--chunk-size=1M"];
    let mut running = site.command(&args).spawn();
    let runs = || std::fs::read_dir(site.scratch.join("root/c")).into_iter().flatten().flatten();
    let objects = || runs().filter_map(|run| std::fs::read_dir(run.path()).ok()).flatten().count();
    running.until("the first objects are stored", || objects() > 2);
    running.signal(Signal::TERM);
    let _ = running.wait().expect(128 + 15);
    assert_eq!(site.list().as_array().unwrap().len(), 2);
    let _ = backup("c", &[&key]).expect(0);
}

/// A server sends the bytes of its files without a look at them, and so they are stored. Its buffer pool has no copy of
/// that page.
#[test]
fn a_page_that_is_damaged_on_the_servers_disk_is_stored_and_named() {
    if skipped() {
        return;
    }
    let (page, number) = (16384, 20_u64);
    let off = "--innodb-buffer-pool-load-at-startup=OFF";
    let first = MySql::start_with(&[off]);
    first.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE b; SET SESSION cte_max_recursion_depth=10000;
         CREATE TABLE b.plain (id INT PRIMARY KEY, v VARCHAR(400));
         INSERT INTO b.plain WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<4000) SELECT n, REPEAT(SHA2(n,256),6) FROM s;",
    );
    let folder = first.shut_down();
    let data = folder.join("data");
    let path = data.join("b/plain.ibd");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = usize::try_from(number).unwrap() * page;
    assert_eq!(&bytes[at + 24..at + 26], [0x45, 0xbf], "no page of an index");
    bytes[at + 500] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let site = Site::with(|options| MySql::start_on(&data, &[options, &[off]].concat()));
    site.sql("GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%'");
    let ca = format!("--ssl-ca={}", data.join("ca.pem").display());
    let url = site.url("a");
    let _ = site.run(&["backup", &url, &ca]).expect(0);
    let verify = |level: &str| {
        let args = ["verify", &url, "--json", level];
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).run();
        let found: Value = serde_json::from_slice(&ran.expect(7).stdout).unwrap();
        found["problems"].as_array().unwrap().clone()
    };
    let problems = verify("--level=pages");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        (&problems[0]["file"], &problems[0]["offset"]),
        (&"b/plain.ibd".into(), &(number * page as u64).into())
    );
    assert!(!verify("--level=restore").is_empty());
}

/// The data says that a server loads the plugin of group replication, which starts by itself unless it is told not to.
#[test]
fn no_private_server_on_the_clone_of_a_member_of_a_group_has_to_do_with_the_group() {
    if skipped() {
        return;
    }
    let site = Site::new();
    site.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; INSTALL PLUGIN group_replication SONAME 'group_replication.so';
         GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%'",
    );
    assert_eq!(site.sql("SELECT @@group_replication_start_on_boot"), "1\n");
    let ca = format!("--ssl-ca={}", site.server.datadir().join("ca.pem").display());
    let url = site.url("a");
    let _ = site.run(&["backup", &url, &ca]).expect(0);
    let run = |args: &[&str]| Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).run();
    let is_loaded =
        "(SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'group_replication')";
    let is_told = "(SELECT COUNT(*) FROM mysql.plugin WHERE name = 'group_replication')";
    let verify = |demand: &str| {
        let check = format!("--check-sql=SELECT IF({demand}, 1, (SELECT 1 UNION SELECT 2))");
        run(&["verify", &url, "--level=restore", &check])
    };
    let _ = verify(&format!("{is_told} = 0")).expect_failure();
    let _ = verify(&format!("{is_told} = 1 AND {is_loaded} = 0")).expect(0);
    // So is the server that prepares it, as it says itself.
    let file = site.scratch.join("init.sql");
    let seen = format!("CREATE TABLE t.seen AS SELECT {is_told} AS told, {is_loaded} AS loaded;\n");
    std::fs::write(&file, seen).unwrap();
    let target = site.scratch.join("t");
    let [into, init] = [
        format!("--target-dir={}", target.display()),
        format!("--mysqld-opts=--init-file={}", file.display()),
    ];
    let _ = run(&["restore", &url, &into, "--prepare", &init]).expect(0);
    // A usual start loads it.
    let copy = MySql::start_on(&target, &["--loose-group-replication-start-on-boot=OFF"]);
    assert_eq!(copy.sql("SELECT told, loaded FROM t.seen"), "1\t0\n");
    assert_eq!(copy.sql(&format!("SELECT {is_loaded}")), "1\n");
}

#[test]
fn limits_of_the_server_hide_no_table_and_hold_no_clone() {
    if skipped() {
        return;
    }
    let site = Site::new();
    std::fs::create_dir(site.scratch.join("root")).unwrap();
    site.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE USER few@localhost WITH MAX_USER_CONNECTIONS 2;
         GRANT BACKUP_ADMIN, REFERENCES ON *.* TO few@localhost;
         CREATE TABLE t.one (id INT) ENGINE=MyISAM; CREATE TABLE t.two (id INT) ENGINE=MyISAM;
         SET GLOBAL sql_select_limit = 1; SET GLOBAL max_join_size = 1; SET GLOBAL max_execution_time = 1",
    );
    let from = |user: &str| format!("--from=mysql://{user}@{}", site.server.socket().display());
    let try_as = |verb: &str, user: &str, more: &[&str]| {
        let url = if verb == "check" { site.url("") } else { site.url("a") };
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args([verb, &url, &from(user)])
            .args(more)
            .env("HOME", site.scratch.path());
        let ran = ran.run().expect_failure();
        ran.stdout_text() + &ran.stderr_text()
    };
    for verb in ["backup", "check"] {
        let said = try_as(verb, "root", &[]);
        assert!(said.contains("t.one (MyISAM), t.two (MyISAM)"), "{verb}: {said}");
        // A clone needs a third connection at its end, hours later.
        let said = try_as(verb, "few", &["--allow-empty-tables"]);
        assert!(said.contains("max_user_connections"), "{verb}: {said}");
        assert!(!said.contains("connecting again"), "{verb}: {said}");
    }
}
