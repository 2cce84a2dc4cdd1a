//! `rescue --replace` into a real server whose connection breaks at each of the statements that clients notice: no table
//! stays without its foreign keys or triggers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::rescue::RescueShop;
use rustix::process::{Pid, Signal, kill_process};
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::cut::{CutLine, Fate};
use xb_testkit::mariadb::MariaDb;

/// Two tables with keys and triggers, and what they refer to.
const TABLES: &str = "CREATE DATABASE cut; USE cut;
    CREATE TABLE goods (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO goods SELECT seq FROM seq_1_to_9;
    CREATE TABLE seen (what CHAR(9)) ENGINE=InnoDB;
    CREATE TABLE one (id INT PRIMARY KEY, g INT, KEY (g), CONSTRAINT one_goods FOREIGN KEY (g) REFERENCES goods (id)) ENGINE=InnoDB;
    CREATE TABLE two (id INT PRIMARY KEY, g INT, KEY (g), CONSTRAINT two_goods FOREIGN KEY (g) REFERENCES goods (id) ON DELETE CASCADE) ENGINE=InnoDB;
    INSERT INTO one SELECT seq, seq FROM seq_1_to_9; INSERT INTO two SELECT seq, seq FROM seq_1_to_9;
    CREATE TRIGGER one_in BEFORE INSERT ON one FOR EACH ROW INSERT INTO seen VALUES ('one');";
/// The beginning of a trigger of two lines, whose text another character set ends.
const TWO_IN: &[u8] = b"CREATE TRIGGER two_in BEFORE INSERT ON two FOR EACH ROW INSERT INTO seen
        VALUES ('two'";
/// If it is set, the connection breaks at every statement, not only at one of each kind.
const ALL: &str = "XB_RESCUE_CUT_ALL";

/// The server, and a socket in front of it.
struct Line {
    shop: RescueShop,
    /// All that the two tables are.
    complete: String,
}

impl Line {
    fn new() -> Self {
        let shop = RescueShop::new(&[]);
        shop.server.sql(TABLES);
        let latin = [b"SET NAMES latin1; USE cut; ", TWO_IN, b" '\xe4')"].concat();
        client(shop.server.socket(), OsStr::from_bytes(&latin));
        let _ = shop.back_up("full", &[]);
        let complete = state(&shop.server);
        shop.server.sql("DELETE FROM cut.one WHERE id = 1; DELETE FROM cut.two WHERE id = 1");
        Self { shop, complete }
    }

    fn socket(&self) -> PathBuf {
        self.shop.scratch.join("line")
    }

    fn cut(&self, judge: impl Fn(&str) -> Fate + Send + Sync + 'static) -> CutLine {
        CutLine::start(&self.socket(), self.shop.server.socket(), judge)
    }

    fn replace(&self, socket: &Path) -> Cmd {
        let args = ["cut.one", "cut.two", "--as={table}", "--replace"];
        self.shop.rescue("full", &args).arg(format!("--into={}", socket.display()))
    }

    /// The replacement gets the signal at the statement of `index`, which the server does or does not run.
    fn signalled(&self, index: usize, signal: Signal, fate: Fate) -> Ran {
        self.shop.server.sql("DELETE FROM cut.one WHERE id = 2; DELETE FROM cut.two WHERE id = 2");
        let pid = Arc::new(AtomicI32::new(0));
        let (judge, theirs) = (once(index, fate), Arc::clone(&pid));
        let cut = self.cut(move |sql| {
            let fate = judge(sql);
            if fate != Fate::Passes {
                let pid = Pid::from_raw(theirs.load(Ordering::SeqCst)).unwrap();
                kill_process(pid, signal).unwrap();
            }
            fate
        });
        let run = self.replace(cut.socket()).spawn();
        pid.store(i32::try_from(run.pid()).unwrap(), Ordering::SeqCst);
        run.wait()
    }

    /// A replacement that fails, because a key cannot be added although it could be before, which can be again then. Returns
    /// what it says.
    fn fails_late(&self) -> String {
        let server = &self.shop.server;
        let socket = server.socket().to_owned();
        let goods = "SET foreign_key_checks = 0; DROP TABLE cut.goods; CREATE TABLE cut.goods (id";
        let cut = self.cut(at_rename(move |_| {
            client(&socket, format!("{goods} CHAR(9) PRIMARY KEY) ENGINE=InnoDB"));
            Fate::Passes
        }));
        let told = self.replace(cut.socket()).run().expect(1).stderr_text();
        server.sql(&format!("{goods} INT PRIMARY KEY) ENGINE=InnoDB"));
        server.sql("USE cut; INSERT INTO goods SELECT seq FROM seq_1_to_9");
        told
    }

    /// The names of all tables that a rescue has left.
    fn left(&self) -> Vec<String> {
        let left = self.shop.server.sql("SHOW TABLES FROM cut LIKE 'xb%'");
        left.lines().map(str::to_owned).collect()
    }

    /// Carries out what a rescue left to do.
    fn carry_out(&self, todo: &str) {
        let run = |args: &[&str]| {
            Cmd::new(xb_testkit::tools::find("mariadb"))
                .args(["--no-defaults", "--user=root", "--raw", "--skip-column-names"])
                .arg("--default-character-set=utf8mb4")
                .arg(format!("--socket={}", self.shop.server.socket().display()))
                .args(args)
                .run()
                .expect(0)
                .stdout_text()
        };
        // A table that is still there has not got the new name.
        let select = format!(
            "SELECT CONCAT(statement, ';;') FROM cut.{todo} WHERE unfinished NOT IN \
             (SELECT table_name FROM information_schema.tables WHERE table_schema = 'cut') ORDER BY n"
        );
        let statements = run(&["--execute", &select]);
        let _ = run(&["--delimiter=;;", "--execute", &statements]);
        self.shop.server.sql(&format!("DROP TABLE cut.{todo}"));
    }

    /// The places of statements at which the connection breaks, and what becomes of them: one of each kind, and both fates
    /// for those that give a table its name.
    fn breaks(&self) -> Vec<(usize, Fate, String)> {
        let all = self.statements();
        assert!(all.len() >= 10, "{all:#?}");
        let mut breaks = Vec::new();
        for (index, statement) in all.iter().enumerate() {
            let is_last = all[index + 1..].iter().all(|other| kind(other) != kind(statement));
            let is_chosen = is_last || std::env::var_os(ALL).is_some();
            let has_both = statement.starts_with("RENAME") || std::env::var_os(ALL).is_some();
            for (number, fate) in [Fate::AnswerLost, Fate::NotSent].into_iter().enumerate() {
                if is_chosen && (has_both || index % 2 == number) {
                    breaks.push((index, fate, statement.clone()));
                }
            }
        }
        breaks
    }

    /// The statements that change a table which clients use, in their order.
    fn statements(&self) -> Vec<String> {
        let all = Arc::new(Mutex::new(Vec::new()));
        let (kept, begun) = (Arc::clone(&all), AtomicBool::new(false));
        let line = self.cut(move |sql| {
            begun.fetch_or(sql.starts_with("RENAME"), Ordering::SeqCst);
            if begun.load(Ordering::SeqCst) && is_change(sql) {
                kept.lock().unwrap().push(sql.to_owned());
            }
            Fate::Passes
        });
        let _ = self.replace(line.socket()).run().expect(0);
        drop(line);
        Arc::into_inner(all).unwrap().into_inner().unwrap()
    }
}

fn is_change(sql: &str) -> bool {
    let word = sql.split_whitespace().next().unwrap_or_default();
    ["RENAME", "ALTER", "DROP", "CREATE"].contains(&word) && !sql.contains("DATABASE")
}

/// Its first keywords.
fn kind(sql: &str) -> Vec<&str> {
    let is_keyword = |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    sql.split_whitespace().filter(is_keyword).take(4).collect()
}

/// The names of the tables, their definitions, triggers and rows.
fn state(server: &MariaDb) -> String {
    parts(server) + &server.sql("USE cut; SELECT * FROM one; SELECT * FROM two")
}

/// The names of the tables, their definitions and triggers.
fn parts(server: &MariaDb) -> String {
    server.sql(
        "USE cut; SHOW TABLES; SHOW CREATE TABLE one; SHOW CREATE TABLE two;
         SELECT trigger_name, event_object_table, action_statement FROM information_schema.triggers WHERE trigger_schema = 'cut' ORDER BY 1",
    )
}

/// The statement at `index`, counted from the first RENAME, has this fate once; all others pass.
fn once(index: usize, fate: Fate) -> impl Fn(&str) -> Fate + Send + Sync + 'static {
    let seen = Mutex::new(None);
    move |sql| {
        let mut seen = seen.lock().unwrap();
        if seen.is_none() && sql.starts_with("RENAME") {
            *seen = Some(0);
        }
        match &mut *seen {
            Some(count) if is_change(sql) => {
                *count += 1;
                if *count == index + 1 { fate } else { Fate::Passes }
            }
            _ => Fate::Passes,
        }
    }
}

/// A connection that breaks is made anew, and what it was about is finished, whether the server ran the statement or not.
#[test]
fn a_connection_that_breaks_leaves_no_table_incomplete() {
    let line = Line::new();
    for (index, fate, statement) in line.breaks() {
        let at = format!("{fate:?} {statement}");
        line.shop.server.sql("DELETE FROM cut.one WHERE id = 2");
        let cut = line.cut(once(index, fate));
        let ran = line.replace(cut.socket()).run();
        let told = ran.stderr_text();
        assert_eq!(state(&line.shop.server), line.complete, "{at}: {told}");
        assert_eq!(ran.code(), 0, "{at}: {told}");
    }
    line.shop.assert_tidy();
}

/// A signal at any of the statements leaves each table as it was, or replaced and complete.
#[test]
fn a_signal_leaves_no_table_incomplete() {
    let line = Line::new();
    let whole = parts(&line.shop.server);
    let mut breaks = line.breaks();
    breaks.dedup_by_key(|(index, ..)| *index);
    for (index, _, statement) in breaks {
        let ran = line.signalled(index, Signal::TERM, Fate::AnswerHeld);
        let at = format!("{statement}: {}", ran.stderr_text());
        assert_eq!(parts(&line.shop.server), whole, "{at}");
        let is_replaced = state(&line.shop.server) == line.complete;
        assert_eq!(ran.code() == 0, is_replaced, "{at}");
    }
    line.shop.assert_tidy();
}

/// After a SIGKILL at any of the statements, the next rescue names all that is left, and the statements that it names make
/// the tables complete.
#[test]
fn what_a_killed_rescue_leaves_can_be_completed() {
    let line = Line::new();
    let server = &line.shop.server;
    let whole = parts(server);
    for (index, fate, statement) in line.breaks() {
        assert_ne!(line.signalled(index, Signal::KILL, fate).code(), 0);
        let left = line.left();
        // It finds them by their names, whichever statement was the last.
        if statement.starts_with("RENAME") || std::env::var_os(ALL).is_some() {
            let args = ["cut.seen", "--as=again", "--replace"];
            let told = line.shop.rescue_into(server, "full", &args).run().expect(0).stderr_text();
            server.sql("DROP TABLE cut.again");
            for name in &left {
                assert!(told.contains(&format!("`cut`.`{name}`")), "{name}: {told}");
            }
        }
        let (todo, left): (Vec<&String>, Vec<&String>) =
            left.iter().partition(|name| name.ends_with("_todo"));
        todo.into_iter().for_each(|todo| line.carry_out(todo));
        for name in left {
            server.sql(&format!("SET foreign_key_checks = 0; DROP TABLE IF EXISTS cut.{name}"));
        }
        assert_eq!(parts(server), whole, "{fate:?} {statement}");
    }
    let _ = line.replace(server.socket()).run().expect(0);
    assert_eq!(state(server), line.complete);
}

/// The fate of the first RENAME.
fn at_rename(act: impl Fn(&str) -> Fate + Send + Sync + 'static) -> impl Fn(&str) -> Fate {
    let is_over = AtomicBool::new(false);
    move |sql| {
        let is_first = sql.starts_with("RENAME") && !is_over.swap(true, Ordering::SeqCst);
        if is_first { act(sql) } else { Fate::Passes }
    }
}

/// A key that fails although it could be added before: what completes the table stays on the server, a trigger of several
/// lines included.
#[test]
fn what_a_table_lacks_stays_on_the_server() {
    let line = Line::new();
    let server = &line.shop.server;
    let bytes = "SELECT HEX(CONVERT(action_statement USING utf8mb4)) FROM information_schema.triggers WHERE trigger_name = 'two_in'";
    let (whole, text) = (parts(server), server.sql(bytes));
    let told = line.fails_late();
    let left = line.left();
    let [one, two, todo] = &left[..] else { panic!("{left:?}: {told}") };
    assert!(one.ends_with("_old") && two.ends_with("_old"), "{left:?}");
    assert!(told.contains(&format!("complete it are in `cut`.`{todo}`")), "{told}");
    line.carry_out(todo);
    assert_eq!(parts(server), whole);
    assert_eq!(server.sql(bytes), text);
    assert_eq!(state(server), line.complete);

    // The same statements complete the table that was replaced, if it comes back.
    server.sql("DELETE FROM cut.one WHERE id > 2; DELETE FROM cut.two WHERE id = 5");
    let told = line.fails_late();
    let (_, back) = told.split_once("begin with RENAME TABLE `cut`.`one` TO").expect(&told);
    let (back, _) = back.split_once(": the statements complete that one").expect(&told);
    server.sql(&format!("RENAME TABLE cut.one TO{back}"));
    let left = line.left();
    line.carry_out(left.iter().find(|name| name.ends_with("_todo")).expect(&told));
    let left = line.left();
    let [new] = &left[..] else { panic!("{left:?}: {told}") };
    server.sql(&format!("DROP TABLE cut.{new}"));
    assert_eq!(parts(server), whole);
    assert_eq!(server.sql("SELECT id FROM cut.one; SELECT COUNT(*) FROM cut.two"), "1\n2\n9\n");
}

/// The server ran the statement after it was asked whether it had.
#[test]
fn a_statement_that_ran_late_is_done() {
    let line = Line::new();
    let socket = line.shop.server.socket().to_owned();
    let count = AtomicI32::new(0);
    let cut = line.cut(move |sql| {
        let is_rename = sql.starts_with("RENAME");
        match is_rename.then(|| count.fetch_add(1, Ordering::SeqCst)) {
            Some(0) => return Fate::NotSent,
            Some(1) => client(&socket, sql),
            _ => {}
        }
        Fate::Passes
    });
    let ran = line.replace(cut.socket()).run();
    assert_eq!(state(&line.shop.server), line.complete, "{}", ran.stderr_text());
    assert_eq!(ran.code(), 0, "{}", ran.stderr_text());
}

/// An account that is refused is not tried until the server blocks its host; what the table lacks stays.
#[test]
fn a_login_that_is_refused_is_not_tried_for_long() {
    let line = Line::new();
    let server = &line.shop.server;
    let whole = parts(server);
    server.sql("CREATE USER own@localhost; GRANT ALL ON *.* TO own@localhost");
    let home = line.shop.scratch.dir("home");
    std::fs::write(home.join(".my.cnf"), "[client]\nuser=own\n").unwrap();
    let logins = || -> u64 {
        let status = server.sql("SHOW GLOBAL STATUS LIKE 'Connections'");
        status.split_whitespace().last().unwrap().parse().unwrap()
    };
    let (before, socket) = (logins(), server.socket().to_owned());
    let cut = line.cut(at_rename(move |_| {
        client(&socket, "ALTER USER own@localhost ACCOUNT LOCK");
        Fate::AnswerLost
    }));
    let told = line.replace(cut.socket()).env("HOME", &home).run().expect(1).stderr_text();
    let took = logins() - before;
    assert!(took < 30, "{took} logins: {told}");
    let left = line.left();
    let todo = left.iter().find(|name| name.ends_with("_todo")).expect(&told);
    assert!(told.contains(&format!("complete it are in `cut`.`{todo}`")), "{told}");
    line.carry_out(todo);
    for name in line.left() {
        server.sql(&format!("DROP TABLE cut.{name}"));
    }
    assert_eq!(parts(server), whole);
}

/// A trial of a key whose answer is lost is no reason to give up.
#[test]
fn a_key_is_tried_again_after_a_lost_answer() {
    let line = Line::new();
    let (added, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
    let cut = line.cut(move |sql| {
        let is_first = |part: &str, seen: &AtomicBool| {
            sql.contains(part) && !seen.swap(true, Ordering::SeqCst)
        };
        match sql.starts_with("ALTER") {
            true if is_first(" ADD CONSTRAINT `xb_rescue", &added) => Fate::AnswerLost,
            true if is_first(" DROP FOREIGN KEY `xb_rescue", &dropped) => Fate::NotSent,
            _ => Fate::Passes,
        }
    });
    let ran = line.replace(cut.socket()).run().expect(0);
    assert_eq!(state(&line.shop.server), line.complete, "{}", ran.stderr_text());
}

/// Runs statements on the server itself.
fn client(socket: &Path, sql: impl AsRef<OsStr>) {
    let _ = Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", "--execute"])
        .arg(sql.as_ref())
        .arg(format!("--socket={}", socket.display()))
        .run()
        .expect(0);
}
