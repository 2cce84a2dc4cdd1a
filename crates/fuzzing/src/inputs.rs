//! Inputs from the fixtures.

/// Puts `head` in front of each of the contents.
pub(crate) fn with_head(head: &[u8], contents: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    contents.into_iter().map(|content| [head, &content].concat()).collect()
}

/// Contents of the fixtures in `folder` with this ending that a fuzzer handles fast.
pub(crate) fn fixtures(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let all = xb_testkit::vectors::all(folder, ending).into_iter().map(|(_, content)| content);
    all.filter(|content| content.len() <= 64 << 10).collect()
}
