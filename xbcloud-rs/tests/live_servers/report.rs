//! Reports of real runs, as a real browser shows them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::{browser, s3};

const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

/// The document of a page about which the browser has no complaint.
#[track_caller]
fn shown(page: &Path) -> String {
    let (document, console) = browser::document(page);
    assert_eq!(console, [""; 0], "the console of the browser");
    document
}

/// The exact number of an element.
#[track_caller]
fn number(document: &str, id: &str) -> u64 {
    let start = format!("<data id=\"{id}\" value=\"");
    let (_, rest) = document.split_once(&start).unwrap_or_else(|| panic!("{id}\n{document}"));
    rest.split('"').next().unwrap().parse().unwrap()
}

/// Takes a picture of a page in each theme, and asserts that they differ and are not empty. With
/// `XB_SCREENSHOTS=DIR`, they are kept there.
fn pictures(page: &Path, name: &str) {
    let scratch = Scratch::new();
    let kept = std::env::var_os("XB_SCREENSHOTS").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| scratch.path().to_owned());
    let pictures = [("light", "1"), ("dark", "0")].map(|(theme, scheme)| {
        let file = folder.join(format!("{name}-{theme}.png"));
        let options = [
            format!("--screenshot={}", file.display()),
            "--window-size=1100,3600".to_owned(),
            format!("--blink-settings=preferredColorScheme={scheme}"),
        ];
        let _ = browser::open(page, &options);
        std::fs::read(file).unwrap()
    });
    for picture in &pictures {
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 30_000, "{}", picture.len());
    }
    assert_ne!(pictures[0], pictures[1]);
}

/// A repository in an S3 store behind a proxy, and a second one in a folder.
struct Site {
    scratch: Scratch,
    proxy: Proxy,
}

impl Site {
    fn new(producer: &str) -> Self {
        let bucket = s3::bucket();
        let (proxy, scratch) = (Proxy::start(bucket.address(), Vec::new()), Scratch::new());
        let path = |name: &str| scratch.join(name).display().to_string();
        let text = format!(
            "[xbcloud.shop]\nroot={}\nproducer={producer}\ncompress=zstd\nchunk-size=1M\n\
             copy-to=@vault\nkeep-last=3\nstate-dir={}\nresult={}\nreport={}\n[xbcloud.vault]\nroot=file://{}\n",
            bucket.url("shop"),
            path("state"),
            path("result.json"),
            path("run.html"),
            path("vault"),
        );
        std::fs::write(scratch.join("my.cnf"), text).unwrap();
        Self { scratch, proxy }
    }

    fn xbcloud(&self, words: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", self.scratch.join("my.cnf").display()))
            .args(words)
            .args(s3::options_for(&self.proxy.endpoint()))
            .args(["--max-backoff=50", "--quiet"])
            .run()
    }

    fn result(&self) -> Value {
        let text = std::fs::read(self.scratch.join("result.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn page(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{name}.html"))
    }
}

#[test]
fn the_page_of_a_run_shows_what_the_result_says() {
    let server = MariaDb::start();
    server.load_sample(Sample::SMALL);
    let site = Site::new(&server.backup_command().join(" "));
    // One object is refused twice.
    let busy = Rule::new("PUT", "000000000", Action::answer(503)).times(2);
    site.proxy.set_rules(vec![busy]);
    let sealed = format!("--recipient={RECIPIENT}");
    let _ = site.xbcloud(&["run", "@shop/nightly", &sealed]).expect(0);
    let page = site.page("run");
    let document = shown(&page);
    let result = site.result();
    let backup = &result["stages"][0]["details"];
    for (id, field) in [
        ("stream-bytes", "stream_bytes"),
        ("stored-bytes", "stored_bytes"),
        ("objects", "objects"),
        ("sized-objects", "objects"),
        ("files", "files"),
        ("requests", "requests"),
        ("retries", "retries"),
    ] {
        assert_eq!(number(&document, id), backup[field].as_u64().unwrap(), "{id}");
    }
    assert_eq!(number(&document, "exit"), 0);
    assert!(number(&document, "retries") >= 2);
    for text in [
        "<h1><bdi>Run nightly</bdi></h1>",
        "✓ succeeded",
        "data-section=\"backup\"",
        "id=\"course-verify\"",
        "id=\"course-copy\"",
        "data-stage=\"read\"",
        "data-stage=\"compress\"",
        "data-stage=\"seal\"",
        "data-stage=\"upload\"",
        "class=\"retry\"",
        // Which stage was the slowest, if one was: a run this short need not have one.
        "<p class=\"verdict\"",
        "data-phase=\"backup\"",
        "data-phase=\"upload\"",
        "data-phase=\"prune\"",
        "<bdi>shop.",
        "<bdi>ibdata1</bdi>",
        "503",
    ] {
        assert!(document.contains(text), "{text}\n{document}");
    }
    // The stream is read to its end, and everything that was read was compressed.
    let read = number(&document, "backup-0-bytes");
    assert_eq!(
        (read, read),
        (number(&document, "stream-bytes"), number(&document, "backup-1-bytes"))
    );
    assert!(number(&document, "backup-3-bytes") >= number(&document, "stored-bytes"));
    pictures(&page, "run");
}

