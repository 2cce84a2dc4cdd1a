//! Where and how a restore makes its files ready, for `restore` with and without `--until`.

use std::path::Path;

use xb_backup::{AfterRestore, Owner};
use xb_cli::Failure;

use crate::args::RestoreArgs;

/// Says that a restore can be resumed, if it can.
pub(super) fn resumable(failure: Failure, target: &Path) -> Failure {
    match xb_backup::is_unfinished(target) {
        true => failure.fact("the restored data is kept; to resume, run the same command again"),
        false => failure,
    }
}

/// The directory to restore into.
pub(super) fn target(args: &RestoreArgs) -> Result<&Path, Failure> {
    args.target_dir.as_deref().ok_or_else(|| Failure::usage("--target-dir is missing"))
}

/// Steps after the files are restored.
pub(super) fn ready(args: &RestoreArgs, target: &Path) -> AfterRestore {
    let mut ready = args.ready.clone();
    ready.prepare |= args.until.until.is_some();
    ready.server = args.until.replay.server.clone();
    // Only root may change owners.
    if ready.owner.is_none() && rustix::process::geteuid().is_root() {
        ready.owner = Owner::of_parent(target);
    }
    ready
}
