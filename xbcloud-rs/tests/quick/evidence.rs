//! Evidence of `verify`: signed, of what was really done, and checked with `evidence` and with OpenSSL.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use xb_encryptor::SigningKey;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;
use xb_testkit::tools::find;

/// A repository with a backup, and a host with a key that verifies it.
struct Host {
    folder: TempDir,
    key: SigningKey,
    signer: String,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (key, text) = SigningKey::generate().unwrap();
        std::fs::write(folder.path().join("key"), &*text).unwrap();
        let signer = key.verifying_key().to_string();
        let host = Self { folder, key, signer };
        let _ = host.run(&["put", "monday"], &small_backup(2, 100_000)).expect(0);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, words: &[&str], stdin: &[u8]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(words)
            .arg(format!("--root=file://{}", self.path("root").display()))
            .stdin_bytes(stdin)
            .run()
    }

    fn verify(&self, file: &Path, options: &[&str]) -> Ran {
        let evidence = format!("--evidence={}", file.display());
        let key = format!("--signing-key-file={}", self.path("key").display());
        self.run(&[&["verify", &evidence, &key], options].concat(), b"")
    }

    fn check(&self, file: &Path, signer: &str, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("evidence")
            .arg(file)
            .arg(format!("--signer={signer}"))
            .args(options)
            .run()
    }

    /// Writes a document as this host would sign it.
    fn sign(&self, file: &Path, text: &str) {
        std::fs::write(file, text).unwrap();
        std::fs::write(beside(file), self.key.sign(text.as_bytes())).unwrap();
    }

    fn check_own(&self, file: &Path) -> Ran {
        self.check(file, &self.signer, &[])
    }
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn beside(file: &Path) -> PathBuf {
    PathBuf::from(format!("{}.sig", file.display()))
}

