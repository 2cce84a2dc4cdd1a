//! `--report` beside a run: what it may and may not change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        std::fs::write(site.path("stream"), small_backup(2, 5000)).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command on the backup `n`, with its page in the file `page`.
    fn xbcloud(&self, command: &str, page: &str, more: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", command, "--quiet"])
            .arg(format!("--report={}", self.path(page).display()))
            .arg(format!("file://{}", self.path("root/n").display()))
            .args(more)
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin_file(self.path("stream"))
            .run()
    }

    fn page(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn has_backup(&self) -> bool {
        self.path("root/.xb-catalog/n").is_file()
    }
}

#[test]
fn a_page_is_private_and_replaced_by_the_next_one() {
    let site = Site::new();
    let _ = site.xbcloud("put", "r.html", &[]).expect(0);
    assert_eq!(site.path("r.html").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let first = site.page("r.html");
    assert!(first.contains("<h1><bdi>Backup n</bdi></h1>") && first.contains("✓ succeeded"));
    assert!(first.contains("<bdi>db.table</bdi>"), "{first}");
    // The name is taken.
    let _ = site.xbcloud("put", "r.html", &[]).expect_failure();
    let second = site.page("r.html");
    assert!(second.contains("✗ failed") && second.contains("Next step:"), "{second}");
}

#[test]
fn a_page_that_cannot_be_written_is_found_before_any_work() {
    let site = Site::new();
    let ran = site.xbcloud("put", "missing/r.html", &[]).expect_failure();
    let text = ran.stderr_text();
    assert!(text.contains("hint: make the directory of the report"), "{text}");
    assert!(!site.path("root").exists(), "the run began");
}

#[test]
fn a_page_that_cannot_be_written_at_the_end_is_a_warning() {
    let site = Site::new();
    std::fs::create_dir(site.path("pages")).unwrap();
    let stream = site.path("stream").display().to_string();
    let producer = format!("cat '{stream}'; rmdir '{}'", site.path("pages").display());
    let ran = site.xbcloud("backup", "pages/r.html", &["--", "sh", "-c", &producer]).expect(0);
    let text = ran.stderr_text();
    assert!(site.has_backup(), "{text}");
    assert!(
        text.contains("warning: cannot write the report") && text.contains("--report"),
        "{text}"
    );
    assert!(text.contains("pages/r.html"), "{text}");
}

#[test]
fn secrets_are_not_in_the_page() {
    let site = Site::new();
    let producer = ["--", "sh", "-c", "exit 4", "--password=topsecret"];
    let _ = site.xbcloud("backup", "r.html", &producer).expect(6);
    let page = site.page("r.html");
    assert!(page.contains("exit status 4") && !page.contains("topsecret"), "{page}");
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "put", "s3://key:topsecret@bucket/n"])
        .arg(format!("--report={}", site.path("s.html").display()))
        .stdin_bytes("x")
        .run()
        .expect(2);
    assert!(!ran.stderr_text().contains("topsecret"));
    let page = site.page("s.html");
    assert!(page.contains("s3://***@bucket/n") && !page.contains("topsecret"), "{page}");
}
