//! Data directories of new MariaDB servers.
//!
//! To create the files takes more than a server's start, so that all servers of this process whose files the same
//! options create get copies of the same ones. Those of plain servers are the same for all processes that have the same
//! [`SHARED`] folder; it would be filled by those that few tests have.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::process::command::Cmd;
use crate::process::daemon::Scratch;
use crate::process::tools::find;

/// Variable that names a folder which all processes of a run have, and whoever set it removes.
const SHARED: &str = "XB_TEST_SHARED";

/// Fills a new data directory. `plain` are the options that all servers of a kind have, and `own` those of this one; of
/// both, only what counts when the files are created.
///
/// # Panics
/// If the files cannot be created.
pub(super) fn copy_new_data(plain: &[&str], own: &[&str], datadir: &Path) {
    // As tar keeps them: a static that owned a folder would leave it behind.
    static MADE: Mutex<BTreeMap<Vec<String>, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let options = plain.iter().chain(own).map(|option| (*option).to_owned()).collect();
    // Another test may have failed here.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let files = made.entry(options).or_insert_with_key(|options| {
        let make = || new_files(options);
        let shared = std::env::var_os(SHARED).filter(|_| own.is_empty());
        shared.map_or_else(make, |folder| made_once(Path::new(&folder), options, make))
    });
    fs::create_dir_all(datadir).expect("data directory");
    let unpack = Cmd::new("tar").args(["-x", "--same-owner", "-p", "-C"]).arg(datadir);
    let _ = unpack.stdin_bytes(files.as_slice()).run().expect(0);
}

/// The files as a process has left them in `folder`: the first one that asks makes them, and the others wait.
fn made_once(folder: &Path, options: &[String], make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let name = base16ct::lower::encode_string(&Sha256::digest(options.join("\n")));
    let (file, unfinished) = (folder.join(&name), folder.join(format!("{name}.new")));
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("shared folder");
    flock(&lock, FlockOperation::LockExclusive).expect("lock");
    if let Ok(files) = fs::read(&file) {
        return files;
    }
    let files = make();
    fs::write(&unfinished, &files).expect("shared folder");
    fs::rename(&unfinished, &file).expect("shared folder");
    files
}

fn new_files(options: &[String]) -> Vec<u8> {
    let scratch = Scratch::in_memory();
    let datadir = scratch.join("data");
    install(&[find("mariadb-install-db").display().to_string()], options, scratch.path(), &datadir);
    // Nine tenths are zeros, most of them in the redo log. The server has reserved room for them, which tar takes
    // for content.
    let sparse = scratch.join("sparse");
    let _ =
        Cmd::new("cp").args(["-a", "--sparse=always"]).args([&datadir, &sparse]).run().expect(0);
    let pack = Cmd::new("tar").args(["-c", "--sparse", "-C"]).arg(sparse);
    pack.arg(".").run().expect(0).stdout
}

/// Runs `program`, which is mariadb-install-db.
///
/// # Panics
/// If it fails.
pub(super) fn install<S: AsRef<OsStr>>(
    program: &[String],
    options: &[S],
    temporary: &Path,
    datadir: &Path,
) {
    let _ = Cmd::new(&program[0])
        .args(&program[1..])
        // A starting server removes what it takes for other servers' left-over temporary tables there.
        .env("TMPDIR", temporary)
        .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
        .arg(format!("--datadir={}", datadir.display()))
        .args(as_user())
        .args(options)
        .run()
        .expect(0);
}

/// The option that a server needs when root starts it.
pub(super) fn as_user() -> Option<String> {
    rustix::process::geteuid().is_root().then(|| "--user=root".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn of_several_that_ask_one_makes_the_files_for_all() {
        let shared = Scratch::new();
        let made = AtomicU8::new(0);
        let ask = |option: &str| {
            made_once(shared.path(), &[option.to_owned()], || {
                vec![made.fetch_add(1, Ordering::SeqCst)]
            })
        };
        thread::scope(|scope| {
            let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| ask("--a"))).collect();
            asked.into_iter().for_each(|asked| assert_eq!(asked.join().unwrap(), [0]));
        });
        assert_eq!(ask("--b"), [1]);
    }
}
