//! Common mistakes of operators: each ends before any work, with its exit code and a message that
//! names the place and the next step.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::s3::{self, Bucket};
use xb_testkit::stream::{StreamWriter, small_backup};
use xb_testkit::tools::find;

/// One mistake.
struct Mistake {
    /// Arguments. `ROOT` stands for the bucket's URL, `DIR` for the scratch directory.
    args: &'static str,
    /// Replaces one store option, as `--s3-region=x`; empty: none.
    store: &'static str,
    code: i32,
    /// Texts that the message contains.
    says: &'static [&'static str],
}

const fn mistake(args: &'static str, code: i32, says: &'static [&'static str]) -> Mistake {
    Mistake { args, store: "", code, says }
}

const fn at(
    store: &'static str,
    args: &'static str,
    code: i32,
    says: &'static [&'static str],
) -> Mistake {
    Mistake { args, store, code, says }
}

/// Mistakes of a backup: the producer must not be started.
const BACKUPS: &[Mistake] = &[
    // The store.
    mistake("s3://no-such-bucket/shop/n", 3, &["no-such-bucket", "create the bucket"]),
    mistake("s3:/bucket/shop/n", 2, &["no store is given", "s3://BUCKET/NAME"]),
    mistake("s4://bucket/shop/n", 2, &["`s4://` is not supported", "s3://"]),
    at("--s3-endpoint=SECURE", "ROOT/n", 5, &["https://127.0.0.1", "write it with http://"]),
    at("--s3-endpoint=http://127.0.0.1:1", "ROOT/n", 5, &["127.0.0.1:1", "refused", "check host"]),
    at("--s3-endpoint=http://h.invalid:1", "ROOT/n", 5, &["h.invalid", "check the host name"]),
    at("--s3-endpoint=SITE/OWN", "ROOT/n", 5, &["remove the path from the endpoint"]),
    mistake("ROOT/n --cacert=DIR/none", 2, &["certificates in DIR/none", "correct --cacert"]),
    at("--s3-secret-key=wrong", "ROOT/n", 4, &["SignatureDoesNotMatch", "check the secret key"]),
    at("--s3-access-key=wrong", "ROOT/n", 4, &["InvalidAccessKeyId", "check the key"]),
    at("--s3-access-key=readkey", "ROOT/n", 4, &["AccessDenied", "policies"]),
    mistake("ROOT/n --retain=1d", 1, &["object lock", "when you create it"]),
    mistake(
        "file://DIR/key/n",
        1,
        &["DIR/key: it is a file, not a directory", "name the directory"],
    ),
    mistake("file://DIR/none/shop/n", 3, &["DIR/none does not exist", "mounted", "create"]),
    // The name.
    mistake("ROOT/taken", 1, &["taken", "choose another name"]),
    mistake("ROOT/latest", 2, &["`latest` is not a valid backup name"]),
    mistake("ROOT/../n", 2, &["..", "not a usable key"]),
    mistake("@shpo", 2, &["[xbcloud.shpo]"]),
    mistake("/backups/shop/n", 2, &["no store is given", "file:///backups/shop/n"]),
    mistake("file:/backups/shop/n", 2, &["no store is given", "file:///backups/shop/n"]),
    mistake("shop", 2, &["no store is given", "write @shop"]),
    // Keys.
    mistake("ROOT/n --encrypt-key-file=DIR/key31", 2, &["key31", "31 bytes", "16, 24 or 32"]),
    mistake("ROOT/n --encrypt-key-file=DIR/none", 2, &["DIR/none", "No such file", "openssl rand"]),
    mistake("ROOT/n --encrypt-key-file=DIR", 2, &["key file DIR", "Is a directory"]),
    mistake(
        "ROOT/n --encrypt-key-file=DIR/identity",
        2,
        &["DIR/identity holds an age identity", "--recipient=age1", "--identity-file"],
    ),
    mistake(
        "ROOT/n --recipient=DIR/identity",
        2,
        &["DIR/identity holds an age identity", "--recipient=age1"],
    ),
    mistake("ROOT/n --recipient=age1nonsense", 2, &["--recipient", "age1", "keygen --identity"]),
    mistake("ROOT/n --passphrase-file=DIR/none", 2, &["DIR/none", "in its first line"]),
    mistake(
        "ROOT/n --key-command=DIR/none",
        4,
        &["DIR/none: no such program", "correct --key-command"],
    ),
    // Options.
    mistake("ROOT/n --compres=zstd", 2, &["'--compres'", "similar argument exists: '--compress'"]),
    mistake("ROOT/n --compress=zip", 2, &["zip", "zstd"]),
    mistake("ROOT/n --chunk-size=10X", 2, &["10X", "K, M, G or T"]),
    mistake("ROOT/n --chunk-size=5G --memory=1M", 2, &["memory", "raise --memory"]),
    mistake("ROOT/n --retain=soon", 2, &["soon", "30d"]),
    mistake("ROOT/n --spool-dir=DIR/none", 1, &["DIR/none", "--spool-dir"]),
    mistake("ROOT/n --producer-log=DIR/none/x", 1, &["DIR/none", "--producer-log"]),
];

