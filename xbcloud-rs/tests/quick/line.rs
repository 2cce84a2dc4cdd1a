//! The command line: exit codes, refused options, and names under which the program is called.

use std::os::unix::fs::symlink;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}/{name}", folder.display())
}

#[test]
fn help_and_version_are_no_errors_and_fit_on_a_screen() {
    let help = run(&["--help"], b"").expect(0).stdout_text();
    assert!(help.contains("Examples:") && help.contains("Exit status:"));
    let narrow =
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("--help").env("COLUMNS", "80").run();
    let narrow = narrow.expect(0).stdout_text();
    assert!(narrow.lines().count() <= 65, "{narrow}");
    for command in [
        "put",
        "backup",
        "run",
        "get",
        "restore",
        "rescue",
        "list",
        "delete",
        "gc",
        "plan",
        "tune",
        "rewrap",
        "verify",
        "show",
        "copy",
        "pin",
        "unpin",
        "accept",
        "prune",
        "monitor",
        "check",
        "init",
        "consolidate",
    ] {
        for (help, lines) in [("-h", 55), ("--help", 65)] {
            let text = run(&[command, help], b"").expect(0).stdout_text().to_string();
            let count = text.lines().count();
            assert!(count <= lines, "{command} {help} has {count} lines");
            assert!(text.lines().all(|line| line.len() <= 110), "{command} {help} is too wide");
            assert!(text.contains("--help stores") && !text.contains("--s3-endpoint"), "{text}");
        }
        let text = run(&[command, "--help", "stores"], b"").expect(0).stdout_text().to_string();
        assert!(text.contains("--s3-endpoint") && text.contains("--azure-sas-token"), "{text}");
        assert!(text.lines().count() <= 75, "{command}: {}", text.lines().count());
    }
    for help in ["-h", "--help"] {
        let text = run(&["report", help], b"").expect(0).stdout_text().to_string();
        assert!(text.lines().count() <= 30 && !text.contains("--help stores"), "{text}");
    }
    let wrong = run(&["lsit"], b"").expect(2).stderr_text().to_string();
    assert!(wrong.contains("list"), "{wrong}");
    let version = run(&["--version"], b"").expect(0).stdout_text();
    for line in
        [concat!("xbcloud-rs ", env!("CARGO_PKG_VERSION")), "revision: ", "features: ", "crypto: "]
    {
        assert!(version.lines().any(|found| found.starts_with(line)), "{version}");
    }
}

#[test]
fn man_pages_and_completions_are_written_for_packages() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(&["--write-manual", folder.path().to_str().unwrap()], b"").expect(0);
    let page = std::fs::read_to_string(folder.path().join("man1/xbcloud-rs-restore.1")).unwrap();
    assert!(page.contains("\\-\\-target\\-dir"), "{page}");
    // Each asks the program itself; tests/completion.rs tries them.
    for script in ["bash/xbcloud-rs.bash", "zsh/_xbcloud-rs", "fish/xbcloud-rs.fish"] {
        let text = std::fs::read_to_string(folder.path().join(script)).unwrap();
        assert!(text.contains("xbcloud-rs --"), "{script}: {text}");
    }
}

#[test]
fn every_option_has_a_text_in_the_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(&["--write-manual", folder.path().to_str().unwrap()], b"").expect(0);
    let mut options = 0;
    for page in std::fs::read_dir(folder.path().join("man1")).unwrap() {
        let page = page.unwrap().path();
        let text = std::fs::read_to_string(&page).unwrap();
        for entry in text.split("\n.TP\n").skip(1) {
            let (option, rest) = entry.split_once('\n').unwrap();
            let about = rest.lines().next().unwrap_or_default();
            let has_text = !about.is_empty() && !about.starts_with(".S");
            assert!(has_text, "{}: {option} has no text", page.display());
            options += 1;
        }
    }
    assert!(options > 1000, "{options}");
}

