//! Anyone who can write to the store can replace a sealed backup by an unsealed one: with a key,
//! every command refuses it before it outputs anything.

use std::path::{Path, PathBuf};

use xb_repo::manifest::Manifest;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::StreamWriter;

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

/// A store in a directory, and keys.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(place.path("key"), [7; 32]).unwrap();
        std::fs::write(place.path("passphrase"), "correct horse\n").unwrap();
        let (identities, secret) = xb_encryptor::Identities::generate();
        std::fs::write(place.path("identity"), secret.as_bytes()).unwrap();
        std::fs::write(place.path("recipients"), identities.recipients()[0].to_string()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn option(&self, option: &str, file: &str) -> String {
        format!("--{option}={}", self.path(file).display())
    }

    fn key(&self) -> String {
        self.option("encrypt-key-file", "key")
    }

    /// All options that can open a backup.
    fn all_keys(&self) -> [String; 4] {
        [
            self.key(),
            self.option("passphrase-file", "passphrase"),
            self.option("identity-file", "identity"),
            "--key-command=cat".to_owned(),
        ]
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path("root").join(name).display())
    }

    fn put(&self, name: &str, options: &[&str], stream: &[u8]) {
        let _ = run(&[&["put"], options, &[&self.url(name)]].concat(), stream).expect(0);
    }

    /// Stores in the place of `name` what someone without the key could put there.
    fn replace(&self, name: &str, options: &[&str], stream: &[u8]) {
        let _ = std::fs::remove_file(self.manifest(name));
        let _ = std::fs::remove_dir_all(self.path("root").join(name));
        self.put(name, options, stream);
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.path("root/.xb-catalog").join(name)
    }
}

/// A backup with these positions. With `bait`, it contains a file that needs a key.
fn stream(content: &[u8], (from, to): (u64, u64), bait: bool) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("shop/t.frm", content, 1000);
    if bait {
        stream.end("x.xbcrypt");
    }
    stream.positions(from, to).info();
    stream.finish()
}

fn refused(ran: Ran, name: &str) {
    let ran = ran.expect_failure();
    let said = ran.stderr_text();
    assert!(said.contains(&format!("{name} is not sealed, but a key was given")), "{said}");
    assert!(said.contains("--accept-unsealed"), "{said}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

/// Commands that read a backup, without their key.
fn readers<'a>(url: &'a str, dir: &'a str, elsewhere: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["get", url],
        vec!["get", "--files=shop/*", url],
        vec!["restore", dir, url],
        // The same again: what the first attempt left changes nothing.
        vec!["restore", dir, url],
        vec!["restore", "--files=shop/*", dir, url],
        vec!["show", url],
        vec!["verify", "--level=manifest", "--no-record", url],
        vec!["verify", "--no-record", url],
        vec!["copy", "--unverified", url, elsewhere],
    ]
}

#[test]
fn a_key_refuses_a_backup_that_is_not_sealed_in_every_command() {
    let place = Place::new();
    place.put("n", &[&place.key()], &stream(b"ours", (0, 10), false));
    let (url, elsewhere) = (place.url("n"), format!("file://{}/", place.path("copy").display()));
    let out = place.path("out");
    let dir = format!("--target-dir={}", out.display());
    for layout in ["--layout=packed", "--layout=classic"] {
        for bait in [false, true] {
            place.replace("n", &[layout], &stream(b"forged", (0, 10), bait));
            for key in &place.all_keys() {
                for reader in readers(&url, &dir, &elsewhere) {
                    refused(run(&[&reader[..], &[key]].concat(), b""), "n");
                    assert!(!out.exists(), "{layout} {reader:?}");
                }
            }
            assert!(!place.path("copy/.xb-catalog/n").exists());
        }
        // `--accept-unsealed` reads the backup as it is.
        for reader in readers(&url, &dir, &elsewhere) {
            let _ = std::fs::remove_dir_all(&out);
            let _ = std::fs::remove_dir_all(place.path("copy"));
            let _ =
                run(&[&reader[..], &[&place.key(), "--accept-unsealed"]].concat(), b"").expect(0);
        }
        std::fs::remove_dir_all(place.path("copy")).unwrap();
    }
    // A stock backup without a manifest is not trusted either.
    std::fs::remove_file(place.manifest("n")).unwrap();
    let _ = std::fs::remove_dir_all(&out);
    refused(run(&["restore", &place.key(), &dir, &url], b""), "n");
    assert!(!out.exists());
    // A missing backup is not reported as unsealed.
    for reader in readers(&place.url("none"), &dir, &elsewhere) {
        let ran = run(&[&reader[..], &[&place.key()]].concat(), b"").expect_failure();
        assert!(ran.stderr_text().contains("there is no complete backup"), "{ran:?}");
    }
}