/// Mistakes of commands that read.
const READS: &[Mistake] = &[
    mistake("list s3://no-such-bucket/shop", 3, &["NoSuchBucket", "create the bucket"]),
    mistake("list file://DIR/none", 3, &["DIR/none", "check the path"]),
    mistake("backups ROOT", 2, &["'backups'", "similar subcommand exists: 'backup'"]),
    mistake("restore ROOT/taken", 2, &["--target-dir"]),
    mistake("restore ROOT/taken DIR/new", 2, &["unexpected", "--target-dir=DIR/new"]),
    mistake("list ROOT --keep-fast", 2, &["'--keep-fast'", "`xbcloud-rs list --help`"]),
    mistake(
        "restore ROOT/sealed --target-dir=DIR/new --identity-file=DIR/key",
        2,
        &["DIR/key holds a key", "--encrypt-key-file=DIR/key"],
    ),
    mistake("restore ROOT/none --target-dir=DIR/new", 3, &["no complete backup none", "`list`"]),
    mistake(
        "restore ROOT/taken --target-dir=DIR",
        1,
        &["DIR: the directory is not empty", "choose a new"],
    ),
    mistake("restore ROOT/taken --target-dir=DIR/key31", 1, &["key31", "Not a directory"]),
    mistake(
        "restore ROOT/sealed --target-dir=DIR/new",
        4,
        &["no key was given", "--identity-file"],
    ),
    mistake(
        "restore ROOT/sealed --target-dir=DIR/new --encrypt-key-file=DIR/other",
        4,
        &["wrong key file", "give the key"],
    ),
    mistake(
        "restore ROOT/taken --target-dir=DIR/new --encrypt-key-file=DIR/other",
        4,
        &["taken is not sealed", "--accept-unsealed"],
    ),
    mistake("restore ROOT/taken --target-dir=DIR/new --owner=nosuchuser", 2, &["nosuchuser"]),
    mistake("verify ROOT/taken --level=everything", 2, &["everything", "checksum"]),
    mistake(
        "verify ROOT/taken --level=restore --scratch-dir=DIR/none",
        1,
        &["into DIR/none: No such file or directory (os error 2); name a directory"],
    ),
    mistake("prune ROOT", 2, &["no retention rule", "--keep-daily"]),
    mistake("copy ROOT/taken ROOT/copy", 1, &["not verified", "run `verify`"]),
    mistake(
        "binlog receive ROOT --server=s --state-dir=DIR/state --login-file=DIR/none",
        2,
        &["cannot read option file DIR/none: No such file"],
    ),
    mistake(
        "backup ROOT/n --from=mysql://root:pw@127.0.0.1:9 --state-dir=DIR/state",
        2,
        &["without a password", "--login-file"],
    ),
];

struct Site {
    bucket: Bucket,
    scratch: Scratch,
}

