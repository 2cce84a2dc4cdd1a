//! `--report` beside a run: what it may and may not change; and pages drawn from the report of a transfer.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xb_pipeline::Observer;
use xb_report::{Cause, Direction, Document, End, Head, Report, SectionOptions, Traffic};
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
    assert!(text.contains("missing/r.html: No such file") && !text.contains(".xb-"), "{text}");
    assert!(text.contains("hint: make the directory of"), "{text}");
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

/// The report of a donor.
fn transfer(error: Option<Cause>) -> Document {
    let report = Report::begin(Head {
        what: "State transfer, donor".into(),
        tool: "xbrs 1".into(),
        place: "from this node to db2:4444".into(),
        host: "db1".into(),
        started: "2026-11-22T03:15:00Z".parse().unwrap(),
    });
    report.setting("compress", "zstd:1");
    let observer = Observer::default();
    let options = SectionOptions { direction: Direction::Send, encode: None, threads: 2 };
    let watch = report.watch("transfer", options, &observer, Traffic::default);
    observer.begin_phase("sending");
    observer.add_bytes(9000);
    let watcher = observer.watcher().unwrap();
    watcher.file_bytes(b"shop/orders.ibd", 9000);
    watcher.packed(Some(3000));
    drop(watch);
    report.end(End {
        finished: "2026-11-22T03:15:13Z".parse().unwrap(),
        exit: if error.is_some() { 22 } else { 0 },
        meaning: "done".into(),
        error,
    })
}

fn draw(site: &Site, file: &str, more: &[&str]) -> Ran {
    let file = site.path(file).display().to_string();
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "report", &file])
        .args(more)
        .run()
}

#[test]
fn the_page_of_a_transfer_is_drawn_from_its_json() {
    let site = Site::new();
    std::fs::write(site.path("xbrs-donor.json"), transfer(None).to_json()).unwrap();
    let shown = draw(&site, "xbrs-donor.json", &[]).expect(0).stdout_text().to_string();
    for part in [
        "✓ succeeded",
        "<bdi>shop.orders</bdi>",
        "zstd:1",
        "on the wire",
        "from this node to db2:4444",
        "data-phase=\"sending\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("requests"), "there is no store: {shown}");
    let page = site.path("donor.html").display().to_string();
    let _ = draw(&site, "xbrs-donor.json", &["-o", &page]).expect(0);
    assert_eq!(site.page("donor.html"), shown);
    assert_eq!(site.path("donor.html").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // After a failure.
    let cause = Cause { message: "the server went away".into(), hint: None };
    std::fs::write(site.path("xbrs-donor.json"), transfer(Some(cause)).to_json()).unwrap();
    let shown = draw(&site, "xbrs-donor.json", &[]).expect(0).stdout_text().to_string();
    assert!(shown.contains("✗ failed") && shown.contains("the server went away"), "{shown}");
}

#[test]
fn a_foreign_file_is_refused() {
    let site = Site::new();
    let good = transfer(None).to_json();
    let bad = [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{\"format\": 1, \"tool\": \"x\"}", "missing field `what`"),
        ("{\"format\": 2}", "version 2 of the format, and this program reads version 1"),
        (&good[..good.len() / 2], "EOF while parsing"),
        (&good.replace("\"begin\":", "\"begin\":-1,\"x\":"), "-1 is not a duration in seconds"),
    ];
    for (text, why) in bad {
        std::fs::write(site.path("bad.json"), text).unwrap();
        let page = site.path("bad.html").display().to_string();
        let ran = draw(&site, "bad.json", &["-o", &page]).expect(1);
        let said = ran.stderr_text();
        assert!(said.contains(why) && said.contains("bad.json: "), "{text}: {said}");
        assert!(said.contains("hint: give a file that a state transfer wrote"), "{said}");
        assert!(!site.path("bad.html").exists(), "{text}");
    }
    let said = draw(&site, "missing.json", &[]).expect(1).stderr_text().to_string();
    assert!(said.contains("missing.json: No such file"), "{said}");
}
