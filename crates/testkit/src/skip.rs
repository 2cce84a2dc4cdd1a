//! Tests that cannot run on this machine.

use std::io::Write as _;

/// Reports that the running test, or a part of it, is skipped because of `why`: what the machine or
/// the user lacks. The caller returns.
///
/// The line appears although the test passes, and `scripts/test` counts it: such a test counts as
/// skipped, not as passed.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    // Written to the descriptor: the test harness hides what `eprintln!` prints in a test that passes.
    // It may have begun a line of its own.
    let _ = std::io::stderr().write_all(format!("\nskipped: {name}: {why}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// In the child process of the test below, skips.
    #[test]
    fn skips_in_a_child() {
        if std::env::var_os("XB_TEST_SKIP").is_some() {
            super::skipped("for a test");
        }
    }

    #[test]
    fn the_line_appears_although_the_test_passes() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "skip::tests::skips_in_a_child"]).env("XB_TEST_SKIP", "1");
        let ran = child.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let text = String::from_utf8(ran.stderr).unwrap();
        let line = "skipped: skip::tests::skips_in_a_child: for a test";
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{text}");
    }
}