impl Site {
    fn new() -> Self {
        let site = Self { bucket: s3::bucket(), scratch: Scratch::new() };
        let identity = include_bytes!("../../../fixtures/seal/identity");
        site.file("identity", identity, 0o600);
        let stream = small_backup(1, 5000);
        for (name, content) in
            [("key31", &[b'k'; 31][..]), ("key", &[b'k'; 32]), ("other", &[b'o'; 32])]
        {
            site.file(name, content, 0o600);
        }
        let touch = format!("#!/bin/sh\ntouch {}\n", site.path("started").display());
        site.file("producer", touch.as_bytes(), 0o755);
        let key = format!("--encrypt-key-file={}", site.path("key").display());
        for args in [&["put", "ROOT/taken"][..], &["put", "ROOT/sealed", &key]] {
            let _ = site.run(args, "", &[]).stdin_bytes(stream.clone()).run().expect(0);
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) {
        std::fs::write(self.path(name), content).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Replaces the placeholders of locations.
    fn text(&self, text: &str) -> String {
        let endpoint = self.bucket.endpoint();
        text.replace("ROOT", &self.bucket.url("shop"))
            .replace("DIR", &self.scratch.path().display().to_string())
            .replace("SITE", &endpoint)
            .replace("OWN", self.bucket.name())
            .replace("SECURE", &endpoint.replace("http:", "https:"))
    }

    fn run(&self, args: &[&str], store: &str, end: &[&str]) -> Cmd {
        let name = store.split('=').next().unwrap();
        let options = self.bucket.options();
        let options = options.iter().filter(|own| name.is_empty() || !own.starts_with(name));
        let store = Some(self.text(store)).filter(|store| !store.is_empty());
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("--no-defaults")
            .args(args.iter().map(|arg| self.text(arg)))
            .args(options)
            .args(store)
            .args(end)
    }

    /// Returns what is wrong with the end of one mistake: its first two lines name cause and next step.
    fn judge(&self, mistake: &Mistake, ran: &Ran) -> Option<String> {
        let text = ran.stderr_text();
        // A person who waits is told about each try.
        let is_report = |line: &&str| !line.contains("; the next try follows in ");
        let first: Vec<&str> = text.lines().filter(is_report).take(2).collect();
        let first = first.join("\n");
        let mut missing = mistake.says.iter().map(|part| self.text(part));
        let missing = missing.find(|part| !first.contains(part));
        let code = (ran.code() != mistake.code).then(|| format!("exit {}", ran.code()));
        let long = (text.lines().count() > 10).then(|| "too long".to_owned());
        let fault = missing.map(|part| format!("no {part:?}")).or(code).or(long)?;
        Some(format!("{} {}: {fault}: {text}", mistake.args, mistake.store))
    }

    /// Every file below ROOT's root. With the bucket in the endpoint, the store puts it into all
    /// keys, and the claim of the failed run stays there.
    fn stored(&self) -> Vec<(String, u64)> {
        self.bucket.list("shop/")
    }
}

#[test]
fn a_backup_with_a_mistake_ends_before_its_producer_starts() {
    let site = Site::new();
    let stored = site.stored();
    let state = format!("--state-dir={}", site.path("state").display());
    let producer = site.path("producer").display().to_string();
    let mut faults = Vec::new();
    for mistake in BACKUPS {
        let args: Vec<&str> = ["backup", "--reach-timeout=1", &state]
            .into_iter()
            .chain(mistake.args.split(' '))
            .collect();
        let ran = site.run(&args, mistake.store, &["--", &producer]).run();
        faults.extend(site.judge(mistake, &ran));
        assert!(!site.path("started").exists(), "{}: the producer was started", mistake.args);
        assert_eq!(site.stored(), stored, "{}: objects were left", mistake.args);
    }
    for program in ["/no/such/mariadb-backup", "maria-backup"] {
        let ran = site.run(&["backup", &state, "ROOT/n"], "", &["--", program]).run();
        let missing = mistake("ROOT/n", 6, &["no such program", "install the program"]);
        faults.extend(site.judge(&missing, &ran));
    }
    let ran = site.run(&["backup", &state, "ROOT/n"], "", &[]).run();
    let unnamed = mistake("ROOT/n", 2, &["no producer is named", "add it after --"]);
    faults.extend(site.judge(&unnamed, &ran));
    assert_eq!(site.stored(), stored);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_command_with_a_mistake_ends_before_it_writes() {
    let site = Site::new();
    let stored = site.stored();
    let mut faults = Vec::new();
    for mistake in READS {
        let args: Vec<&str> = mistake.args.split(' ').collect();
        faults.extend(site.judge(mistake, &site.run(&args, "", &[]).run()));
        assert!(!site.path("new").exists(), "{}: the target was created", mistake.args);
        assert_eq!(site.stored(), stored, "{}", mistake.args);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Stores that answer as the large ones do; the proxy gives the answer that SeaweedFS lacks.
#[test]
fn clock_region_and_token_are_named() {
    let site = Site::new();
    let producer = site.path("producer").display().to_string();
    let refuse = |status, code| vec![Rule::new("", "", Action::Refuse { status, code })];
    for (rules, says) in [
        (refuse(403, "RequestTimeTooSkewed"), &["the clock of this machine is wrong"][..]),
        (refuse(400, "AuthorizationHeaderMalformed"), &["the region is wrong", "--s3-region"]),
        (refuse(400, "ExpiredToken"), &["have expired"]),
    ] {
        let proxy = Proxy::start(site.bucket.address(), rules);
        let endpoint = format!("--s3-endpoint={}", proxy.endpoint());
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "backup"])
            .args([site.text("ROOT/n"), format!("--state-dir={}", site.path("state").display())])
            .args(site.bucket.options().iter().filter(|own| !own.starts_with("--s3-endpoint")))
            .args([&endpoint, "--", &producer])
            .run()
            .expect(4);
        for part in says {
            assert!(ran.stderr_text().contains(part), "{}", ran.stderr_text());
        }
        assert!(!site.path("started").exists());
    }
}

/// The environment names a proxy that does not exist.
#[test]
fn a_proxy_in_the_environment_is_named() {
    let site = Site::new();
    let list = site.run(&["list", "ROOT", "--reach-timeout=1"], "", &[]);
    let ran = list.env("http_proxy", "http://127.0.0.1:1").env("no_proxy", "").run().expect(5);
    let text = ran.stderr_text();
    assert!(text.contains("http_proxy") && text.contains("NO_PROXY"), "{text}");
}

/// `put` needs a stream on its input, and refuses the name before it waits for one.
#[test]
fn put_ends_without_waiting_for_its_input() {
    let site = Site::new();
    for (args, store, code, part) in [
        (&["put", "ROOT/taken"][..], "", 1, "choose another name"),
        (&["put", "s3://no-such-bucket/n"], "", 3, "create the bucket"),
        (&["put", "ROOT/n"], "--s3-secret-key=wrong", 4, "check the secret key"),
        (&["put", "ROOT/latest"], "", 2, "not a valid backup name"),
    ] {
        let ran = site.run(args, store, &[]).stdin_held().spawn().wait().expect(code);
        assert!(ran.stderr_text().contains(part), "{}", ran.stderr_text());
    }
    let line = format!("{} --no-defaults put file:///nowhere/n", env!("CARGO_BIN_EXE_xbcloud-rs"));
    let ran = Cmd::new(find("script")).args(["-qec", &line, "/dev/null"]).run().expect(2);
    assert!(ran.stdout_text().contains("standard input is a terminal"), "{}", ran.stdout_text());
    let ran = site.run(&["put", "ROOT/n"], "", &[]).run().expect(6);
    assert!(ran.stderr_text().contains("the input is empty"), "{}", ran.stderr_text());
}

/// A warning about objects that are much too small comes before their cost.
#[test]
fn objects_that_are_much_too_small_are_named() {
    let site = Site::new();
    let put = |size: &str| {
        let args = ["put", &format!("ROOT/of-{size}"), &format!("--chunk-size={size}")];
        let ran = site.run(&args, "", &[]).stdin_bytes(small_backup(1, 5000)).run();
        ran.expect(0).stderr_text()
    };
    let text = put("1k");
    let first = text.lines().next().unwrap();
    assert!(first.contains("makes 1048576 objects per GiB"), "{text}");
    let text = put("64k");
    assert!(!text.contains("warning"), "{text}");
}

/// Option files.
#[test]
fn a_mistake_in_an_option_file_is_named_with_its_line() {
    let site = Site::new();
    let group = format!("[xbcloud.shop]\nroot=file://{}/shop\n", site.scratch.path().display());
    let run = |text: &str, mode| {
        site.file("my.cnf", format!("{group}{}\n", site.text(text)).as_bytes(), mode);
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", site.path("my.cnf").display()))
            .args(["list", "@shop"])
            .run()
    };
    std::fs::create_dir(site.path("shop")).unwrap();
    for (text, mode, code, part) in [
        ("compress-tread=2", 0o600, 2, "compress-tread in DIR/my.cnf line 3"),
        ("s3-secret-key hush", 0o600, 2, "no `=` behind s3-secret-key in DIR/my.cnf line 3"),
        ("loose-wrong hush", 0o600, 0, "ignored unknown option wrong in DIR/my.cnf line 3"),
        ("compres=zstd", 0o600, 2, "ambiguous: it may be compress or compress-"),
        ("memory=lots", 0o600, 2, "--memory comes from DIR/my.cnf line 3"),
        (
            "",
            0o666,
            2,
            "option file DIR/my.cnf is world-writable, so its options do not count: run chmod o-w on it",
        ),
        ("!include DIR/none.cnf", 0o600, 2, "DIR/my.cnf includes in line 3: it does not exist"),
        ("!includes DIR/none.cnf", 0o600, 2, "DIR/my.cnf line 3: unknown ! directive"),
        ("s3-secret-key=x", 0o644, 0, "run chmod 600 on it"),
        ("s3-secret-key=x", 0o640, 0, ""),
    ] {
        let ran = run(text, mode).expect(code);
        let part = site.text(part);
        assert!(ran.stderr_text().contains(&part), "{text}: {}", ran.stderr_text());
        let is_silent = !ran.stderr_text().contains("warning");
        assert!(!part.is_empty() || is_silent, "{}", ran.stderr_text());
        assert!(!ran.stderr_text().contains("hush"), "a value is shown: {}", ran.stderr_text());
    }
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--defaults-file=/no/such.cnf", "list", "@shop"])
        .run()
        .expect(2);
    assert!(ran.stderr_text().contains("/no/such.cnf"), "{}", ran.stderr_text());
}

/// Files and directories that a user has no rights to read or write.
#[test]
fn missing_permissions_are_named() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root, to be another user");
        return;
    }
    let site = Site::new();
    let as_nobody = |args: &[&str]| {
        Cmd::new(find("setpriv"))
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args((!args[0].starts_with("--defaults")).then_some("--no-defaults"))
            .args(args.iter().map(|arg| site.text(arg)))
            .args(site.bucket.options())
            .run()
    };
    std::fs::set_permissions(site.scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(site.path("closed")).unwrap();
    std::fs::set_permissions(site.path("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
    for (args, code, parts) in [
        (
            &["list", "file://DIR/closed"][..],
            4,
            &["Permission denied", "give this user access"][..],
        ),
        (
            &["list", "file://DIR/closed/shop"],
            4,
            &["DIR/closed/shop", "Permission denied", "give this user access"],
        ),
        (
            &["put", "file://DIR/closed/shop/n"],
            4,
            &["DIR/closed/shop", "Permission denied", "give this user access"],
        ),
        (
            &["verify", "ROOT/taken", "--level=restore", "--scratch-dir=DIR/closed"],
            1,
            &["into DIR/closed: Permission denied (os error 13); name a directory"],
        ),
        (&["put", "ROOT/n", "--encrypt-key-file=DIR/key"], 2, &["DIR/key", "Permission denied"]),
        (
            &["--defaults-file=DIR/key", "list", "ROOT"],
            2,
            &["cannot read option file DIR/key: Permission denied", "such as root"],
        ),
        (
            &["restore", "ROOT/taken", "--target-dir=DIR/closed/new"],
            1,
            &["DIR/closed/new", "Permission denied", "name a directory"],
        ),
    ] {
        let ran = as_nobody(args).expect(code);
        for part in parts {
            let part = site.text(part);
            assert!(ran.stderr_text().contains(&part), "{args:?}: {}", ran.stderr_text());
        }
    }
}

/// Failures between the backup program and the server: the program's own messages are shown,
/// `check` finds it before the night, and nothing is left in the store.
#[test]
fn a_refusal_of_the_server_is_shown() {
    let site = Site::new();
    let server = MariaDb::start();
    server.load_sample(Sample { big_rows: 100, small_tables: 1 });
    server.sql(
        "CREATE USER poor@localhost IDENTIFIED BY 'secret'; GRANT SELECT ON *.* TO poor@localhost",
    );
    let stored = site.stored();
    let login = |user: &str, password: &str| {
        let file = format!("{user}-{password}.cnf");
        let text = format!("[client]\nuser={user}\npassword={password}\n");
        site.file(&file, text.as_bytes(), 0o600);
        let defaults = format!("--defaults-file={}", site.path(&file).display());
        let mut command = server.backup_command();
        command.retain(|word| word != "--no-defaults" && !word.starts_with("--user"));
        command.insert(1, defaults);
        command
    };
    let mut down = server.backup_command();
    down.retain(|word| !word.starts_with("--socket"));
    down.push("--socket=/no/such/socket".into());
    let state = format!("--state-dir={}", site.path("state").display());
    for (command, in_check, parts) in [
        (login("poor", "wrong"), "the login does not work", &["Access denied"][..]),
        (login("poor", "secret"), "RELOAD and PROCESS", &["privilege"]),
        (down, "the login does not work", &["/no/such/socket"]),
    ] {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let end = [&["--"][..], &words].concat();
        let ran = site.run(&["backup", &state, "ROOT/n"], "", &end).run().expect(6);
        let text = ran.stderr_text();
        for part in parts {
            assert!(text.contains(part), "{command:?}: {text}");
        }
        assert!(text.contains("exit status"), "{text}");
        // Why there was no checkpoint is not the cause.
        assert!(text.lines().next().unwrap().contains(" producer: "), "{text}");
        assert_eq!(site.stored(), stored);
        let ran = site.run(&["check", &state, "ROOT"], "", &end).run();
        assert!(ran.stdout_text().contains(in_check), "{}", ran.stdout_text());
    }
    // The data directory of another user.
    if rustix::process::geteuid().is_root() {
        let mut command = server.backup_command();
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
        command.splice(0..0, [find("setpriv").display().to_string()].into_iter().chain(nobody));
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let end = [&["--"][..], &words].concat();
        let ran = site.run(&["backup", &state, "ROOT/n"], "", &end).run().expect(6);
        assert!(ran.stderr_text().contains("ermission denied"), "{}", ran.stderr_text());
        assert_eq!(site.stored(), stored);
    } else {
        xb_testkit::skipped("needs root, for the data directory of another user");
    }
}

/// A local repository on a full disk: the backup fails, nothing is left, and `check` has found it.
#[test]
fn a_full_disk_of_a_local_repository_is_named() {
    let site = Site::new();
    std::fs::create_dir(site.path("disk")).unwrap();
    let stream = site.path("stream");
    std::fs::write(&stream, small_backup(4, 4 << 20)).unwrap();
    let state = format!("--state-dir={}", site.path("state").display());
    for (command, place) in [("backup", "shop/n"), ("check", "shop")] {
        let script = "mount -t tmpfs -o size=1m none \"$1\" || exit 77; mkdir \"$1/shop\"; shift; exec \"$@\"";
        let place = format!("file://{}/{place}", site.path("disk").display());
        let ran = Cmd::new(find("unshare"))
            .args(["-rm", "sh", "-c", script, "sh"])
            .arg(site.path("disk"))
            .args([env!("CARGO_BIN_EXE_xbcloud-rs"), "--no-defaults", command, &place, &state])
            .args(["--", "cat"])
            .arg(&stream)
            .run();
        if ran.code() == 77 {
            xb_testkit::skipped("this user cannot mount");
            return;
        }
        let ran = ran.expect(1);
        let text = format!("{}{}", ran.stdout_text(), ran.stderr_text());
        assert!(text.contains("No space left on device"), "{command}: {text}");
        assert!(text.contains("make room, or raise the quota"), "{command}: {text}");
    }
}

/// Files that an interrupted restore has written count as available room.
#[test]
fn a_restore_that_was_interrupted_needs_room_for_the_rest_only() {
    let site = Site::new();
    let root = format!("file://{}", site.path("repo").display());
    std::fs::create_dir(site.path("repo")).unwrap();
    std::fs::create_dir(site.path("disk")).unwrap();
    let stream = small_backup(7, 12 << 20);
    for layout in ["classic", "packed"] {
        let place = format!("{root}/{layout}");
        let put = ["put", &place, "--chunk-size=2M", &format!("--layout={layout}")];
        let _ = site.run(&put, "", &[]).stdin_bytes(stream.clone()).run().expect(0);
        // One of the last objects of the data is damaged until the first restore has failed. One
        // request at a time, so that what precedes it is on disk when it arrives.
        let mut objects = Vec::new();
        let mut todo = vec![site.path("repo").join(layout)];
        while let Some(folder) = todo.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { todo.push(path) } else { objects.push(path) }
            }
        }
        objects.retain(|path| {
            let path = path.to_str().unwrap();
            let last = path.rsplit(['/', '.']).next().unwrap();
            last.bytes().all(|byte| byte.is_ascii_digit())
                && (layout == "packed" || path.contains("table.ibd"))
        });
        objects.sort();
        // Several times: one run may meet the damage before anything is written.
        let script = "mount -t tmpfs -o size=17m none \"$1\" || exit 77
            restore() { \"$3\" --no-defaults restore \"$4\" --target-dir=\"$1/new\" --parallel=1; }
            cp \"$2\" \"$5\" && printf damage | dd of=\"$2\" bs=1 seek=900000 conv=notrunc || exit 9
            for n in 1 2 3 4 5; do restore \"$@\" && exit 9; done
            cp \"$5\" \"$2\" && restore \"$@\"";
        let ran = Cmd::new(find("unshare"))
            .args(["-rm", "sh", "-c", script, "sh"])
            .arg(site.path("disk"))
            .arg(&objects[objects.len() - 2])
            .arg(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(&place)
            .arg(site.path("aside"))
            .run();
        if ran.code() == 77 {
            xb_testkit::skipped("this user cannot mount");
            return;
        }
        let text = ran.expect(0).stderr_text();
        assert!(text.contains("resumed: "), "{layout}: {text}");
    }
}

/// Files that the producer has compressed take more room than their stream, which `verify` finds out.
#[test]
fn room_is_counted_for_decompressed_files() {
    let site = Site::new();
    std::fs::create_dir(site.path("repo")).unwrap();
    std::fs::create_dir(site.path("disk")).unwrap();
    let place = format!("file://{}/n", site.path("repo").display());
    let squeezed = Cmd::new(find("zstd")).args(["-q", "-c"]).stdin_bytes(vec![7; 9 << 20]).run();
    let mut stream = StreamWriter::new(Vec::new());
    let _ = stream.file("db/t.CSV.zst", &squeezed.expect(0).stdout, 1 << 20);
    let _ = stream.file("xtrabackup_checkpoints", b"to_lsn = 1\n", 99);
    let _ = stream.info();
    let _ = site.run(&["put", &place], "", &[]).stdin_bytes(stream.finish()).run().expect(0);
    let report = site.run(&["verify", &place, "--json"], "", &[]).run().expect(0);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert!(report["unpacked_bytes"].as_u64() >= Some(9 << 20), "{report}");
    let script = "mount -t tmpfs -o size=4m none \"$1\" || exit 77; exec \"$2\" --no-defaults restore \"$3\" --target-dir=\"$1/new\"";
    let ran = Cmd::new(find("unshare"))
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(site.path("disk"))
        .arg(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(&place)
        .run();
    if ran.code() == 77 {
        xb_testkit::skipped("this user cannot mount");
        return;
    }
    let text = ran.expect(1).stderr_text();
    assert!(text.contains("the files need about 94") && text.contains("make room"), "{text}");
}

/// A restore into a full or a read-only disk is refused before anything is read.
#[test]
fn a_disk_without_room_is_refused() {
    let site = Site::new();
    let _ = site
        .run(&["put", "ROOT/large"], "", &[])
        .stdin_bytes(small_backup(4, 4 << 20))
        .run()
        .expect(0);
    std::fs::create_dir(site.path("disk")).unwrap();
    for (options, part) in [("size=1m", "make room"), ("ro", "Read-only file system")] {
        let script = "mount -t tmpfs -o \"$1\" none \"$2\" || exit 77; shift 2; exec \"$@\"";
        let mut command = Cmd::new(find("unshare"))
            .args(["-rm", "sh", "-c", script, "sh", options])
            .arg(site.path("disk"))
            .arg(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "restore", &site.text("ROOT/large")])
            .args(site.bucket.options());
        command = command
            .arg(format!("--target-dir={}", Path::new(&site.path("disk")).join("new").display()));
        let ran = command.run();
        if ran.code() == 77 {
            xb_testkit::skipped("this user cannot mount");
            return;
        }
        let ran = ran.expect(1);
        assert!(ran.stderr_text().contains(part), "{options}: {}", ran.stderr_text());
    }
}