/// The lines of a help page below "Examples:".
fn examples(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Example"));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn help_and_man_pages_fit_into_80_columns() {
    let width =
        |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    let _ = run(&["--write-manual", folder.path().to_str().unwrap()], b"").expect(0);
    let can_show =
        Cmd::new("sh").args(["-c", "command -v man && command -v groff"]).run().code() == 0;
    if !can_show {
        xb_testkit::skipped("there is no man or groff, for pages at 80 columns");
    }
    let pages = std::fs::read_dir(folder.path().join("man1")).unwrap();
    let mut commands = 0;
    for page in pages.map(|page| page.unwrap().path()) {
        let name = page.file_stem().unwrap().to_str().unwrap();
        let words: Vec<&str> = name.split('-').skip(2).collect();
        let printed = |help: &str, columns: &str| {
            let command = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(&words).arg(help);
            command.env("COLUMNS", columns).run().expect(0).stdout_text()
        };
        for help in ["-h", "--help"] {
            let text = printed(help, "80");
            assert!(width(&text) <= 80, "{name} {help}:\n{text}");
            let wide = printed(help, "1000");
            // An example that is wrapped cannot be pasted.
            assert_eq!(examples(&text), examples(&wide), "{name} {help}");
            // A line that is broken already is broken twice.
            let prose = wide.split("\n\n").filter(|part| part.starts_with("Exit status"));
            assert!(prose.clone().all(|part| part.trim().lines().count() == 1), "{name}: {wide}");
        }
        commands += 1;
        if can_show {
            let ran = Cmd::new("man")
                .args(["--warnings", "-P", "cat", "-l"])
                .arg(&page)
                .env("MANWIDTH", "80")
                .run()
                .expect(0);
            let text = ran.stdout_text();
            assert!(width(&text) <= 80 && text.contains("NAME"), "{name}:\n{text}");
            assert_eq!(ran.stderr_text(), "", "{name}");
        }
    }
    assert!(commands > 25, "{commands}");
}

#[test]
fn usage_errors_are_2_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    let bad: [&[&str]; 9] = [
        &["put"],
        &["put", "--no-such-option", &place],
        &["put", "name-without-a-store"],
        &["put", "--storage=swift", "n"],
        &["put", "--storage=s3", "n"],
        &["put", "ftp://host/n"],
        &["put", "--chunk-size=0", &place],
        &["put", "--chunk-size=lots", &place],
        &["put", "--md5", &place],
    ];
    for args in bad {
        let ran = run(args, &small_backup(1, 100)).expect(2);
        assert!(!ran.stderr_text().is_empty() && ran.stdout.is_empty(), "{args:?}");
    }
    // A part of a backup, or an unprepared backup, cannot become a node.
    let target = format!("--target-dir={}", folder.path().join("data").display());
    for more in [&[] as &[&str], &["--alone"], &["--prepare", "--files=shop/*"]] {
        let ran = run(&[&["restore", &place, &target, "--galera"], more].concat(), b"").expect(2);
        assert!(ran.stderr_text().contains("--galera"), "{more:?}: {}", ran.stderr_text());
    }
    for name in ["latest", "@today", ".xb-catalog", "a\u{1}b"] {
        let _ = run(&["put", &url(folder.path(), name)], &small_backup(1, 100)).expect(2);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Names of tables in Chinese or Japanese take five bytes for each character.
#[test]
fn a_name_that_is_too_long_for_a_folder_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("shop/{}.ibd", "@4e2d".repeat(48));
    let mut stream = xb_testkit::stream::StreamWriter::new(Vec::new());
    let _ = stream.file(&name, b"x", 9).info();
    let stream = stream.finish();
    let place = url(folder.path(), "n");
    let ran = run(&["put", "--layout=classic", &place], &stream).expect_failure();
    assert!(ran.stderr_text().contains("use --layout=packed"), "{ran:?}");
    let _ = run(&["put", &place], &stream).expect(0);
    assert!(run(&["get", &place], &[]).expect(0).stdout == stream);
}

#[test]
fn called_as_the_stock_tool_it_is_a_drop_in() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("xbcloud");
    symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &link).unwrap();
    let stock = |args: &[&str], stdin: &[u8]| Cmd::new(&link).args(args).stdin_bytes(stdin).run();
    let place = url(folder.path(), "root/n");
    let put = stock(&["put", "--md5", &place], &small_backup(1, 5000)).expect(0);
    assert!(put.stderr_text().contains("Upload completed."));
    // One object per chunk, numbered from 0 with 20 digits, and the list beside the backup.
    let root = folder.path().join("root");
    assert!(root.join("n/xtrabackup_info.00000000000000000000").is_file());
    let sums = std::fs::read_to_string(root.join("n.md5")).unwrap();
    assert!(sums.lines().any(|line| line.ends_with("  xtrabackup_info.00000000000000000000") && line.len() > 34));
    // The stock tool has only exit codes 0 and 1.
    let other = url(folder.path(), "root/other");
    let unknown = stock(&["put", "--no-such-option", &other], &small_backup(1, 5000));
    let unknown = unknown.expect(1);
    assert!(unknown.stderr_text().contains("--no-such-option"), "{unknown:?}");
    assert!(!root.join("other").exists(), "an option was ignored");
    let _ = stock(&["put", &place], &small_backup(1, 5000)).expect_failure();
    let _ = stock(&["delete", &place], b"").expect(0);
    assert!(!root.join("n.md5").exists());
}

