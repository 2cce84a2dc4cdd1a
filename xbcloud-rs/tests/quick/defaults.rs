//! Defaults of a backup.

use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::noise;
use xb_testkit::stream::StreamWriter;

const MIB: usize = 1 << 20;

struct Site(tempfile::TempDir);

impl Site {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, program: &Path, words: &[&str], stdin: &[u8]) -> Ran {
        let root = format!("file://{}", self.path("shop").display());
        Cmd::new(program)
            .args(words.iter().map(|word| word.replace("ROOT", &root)))
            .env("HOME", self.path("home"))
            .stdin_bytes(stdin)
            .run()
    }

    fn run(&self, words: &[&str], stdin: &[u8]) -> Ran {
        self.program(Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")), words, stdin).expect(0)
    }

    /// Bytes that the store has for a backup.
    fn stored(&self, name: &str) -> u64 {
        let listed = self.run(&["list", "--json", "ROOT"], b"").stdout_text();
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        let line = listed.iter().find(|line| line["name"] == name).unwrap();
        line["stored_bytes"].as_u64().unwrap()
    }
}

/// A stream of one large file.
fn stream(content: &[u8]) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let _ = out.file("db/t.CSV", content, MIB);
    let _ = out.positions(0, 7).info();
    out.finish()
}

#[test]
fn a_packed_backup_is_compressed_unless_told_otherwise() {
    let site = Site(tempfile::tempdir().unwrap());
    std::fs::create_dir(site.path("shop")).unwrap();
    let text = stream(&b"a row of a table, and another one\n".repeat(200_000));
    let length = text.len() as u64;
    let _ = site.run(&["put", "ROOT/usual"], &text);
    let _ = site.run(&["put", "--compress=none", "ROOT/none"], &text);
    let _ = site.run(&["put", "--layout=classic", "ROOT/classic"], &text);
    assert!(site.stored("usual") < length / 4, "{}", site.stored("usual"));
    assert!(site.stored("none") >= length && site.stored("classic") >= length);
    for name in ["ROOT/usual", "ROOT/none"] {
        assert!(site.run(&["get", name], b"").stdout == text, "{name}");
    }
    // An option file turns it off for all.
    let file = site.path("my.cnf");
    std::fs::write(&file, "[xbcloud]\ncompress=none\n").unwrap();
    let file = format!("--defaults-file={}", file.display());
    let _ = site.run(&[&file, "put", "ROOT/file"], &text);
    assert!(site.stored("file") >= length);
    // Scripts of the stock tool read the objects.
    let stock = site.path("xbcloud");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &stock).unwrap();
    let _ = site.program(&stock, &["put", "--layout=packed", "ROOT/stock"], &text).expect(0);
    assert!(site.stored("stock") >= length);
}

#[test]
fn compressed_data_grows_by_a_negligible_amount() {
    let site = Site(tempfile::tempdir().unwrap());
    std::fs::create_dir(site.path("shop")).unwrap();
    let random = stream(&noise(1, 8 * MIB));
    let _ = site.run(&["put", "ROOT/usual"], &random);
    let _ = site.run(&["put", "--compress=none", "ROOT/none"], &random);
    let (usual, none) = (site.stored("usual"), site.stored("none"));
    assert!(usual <= none + none / 1000, "{usual} bytes instead of {none}");
    assert!(site.run(&["get", "ROOT/usual"], b"").stdout == random);
    // A native stream keeps its codecs.
    let native = site.run(&["get", "--as-stored", "ROOT/usual"], b"").stdout;
    let _ = site.run(&["put", "ROOT/native"], &native);
    assert!(site.run(&["get", "ROOT/native"], b"").stdout == random);
}

#[test]
fn a_backup_that_is_not_sealed_is_noted_and_how_to_seal_is_shown() {
    let site = Site(tempfile::tempdir().unwrap());
    let ready = site.run(&["init", "ROOT"], b"").stderr_text();
    assert!(ready.contains("xbcrypt-rs keygen --identity"), "{ready}");
    let small = stream(b"x");
    let put = site.run(&["put", "ROOT/open"], &small).stderr_text();
    assert!(put.contains("note: open is not sealed") && !put.contains("warning"), "{put}");
    let listed = site.run(&["list", "ROOT"], b"").stderr_text();
    assert!(listed.contains("note: this backup is not sealed"), "{listed}");
    assert!(site.run(&["show", "ROOT/open"], b"").stdout_text().contains("\nsealed       no"));
    let passphrase = site.path("passphrase");
    std::fs::write(&passphrase, "correct horse battery\n").unwrap();
    let key = format!("--passphrase-file={}", passphrase.display());
    let put = site.run(&["put", &key, "ROOT/sealed"], &small).stderr_text();
    assert!(!put.contains("note: "), "{put}");
    let listed = site.run(&["list", "ROOT", "--json"], b"").stdout_text();
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let encrypted =
        |name: &str| listed.iter().find(|line| line["name"] == name).unwrap()["encrypted"].clone();
    assert_eq!((encrypted("open"), encrypted("sealed")), (false.into(), true.into()));
    assert!(!site.run(&["init", &key, "ROOT"], b"").stderr_text().contains("keygen"));
}

