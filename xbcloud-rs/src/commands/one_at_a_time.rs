//! Locks of this host: work that must not be done twice at once is refused the second time. They end with their
//! process, however that ends.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use xb_backup::{create_state_folder, give_to_owner_of};
use xb_cli::{Failure, Log, printable};

/// As the flags of an opened file are given: `O_NOFOLLOW`.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// Longest text of a lock that is read.
const MAX_TEXT: u64 = 200;

/// Locks `what`, such as the runs of a server, by its `identity`, which tells it from all that can be meant by the same
/// words: one name of a bucket at two endpoints. `None` if this host has no place for locks.
///
/// # Errors
/// Another process has the lock.
pub(crate) fn one_at_a_time(
    log: &Log,
    state: Option<PathBuf>,
    what: &str,
    identity: &str,
) -> Result<Option<File>, Failure> {
    let Some(folder) = state.map(|state| state.join("locks")) else { return Ok(None) };
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    // For this user alone: whoever can open a lock can hold it for ever.
    let made = create_state_folder(&folder, 0o700);
    let opened = made.and_then(|()| {
        let path = folder.join(format!("{name}.lock"));
        let mut options = File::options();
        // The folder may be another user's, who could have put a link there.
        options.read(true).write(true).mode(0o600).custom_flags(NOFOLLOW);
        match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(&path),
            made => made.inspect(|file| give_to_owner_of(&folder, file)),
        }
    });
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => {
            let folder = folder.display();
            log.info(format!("{what} is not locked, because of {folder}: {error}"));
            return Ok(None);
        }
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut owner = String::new();
            let _ = (&mut file).take(MAX_TEXT).read_to_string(&mut owner);
            return Err(Failure::new(format!(
                "{what} is under way already on this host: {}",
                printable(owner.trim())
            ))
            .stage("lock")
            .hint("wait until that process has ended, then run the command again; nothing was begun or changed"));
        }
        // A file system without locks.
        Err(_) => return Ok(None),
    }
    let now = Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC");
    let text = format!("process {}, since {now}\n", std::process::id());
    // The lock itself counts; its text is for the message alone.
    let _ =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use xb_cli::LogOptions;

    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::to("x", LogOptions::default(), std::io::sink());
        let lock = |what: &str, identity: &str| {
            one_at_a_time(&log, Some(folder.path().to_owned()), what, identity)
        };
        let first = lock("a prune of @shop", "").unwrap();
        assert!(first.is_some() && lock("a prune of @shop", "other").unwrap().is_some());
        let second = lock("a prune of s3://b/shop", "").unwrap_err().report("x");
        let process = format!("already on this host: process {}, since ", std::process::id());
        assert!(second.contains(&process) && second.contains("hint: wait until"), "{second}");
        drop(first);
        assert!(lock("a prune of @shop", "").unwrap().is_some());
    }

    #[test]
    fn a_host_without_a_place_for_locks_works_without_them() {
        let log = Log::to("x", LogOptions::default(), std::io::sink());
        assert!(one_at_a_time(&log, None, "a", "").unwrap().is_none());
        let nowhere = PathBuf::from("/proc/nowhere");
        assert!(one_at_a_time(&log, Some(nowhere), "a", "").unwrap().is_none());
    }
}
