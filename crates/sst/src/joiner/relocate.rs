//! Moves prepared files to where the server looks for them, before the swap.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use xb_files::or_none;

use super::acceptance::is_in_use;
use super::datadir_lock::DatadirLock;
use super::destination::sync;
use crate::context::Context;
use crate::contract::args::Product;
use crate::contract::datadir::Layout;
use crate::contract::link_file::read_link;
use crate::error::SstError;
use crate::swap::{
    NEW, SwapError, WORK_DIR, claim_all, list, lock_and_check, make_folders, may_exist, remember,
    tidy,
};

/// Moves the files of `new` that belong elsewhere, and syncs all of them to disk. Returns the directories, named by
/// links of the donor or of this node's data, in which tablespaces are swapped. `is_accepted`: this node's server has started on the data.
///
/// # Errors
/// If a file cannot be moved or synced. A tablespace that cannot be placed as on the donor stays in `new`.
pub(super) fn relocate(
    context: &Context,
    lock: &DatadirLock,
    new: &Path,
    is_accepted: bool,
) -> Result<Vec<PathBuf>, SstError> {
    relocate_kinds(&context.layout, new)?;
    let remote = relocate_remote(context, lock, new, is_accepted)?;
    sync(new)?;
    Ok(remote)
}

/// Moves the kinds of files that have their own directory: within `new` if that directory is in the
/// data directory, else into `#sql-xb/.new` of that directory. Makes the other directories that the server needs.
fn relocate_kinds(layout: &Layout, new: &Path) -> Result<(), SstError> {
    for dir in layout.needed.iter().map(|dir| new.join(dir)) {
        std::fs::create_dir_all(&dir).map_err(SstError::io("make", &dir))?;
    }
    let inside = layout.inside.iter().map(|place| (&place.kind, new.join(&place.dir)));
    let outside = layout.outside.iter();
    let outside = outside.map(|place| (&place.kind, place.dir.join(WORK_DIR).join(NEW)));
    for (kind, dir) in inside.chain(outside) {
        std::fs::create_dir_all(&dir).map_err(SstError::io("make", &dir))?;
        for (name, facts) in list(new)? {
            if kind.has_entry(&name, &facts) {
                transfer(&new.join(&name), &dir.join(&name))?;
            }
        }
        sync(&dir)?;
    }
    Ok(())
}

/// Renames, or copies across file systems.
fn transfer(from: &Path, to: &Path) -> Result<(), SstError> {
    match std::fs::rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => {
            copy(from, to).map_err(SstError::io("copy", from))
        }
        Err(error) => Err(SstError::io("rename", from)(error)),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(from)?.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        std::fs::remove_dir(from)
    } else {
        std::fs::copy(from, to)?;
        std::fs::File::open(to)?.sync_all()?;
        std::fs::remove_file(from)
    }
}

/// Moves tablespaces that the donor keeps outside its data directory (`DATA DIRECTORY`) to the same
/// path here, into `#sql-xb/.new` of their directory. If that is impossible, they stay in the schema's
/// directory and lose their link. Returns the directories; the moved files are synced to disk.
fn relocate_remote(
    context: &Context,
    lock: &DatadirLock,
    new: &Path,
    is_accepted: bool,
) -> Result<Vec<PathBuf>, SstError> {
    let Context { args, layout, settings, error_log, .. } = context;
    // The dictionary of Percona's server has the files where that server found them when it started.
    let is_fixed = is_accepted && args.product == Product::Percona;
    let is_searched = |path: &Path| !is_fixed || settings.second_start.is_searched(path);
    let mut folders = Vec::new();
    for schema in list(new)?.into_iter().filter(|(_, facts)| facts.is_dir()) {
        for (name, _) in list(&new.join(&schema.0))? {
            let link = new.join(&schema.0).join(name);
            if link.extension() != Some(OsStr::new("isl")) {
                continue;
            }
            let file = link.with_extension("ibd");
            let found = remote_target(&link, &file).and_then(|target| match is_searched(&target) {
                true => Ok(()),
                false => Err("innodb_directories does not name its directory".to_owned()),
            });
            let moved = match found {
                Ok(()) => to_remote(layout, lock, new, &link, &file, &mut folders)?,
                Err(why) => Err(why),
            };
            if let Err(why) = moved {
                let name = file.strip_prefix(new).unwrap_or(&file).display().to_string();
                error_log.warn(format_args!(
                    "{name} stays in the data directory, because it cannot be placed as on the donor: {why}"
                ));
                // With its link, the server would look for the table elsewhere.
                std::fs::remove_file(&link).map_err(SstError::io("remove", &link))?;
            }
        }
    }
    // Also those of tables that the donor has no more: a table of that name could not be made again.
    add_own(context, lock, &mut folders)?;
    for folder in &folders {
        sync(folder)?;
    }
    Ok(folders)
}

/// Makes the directories ready from which tablespaces of the present data go with it, and adds them to `folders`.
///
/// # Errors
/// If a directory of the present data cannot be listed.
pub(super) fn add_own(
    context: &Context,
    lock: &DatadirLock,
    folders: &mut Vec<PathBuf>,
) -> Result<(), SstError> {
    let Context { layout, error_log, .. } = context;
    for (folder, name) in own_tablespaces(context)? {
        if !folders.contains(&folder)
            && let Err(error) = add_remote(layout, lock, &folder, folders)
        {
            error_log.warn(format_args!(
                "{} stays, although it belongs to the old data: {error}",
                folder.join(name).display()
            ));
        }
    }
    Ok(())
}

