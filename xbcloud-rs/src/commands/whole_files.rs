//! Files that a command replaces in one step: its result and its metrics.

use std::path::Path;

use xb_cli::{Failure, Readers, write_whole};

/// Writes a file of the run in one step.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, text, Readers::Everyone)
        .map_err(|error| Failure::new(format!("cannot write {}", path.display())).because(error))
}

/// Returns whether the collector reads this file. A directory is refused as one.
pub(crate) fn is_collected(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|extension| extension == "prom")
}

/// Refuses a file of `option` that the collector does not read.
pub(crate) fn check_collected(option: &str, path: &Path) -> Result<(), Failure> {
    if is_collected(path) {
        return Ok(());
    }
    let path = path.display();
    let what = "the collector reads only files whose names end in .prom";
    Err(Failure::usage(format!("{option}={path}: {what}")).hint(format!("name it {path}.prom")))
}

/// The error for a file of `--result`, `--metrics-file` or `--report` that cannot be written.
pub(crate) fn unwritable(file: &Path, error: std::io::Error) -> Failure {
    let text = error.to_string();
    // `tempfile` adds the path of a file that does not exist.
    let cause = text.split(" at path ").next().unwrap_or(&text);
    let hint = match error.kind() {
        std::io::ErrorKind::IsADirectory => "name a file in it".to_owned(),
        _ => format!("make the directory of {} writable for this user", file.display()),
    };
    Failure::new(format!("cannot write {}: {cause}", file.display())).stage("settings").hint(hint)
}
