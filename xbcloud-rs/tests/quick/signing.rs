//! Manifests that a host has signed: whoever trusts that host believes no others.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use xb_encryptor::{Identities, SigningKey};
use xb_repo::manifest::signed_text::attest;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

/// A repository for age recipients, a host that signs, and what a thief may have: all but its key.
struct Shop {
    folder: TempDir,
    recipient: String,
    identity: PathBuf,
    key: PathBuf,
    /// The public key of the host.
    signer: String,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (identities, text) = Identities::generate();
        let [identity, key] = ["identity", "key"].map(|name| folder.path().join(name));
        std::fs::write(&identity, &*text).unwrap();
        let (signing, text) = SigningKey::generate().unwrap();
        std::fs::write(&key, &*text).unwrap();
        let recipient = identities.recipients()[0].to_string();
        Self { folder, recipient, identity, key, signer: signing.verifying_key().to_string() }
    }

    fn root(&self) -> String {
        format!("file://{}/root", self.folder.path().display())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("root").join(below)
    }

    fn run(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let root = format!("--root={}", self.root());
        let (command, rest) = args.split_first().unwrap();
        let mut cmd = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
        cmd = cmd.args([command, &*root]).args(rest);
        cmd.stdin_bytes(stdin).run()
    }

    /// Runs a command on a host that trusts the signer, and has the identity.
    fn trusting(&self, args: &[&str]) -> Ran {
        let signer = format!("--signer={}", self.signer);
        let identity = format!("--identity-file={}", self.identity.display());
        let mut all = vec![args[0], &signer];
        if matches!(args[0], "restore" | "get" | "verify" | "copy") {
            all.push(&identity);
        }
        all.extend(&args[1..]);
        self.run(&all, b"")
    }

    fn put(&self, name: &str, options: &[&str]) -> Ran {
        let recipient = format!("--recipient={}", self.recipient);
        self.run(&[&["put", &recipient], options, &[name]].concat(), &small_backup(1, 100_000))
    }

    fn put_signed(&self, name: &str) {
        let key = format!("--signing-key-file={}", self.key.display());
        let signer = format!("--signer={}", self.signer);
        let _ = self.put(name, &[&key, &signer]).expect(0);
    }

    fn list(&self, ran: Ran) -> Vec<Value> {
        serde_json::from_slice(&ran.expect(0).stdout).unwrap()
    }
}

fn data(folder: &Path) -> String {
    format!("--target-dir={}", folder.display())
}

#[test]
fn only_records_signed_by_the_host_count() {
    let shop = Shop::new();
    shop.put_signed("monday");
    // Whoever can write to the store, and knows the recipient, can make this one.
    let _ = shop.put("tuesday", &[]).expect(0);
    let (other, text) = SigningKey::generate().unwrap();
    let thief = shop.folder.path().join("thief");
    std::fs::write(&thief, &*text).unwrap();
    let _ = shop.put("wednesday", &[&format!("--signing-key-file={}", thief.display())]).expect(0);

    let target = shop.folder.path().join("data");
    let _ = shop.trusting(&["restore", &data(&target), "monday"]).expect(0);
    let _ = shop.trusting(&["verify", "--level=decrypt", "monday"]).expect(0);
    for (name, who) in
        [("tuesday", "no host has signed"), ("wednesday", &*other.verifying_key().to_string())]
    {
        let target = shop.folder.path().join(name);
        for args in [&["restore", &data(&target), name][..], &["get", name], &["verify", name]] {
            let ran = shop.trusting(args).expect_failure();
            let said = ran.stderr_text() + &ran.stdout_text();
            assert!(said.contains(who), "{args:?}: {said}");
        }
        assert!(!target.exists());
    }
    let lines = shop.list(shop.trusting(&["list", "--json"]));
    let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["complete", "unreadable", "unreadable"]);
    assert_eq!(lines[0]["signer"], Value::from(shop.signer.clone()));
    assert!(lines[1]["problem"].as_str().unwrap().contains("no host has signed"), "{lines:?}");

    // They count for no rule, so the last one that is believed stays, and so do they.
    let _ = shop.trusting(&["prune", "--keep-last=1", "--yes"]).expect(0);
    for name in ["monday", "tuesday", "wednesday"] {
        assert!(shop.path(".xb-catalog").join(name).exists(), "{name}");
    }
    let monitor = shop.trusting(&["monitor", "--max-age=1h"]).expect(1);
    assert!(monitor.stdout_text().contains("tuesday"), "{monitor:?}");
    let _ = shop.trusting(&["delete", "--yes", "--force", "tuesday"]).expect(0);
}

