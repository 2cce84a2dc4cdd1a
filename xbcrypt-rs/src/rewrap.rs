//! `rewrap`: replaces the key slots of a native file. The sealed data is copied, not opened.
//!
//! The new file is written beside the old one, synced, and then renamed over it in one step: at
//! every moment there is a complete file that some key can open. On file systems that can share
//! blocks between files the copy takes no space and no time.

use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use xb_cli::{Failure, FailureContext as _, Log, Signals, interrupted, sealing};
use xb_encryptor::{DataKey, KeysObject};
use xb_pipeline::filter::{Facts, facts};

use crate::args::RewrapArgs;
use crate::filter::PASSPHRASE_MEMORY;
use crate::hints;
use crate::output::{Output, sync_folder};

/// Number of bytes copied between checks for signals.
const STEP: u64 = 64 << 20;
/// How often a file is opened that another run replaces at that moment.
const MAX_TRIES: u32 = 16;

pub(crate) fn run(args: &RewrapArgs, log: &Log) -> Result<(), Failure> {
    let ways = args.new.key_slots(log)?;
    if ways.is_empty() {
        return Err(Failure::usage("no new key slot is given").hint(
            "add --new-key-file, --recipient, --recipients-file, --new-passphrase-file or --new-key-command",
        ));
    }
    let mut keys = args.keys.keys(&args.identities, log)?;
    keys.key = keys.key.take().map(sealing).transpose()?;
    let named = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: {error}", args.file.display())).stage("rewrap")
    };
    let mut file = match args.output {
        Some(_) => File::open(&args.file).map_err(|error| named(&error))?,
        None => open_alone(&args.file).map_err(|error| match error {
            TryLockError::Error(error) => named(&error),
            TryLockError::WouldBlock => {
                named(&"another run changes it").hint("run the command again once that has ended")
            }
        })?,
    };
    let facts = match facts(&mut file).map_err(|error| named(&error))? {
        Facts::Native(facts) => facts,
        _ => return Err(named(&"only native files have key slots")),
    };
    if let Err(error) = &facts.trailer {
        return Err(named(error).hint("the file is incomplete; fetch it again first"));
    }
    let Some(old) = &facts.keys else {
        return Err(named(&"the file has no keys block")
            .hint("rewrap a backup in a store with: xbcloud-rs rewrap"));
    };
    let key = unlock(&old.keys_object, &keys).map_err(|(error, hint)| named(&error).hint(hint))?;
    let new = old.keys_object.rewrap(&key, |_| args.new.keep, &ways.list());
    let new = new.map_err(|error| named(&error))?;
    let block = new.encode_block().map_err(|error| named(&error))?;

    let _signals = Signals::catch(|_| ()).stage("start")?;
    file.seek(SeekFrom::Start(old.block_len)).map_err(|error| named(&error))?;
    let body = facts.file_len - old.block_len;
    match &args.output {
        Some(path) => {
            let mut output = Output::create(path)?;
            output.write_all(&block).stage("output")?;
            copy(&mut file, &mut output, body).map_err(|error| named(&error))?;
            output.finish()?;
        }
        None => {
            // Replace the file itself, not a link to it.
            let path = fs::canonicalize(&args.file).map_err(|error| named(&error))?;
            let like = file.metadata().map_err(|error| named(&error))?;
            let mut beside =
                ReplacementFile::create(&path, &like).map_err(|error| named(&error))?;
            beside.file.write_all(&block).stage("output")?;
            copy(&mut file, &mut beside.file, body).map_err(|error| named(&error))?;
            beside.replace(&path).map_err(|error| named(&error))?;
        }
    }
    for slot in new.slots() {
        log.info(format_args!("key slot {}: {slot}", slot.slot));
    }
    Ok(())
}

/// Opens a file that is to be replaced, and locks it against other runs until the end of this one: of two at once, the later
/// would bring a key slot back that the earlier has removed. On a file system without locks it is not locked.
fn open_alone(path: &Path) -> Result<File, TryLockError> {
    let mut tries = 0;
    loop {
        let path = fs::canonicalize(path).map_err(TryLockError::Error)?;
        let file = File::open(&path).map_err(TryLockError::Error)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(TryLockError::WouldBlock);
        }
        // Another run may have replaced it before the lock was taken. Some file systems give a file another number each time:
        // they are as those without locks.
        tries += 1;
        if tries == MAX_TRIES || has_name(&path, &file) {
            return Ok(file);
        }
    }
}

fn unlock(
    keys_object: &KeysObject,
    keys: &xb_encryptor::Keys,
) -> Result<DataKey, (String, &'static str)> {
    match keys.open(keys_object, PASSPHRASE_MEMORY) {
        Some(Ok(key)) => Ok(key),
        Some(Err(error)) => Err((error.to_string(), hints::open(&error))),
        None => {
            let ways: Vec<String> = keys_object.slots().map(|slot| slot.to_string()).collect();
            let what = format!("no key was given; the file opens with: {}", ways.join(", "));
            Err((what, "give a key that opens it now, besides the new key slots"))
        }
    }
}

/// Copies exactly `len` bytes; between two files the kernel does it alone.
fn copy(from: &mut File, to: &mut (impl Write + ?Sized), len: u64) -> io::Result<()> {
    let mut left = len;
    while left > 0 {
        if let Some(signal) = interrupted() {
            return Err(io::Error::other(format!("interrupted by signal {signal}")));
        }
        let copied = io::copy(&mut from.take(left.min(STEP)), to)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= copied;
    }
    Ok(())
}

/// Prefix of the names of unfinished files; the process id follows.
const PREFIX: &str = ".xbcrypt-rs.";

/// A file that will replace the one beside it. Dropping it removes it.
///
/// It is locked while the run lives: an unlocked one belongs to a run that was killed, and the next
/// run in that folder removes it.
struct ReplacementFile {
    file: File,
    path: PathBuf,
    done: bool,
}

impl ReplacementFile {
    /// Creates it with the mode of the old file, and with its owner if that is allowed.
    fn create(of: &Path, like: &Metadata) -> io::Result<Self> {
        sweep(folder_of(of));
        let path = of.with_file_name(format!("{PREFIX}{}", std::process::id()));
        let beside = loop {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            // On a file system without locks no run sweeps.
            let locked = file.try_lock();
            // Before the lock was taken, another run may have considered it abandoned and removed
            // it.
            if !matches!(locked, Err(TryLockError::WouldBlock)) && has_name(&path, &file) {
                break Self { file, path, done: false };
            }
        };
        let _ = fchown(&beside.file, Some(like.uid()), Some(like.gid()));
        beside.file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
        Ok(beside)
    }

    fn replace(mut self, old: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(signal) = interrupted() {
            return Err(io::Error::other(format!("interrupted by signal {signal}")));
        }
        fs::rename(&self.path, old)?;
        self.done = true;
        sync_folder(folder_of(old))
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the files of dead runs in a folder. Best effort: they only take up space.
fn sweep(folder: &Path) {
    let ours = |name: &str| {
        name.strip_prefix(PREFIX)
            .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !regular || !entry.file_name().to_str().is_some_and(ours) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
        // Its run may have ended meanwhile: then the name is free, or it is another file's.
        if file.try_lock().is_ok() && has_name(&path, &file) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns whether `path` still refers to the file that was opened under it.
fn has_name(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(ours)) = (fs::symlink_metadata(path), file.metadata()) else { return false };
    (there.dev(), there.ino()) == (ours.dev(), ours.ino())
}

impl Drop for ReplacementFile {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.path);
        }
    }
}
