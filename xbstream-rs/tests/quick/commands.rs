//! Command lines and what they print. Each page in `commands` is a transcript; how to add one stands in
//! CONTRIBUTING.md.

#[test]
fn every_command_line_prints_what_its_page_shows() {
    let cases = trycmd::TestCases::new();
    cases.env("HOME", "/nonexistent").env("LC_ALL", "C").case("tests/commands/*.md");
}