#[test]
fn the_page_of_a_failed_run_shows_why() {
    let site = Site::new("sh -c 'head -c 3000000 /dev/zero; exit 3'");
    let failed = site.xbcloud(&["run", "@shop/bad", "--raw"]).expect(6);
    let result = site.result();
    let page = site.page("run");
    let document = shown(&page);
    let message = result["error"]["message"].as_str().unwrap();
    assert!(failed.stderr_text().contains(message));
    let (_, cause) = document.split_once("<p id=\"cause\">").unwrap();
    assert!(cause.split("</p>").next().unwrap().ends_with(message), "{document}");
    assert_eq!(number(&document, "exit"), 6);
    assert_eq!(number(&document, "stream-bytes"), 3_000_000);
    // The producer's exit status is the last thing to arrive.
    assert_eq!(number(&document, "objects"), 1);
    assert!(number(&document, "sent-bytes") >= number(&document, "backup-3-bytes"));
    for text in ["sent before the end", "input incomplete or producer failed", "<dt>part size</dt>"]
    {
        assert!(document.contains(text), "{text}\n{document}");
    }
    let (_, hint) = document.split_once("<p class=\"hint\" id=\"hint\">").unwrap();
    assert!(hint.contains("read the producer's messages, then take a new backup"), "{hint}");
    for text in ["✗ failed", "class=\"phase failed\"", "skipped", "id=\"hint\""] {
        let wanted = text != "id=\"hint\"" || !result["error"]["hint"].is_null();
        assert_eq!(document.contains(text), wanted, "{text}\n{document}");
    }
    pictures(&page, "failed");
}

#[test]
fn the_way_back_has_a_page_too() {
    let server = MariaDb::start();
    server.load_sample(Sample::SMALL);
    let site = Site::new(&server.backup_command().join(" "));
    let option = |name: &str| format!("--report={}", site.page(name).display());
    let _ = site.xbcloud(&["backup", "@shop/monday", &option("backup")]).expect(0);
    let stored = shown(&site.page("backup"));
    let objects = number(&stored, "sized-objects");
    let stored = number(&stored, "stored-bytes");
    let target = format!("--target-dir={}", site.scratch.join("data").display());
    let _ = site.xbcloud(&["restore", "@shop/latest", &target, &option("restore")]).expect(0);
    let restored = shown(&site.page("restore"));
    assert_eq!(browser::overhang(&site.page("restore"), 390), 0, "on a telephone");
    let _ = site.xbcloud(&["get", "@shop/monday", &option("get")]).expect(0);
    let got = shown(&site.page("get"));
    assert_eq!(number(&restored, "stream-bytes"), number(&got, "stream-bytes"));
    for (document, section) in [(&restored, "restore"), (&got, "download")] {
        assert_eq!(number(document, "stored-bytes"), stored, "{section}");
        assert_eq!(number(document, "sized-objects"), objects, "{section}");
        for stage in [0, 2, 3] {
            assert!(
                number(document, &format!("{section}-{stage}-bytes")) > 0,
                "{section}: {stage}"
            );
        }
        assert!(!document.contains(&format!("{section}-1-bytes")), "nothing was sealed");
    }
}

/// Shows that the console of the browser is heard, and that no script would run in a page.
#[test]
fn a_script_in_a_page_does_not_run() {
    let site = Site::new("false");
    let _ = site.xbcloud(&["run", "@shop/bad"]).expect(6);
    let page = std::fs::read_to_string(site.page("run")).unwrap();
    let script = "<script>document.title = 'changed'</script></main>";
    let changed = site.page("changed");
    std::fs::write(&changed, page.replace("</main>", script)).unwrap();
    let (document, console) = browser::document(&changed);
    assert!(!document.contains("<title>changed"), "{document}");
    assert!(console.iter().any(|line| line.contains("Content Security Policy")), "{console:?}");
}
