//! The examples of the documents, run as a user would type them: every shell block that begins with
//! ` ```sh run `, in the order of its document, against a real server, backup program and S3 store.
//!
//! Only the surroundings differ: the buckets are one real bucket, and directories such as `/etc` are
//! in a scratch directory. Login and endpoint are in option files, as on any host.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::s3::{self, Bucket};
use xb_testkit::tools::{find, workspace};

/// Directories that the documents name, and that a host has.
const DIRECTORIES: &[&str] = &["/etc", "/restore", "/scratch", "/tmp", "/var/backups", "/var/lib"];

/// Shell blocks of a document that are marked as run, each with its first line number.
fn blocks(document: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(document.lines()) {
        match line.trim_start() {
            "```sh run" => {
                inside = true;
                blocks.push((number + 1, String::new()));
            }
            fence if fence.starts_with("```") => inside = false,
            _ if inside => {
                let (_, block) = blocks.last_mut().unwrap();
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

/// Host on which the blocks of one document run.
struct Host {
    server: MariaDb,
    bucket: Bucket,
    scratch: Scratch,
}

impl Host {
    fn new() -> Self {
        let host = Self { server: MariaDb::start(), bucket: s3::bucket(), scratch: Scratch::new() };
        host.server.load_sample(Sample { big_rows: 2000, small_tables: 10 });
        host.server.sql("CREATE TABLE shop.orders (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO shop.orders VALUES (1)");
        for directory in DIRECTORIES {
            std::fs::create_dir_all(host.inner(directory)).unwrap();
        }
        let login = host.server.backup_command().into_iter();
        let login = login.filter(|option| {
            ["--user=", "--socket=", "--datadir="].iter().any(|known| option.starts_with(known))
        });
        let groups = format!(
            "[mariadb-backup]\n{}[xbcloud]\n{}",
            lines(login),
            lines(host.bucket.options().into_iter())
        );
        let file = host.scratch.join(".my.cnf");
        std::fs::write(&file, groups).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        host
    }

    /// Path in the scratch directory for an absolute one.
    fn inner(&self, path: &str) -> String {
        format!("{}{path}", self.scratch.path().display())
    }

    /// The text with this host's buckets and directories.
    fn adapted(&self, block: &str) -> String {
        let mut text = block.replace("s3://vault/", &self.bucket.url("vault/"));
        text = text.replace("s3://bucket/", &self.bucket.url(""));
        // The scratch directory may itself be below one of these, so it is inserted at the end.
        const HERE: &str = "\u{1}";
        for directory in DIRECTORIES {
            for before in [" ", "=", ">", "<", "file://"] {
                let inner = format!("{before}{HERE}{directory}");
                text = text.replace(&format!("{before}{directory}"), &inner);
            }
        }
        text.replace(HERE, &self.inner(""))
    }

    fn run(&self, block: &str) -> Result<(), String> {
        let own = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")).parent().unwrap();
        let tools = ["mariadb-backup", "mbstream", "mariadbd"].map(find);
        let path = [own]
            .into_iter()
            .chain(tools.iter().map(|tool| tool.parent().unwrap()))
            .chain(["/usr/bin", "/bin"].map(Path::new));
        let text = self.adapted(block);
        let ran = Cmd::new(find("bash"))
            .args(["-xeuo", "pipefail", "-c", &text])
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HOME", self.scratch.path())
            .env("XDG_STATE_HOME", self.scratch.join("state"))
            .cwd(self.scratch.path())
            .limit(Duration::from_secs(600))
            .run();
        if ran.code() == 0 {
            return Ok(());
        }
        Err(format!("status {}\n{}{}", ran.code(), ran.stdout_text(), ran.stderr_text()))
    }
}

/// Options as lines of an option file.
fn lines(options: impl Iterator<Item = String>) -> String {
    options.map(|option| format!("{}\n", option.trim_start_matches("--"))).collect()
}

/// Runs the blocks of a document, which has at least `least` of them.
fn run_document(name: &str, least: usize) {
    let text = std::fs::read_to_string(workspace().join(name)).unwrap();
    let blocks = blocks(&text);
    assert!(blocks.len() >= least, "{name}: only {} blocks are marked as run", blocks.len());
    let host = Host::new();
    for (line, block) in blocks {
        if let Err(what) = host.run(&block) {
            panic!("{name}:{line}: {what}");
        }
    }
}

#[test]
fn the_readme_does_what_it_says() {
    run_document("README.md", 4);
}

#[test]
fn the_tour_does_what_it_says() {
    run_document("docs/guide/tour.md", 4);
}

#[test]
fn the_page_on_restores_does_what_it_says() {
    run_document("docs/guide/restore.md", 3);
}

#[test]
fn the_page_on_verification_does_what_it_says() {
    run_document("docs/guide/verify.md", 3);
}

#[test]
fn the_page_on_filters_does_what_it_says() {
    run_document("docs/reference/filters.md", 1);
}
