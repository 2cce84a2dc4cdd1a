//! A browser that opens pages of ours, without a window and with a profile of its own.

use std::path::Path;

use crate::process::command::Cmd;
use crate::process::daemon::Scratch;
use crate::process::ran::Ran;
use crate::process::tools::find;

/// Opens a page, with further options of Chromium.
///
/// # Panics
/// If the browser fails.
#[track_caller]
pub fn open(page: &Path, options: &[String]) -> Ran {
    let profile = Scratch::new();
    Cmd::new(find("chromium"))
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", profile.join("profile").display()))
        .env("HOME", profile.path())
        .env("XDG_CACHE_HOME", profile.join("cache"))
        .env("XDG_CONFIG_HOME", profile.join("config"))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .run()
        .expect(0)
}

/// The document that the browser made of a page, and what its console shows.
///
/// # Panics
/// If the browser fails.
#[track_caller]
#[must_use]
pub fn document(page: &Path) -> (String, Vec<String>) {
    let ran = open(page, &["--dump-dom".to_owned()]);
    let lines = ran.stderr_text();
    let console = lines.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned);
    (ran.stdout_text(), console.collect())
}