/// A restore that was started without the key is not resumed with it.
#[test]
fn remains_of_an_interrupted_restore_decide_nothing() {
    let place = Place::new();
    let forged = stream(&[5; 9000], (0, 10), true);
    place.put("n", &["--chunk-size=2000", "--compress=none"], &forged);
    let objects = || {
        let all = tree(&place.path("root/n"));
        all.into_keys().find(|key| key.ends_with("000000003")).unwrap()
    };
    let object = place.path("root/n").join(objects());
    let whole = std::fs::read(&object).unwrap();
    std::fs::write(&object, vec![0; whole.len()]).unwrap();
    let out = place.path("out");
    let dir = format!("--target-dir={}", out.display());
    let taken = ["restore", &place.key(), "--accept-unsealed", &dir, &place.url("n")];
    let _ = run(&taken, b"").expect_failure();
    assert!(out.join(".xb-partial/restore/journal").exists());
    std::fs::write(&object, whole).unwrap();
    let before = tree(&out);
    refused(run(&["restore", &place.key(), &dir, &place.url("n")], b""), "n");
    assert_eq!(tree(&out), before);
    let _ = run(&taken, b"").expect(0);
}

/// The newest backup of all, which also claims to be of that day.
#[test]
fn latest_and_a_day_do_not_silently_mean_a_forged_backup() {
    let place = Place::new();
    place.put("good", &[&place.key()], &stream(b"ours", (0, 10), false));
    place.put("zzz", &[], &stream(b"forged", (0, 10), true));
    let out = place.path("out");
    let dir = format!("--target-dir={}", out.display());
    for wanted in ["latest", "@2999-01-01"] {
        for command in ["restore", "get", "verify", "show"] {
            let mut args = vec![command, "--quiet"];
            args.extend((command == "restore").then_some(&*dir));
            let (key, url) = (place.key(), place.url(wanted));
            args.extend([&*key, &url]);
            refused(run(&args, b""), "zzz");
            assert!(!out.exists());
        }
    }
}

/// Creates a backup with the name, run and positions of a chain member, but other data.
fn forge_link(place: &Place, name: &str, content: &[u8]) {
    let path = place.manifest(name);
    let sealed = Manifest::decode(&std::fs::read(&path).unwrap()).unwrap().manifest;
    let lsn = |lsn: Option<u64>| lsn.unwrap_or(0);
    let positions = (lsn(sealed.source.from_lsn), lsn(sealed.source.to_lsn));
    place.put("forged", &[], &stream(content, positions, true));
    let mut forged = Manifest::decode(&std::fs::read(place.manifest("forged")).unwrap()).unwrap();
    let run = std::mem::replace(&mut forged.manifest.run, sealed.run.clone());
    forged.manifest.packed.as_mut().unwrap().stream = Some(run.clone());
    forged.manifest.name = name.to_owned();
    forged.manifest.base = sealed.base;
    (forged.manifest.started, forged.manifest.finished) = (sealed.started, sealed.finished);
    std::fs::write(&path, forged.manifest.encode(None).unwrap()).unwrap();
    let root = place.path("root");
    std::fs::remove_dir_all(root.join(name)).unwrap();
    std::fs::create_dir(root.join(name)).unwrap();
    std::fs::rename(root.join("forged").join(run), root.join(name).join(sealed.run)).unwrap();
    std::fs::remove_dir_all(root.join("forged")).unwrap();
    std::fs::remove_file(place.manifest("forged")).unwrap();
}

/// `backup` with a producer that writes `stream` and records that it was started.
fn backup(place: &Place, name: &str, options: &[&str], stream: &[u8]) -> Ran {
    let file = place.path("stream");
    std::fs::write(&file, stream).unwrap();
    let script = format!("touch {}; cat {}", place.path("begun").display(), file.display());
    let state = format!("--state-dir={}", place.path("state").display());
    let url = place.url(name);
    // Nothing is known about the server of this producer.
    let head = ["backup", "--accept-history", &state, &url];
    let args = [&head[..], options, &["--", "sh", "-c", &script]].concat();
    run(&args, b"")
}

fn with_its_chain(place: &Place, dir: &Path) -> Ran {
    let dir = format!("--target-dir={}", dir.display());
    let prepare = ["--prepare", "--prepare-program=/bin/true"];
    run(&[&["restore", &place.key(), &dir][..], &prepare, &[&place.url("i2")]].concat(), b"")
}

#[test]
fn every_backup_of_a_chain_must_be_sealed_before_the_first_one_is_restored() {
    let place = Place::new();
    let (key, from) = (place.key(), "--incremental-from=latest");
    let _ = backup(&place, "full", &[&key], &stream(b"0", (0, 10), false)).expect(0);
    let _ = backup(&place, "i1", &[&key, from], &stream(b"1", (10, 20), false)).expect(0);
    let _ = backup(&place, "i2", &[&key, from], &stream(b"2", (20, 30), false)).expect(0);
    let good = place.path("good");
    let _ = with_its_chain(&place, &good).expect(0);
    assert_eq!(std::fs::read(good.join("shop/t.frm")).unwrap(), b"0");
    for name in ["i1", "full"] {
        forge_link(&place, name, b"forged");
        let out = place.path(&format!("out-{name}"));
        refused(with_its_chain(&place, &out), name);
        refused(with_its_chain(&place, &out), name);
        assert!(!out.exists(), "{name}");
        // Such a chain is not a base either, even if its last backup is our own.
        let _ = std::fs::remove_file(place.path("begun"));
        let ran =
            backup(&place, "i3", &[&key, from], &stream(b"3", (30, 40), false)).expect_failure();
        let said = ran.stderr_text();
        assert!(said.contains("was changed: it ") || said.contains("is not sealed"), "{said}");
        assert!(!place.path("begun").exists(), "the producer was started");
    }
}