#[test]
fn a_dry_run_of_delete_shows_what_would_go_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let stream = small_backup(4, 5000);
    for (name, options) in
        [("p", &["--chunk-size=1000"][..]), ("c", &["--layout=classic", "--md5"])]
    {
        let place = url(&root, name);
        let _ = run(&[&["put"], options, &[&place]].concat(), &stream).expect(0);
        let before = xb_testkit::files::tree(&root);
        let shown = run(&["delete", "--dry-run", &place], b"").expect(0);
        assert_eq!(xb_testkit::files::tree(&root), before);
        assert!(shown.stderr_text().contains("would remove"), "{shown:?}");
        let json = run(&["delete", "--dry-run", "--json", &place], b"").expect(0).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let objects = json["objects"].as_array().unwrap().len();
        assert_eq!(objects + 1, shown.stdout_text().lines().count());
        // Exactly what was shown is removed.
        let _ = run(&["delete", "--yes", &place], b"").expect(0);
        let after = xb_testkit::files::tree(&root);
        let gone = before.keys().map(String::as_str).filter(|key| !after.contains_key(*key));
        let shown = shown.stdout_text();
        let (first, mut others) = (shown.lines().next(), shown.lines().skip(1).collect::<Vec<_>>());
        others.sort_unstable();
        let manifest = format!(".xb-catalog/{name}");
        assert!(!root.join(&manifest).exists());
        assert!(others.iter().all(|key| !root.join(key).exists()), "{others:?}");
        // `tree` omits hidden files.
        others.retain(|key| !key.starts_with(".xb-catalog/"));
        assert_eq!((first, gone.collect::<Vec<_>>()), (Some(&*manifest), others));
        let _ = run(&["delete", "--dry-run", &place], b"").expect_failure();
    }
}

/// `latest` and a day can replace the name wherever a backup is read.
#[test]
fn verify_and_show_find_the_backup_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["first", "second"] {
        let _ = run(&["put", &url(folder.path(), name)], &small_backup(1, 5000)).expect(0);
    }
    for wanted in ["latest", "@9998-12-31", "@9998-12-31T23:59Z"] {
        let place = url(folder.path(), wanted);
        let shown = run(&["show", "--json", &place], b"").expect(0);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["name"], "second", "{wanted}");
        assert!(shown["content"].as_array().is_some_and(|files| !files.is_empty()), "{shown}");
        let few = run(&["show", "--json", "--no-files", &place], b"").expect(0);
        let few: serde_json::Value = serde_json::from_slice(&few.stdout).unwrap();
        assert_eq!((&few["name"], &few["content"]), (&shown["name"], &serde_json::Value::Null));
        let found = run(&["verify", "--json", "--level=decrypt", &place], b"").expect(0);
        let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        assert_eq!((&found["name"], &found["reached"]), (&"second".into(), &"decrypt".into()));
    }
    // The record was written for that backup.
    let listed = run(&["list", "--json", &format!("file://{}", folder.path().display())], b"");
    let listed: serde_json::Value = serde_json::from_slice(&listed.expect(0).stdout).unwrap();
    let verified = listed.as_array().unwrap().iter().map(|l| l["verified"]["level"].as_str());
    assert_eq!(verified.collect::<Vec<_>>(), [None, Some("decrypt")]);
    for command in ["show", "verify"] {
        let ran = run(&[command, &url(folder.path(), "@2001-01-01")], b"").expect_failure();
        assert!(ran.stderr_text().contains("no complete backup"), "{}", ran.stderr_text());
        let _ = run(&[command, &url(folder.path(), "@someday")], b"").expect(2);
    }
}