/// Returns directory and name of each tablespace that a link of the present data names outside the data directory, except
/// those that another server has in use.
///
/// # Errors
/// If a directory of the present data cannot be listed.
pub(super) fn own_tablespaces(context: &Context) -> Result<Vec<(PathBuf, OsString)>, SstError> {
    let Context { layout, settings, .. } = context;
    let mut found = Vec::new();
    for (schema, facts) in list(&layout.datadir)? {
        if !facts.is_dir() || settings.keep.keeps(schema.as_bytes(), true) {
            continue;
        }
        for (name, _) in list(&layout.datadir.join(&schema))? {
            let link = layout.datadir.join(&schema).join(name);
            if link.extension() != Some(OsStr::new("isl")) {
                continue;
            }
            let Ok(target) = remote_target(&link, &link.with_extension("ibd")) else { continue };
            let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
                continue;
            };
            // One that is not there, as of an old link, is nothing to move.
            let Ok(folder) = std::fs::canonicalize(folder) else { continue };
            let is_inside =
                folder.starts_with(&layout.datadir) || layout.folders_outside().contains(&folder);
            let there = folder.join(name);
            if !is_inside && may_exist(&there) && !is_in_use(&there) {
                found.push((folder, name.to_owned()));
            }
        }
    }
    Ok(found)
}

/// Moves one tablespace. Its directory is recorded on disk before anything is written there. Returns why it cannot be placed
/// there.
///
/// # Errors
/// If a part of it stays there that cannot be removed: the swap would move it in.
fn to_remote(
    layout: &Layout,
    lock: &DatadirLock,
    new: &Path,
    link: &Path,
    file: &Path,
    folders: &mut Vec<PathBuf>,
) -> Result<Result<(), String>, SstError> {
    let place = match remote_place(layout, lock, new, link, file, folders) {
        Ok(place) => place,
        Err(why) => return Ok(Err(why)),
    };
    let Err(why) = transfer(file, &place) else { return Ok(Ok(())) };
    or_none(std::fs::remove_file(&place)).map_err(SstError::io("remove", &place))?;
    Ok(Err(why.to_string()))
}

/// Returns the path at which a tablespace waits for the swap, in a directory that is ready for it.
fn remote_place(
    layout: &Layout,
    lock: &DatadirLock,
    new: &Path,
    link: &Path,
    file: &Path,
    folders: &mut Vec<PathBuf>,
) -> Result<PathBuf, String> {
    let target = remote_target(link, file)?;
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(NO_PLACE.to_owned());
    };
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    // Links in the path may lead back into the data directory.
    let folder = std::fs::canonicalize(folder).map_err(|error| error.to_string())?;
    if folder.starts_with(&layout.datadir) || layout.folders_outside().contains(&folder) {
        return Err(NO_PLACE.to_owned());
    }
    // An existing file may belong to something else, unless this node's own data has the same link. A server that has it in
    // use is another one, of whose data this node's is a copy.
    let (own, there) =
        (layout.datadir.join(link.strip_prefix(new).unwrap_or(link)), folder.join(name));
    let is_own = || read_link(&own).is_ok_and(|own| own == target) && !is_in_use(&there);
    if may_exist(&there) && !is_own() {
        return Err("a file that does not belong to this node's data is in the way".to_owned());
    }
    if !folders.contains(&folder) {
        add_remote(layout, lock, &folder, folders).map_err(|error| error.to_string())?;
    }
    Ok(folder.join(WORK_DIR).join(NEW).join(name))
}

/// Makes a directory ready to receive tablespaces, and adds it to `folders`.
fn add_remote(
    layout: &Layout,
    lock: &DatadirLock,
    folder: &PathBuf,
    folders: &mut Vec<PathBuf>,
) -> Result<(), SwapError> {
    let record = |folders: &[PathBuf]| {
        remember(&layout.datadir, &[&layout.folders_outside(), folders].concat(), false)
    };
    // What is in a directory that is recorded counts as received: whose it is comes first.
    lock_and_check(layout, &lock.folders, folder)?;
    folders.push(folder.clone());
    // After a crash, nothing else names the directory.
    record(folders)
        .and_then(|()| claim_all(layout, &lock.folders, [folder]))
        .and_then(|()| make_folders(folder).inspect_err(|_| tidy(folder)))
        .inspect_err(|_| {
            folders.pop();
            let _ = record(folders);
        })
}

const NO_PLACE: &str = "its link file names no path";

/// Returns the path in a link file, if a server would put this file there.
fn remote_target(link: &Path, file: &Path) -> Result<PathBuf, String> {
    let target = read_link(link).map_err(|error| error.to_string())?;
    let plain = target.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    let schema = link.parent().and_then(Path::file_name);
    if !target.is_absolute()
        || !plain
        || target.file_name() != file.file_name()
        || target.parent().and_then(Path::file_name) != schema
    {
        return Err(NO_PLACE.to_owned());
    }
    Ok(target)
}
