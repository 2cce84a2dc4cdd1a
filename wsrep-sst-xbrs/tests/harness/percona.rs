//! The part of Percona's server: its arguments, and the login on standard input.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Ended, PROGRAM, Scene, Side};

/// An installed server.
#[derive(Clone, Copy)]
pub(crate) struct Install<'a> {
    pub(crate) base: &'a Path,
    pub(crate) plugins: &'a str,
    pub(crate) version: &'a str,
}

/// A joiner of this server.
pub(crate) fn joiner(scene: &Scene, server: Install<'_>) -> Side {
    let mut side = scene.joiner_with(&[], &[]);
    let words: Vec<_> = side.command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let mut command = Command::new(PROGRAM);
    command.args(words.into_iter().filter(|word| word != "--mysqld-args"));
    command.arg("--basedir").arg(server.base).args(["--plugindir", server.plugins]);
    command.args(["--defaults-group-suffix", "", "--mysqld-version", server.version, ""]);
    command.stdout(Stdio::piped());
    side.command = command;
    side
}

/// Runs a donor to its end.
pub(crate) fn donate(scene: &Scene, ready: &str, version: &str) -> Ended {
    let mut side = scene.donor_with(ready, &[]);
    let words: Vec<_> = side.command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let at = words.iter().position(|word| word == "--local-port").unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(&words[..at]).args(&words[at + 2..]);
    command.args(["--basedir", "/usr/", "--plugindir", "/p", "--mysqld-version", version]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    side.command = command;
    let mut donor = side.start();
    let login = b"sst_user=mysql.pxc.sst.user\nsst_password=passw0rd\n";
    // A donor that refuses its settings may have ended by now.
    let _ = donor.child.stdin.take().unwrap().write_all(login);
    donor.wait()
}

/// Runs both sides of a transfer; returns joiner and donor.
pub(crate) fn transfer(scene: &Scene, server: Install<'_>) -> (Ended, Ended) {
    let mut joiner = joiner(scene, server).start();
    let ready = joiner.ready();
    let donor = donate(scene, &ready, server.version);
    (joiner.wait(), donor)
}
