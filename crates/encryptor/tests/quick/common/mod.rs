//! Shared by the tests of this crate.

#![allow(dead_code)] // each test program uses a part of it

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use sha2::{Digest, Sha256};

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|n| u8::from_str_radix(&text[n..n + 2], 16).unwrap()).collect()
}

/// Bytes that no codec can shrink.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

/// Runs a program with this input. Returns whether its exit status was 0, and its output.
pub(crate) fn run(program: &PathBuf, arguments: &[&str], input: &[u8]) -> (bool, Vec<u8>, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // In parallel with reading, to avoid a deadlock. A program may close its input early.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), output.stdout, stderr)
}

/// Path of a Python that has `tink`.
pub(crate) fn python() -> PathBuf {
    let own = env::var_os("XB_TOOLS_PYTHON").map(PathBuf::from);
    let python =
        own.unwrap_or_else(|| xb_testkit::tools::workspace().join("target/tools/bin/python"));
    let (ok, _, stderr) = run(&python, &["-c", "import tink.streaming_aead"], b"");
    assert!(
        ok,
        "{} has no tink: run scripts/test, it installs what the tests need\n{stderr}",
        python.display()
    );
    python
}

pub(crate) fn write(dir: &tempfile::TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// HKDF-SHA-256 for 32 bytes, from HMAC alone: a second implementation of the documented formula.
pub(crate) fn derive(key: &[u8], salt: &[u8], info: &[u8]) -> Vec<u8> {
    hmac(&hmac(salt, key), &[info, &[1]].concat())
}

/// HMAC-SHA-256, implemented from its definition.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block.resize(64, 0);
    let pad = |with: u8| block.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let inner = Sha256::digest([&pad(0x36), message].concat());
    Sha256::digest([&pad(0x5c)[..], &inner].concat()).to_vec()
}

/// Builds a keys object with this content, from `docs/spec/keys.md` alone.
pub(crate) fn keys_object(content: &serde_json::Value, data_key: &[u8], id: &[u8]) -> Vec<u8> {
    let mut text = serde_json::to_string_pretty(content).unwrap() + "\n";
    text += &format!("sha256:{}\n", sha256(text.as_bytes()));
    let code = hmac(&derive(data_key, id, b"xbrs keys mac 1"), text.as_bytes());
    text += &format!("hmac-sha256:{}\n", hex(&code));
    text.into_bytes()
}