#[test]
fn stock_ways_of_writing_options_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    let stream = small_backup(2, 5000);
    let options = folder.path().join("my.cnf");
    std::fs::write(&options, "[xbcloud]\nchunk_size = 1000\nparallel=2\n[mysqld]\nport=1\n")
        .unwrap();
    let file = format!("--defaults-file={}", options.display());
    let place = url(folder.path(), "root/from-file");
    let _ = run(&[&file, "put", &place], &stream).expect(0);
    let place_two = url(folder.path(), "root/from-line");
    // An underscore, a prefix of an option name, an option before the command; the command line
    // overrides the file.
    let _ = run(&[&file, "--chunk_siz=2000", "put", &place_two], &stream).expect(0);
    let largest = |name: &str| {
        let run = std::fs::read_dir(folder.path().join("root").join(name))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        std::fs::read_dir(run.path())
            .unwrap()
            .map(|f| f.unwrap().metadata().unwrap().len())
            .max()
            .unwrap()
    };
    assert_eq!((largest("from-file"), largest("from-line")), (1000, 2000));
}

#[test]
fn listings_are_for_people_and_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(&["put", &url(folder.path(), "monday")], &small_backup(3, 5000)).expect(0);
    let root = format!("file://{}", folder.path().display());
    let text = run(&["list", &root], b"").expect(0).stdout_text();
    assert!(
        text.lines().any(|line| line.starts_with("monday") && line.contains("complete")),
        "{text}"
    );
    let json = run(&["list", "--json", &root], b"").expect(0);
    let lines: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (lines[0]["name"].as_str(), lines[0]["state"].as_str()),
        (Some("monday"), Some("complete"))
    );
}

/// The text in a manifest may come from someone who can write to the store.
#[test]
fn a_listing_does_not_control_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "monday");
    let _ = run(&["put", "--server=\u{1b}[2Jdb1\nx", &place], &small_backup(3, 5000)).expect(0);
    let root = format!("file://{}", folder.path().display());
    for words in [&["list", "--long", &root][..], &["show", &place]] {
        let text = run(words, b"").expect(0).stdout_text().to_string();
        assert!(text.contains("\\u{1b}[2Jdb1\\nx") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn a_listing_fits_a_terminal_and_ends_with_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("file://{}", folder.path().display());
    for name in ["zz-older", "db1.example.net-20261122T0315Z"] {
        let _ = run(&["put", &url(folder.path(), name)], &small_backup(3, 5000)).expect(0);
    }
    let _ = run(&["put", &url(folder.path(), "sub/one")], &small_backup(3, 5000)).expect(0);
    let _ = run(&["verify", &url(folder.path(), "zz-older"), "--level=checksum"], b"").expect(0);
    let _ = run(&["pin", &url(folder.path(), "zz-older")], b"").expect(0);
    let text = run(&["list", &root], b"").expect(0).stdout_text().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(lines[0].starts_with("NAME ") && lines[0].contains("PROOF"), "{text}");
    assert!(
        lines[1].starts_with("sub ")
            && lines[1].contains(" folder ")
            && lines[1].ends_with("1 backup"),
        "{text}"
    );
    assert!(lines[2].starts_with("zz-older ") && lines[2].contains("pinned"), "{text}");
    assert!(lines[2].contains("  checksum ") && lines[2].contains("s  "), "{text}");
    assert!(lines[3].starts_with("db1.example.net-20261122T0315Z "), "{text}");
    let column = lines[0].find("STATE").unwrap();
    assert!(lines[1..].iter().all(|line| line.as_bytes()[column - 1] == b' '), "{text}");
    let long = run(&["list", "--long", &root], b"").expect(0).stdout_text().to_string();
    assert!(long.contains("finished") && long.contains("objects"), "{long}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    let _ = run(&["put", &place], &small_backup(3, 5000)).expect(0);
    // Up to the level at which it is sound: damage would be reported all the same.
    let verify = ["verify", "-q", "--level=decrypt", &place];
    for args in [&["show", &place][..], &["show", "--json", &place], &verify] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ran = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{args:?}");
        assert_eq!(ran.status.code(), Some(141), "{args:?}");
    }
}

#[test]
fn a_closed_stdout_is_an_error_for_data() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    let _ = run(&["put", &place], &small_backup(4, 3 << 20)).expect(0);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["get", "--quiet", &place])
        .stdout(full)
        .status();
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn events_are_json_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&["put", "--json", &url(folder.path(), "n")], &small_backup(5, 5000)).expect(0);
    let events: Vec<serde_json::Value> =
        ran.stderr_text().lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let done = events.iter().find(|e| e["event"] == "done").expect("an event at the end");
    assert_eq!(done["name"], "n");
}