/// Whoever can write to the store can write any manifest of an unsealed backup.
#[test]
fn a_forged_manifest_controls_no_terminal() {
    let shop = Shop::new();
    let _ = shop.run(&["put", "n0"], &small_backup(1, 100_000)).expect(0);
    let stored = std::fs::read_to_string(shop.path(".xb-catalog/n0")).unwrap();
    let (text, _) = stored.rsplit_once("sha256:").unwrap();
    let target = data(&shop.folder.path().join("data"));
    let base = format!(r#""base": {{"name": "\u001b[31m", "run": "{:032x}"}}, "files":"#, 1);
    for (from, to) in [
        (r#""layout": "packed""#, r#""layout": "\u001b[31m""#),
        (r#""rule": "last-file""#, r#""rule": "\u001b[31m""#),
        (r#""files":"#, base.as_str()),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let forged = attest(text.replacen(from, to, 1).into_bytes(), None);
        std::fs::write(shop.path(".xb-catalog/n0"), forged).unwrap();
        for args in [
            &["list", "--no-cache"][..],
            &["show", "n0"],
            &["monitor", "--max-age=1h"],
            &["prune", "--keep-last=1"],
            &["verify", "n0"],
            &["restore", "--dry-run", &target, "n0"],
            &["gc"],
        ] {
            let ran = shop.run(args, b"");
            let said = ran.stdout_text() + &ran.stderr_text();
            assert!(!said.contains('\u{1b}'), "{to} {args:?}: {said:?}");
            assert!([0, 1, 2, 3, 4, 7].contains(&ran.code()), "{to} {args:?}: {said}");
        }
    }
}

/// Whoever can write to the store can show a signed backup under another name, or without its manifest.
#[test]
fn a_signature_covers_the_name_and_the_manifest_is_needed() {
    let shop = Shop::new();
    shop.put_signed("monday");
    let manifest = std::fs::read_to_string(shop.path(".xb-catalog/monday")).unwrap();
    std::fs::write(shop.path(".xb-catalog/zzz"), manifest.replace("monday", "zzz")).unwrap();
    let lines = shop.list(shop.trusting(&["list", "--json"]));
    assert_eq!(lines[1]["state"], "damaged", "{lines:?}");
    // As the stock tool stores it.
    let stock = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["put", "--layout=classic", &format!("{}/friday", shop.root())])
        .stdin_bytes(small_backup(1, 100_000))
        .run();
    let _ = stock.expect(0);
    std::fs::remove_dir_all(shop.path(".xb-catalog")).unwrap();
    let signer = format!("--signer={}", shop.signer);
    let target = shop.folder.path().join("data");
    for args in [
        &["restore", &signer, &data(&target), "friday"][..],
        &["get", &signer, "friday"],
        &["verify", &signer, "friday"],
    ] {
        let ran = shop.run(args, b"").expect_failure();
        let said = ran.stderr_text() + &ran.stdout_text();
        assert!(said.contains("no host has signed"), "{args:?}: {said}");
    }
    assert!(!target.exists());
}

#[test]
fn without_trusted_keys_all_is_read() {
    let shop = Shop::new();
    shop.put_signed("monday");
    let _ = shop.put("tuesday", &[]).expect(0);
    let lines = shop.list(shop.run(&["list", "--json"], b""));
    assert!(lines.iter().all(|line| line["restorable"] == true), "{lines:?}");
    assert_eq!(lines[1]["signer"], Value::Null);
}

#[test]
fn a_host_makes_no_backup_that_it_would_not_believe() {
    let shop = Shop::new();
    let signer = format!("--signer={}", shop.signer);
    let refused = shop.put("monday", &[&signer]).expect(2).stderr_text();
    assert!(refused.contains("--signing-key-file"), "{refused}");
    let (other, text) = SigningKey::generate().unwrap();
    std::fs::write(&shop.key, &*text).unwrap();
    let key = format!("--signing-key-file={}", shop.key.display());
    let refused = shop.put("monday", &[&signer, &key]).expect(2).stderr_text();
    assert!(refused.contains(&other.verifying_key().to_string()), "{refused}");
    std::fs::write(&shop.key, "no key").unwrap();
    let refused = shop.put("monday", &[&key]).expect(2).stderr_text();
    assert!(refused.contains("keygen --signing"), "{refused}");
    assert!(!shop.path("").exists());
}

#[test]
fn a_signature_goes_with_a_copy() {
    let shop = Shop::new();
    shop.put_signed("monday");
    let _ = shop.trusting(&["verify", "--level=decrypt", "monday"]).expect(0);
    let _ = shop.put("tuesday", &[]).expect(0);
    let to = |name: &str| format!("file://{}/elsewhere/{name}", shop.folder.path().display());
    let _ = shop.trusting(&["copy", "monday", &to("")]).expect(0);
    // Another name needs another signature.
    let ran = shop.trusting(&["copy", "monday", &to("renamed")]).expect_failure();
    assert!(ran.stderr_text().contains("no host has signed"), "{ran:?}");
    let key = format!("--signing-key-file={}", shop.key.display());
    let _ = shop.trusting(&["copy", &key, "monday", &to("renamed")]).expect(0);
    let unsigned = format!("file://{}/elsewhere/", shop.folder.path().display());
    let _ = shop.trusting(&["copy", "--unverified", "tuesday", &unsigned]).expect_failure();
    for name in ["monday", "renamed"] {
        let place = format!("file://{}/elsewhere/{name}", shop.folder.path().display());
        let target = shop.folder.path().join(name);
        let _ = shop.trusting(&["restore", &data(&target), &place]).expect(0);
        assert!(target.join("ibdata1").exists());
    }
}
