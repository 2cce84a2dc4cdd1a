//! The directory where this host keeps notes, logs and locks.

use std::path::PathBuf;

use xb_backup::LocalRunLog;
use xb_cli::{Log, env_first};
use xb_repo::root::Root;

use crate::args::RunOptions;

/// Directory for what this host remembers, and for its logs and locks.
pub(crate) fn state_dir(run: &RunOptions) -> Option<PathBuf> {
    // A systemd unit names its folder, or several with colons between them.
    let of_unit =
        env_first(&["STATE_DIRECTORY"]).and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
    let usual = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib/xbcloud-rs")),
        false => {
            let state = env_first(&["XDG_STATE_HOME"]).map(PathBuf::from);
            let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".local/state"));
            Some(state.or_else(home)?.join("xbcloud-rs"))
        }
    };
    run.state_dir.clone().or(of_unit).or_else(usual)
}

/// The same ROOT for a removal: no listing hides a backup that this host has stored itself.
pub(crate) fn remembering(log: &Log, root: &Root, run: &RunOptions) -> Root {
    let Some(dir) = state_dir(run) else { return root.clone() };
    let unread = |error: std::io::Error| {
        log.warn(format!(
            "cannot read this host's notes about its backups in {}: increments on these are found only in the store: {error}",
            dir.display()
        ));
    };
    let own = LocalRunLog::new(dir.clone()).increments(unread);
    root.remembering(own.unwrap_or_else(|error| {
        unread(error);
        Vec::new()
    }))
}
