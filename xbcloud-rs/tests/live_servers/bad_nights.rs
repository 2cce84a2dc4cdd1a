//! The mail of cron after a night with a real server, a real mariadb-backup and a common mistake: cause and next step in the
//! first two lines, and at most ten lines.

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::{MariaDb, Sample};

const LINES: usize = 10;

/// A mistake: what it is, the changes to the good producer, lines of the option file behind the good ones, and what the
/// first two lines of the mail say: cause and next step.
struct Night {
    what: &'static str,
    producer: Producer,
    lines: &'static [&'static str],
    cause: &'static str,
    next: &'static str,
}

/// The good producer with a change.
enum Producer {
    Good,
    /// With these words behind it.
    With(&'static [&'static str]),
    /// Without the words that begin like this.
    Without(&'static str),
    /// A shell command, in which `BACKUP` is the good producer.
    Shell(&'static str),
    /// Other words; `SOCKET` is that of the server.
    Other(&'static str),
}

use Producer::{Good, Other, Shell, With, Without};

const fn night(
    what: &'static str,
    producer: Producer,
    cause: &'static str,
    next: &'static str,
) -> Night {
    Night { what, producer, lines: &[], cause, next }
}

const NIGHTS: [Night; 15] = [
    night(
        "an option that the program does not know",
        With(&["--paralel=4"]),
        "unknown variable 'paralel=4'",
        "correct this option",
    ),
    night(
        "an option file that does not come first",
        With(&["--defaults-file=/etc/my.cnf"]),
        "--defaults-file must be specified first",
        "put this option first",
    ),
    night(
        "a value that the program does not know",
        With(&["--stream=tar"]),
        "Invalid --stream argument: tar",
        "--stream=xbstream",
    ),
    night("no stream", Without("--stream"), "the input is empty", "add --stream=xbstream"),
    night(
        "another port",
        With(&["--protocol=tcp", "--host=127.0.0.1", "--port=1"]),
        "Can't connect to server on '127.0.0.1'",
        "correct the host, port or socket",
    ),
    night(
        "a host that does not exist",
        With(&["--protocol=tcp", "--host=no-such-host.invalid"]),
        "Unknown server host 'no-such-host.invalid'",
        "correct the host, port or socket",
    ),
    night(
        "an account that is locked",
        With(&["--user=locked"]),
        "account is locked",
        "unlock the account",
    ),
    night("a compressing pipe", Shell("BACKUP | gzip"), "neither an xbstream", "--stream=xbstream"),
    night(
        "a failure that a pipe hides",
        Shell("BACKUP --paralel=4 | cat"),
        "unknown variable 'paralel=4'",
        "correct this option",
    ),
    night(
        "a dump",
        Other("mariadb-dump --no-defaults --user=root --socket=SOCKET --all-databases"),
        "neither an xbstream",
        "--stream=xbstream",
    ),
    night("a folder as program", Other("/tmp --backup"), "/tmp", "correct its path"),
    night("an empty producer", Other(""), "producer", "mariadb-backup"),
    Night {
        what: "a repository below a file",
        producer: Good,
        lines: &["root=file://DIR/my.cnf/shop"],
        cause: "DIR/my.cnf",
        next: "directory",
    },
    Night {
        what: "a proof that fails",
        producer: Good,
        lines: &[
            "verify=restore",
            "scratch-dir=DIR",
            "check-sql=SELECT COUNT(*) FROM shop.not_there",
        ],
        cause: "shop.not_there' doesn't exist",
        next: "correct the statement",
    },
    Night {
        what: "a bad recipient",
        producer: Good,
        lines: &["recipient=age1notakey"],
        cause: "--recipient: not an age recipient",
        next: "keygen --identity",
    },
];

/// A night that was to be proven, and was not, is no good one.
#[test]
fn a_trial_that_cannot_open_a_table_fails_the_night() {
    let server = MariaDb::start();
    server.load_sample(Sample { big_rows: 100, small_tables: 1 });
    // The trial server does not load what only this one had.
    server.sql("INSTALL SONAME 'ha_archive'");
    server.sql("CREATE TABLE shop.ar (i INT) ENGINE=ARCHIVE");
    server.sql("UNINSTALL SONAME 'ha_archive'");
    let scratch = Scratch::new();
    let dir = scratch.path().display().to_string();
    let text = format!(
        "[xbcloud.shop]\nroot=file://{dir}/shop\nproducer={}\nstate-dir={dir}/state\nverify=restore\n\
         scratch-dir={dir}\nresult={dir}/result.json\nkeep-last=1\n",
        server.backup_command().join(" "),
    );
    std::fs::write(scratch.join("my.cnf"), text).unwrap();
    let run = |more: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={dir}/my.cnf"))
            .args(["run", "@shop", "--quiet"])
            .args(more)
            .run()
    };
    let mail = run(&[]).expect(7).stderr_text();
    assert!(
        mail.contains("but restore was requested: ") && mail.contains("1 of ARCHIVE"),
        "{mail}"
    );
    assert!(mail.contains("hint: no problem was found"), "{mail}");
    let result = std::fs::read_to_string(scratch.join("result.json")).unwrap();
    assert!(result.contains("\"status\": \"failed\"") && result.contains("\"prune\""), "{result}");
    let _ = run(&["--mysqld-opts=--plugin-load-add=ha_archive"]).expect(0);
}

#[test]
fn the_mail_of_a_real_bad_night_names_cause_and_next_step_first() {
    let server = MariaDb::start();
    server.load_sample(Sample { big_rows: 100, small_tables: 1 });
    server.sql("CREATE USER locked@localhost ACCOUNT LOCK");
    let scratch = Scratch::new();
    let (dir, socket) = (scratch.path().display().to_string(), server.socket().display());
    let good = server.backup_command();
    let mut wrong = Vec::new();
    let names = NIGHTS.iter().map(|night| night.what);
    assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), NIGHTS.len());
    for Night { what, producer, lines, cause, next } in &NIGHTS {
        let producer = match producer {
            Good => good.join(" "),
            With(words) => format!("{} {}", good.join(" "), words.join(" ")),
            Without(start) => good
                .iter()
                .filter(|word| !word.starts_with(start))
                .cloned()
                .collect::<Vec<_>>()
                .join(" "),
            Shell(script) => format!("sh -c '{}'", script.replace("BACKUP", &good.join(" "))),
            Other(words) => words.replace("SOCKET", &socket.to_string()),
        };
        let text = format!(
            "[xbcloud.shop]\nroot=file://{dir}/shop\nproducer={producer}\nstate-dir={dir}/state\n{}\n",
            lines.join("\n").replace("DIR", &dir),
        );
        std::fs::write(scratch.join("my.cnf"), text).unwrap();
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={dir}/my.cnf"))
            .args(["run", "@shop", "--quiet"])
            .run();
        let mail = ran.stderr_text() + &ran.stdout_text();
        let first: Vec<&str> = mail.lines().take(2).collect();
        let first = first.join("\n");
        let is_good = ran.code() != 0
            && mail.lines().count() <= LINES
            && first.contains(&cause.replace("DIR", &dir))
            && first.contains(next);
        if !is_good {
            wrong.push(format!("=== {what}: exit {}\n{mail}", ran.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