#[test]
fn compressed_and_sealed_it_keeps_its_size_and_opens_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, [9; 32]).unwrap();
    let key_file = format!("--encrypt-key-file={}", key.display());
    let stream = small_backup(6, 300_000);
    for (n, codec) in ["none", "lz4", "snappy", "gzip", "zstd:3"].iter().enumerate() {
        let place = url(folder.path(), &format!("root/n{n}"));
        let compress = format!("--compress={codec}");
        let sealed = ["put", &compress, "--encrypt=aes-256-gcm", &key_file, "--chunk-size=10000"];
        let _ = run(&[&sealed[..], &[&place]].concat(), &stream).expect(0);
        assert!(run(&["get", &key_file, &place], b"").expect(0).stdout == stream, "{codec}");
        let _ = run(&["get", &place], b"").expect_failure();
        let target = folder.path().join(format!("out{n}"));
        let dir = format!("--target-dir={}", target.display());
        let _ = run(&["restore", &key_file, &dir, &place], b"").expect(0);
        assert!(target.join("xtrabackup_info").is_file());
        // Objects of the requested size, whatever comes before the packer.
        let run_folder = std::fs::read_dir(folder.path().join(format!("root/n{n}"))).unwrap();
        let run_folder = run_folder.map(|e| e.unwrap().path()).next().unwrap();
        let mut objects: Vec<_> = std::fs::read_dir(run_folder)
            .unwrap()
            .map(|e| e.unwrap())
            .filter(|e| e.file_name().len() == 9)
            .map(|e| (e.file_name(), e.metadata().unwrap().len()))
            .collect();
        objects.sort();
        let (last, full) = objects.split_last().unwrap();
        assert!(full.iter().all(|(_, len)| *len == 10_000) && last.1 <= 10_000, "{objects:?}");
    }
    let place = url(folder.path(), "root/x");
    for bad in
        [&["--compress=lzma"][..], &["--encrypt=aes-256-gcm"], &["--encrypt=AES256", &key_file]]
    {
        let _ = run(&[&["put"], bad, &[&place]].concat(), &stream).expect(2);
    }
}

#[test]
fn a_plan_tells_what_a_backup_will_cost() {
    let plan =
        |options: &[&str]| run(&[&["plan", "--memory=512M", "--threads=2"], options].concat(), b"");
    let said = plan(&["--size=8T", "--chunk-size=200M"]).expect(0).stdout_text();
    assert!(said.contains("41944 objects of 200 MiB"), "{said}");
    let json = plan(&["--size=1T", "--json", "--chunk-size=10M"]).expect(0).stdout;
    let numbers: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(numbers["objects"], 104_858);
    let refused = plan(&["--size=1T", "--chunk-size=4T"]).expect_failure();
    assert!(refused.stderr_text().contains("--memory"), "{refused:?}");
    let _ = plan(&[]).expect(2);
    // Settings that `put` refuses, and one that costs the list of checksums.
    let _ = plan(&["--size=0"]).expect(2);
    let _ = plan(&["--size=1T", "--chunk-size=0"]).expect(2);
    let listed = |size| plan(&[size, "--chunk-size=32M"]).expect(0).stdout_text();
    assert!(listed("--size=33T").contains("no checksum list"));
    assert!(!listed("--size=32T").contains("no checksum list"));
}

