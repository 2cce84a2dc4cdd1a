//! Files that are received where they belong, in `#sql-xb/.new` of a directory outside the data
//! directory. While the backup is prepared, links beside the other files lead there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xb_pipeline::ExtractCause;
use xb_reader::{RelPath, TargetDir, TargetError};

use crate::context::Context;
use crate::contract::args::Family;
use crate::contract::datadir::Kind;
use crate::error::SstError;
use crate::swap::{NEW, OURS};

/// Suffixes of files that the backup program has compressed.
const COMPRESSED: [&[u8]; 3] = [b".qp", b".lz4", b".zst"];

/// Returns whether files of this kind are received where they belong, if that is outside the data
/// directory. The redo log is not: preparing consumes it. Nor is anything of Percona's server, which
/// is started on the received data before the swap.
pub(super) fn is_placed(context: &Context, kind: &Kind) -> bool {
    let is_kind = matches!(kind, Kind::Data(_) | Kind::Undo | Kind::Aria);
    is_kind && context.args.family == Family::MariaDb
}

/// The directory of each kind that is received where it belongs.
fn places(context: &Context) -> impl Iterator<Item = (&Kind, &Path)> {
    let outside = context.layout.outside.iter();
    let placed = outside.filter(|place| is_placed(context, &place.kind));
    placed.map(|place| (&place.kind, place.dir.as_path()))
}

/// Directories that receive files, each once.
fn dirs(context: &Context) -> BTreeSet<&Path> {
    places(context).map(|(_, dir)| dir).collect()
}

fn staging(dir: &Path) -> PathBuf {
    dir.join(OURS).join(NEW)
}

/// Makes the files that belong elsewhere go there; `modes` sets the modes of new files.
///
/// # Errors
/// If a directory cannot be opened.
pub(super) fn send_there(
    context: &Context,
    mut target: TargetDir,
    modes: impl Fn(TargetDir) -> TargetDir,
) -> Result<TargetDir, TargetError> {
    for dir in dirs(context) {
        let here = places(context).filter(|place| place.1 == dir);
        let kinds: Vec<Kind> = here.map(|(kind, _)| kind.clone()).collect();
        let other = modes(TargetDir::open(&staging(dir))?);
        target = target.with_elsewhere(other, move |name| {
            let plain = COMPRESSED.iter().find_map(|suffix| name.strip_suffix(*suffix));
            let name = OsStr::from_bytes(plain.unwrap_or(name));
            kinds.iter().any(|kind| kind.has(name))
        });
    }
    Ok(target)
}

/// The directories into which received files go.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    new: PathBuf,
    placed: Vec<(Kind, PathBuf)>,
}

impl Folders {
    pub(super) fn of(context: &Context, new: &Path) -> Self {
        let placed = places(context).map(|(kind, dir)| (kind.clone(), staging(dir))).collect();
        Self { new: new.to_owned(), placed }
    }

    /// Returns the directory in which a file could not be written.
    pub(super) fn of_failure(&self, cause: &ExtractCause) -> &Path {
        let file = match cause {
            ExtractCause::Target { source, .. } => source.path(),
            _ => None,
        };
        let name = file.map_or(&b""[..], RelPath::as_bytes);
        let placed = self.placed.iter().find(|(kind, _)| kind.has(OsStr::from_bytes(name)));
        placed.map_or(&self.new, |(_, dir)| dir)
    }
}

/// Runs `prepare` while `new` has links to the files that were received elsewhere.
///
/// # Errors
/// That of `prepare`; or if a link cannot be created, or a file cannot be removed.
pub(super) fn with_links(
    context: &Context,
    new: &Path,
    prepare: impl FnOnce() -> Result<(), SstError>,
) -> Result<(), SstError> {
    link(context, new)?;
    prepare()?;
    unlink(context, new)
}

fn link(context: &Context, new: &Path) -> Result<(), SstError> {
    for (name, path) in received(context)? {
        let link = new.join(name);
        symlink(&path, &link).map_err(SstError::io("create the link", link))?;
    }
    Ok(())
}

/// Removes the links from `new`. A received file whose link is gone was removed or replaced by the
/// backup program, and is removed.
fn unlink(context: &Context, new: &Path) -> Result<(), SstError> {
    for (name, path) in received(context)? {
        let link = new.join(name);
        let is_link = std::fs::read_link(&link).is_ok_and(|target| target == path);
        let gone = if is_link { link } else { path };
        std::fs::remove_file(&gone).map_err(SstError::io("remove", gone))?;
    }
    Ok(())
}

/// Names and paths of the files that were received where they belong.
fn received(context: &Context) -> Result<Vec<(OsString, PathBuf)>, SstError> {
    let mut files = Vec::new();
    for dir in dirs(context).into_iter().map(staging) {
        for entry in std::fs::read_dir(&dir).map_err(SstError::io("list", &dir))? {
            let entry = entry.map_err(SstError::io("list", &dir))?;
            files.push((entry.file_name(), entry.path()));
        }
    }
    Ok(files)
}
