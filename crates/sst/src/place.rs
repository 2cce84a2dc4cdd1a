//! Prepared files to where their server looks for them, before the exchange.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::context::Context;
use crate::error::SstError;
use crate::layout::Kind;
use crate::swap::{NEW, OURS, make_folders, remove_tree};

/// Files of a backup that are none of a server's.
const NOT_DATA: [&str; 11] = [
    "xtrabackup_checkpoints",
    "mariadb_backup_checkpoints",
    "xtrabackup_logfile",
    "xtrabackup_tablespaces",
    "xtrabackup_binlog_pos_innodb",
    "backup-my.cnf",
    "ibtmp1",
    "xtrabackup_suspended",
    "donor_galera_info",
    "ddl.log",
    "sst_in_progress",
];

/// Longest link that is read, in bytes.
const MAX_LINK: u64 = 4096;

/// Removes what is not to become part of the data: files that only the backup program needs, and the
/// donor's binary log, which this node did not write.
pub(crate) fn clear(context: &Context, new: &Path) -> Result<(), SstError> {
    let binlog = context.layout.binlog.clone().map(Kind::Binlog);
    for entry in std::fs::read_dir(new).map_err(SstError::io("list", new))? {
        let entry = entry.map_err(SstError::io("list", new))?;
        let name = entry.file_name();
        let unwanted = NOT_DATA.iter().any(|known| name == *known)
            || name.as_bytes().starts_with(b".xb")
            || binlog.as_ref().is_some_and(|binlog| binlog.has(&name));
        if unwanted {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir {
                remove_tree(&path).map_err(SstError::from)
            } else {
                std::fs::remove_file(&path).map_err(SstError::io("remove", &path))
            };
            removed?;
        }
    }
    Ok(())
}

/// Moves the kinds of files that have a folder of their own: within `new` where that lies in the data
/// directory, else into the `.xb/new` of their folder.
pub(crate) fn spread(context: &Context, new: &Path) -> Result<(), SstError> {
    let inside = context.layout.inside.iter().map(|place| (&place.kind, new.join(&place.dir)));
    let outside = context.layout.outside.iter();
    let outside = outside.map(|place| (&place.kind, place.dir.join(OURS).join(NEW)));
    for (kind, dir) in inside.chain(outside) {
        std::fs::create_dir_all(&dir).map_err(SstError::io("make", &dir))?;
        for entry in std::fs::read_dir(new).map_err(SstError::io("list", new))? {
            let entry = entry.map_err(SstError::io("list", new))?;
            if kind.has(&entry.file_name()) && entry.path() != dir {
                transfer(&entry.path(), &dir.join(entry.file_name()))?;
            }
        }
        let handle = std::fs::File::open(&dir).map_err(SstError::io("open", &dir))?;
        rustix::fs::syncfs(&handle).map_err(|e| SstError::io("sync", &dir)(e.into()))?;
    }
    Ok(())
}

/// Renames, or copies where the file systems differ.
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

/// Tablespaces that the donor keeps outside its data directory (`DATA DIRECTORY`): moved to the same
/// place here, into the `.xb/new` of their folder. Where that is impossible they stay in the schema's
/// folder and lose their link. The folders.
pub(crate) fn spread_remote(context: &Context, new: &Path) -> Result<Vec<PathBuf>, SstError> {
    let mut folders = Vec::new();
    for schema in std::fs::read_dir(new).map_err(SstError::io("list", new))?.flatten() {
        if !schema.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for entry in std::fs::read_dir(schema.path()).into_iter().flatten().flatten() {
            let link = entry.path();
            if link.extension() != Some(OsStr::new("isl")) {
                continue;
            }
            let file = link.with_extension("ibd");
            match remote_folder(context, &link, &file).and_then(|folder| {
                move_there(&file, &folder, folders.contains(&folder))?;
                Ok(folder)
            }) {
                Ok(folder) if !folders.contains(&folder) => folders.push(folder),
                Ok(_) => {}
                Err(why) => {
                    let name = file.strip_prefix(new).unwrap_or(&file).display().to_string();
                    context.talk.warn(format_args!(
                        "{name} cannot lie where the donor keeps it, it stays in the data directory: {why}"
                    ));
                    let _ = std::fs::remove_file(&link);
                }
            }
        }
    }
    Ok(folders)
}

/// The folder that a link names, if that is one where a server would put this file.
fn remote_folder(context: &Context, link: &Path, file: &Path) -> Result<PathBuf, String> {
    let text = File::open(link).and_then(|file| {
        let mut text = Vec::new();
        file.take(MAX_LINK).read_to_end(&mut text)?;
        Ok(text)
    });
    let text = text.map_err(|error| error.to_string())?;
    let target = Path::new(OsStr::from_bytes(text.trim_ascii()));
    let plain = target.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    let folder = target.parent().unwrap_or(target);
    let schema = link.parent().and_then(Path::file_name);
    if !target.is_absolute()
        || !plain
        || target.file_name() != file.file_name()
        || folder.file_name() != schema
        || folder.starts_with(&context.layout.datadir)
    {
        return Err("its link names no place for it".to_owned());
    }
    Ok(folder.to_owned())
}

fn move_there(file: &Path, folder: &Path, is_made: bool) -> Result<(), String> {
    if !is_made {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        make_folders(folder).map_err(|error| error.to_string())?;
    }
    let name = file.file_name().unwrap_or_default();
    transfer(file, &folder.join(OURS).join(NEW).join(name)).map_err(|error| error.to_string())
}