#[test]
fn a_plan_knows_prices_and_the_likelihood_of_failure() {
    let plan = |options: &[&str]| {
        run(&[&["plan", "--memory=512M", "--threads=2", "--size=1T"], options].concat(), b"")
    };
    let said = plan(&["--failure-rate=0.001"]).expect(0).stdout_text();
    // 1024 GiB at 0.023, and 32,808 requests, most of them at 0.005 for 1,000.
    assert!(said.contains("cost, storage      $23.55 a month"), "{said}");
    assert!(said.contains("cost, backup       $0.16 for requests"), "{said}");
    assert!(said.contains("AWS S3 Standard") && said.contains("as of 20"), "{said}");
    assert!(said.contains("with 10 retries per request, 100.0 % without"), "{said}");
    let said = plan(&["--failure-rate=0.001", "--max-retries=0"]).expect(0).stdout_text();
    assert!(said.contains("run fails          100.0 % without retries, if"), "{said}");
    let json = |options: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&plan(&[options, &["--json"]].concat()).expect(0).stdout).unwrap()
    };
    let numbers = json(&["--price-put=1", "--max-retries=0", "--failure-rate=0.5"]);
    for kind in ["backup", "verify", "copy"] {
        let kinds = numbers[format!("{kind}_kinds")].as_object().unwrap();
        let sum: u64 = kinds.values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(numbers[format!("{kind}_requests")], sum);
    }
    let put = numbers["backup_kinds"]["put"].as_f64().unwrap();
    assert!(numbers["cost"]["backup"].as_f64().unwrap() >= put / 1000.0);
    assert_eq!(numbers["prices"]["options"][0], "--price-put");
    let failure = &numbers["failure"];
    assert_eq!(failure["run_failure"], failure["run_failure_without_retries"]);
    assert!(json(&["--prices=none"])["cost"].is_null());
    assert_eq!(json(&["--root=gs://bucket/shop"])["prices"]["provider"], "gcs");
    let elsewhere = ["--root=s3://bucket/shop", "--s3-endpoint=https://s3.example.com"];
    assert!(json(&elsewhere)["prices"].is_null());
    for bad in [&["--prices=ibm"][..], &["--price-get=-1"], &["--failure-rate=2"]] {
        let _ = plan(bad).expect(2);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("options.cnf");
    std::fs::write(&file, "[xbcloud]\nprices=azure\nprice-storage=1\n").unwrap();
    let program = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
    let program = program.arg(format!("--defaults-file={}", file.display()));
    let said = program.args(["plan", "--size=1T"]).run().expect(0).stdout_text();
    assert!(said.contains("$1024.00 a month") && said.contains("except --price-storage"), "{said}");
}

#[test]
fn key_slots_change_and_no_data_moves() {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        path.display().to_string()
    };
    let (old, new) = (key("old", 1), key("new", 2));
    let place = url(folder.path(), "root/n");
    let stream = small_backup(8, 300_000);
    let with = |file: &str| format!("--encrypt-key-file={file}");
    let opens = |file: &str| run(&["get", &with(file), &place], b"").code() == 0;
    let _ = run(&["put", &with(&old), &place], &stream).expect(0);
    let _ = run(&["rewrap", &with(&old), &place], b"").expect(2);
    let _ = run(&["rewrap", &with(&new), "--new-key-file", &new, &place], b"").expect_failure();
    let kept = ["rewrap", &with(&old), "--new-key-file", &new, "--keep", &place];
    let said = run(&kept, b"").expect(0).stderr_text();
    assert!(said.contains("key slot 1: key file"), "{said}");
    assert!(opens(&old) && opens(&new));
    let _ = run(&["rewrap", &with(&new), "--remove=0", &place], b"").expect(0);
    assert!(!opens(&old) && opens(&new));
    assert!(run(&["get", &with(&new), &place], b"").expect(0).stdout == stream);
}

/// A backup is found by name, or by its end time and its server.
#[test]
fn latest_and_a_day_find_the_newest_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, seed, options: &[&str]| {
        let place = url(folder.path(), name);
        let args = [&["put"][..], options, &[&place]].concat();
        let stream = small_backup(seed, 5000);
        let _ = run(&args, &stream).expect(0);
        stream
    };
    let get = |name: &str, options: &[&str]| {
        run(&[&["get"][..], options, &[&url(folder.path(), name)]].concat(), b"")
    };
    let _ = get("latest", &[]).expect_failure();
    let monday = put("monday", 1, &["--server=a"]);
    let a_while = format!("@{}", "2999-01-01");
    assert!(get("latest", &[]).expect(0).stdout == monday);
    assert!(get(&a_while, &[]).expect(0).stdout == monday);
    let tuesday = put("tuesday", 2, &["--server=a"]);
    assert!(get("latest", &[]).expect(0).stdout == tuesday);
    let other = put("other", 3, &["--server=b"]);
    let refused = get("latest", &[]).expect_failure().stderr_text();
    assert!(refused.contains("a, b") && refused.contains("--server"), "{refused}");
    assert!(get("latest", &["--server=b"]).expect(0).stdout == other);
    assert!(get("latest", &["--server=a"]).expect(0).stdout == tuesday);
    let _ = get("@2001-01-01", &["--server=a"]).expect_failure();
    let _ = get("@someday", &[]).expect(2);
}
