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

/// By how many pixels a table of a page sticks out of the room of its card, in a window of this width.
///
/// # Panics
/// If the browser fails, or the page has no table.
#[track_caller]
#[must_use]
pub fn overhang(page: &Path, width: u32) -> u32 {
    // A window of the browser itself is never as narrow as a telephone.
    let script = "const all = this.contentDocument.querySelectorAll('.card table'); \
        const over = table => { const card = table.closest('.card'); \
            const room = parseFloat(getComputedStyle(card).paddingRight) + 1; \
            return table.getBoundingClientRect().right - card.getBoundingClientRect().right + room; }; \
        document.title = 'over ' + Math.max(0, Math.ceil(Math.max(...[...all].map(over)))) + ' of ' + all.length";
    let frame = Scratch::new();
    let file = frame.join("frame.html");
    let text = format!(
        "<title></title><iframe src=\"file://{}\" width=\"{width}\" height=\"2000\" onload=\"{script}\"></iframe>",
        page.display()
    );
    std::fs::write(&file, text).unwrap();
    let options = ["--dump-dom".to_owned(), "--allow-file-access-from-files".to_owned()];
    let document = open(&file, &options).stdout_text();
    let (_, found) = document.split_once("<title>over ").unwrap_or_else(|| panic!("{document}"));
    let (over, tables) = found.split_once(" of ").unwrap();
    assert!(!tables.starts_with('0'), "no table in a card: {document}");
    over.parse().unwrap()
}