#[test]
fn risks_are_told_before_the_first_byte() {
    let site = Site(tempfile::tempdir().unwrap());
    std::fs::create_dir(site.path("shop")).unwrap();
    let said = site.run(&["put", "--raw", "ROOT/raw"], b"any bytes").stderr_text();
    let (risk, done) = (said.find("completeness is not verified"), said.find("raw: complete"));
    assert!(risk.unwrap() < done.unwrap(), "{said}");
    let said = site.run(&["put", "--unsafe-any-end", "ROOT/any"], &stream(b"x")).stderr_text();
    let (risk, done) = (said.find("last file is not checked"), said.find("any: complete"));
    assert!(risk.unwrap() < done.unwrap(), "{said}");
}

/// A seal that an option file asks for, and that would be left out with the file.
#[test]
fn an_option_file_that_is_left_out_ends_the_run() {
    let site = Site(tempfile::tempdir().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
    std::fs::create_dir(site.path("shop")).unwrap();
    std::fs::create_dir(site.path("home")).unwrap();
    std::fs::write(site.path("key"), [7; 32]).unwrap();
    let seal = format!("[xbcloud]\nencrypt-key-file={}\n", site.path("key").display());
    let write = |name: &str, text: &str, mode| {
        std::fs::write(site.path(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(site.path(name), mode).unwrap();
    };
    let refused = |words: &[&str], named: &[&str]| {
        let text = site.program(program, words, &stream(b"x")).expect(2).stderr_text();
        assert!(named.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(std::fs::read_dir(site.path("shop")).unwrap().count(), 0, "something is stored");
    };
    write("home/.my.cnf", &seal, 0o666);
    let own = site.path("home/.my.cnf").display().to_string();
    refused(&["put", "ROOT/n"], &["world-writable", &own, "chmod o-w"]);
    write("home/.my.cnf", "[xbcloud]\n!include /no/such/seal.cnf\n", 0o600);
    refused(&["put", "ROOT/n"], &["/no/such/seal.cnf", &own, "line 2", "create it"]);
    write("home/.my.cnf", "[xbcloud]\n!includes /no/such/seal.cnf\n", 0o600);
    refused(&["put", "ROOT/n"], &[&own, "line 2", "unknown ! directive", "write it as"]);
    // Groups in such a file that only the server's programs read are left to them.
    write("home/.my.cnf", "[client]\nuser=u\n", 0o666);
    write("seal.cnf", &seal, 0o666);
    let named = site.path("seal.cnf").display().to_string();
    let extra = format!("--defaults-extra-file={named}");
    refused(&[&extra, "put", "ROOT/n"], &["world-writable", &named]);
    write("seal.cnf", &seal, 0o600);
    let text = site.run(&[&extra, "put", "ROOT/n"], &stream(b"x")).stderr_text();
    assert!(!text.contains("not sealed"), "{text}");
}

/// A restore from a disk needs no certificates, whatever the variables of other tools say.
#[test]
fn a_local_store_needs_no_file_that_a_variable_of_another_tool_names() {
    let site = Site(tempfile::tempdir().unwrap());
    std::fs::create_dir(site.path("shop")).unwrap();
    let root = format!("file://{}/n", site.path("shop").display());
    let target = format!("--target-dir={}", site.path("t").display());
    let run = |words: &[&str], stdin: &[u8]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(words)
            .env("HOME", site.path("home"))
            .env("AWS_CA_BUNDLE", "/no/such/bundle")
            .stdin_bytes(stdin)
            .run()
    };
    let _ = run(&["put", &root], &stream(b"x")).expect(0);
    let _ = run(&["restore", &root, &target], b"").expect(0);
    let _ = run(&["list", root.trim_end_matches("/n")], b"").expect(0);
    // The option is meant for this program.
    let text = run(&["put", &root, "--cacert=/no/such/bundle"], b"").expect(2).stderr_text();
    assert!(text.contains("cannot read the certificates"), "{text}");
    let text = run(&["list", "s3://bucket/x"], b"").expect(2).stderr_text();
    assert!(text.contains("AWS_CA_BUNDLE"), "{text}");
}
