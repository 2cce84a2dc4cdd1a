//! Locations of the programs that tests run.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the checkout in which this crate was compiled.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/testkit lies two levels down").to_path_buf()
}

/// Returns the full path of a program: in `$XB_TOOLS`, in `target/tools/bin`, on the `PATH`, or in
/// the `sbin` folders that an ordinary user's `PATH` lacks.
///
/// # Panics
/// The program is in none of them.
#[must_use]
pub fn find(name: &str) -> PathBuf {
    let own = env::var_os("XB_TOOLS").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    own.iter()
        .flat_map(|dir| [dir.join("bin"), dir.clone()])
        .chain([workspace().join("target/tools/bin")])
        .chain(env::split_paths(&path))
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("{name} not found: run scripts/test, it installs what the tests need")
        })
}