#[test]
fn evidence_is_of_what_was_done_and_of_the_host_that_did_it() {
    let host = Host::new();
    let file = host.path("evidence.json");
    let ran = host.verify(&file, &["monday", "--level=checksum"]).expect(0);
    assert!(ran.stderr_text().contains("evidence.json.sig"), "{ran:?}");
    let evidence = read(&file);
    assert_eq!((&evidence["result"], &evidence["exit"]), (&Value::from("ok"), &Value::from(0)));
    assert_eq!((&evidence["name"], &evidence["level"]), (&"monday".into(), &"checksum".into()));
    assert_eq!(evidence["signer"], Value::from(host.signer.clone()));
    let report = &evidence["verification"];
    assert_eq!(report["reached"], "checksum");
    let (chain, run) = (&report["chain"], std::fs::read_dir(host.path("root/monday")).unwrap());
    let run = run.map(|entry| entry.unwrap().file_name().into_string().unwrap()).next().unwrap();
    assert_eq!((&chain[0]["name"], &chain[0]["run"]), (&"monday".into(), &run.into()));
    assert_eq!(
        (&chain[0]["manifest"], &chain[0]["restored"]),
        (&report["manifest"], &false.into())
    );

    let shown = host.check_own(&file).expect(0).stdout_text();
    assert!(shown.contains("monday in file://") && shown.contains("not restored"), "{shown}");
    assert!(shown.contains("checksum  ok") && !shown.contains("pages"), "{shown}");
    assert!(shown.contains("up to checksum (requested: checksum)"), "{shown}");
    assert!(shown.contains("authenticity: not-sealed") && shown.contains("not signed"), "{shown}");
    // Demands on the evidence.
    let check = |options: &[&str]| host.check(&file, &host.signer, options);
    let _ = check(&["--level=checksum", "--max-age=1h"]).expect(0);
    let ran = check(&["--level=restore"]).expect(7);
    assert!(ran.stderr_text().contains("only up to checksum, but restore is required"), "{ran:?}");
    let root = format!("--root=file://{}", host.path("root").display());
    let _ = check(&["--name=monday", &root]).expect(0);
    // The same place, written in another way.
    let path = host.path("root").display().to_string();
    for same in [
        format!("file://localhost{path}/"),
        format!("FILE://{}", path.replace("/root", "/./%72oot")),
    ] {
        let _ = check(&[&format!("--root={same}")]).expect(0);
    }
    for (wrong, told) in [
        ("--name=tuesday", "it is for backup monday, but tuesday is required"),
        ("--root=s3://other/root", "but s3://other/root is required"),
    ] {
        let ran = check(&[wrong]).expect(7);
        assert!(ran.stderr_text().contains(told), "{ran:?}");
    }
    let old = host.path("old.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let time = evidence["finished"].as_str().unwrap();
    host.sign(&old, &text.replace(time, "2020-01-01T00:00:00Z"));
    let _ = host.check_own(&old).expect(0);
    let ran = host.check(&old, &host.signer, &["--max-age=8d"]).expect(7);
    assert!(ran.stderr_text().contains("old, the limit is 8d"), "{ran:?}");
    let json = host.check(&file, &host.signer, &["--json"]).expect(0).stdout;
    assert_eq!(json, std::fs::read(&file).unwrap());
}

#[test]
fn no_changed_byte_passes() {
    let host = Host::new();
    let file = host.path("evidence.json");
    let _ = host.verify(&file, &["monday", "--level=list"]).expect(0);
    let (other, _) = SigningKey::generate().unwrap();
    let ran = host.check(&file, &other.verifying_key().to_string(), &[]).expect(7);
    assert!(ran.stderr_text().contains("none of the given signers"), "{ran:?}");
    let (good, signature) = (std::fs::read(&file).unwrap(), std::fs::read(beside(&file)).unwrap());
    assert_eq!(signature.len(), 64);
    for at in (0..good.len()).step_by(good.len() / 9) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let _ = host.check_own(&file).expect(7);
    }
    for bad in [&good[..good.len() - 1], b""] {
        std::fs::write(&file, bad).unwrap();
        let _ = host.check_own(&file).expect(7);
    }
    std::fs::write(&file, &good).unwrap();
    for bad in [&signature[..63], &[&signature[..], b"x"].concat(), &[0; 64]] {
        std::fs::write(beside(&file), bad).unwrap();
        let _ = host.check_own(&file).expect(7);
    }
    std::fs::remove_file(beside(&file)).unwrap();
    let _ = host.check_own(&file).expect(3);
    // A signed manifest is no evidence.
    let key = format!("--signing-key-file={}", host.path("key").display());
    let _ = host.run(&["put", "signed", &key], &small_backup(1, 5000)).expect(0);
    let manifest = std::fs::read_to_string(host.path("root/.xb-catalog/signed")).unwrap();
    let (text, line) = manifest.trim_end().rsplit_once('\n').unwrap();
    let digits = line.rsplit(':').next().unwrap();
    let bytes: Vec<u8> =
        (0..64).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap()).collect();
    std::fs::write(&file, format!("{text}\n")).unwrap();
    std::fs::write(beside(&file), bytes).unwrap();
    let ran = host.check_own(&file).expect(7);
    assert!(ran.stderr_text().contains("not evidence"), "{ran:?}");
}

#[test]
fn a_failed_verification_is_evidence_of_a_failure() {
    let host = Host::new();
    // Not made: there is no such backup.
    let file = host.path("nothing.json");
    let _ = host.verify(&file, &["tuesday"]).expect_failure();
    let evidence = read(&file);
    assert_eq!((&evidence["result"], &evidence["verification"]), (&"error".into(), &Value::Null));
    assert!(evidence["exit"] != 0 && evidence["error"].as_str().unwrap().contains("tuesday"));
    let ran = host.check_own(&file).expect(7);
    assert!(ran.stderr_text().contains("a verification that failed"), "{ran:?}");
    // Damaged.
    let run = std::fs::read_dir(host.path("root/monday")).unwrap().next().unwrap().unwrap().path();
    let object = run.join("000000000");
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let file = host.path("damaged.json");
    let _ = host.verify(&file, &["monday"]).expect(7);
    let evidence = read(&file);
    assert_eq!((&evidence["result"], &evidence["exit"]), (&"failed".into(), &7.into()));
    assert_ne!(evidence["verification"]["reached"], "pages");
    assert!(!evidence["verification"]["problems"].as_array().unwrap().is_empty());
    let ran = host.check_own(&file).expect(7);
    assert!(ran.stdout_text().contains("FAILED"), "{ran:?}");
}

