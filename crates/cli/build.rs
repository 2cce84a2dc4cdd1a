//! Passes the revision of the sources to `src/version.rs`.
//!
//! The first of these that exists: `$XB_REVISION`; `revision.txt`, which `git archive` fills in;
//! in release builds, the commit of the checkout. Debug builds do not ask git, because then every
//! commit would rebuild all programs.

use std::env;
use std::fs;
use std::process::Command;

/// The program folders and `crates`, relative to this one: a change there changes the revision to
/// `...-modified`.
const SOURCES: [&str; 5] =
    ["..", "../../xbcloud-rs", "../../xbstream-rs", "../../xbcrypt-rs", "../../wsrep-sst-xbrs"];

fn main() {
    println!("cargo::rerun-if-env-changed=XB_REVISION");
    println!("cargo::rerun-if-changed=revision.txt");
    println!("cargo::rustc-env=XB_TARGET={}", env::var("TARGET").unwrap_or_default());
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let revision = env::var("XB_REVISION")
        .ok()
        .or_else(exported)
        .or_else(|| release.then(checked_out).flatten())
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=XB_REVISION={revision}");
}

/// The commit of a source archive. In a checkout the file holds only the pattern.
fn exported() -> Option<String> {
    let text = fs::read_to_string("revision.txt").ok()?;
    let commit = text.trim();
    commit.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| commit.chars().take(12).collect())
}

fn checked_out() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-modified") })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