/// However the new backup is sealed, also if this host itself cannot open anything.
#[test]
fn a_sealed_backup_does_not_go_on_from_a_forged_one() {
    let place = Place::new();
    place.put("full", &[&place.key()], &stream(b"0", (0, 10), false));
    place.put("zzz", &[], &stream(b"forged", (0, 20), false));
    let recipients = place.option("recipients-file", "recipients");
    let ways: [&[&str]; 4] = [
        &[&place.key()],
        &[&place.option("passphrase-file", "passphrase")],
        &[&recipients],
        &["--layout=classic", "--encrypt=AES256", &place.key()],
    ];
    let increment = stream(b"1", (20, 30), false);
    for way in ways {
        for base in ["latest", "zzz"] {
            let from = format!("--incremental-from={base}");
            refused(backup(&place, "new", &[way, &[&from]].concat(), &increment), "zzz");
            assert!(!place.path("begun").exists(), "the producer was started");
        }
    }
    let word = ["--accept-unsealed", "--incremental-from=zzz", &recipients];
    let _ = backup(&place, "new", &word, &increment).expect(0);
    // Without a key, no seal is required.
    let _ = backup(&place, "plain", &["--incremental-from=zzz"], &increment).expect(0);
}

/// A copy under another name is authenticated again with the key; a copy must not authenticate a
/// backup that was not.
#[test]
fn a_copy_takes_an_unvouched_backup_only_where_that_is_said() {
    let place = Place::new();
    place.put("n", &[&place.key()], &stream(b"ours", (0, 10), false));
    let native = run(&["get", "--as-stored", &place.url("n")], b"").expect(0).stdout;
    place.put("carried", &[], &native);
    let elsewhere = format!("file://{}/", place.path("copy").display());
    let copy = ["copy", "--unverified", &place.key(), &place.url("carried"), &elsewhere];
    let said = run(&copy, b"").expect_failure().stderr_text();
    assert!(said.contains("--accept-unvouched"), "{said}");
    let _ = run(&[&copy[..], &["--accept-unvouched"]].concat(), b"").expect(0);
}

/// An empty key option must not create a backup that everyone can read.
#[test]
fn a_key_option_without_a_recipient_is_refused() {
    let place = Place::new();
    let backup = stream(b"secret", (0, 10), false);
    let file = |content: &[u8]| {
        std::fs::write(place.path("file"), content).unwrap();
        place.path("file").display().to_string()
    };
    for nothing in [&b""[..], b"\n\n", b" \t\r\n", b"# for nobody\n"] {
        let file = file(nothing);
        for option in ["recipients-file", "encrypt-key-file", "passphrase-file"] {
            // A comment line is a passphrase like any other.
            if option == "passphrase-file" && nothing.starts_with(b"#") {
                continue;
            }
            for layout in ["--layout=packed", "--layout=classic"] {
                let option = format!("--{option}={file}");
                let _ = run(&["put", layout, &option, &place.url("n")], &backup).expect(2);
            }
            // The same in an option file.
            let options = place.path("my.cnf");
            std::fs::write(&options, format!("[xbcloud]\n{option} = {file}\n")).unwrap();
            let options = format!("--defaults-file={}", options.display());
            let _ = run(&[&options, "put", &place.url("n")], &backup).expect(2);
        }
        let identity = format!("--identity-file={file}");
        let _ = run(&["get", &identity, &place.url("n")], b"").expect(2);
    }
    for option in [
        "--recipient=",
        "--recipient= ",
        "--encrypt-key=",
        "--key-command=",
        "--key-command= ",
        "--recipients-file=",
        "--passphrase-file=",
        "--encrypt-key-file=",
    ] {
        let _ = run(&["put", option, &place.url("n")], &backup).expect(2);
        let options = place.path("my.cnf");
        let line = option.trim_start_matches("--");
        std::fs::write(&options, format!("[xbcloud]\n{line}\n")).unwrap();
        let options = format!("--defaults-file={}", options.display());
        let _ = run(&[&options, "put", &place.url("n")], &backup).expect(2);
    }
    // A key command without output wraps nothing.
    let _ = run(&["put", "--key-command=true", &place.url("n")], &backup).expect_failure();
    assert!(!place.manifest("n").exists());
}