#[test]
fn evidence_needs_a_key_and_replaces_nothing() {
    let host = Host::new();
    let file = host.path("evidence.json");
    let option = format!("--evidence={}", file.display());
    let ran = host.run(&["verify", "monday", &option], b"").expect(2);
    assert!(ran.stderr_text().contains("keygen --signing"), "{ran:?}");
    assert!(!file.exists() && !beside(&file).exists());
    for there in [file.clone(), beside(&file)] {
        std::fs::write(&there, b"old").unwrap();
        let ran = host.verify(&file, &["monday"]).expect(2);
        assert!(ran.stderr_text().contains("evidence is never replaced"), "{ran:?}");
        // A signature alone is left of a verification that was killed.
        let is_alone = there != file;
        assert_eq!(ran.stderr_text().contains("was killed"), is_alone, "{ran:?}");
        assert_eq!(std::fs::read(&there).unwrap(), b"old");
        std::fs::remove_file(&there).unwrap();
    }
    assert!(!file.exists() && !beside(&file).exists());
    let _ = host.verify(&host.path("no/folder/x.json"), &["monday"]).expect_failure();
    let named = host.path("of-{host}-{utc}.json");
    let _ = host.verify(&named, &["monday", "--level=list"]).expect(0);
    let names = std::fs::read_dir(host.folder.path()).unwrap();
    let names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(
        names.iter().any(|name| name.starts_with("of-") && name.ends_with("Z.json")),
        "{names:?}"
    );
}

/// A statement that no server has run is not part of a proof.
#[test]
fn statements_need_a_trial_restore() {
    let host = Host::new();
    for level in ["--level=pages", "--level=list"] {
        let file = host.path(&format!("{level}.json"));
        let ran = host.verify(&file, &["monday", level, "--check-sql=SELECT 1"]).expect(2);
        assert!(ran.stderr_text().contains("--check-sql runs on the server"), "{ran:?}");
        let evidence = read(&file);
        assert_eq!(evidence["result"], "error");
        assert_eq!(evidence["statements"], serde_json::json!([]));
    }
    let _ = host.run(&["verify", "monday", "--check-sql=SELECT 1"], b"").expect(2);
}

/// Metrics tell of a verification that could not begin, too.
#[test]
fn a_lack_of_a_key_shows_in_the_metrics() {
    let host = Host::new();
    let (file, prom) = (host.path("evidence.json"), host.path("proof.prom"));
    let options =
        [format!("--evidence={}", file.display()), format!("--metrics-file={}", prom.display())];
    let _ = host.run(&["verify", "monday", &options[0], &options[1]], b"").expect(2);
    let text = std::fs::read_to_string(&prom).unwrap();
    let code = text.lines().find(|line| line.starts_with("xbcloud_proof_exit_code{")).unwrap();
    assert!(code.ends_with("} 2"), "{code}");
}

/// As the page about security shows it, with nothing of ours.
#[test]
fn openssl_checks_the_signature() {
    let host = Host::new();
    let file = host.path("evidence.json");
    let _ = host.verify(&file, &["monday", "--level=list"]).expect(0);
    let script = |signer: &str| {
        format!(
            "(printf 302A300506032B6570032100; printf {} | tr a-f A-F) | basenc -d --base16 | openssl pkey -pubin -inform DER -out host.pem && \
             openssl pkeyutl -verify -pubin -inkey host.pem -rawin -in evidence.json -sigfile evidence.json.sig",
            signer.trim_start_matches("ed25519:")
        )
    };
    let openssl = |signer: &str| {
        let _ = find("openssl");
        Cmd::new("/bin/sh").args(["-c", &script(signer)]).cwd(host.folder.path()).run()
    };
    let ran = openssl(&host.signer).expect(0);
    assert!(ran.stdout_text().contains("Signature Verified Successfully"), "{ran:?}");
    let (other, _) = SigningKey::generate().unwrap();
    let _ = openssl(&other.verifying_key().to_string()).expect_failure();
}
