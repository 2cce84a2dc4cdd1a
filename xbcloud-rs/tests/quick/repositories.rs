//! Repositories by name, options from the environment, and the sources of values.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(more: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(site.path("stream"), small_backup(2, 5000)).unwrap();
        std::fs::create_dir(site.path("vault")).unwrap();
        let text = format!(
            "[xbcloud]\ncompress=lz4\n\n\
             [xbcloud.shop]\nroot={}\nproducer=cat \"{}\"\nname-template=n-{{utc}}\n\n\
             [xbcloud.vault]\nroot={}\n{more}\n",
            site.url("shop"),
            site.path("stream").display(),
            site.url("vault/deep"),
        );
        std::fs::write(site.path("my.cnf"), text).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn cmd(&self, args: &[&str]) -> Cmd {
        self.cmd_of(Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")), args)
    }

    fn cmd_of(&self, program: &Path, args: &[&str]) -> Cmd {
        let file = format!("--defaults-file={}", self.path("my.cnf").display());
        Cmd::new(program)
            .arg(file)
            .args(args)
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin_bytes(small_backup(2, 5000))
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.cmd(args).run()
    }

    fn names(&self, root: &str) -> Vec<String> {
        let listed = self.run(&["list", "--json", root]).expect(0);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let names = listed.as_array().unwrap().iter();
        names.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_repository_is_used_by_its_name_everywhere() {
    let site = Site::new("");
    let _ = site.run(&["backup", "@shop"]).expect(0);
    let _ = site.run(&["put", "@shop/second"]).expect(0);
    let names = site.names("@shop");
    assert_eq!(names.len(), 2);
    assert!(names[0].starts_with("n-2") && names[0].ends_with('Z') && names[1] == "second");
    assert_eq!(site.names(&site.url("shop")), names);
    for name in ["@shop/latest", "@shop/@9998-12-31", "@shop/second"] {
        // `put` knows no server; `backup` takes the name of its host.
        let server: &[&str] = if name.ends_with("second") { &[] } else { &["--server=none"] };
        let shown = site.run(&[&["show", "--json", name], server].concat()).expect(0);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["name"], "second", "{name}");
    }
    let target = format!("--target-dir={}", site.path("data").display());
    let _ = site.run(&["restore", "@shop/second", &target]).expect(0);
    let _ = site.run(&["verify", "@shop/second", "--level=checksum"]).expect(0);
    let _ = site.run(&["copy", "@shop/second", "@vault"]).expect(0);
    let _ = site.run(&["copy", "@shop/second", "@vault/third"]).expect(0);
    assert_eq!(site.names(&site.url("vault/deep")), ["second", "third"]);
    let _ = site.run(&["plan", "--like=@vault/third"]).expect(0);
    let _ = site.run(&["prune", "@shop", "--keep-last=1"]).expect(0);
    let _ = site.run(&["delete", "@shop/second", "--yes"]).expect(0);
    assert_eq!(site.names("@shop").len(), 1);
    assert_eq!(site.names("@vault"), ["second", "third"], "only the named one is touched");
}

#[test]
fn a_name_is_made_from_a_template() {
    let site = Site::new("");
    let _ = site.run(&["put", "@shop/{date}-x"]).expect(0);
    let _ = site.run(&["put", &site.url("shop/{host}")]).expect(0);
    assert!(site.names("@shop").iter().any(|name| name.starts_with("20") && name.ends_with("-x")));
    let ran = site.run(&["put", "@shop/{day}"]).expect(2);
    assert!(ran.stderr_text().contains("`{day}` is not a field"), "{}", ran.stderr_text());
}

#[test]
fn a_missing_setting_of_a_repository_is_named_at_once() {
    let site =
        Site::new("[xbcloud.bare]\nparallel=2\n[xbcloud.quoted]\nroot=file:///x\nproducer='a");
    for (args, text) in [
        (&["backup", "@shpo"][..], "no option file has a group [xbcloud.shpo]"),
        (&["backup", "@shpo"], "known: @bare, @quoted, @shop, @vault"),
        (&["copy", "@shop/x", "@vualt"], "[xbcloud.vualt]"),
        (&["show", "@shop"], "no backup is named"),
        (&["list", "@bare"], "no store is given"),
        (&["backup", "@vault"], "no producer is named"),
        (&["backup", "@quoted"], "--producer: a quote"),
    ] {
        let ran = site.run(args).expect(2);
        assert!(ran.stderr_text().contains(text), "{args:?}: {}", ran.stderr_text());
    }
    assert!(!site.path("shop").exists());
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["--no-defaults", "list", "@shop"]);
    assert!(ran.run().expect(2).stderr_text().contains("[xbcloud.shop]"));
}

#[test]
fn the_stock_tool_has_names_with_at_signs() {
    let site = Site::new("");
    let link = site.path("xbcloud");
    symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &link).unwrap();
    let ran = site.cmd_of(&link, &["put", "@shop/x"]).run().expect(1);
    assert!(ran.stderr_text().contains("no store is given"), "{}", ran.stderr_text());
    assert!(!site.path("shop").exists());
}

fn defaults(ran: Ran) -> Vec<(String, String, String)> {
    let rows: serde_json::Value = serde_json::from_slice(&ran.expect(0).stdout).unwrap();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (text(row, "option"), text(row, "value"), text(row, "source"))).collect()
}

