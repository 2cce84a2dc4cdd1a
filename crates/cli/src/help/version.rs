//! Output of `--version`.

/// Returns the text after the program's name: the version, then one line each for the revision of
/// the sources, the features built in, the crypto backend, and the target.
///
/// `revision` is the commit, with `-modified` if files of the checkout had been changed, or
/// `unknown`: debug builds do not record it.
///
/// ```
/// let text = xb_cli::long_version("1.2.3", "aws-lc", "aws-lc-rs");
/// assert!(text.starts_with("1.2.3\nrevision: "));
/// ```
pub fn long_version(version: &str, features: &str, crypto: &str) -> String {
    format!(
        "{version}\nrevision: {}\nfeatures: {features}\ncrypto:   {crypto}\ntarget:   {}",
        env!("XB_REVISION"),
        env!("XB_TARGET"),
    )
}