#[test]
fn values_have_an_order_and_their_sources_are_printed() {
    let site =
        Site::new("s3-secret-key=hunter2\nretain=9d\nproducer=x --password=hunter2 -phunter2");
    let cmd = site
        .cmd(&["backup", "@vault", "--memory=64M", "--print-defaults", "--json"])
        .env("XBCLOUD_COMPRESS", "zstd")
        .env("XBCLOUD_MEMORY", "1G")
        .env("XBCLOUD_ROOT", "file:///elsewhere")
        .env("XBCLOUD_VERBOSE", "1")
        .env("XBCLOUD_KEEP_DAILY", "7")
        .env("XBCLOUD_RECIPIENT", "age1a\nage1b")
        .env("AWS_ENDPOINT_URL", "http://two")
        .env("AWS_ENDPOINT_URL_S3", "http://one")
        .env("AWS_SESSION_TOKEN", "hunter2");
    let ran = cmd.run();
    assert!(!ran.stdout_text().contains("hunter2"), "{}", ran.stdout_text());
    let rows = defaults(ran);
    let all = |option: &str| {
        let rows = rows.iter().filter(|row| row.0 == option);
        rows.map(|(_, value, source)| (value.as_str(), source.as_str())).collect::<Vec<_>>()
    };
    let file = site.path("my.cnf").display().to_string();
    assert_eq!(all("memory"), [("64M", "command line")]);
    assert_eq!(all("compress"), [("zstd", "environment variable XBCLOUD_COMPRESS")]);
    assert_eq!(all("verbose"), [("true", "environment variable XBCLOUD_VERBOSE")]);
    assert_eq!(all("s3-endpoint"), [("http://one", "environment variable AWS_ENDPOINT_URL_S3")]);
    assert_eq!(all("s3-session-token"), [("***", "environment variable AWS_SESSION_TOKEN")]);
    assert_eq!(all("timeout"), [("120", "default")]);
    assert_eq!(all("producer")[0].0, "x --password=*** -p***");
    let (root, source) = all("root")[0];
    assert_eq!(root, site.url("vault/deep"));
    assert!(source.starts_with(&file) && source.ends_with("[xbcloud.vault]"), "{source}");
    assert_eq!(all("s3-secret-key")[0].0, "***");
    assert_eq!(all("recipient").len(), 2);
    assert!(all("keep-daily").is_empty(), "an option of another command");
    // A table for people, and nothing but it.
    let table = site.run(&["list", "@shop", "--print-defaults"]).expect(0);
    assert!(table.stdout_text().lines().any(|line| line.starts_with("root  ")));
    assert!(!site.path("shop").exists());
}

#[test]
fn a_copy_takes_each_place_from_its_own_group() {
    let more =
        "retain=9d\ns3-region=there\n[xbcloud.source]\nroot=file:///a\nretain=1d\ns3-region=here";
    let site = Site::new(more);
    let rows = defaults(site.run(&["copy", "@source/x", "@vault", "--print-defaults", "--json"]));
    let value = |option: &str| {
        rows.iter().find(|row| row.0 == option).map(|row| row.1.clone()).unwrap_or_default()
    };
    assert_eq!(value("root"), "file:///a");
    assert_eq!(value("to-root"), site.url("vault/deep"));
    assert_eq!((&*value("s3-region"), &*value("to-s3-region")), ("here", "there"));
    assert_eq!(value("retain"), "9d", "what is written there is locked as its group says");
    let rows =
        defaults(site.run(&["copy", "@source/x", "file:///b/", "--print-defaults", "--json"]));
    assert!(!rows.iter().any(|row| row.0 == "retain"), "{rows:?}");
}

#[test]
fn wrong_values_are_named_with_their_source() {
    let site = Site::new(
        "[xbcloud.typo]\nroot=file:///x\nmemory=lots\n[xbcloud.region]\ns3-region=hidden-region",
    );
    let ran = site.run(&["list", "@region", "--nope"]).expect(2);
    let text = ran.stderr_text();
    assert!(text.contains("Usage: xbcloud-rs list [OPTIONS] [ROOT]"), "{text}");
    assert!(!text.contains("s3-region") && !text.contains("hidden-region"), "{text}");
    let text = site.run(&["list", "@typo"]).expect(2).stderr_text();
    let source = format!("--memory comes from {} line", site.path("my.cnf").display());
    assert!(text.contains(&source) && text.contains("[xbcloud.typo]"), "{text}");
    let ran = site.cmd(&["list", "@shop"]).env("XBCLOUD_THREADS", "many").run().expect(2);
    let source = "--threads comes from environment variable XBCLOUD_THREADS";
    assert!(ran.stderr_text().contains(source), "{}", ran.stderr_text());
    let ran = site.cmd(&["list", "@shop"]).env("XBCLOUD_JSON", "perhaps").run().expect(2);
    assert!(ran.stderr_text().contains("XBCLOUD_JSON takes only"), "{}", ran.stderr_text());
    let ran = site.cmd(&["put", "@shop/n"]).env("XBCLOUD_COMPRES", "zstd").run().expect(0);
    let warning = "environment variable XBCLOUD_COMPRES is ignored: unknown option";
    assert!(ran.stderr_text().contains(warning), "{}", ran.stderr_text());
}

#[test]
fn the_endpoint_of_the_aws_tools_is_used() {
    let site = Site::new("");
    let list = |ignore: &str| {
        site.cmd(&["list", "s3://bucket/x", "--max-retries=0"])
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            .env("S3_ENDPOINT", if ignore == "true" { "http://127.0.0.2:1" } else { "" })
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b")
            .env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", ignore)
            .run()
            .expect_failure()
            .stderr_text()
    };
    assert!(list("").contains("127.0.0.1"), "{}", list(""));
    assert!(list("true").contains("127.0.0.2"));
}
