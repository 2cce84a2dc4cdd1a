//! Completion in a shell beyond the options: repositories, and the backups in them.

use std::time::Duration;

use clap::CommandFactory as _;
use xb_cli::Program;
use xb_repo::list::{Listing, State};

use crate::args::{Command, CommandLine};
use crate::cache;
use crate::commands::sources::sources;
use crate::location::root_place;

/// Time limit for a store to name its backups. A person waits for it.
const LISTING_LIMIT: Duration = Duration::from_secs(2);

/// The command line as completion sees it.
pub(crate) fn command() -> clap::Command {
    xb_cli::with_repositories(CommandLine::command(), &sources(&[], false), |repository| {
        backups(repository).unwrap_or_default()
    })
}

/// Names of the backups in a repository, the newest first, and `latest` before them. `None` if the store does not
/// answer in time, or this user lacks what it takes to ask it.
fn backups(repository: &str) -> Option<Vec<String>> {
    let words = ["xbcloud-rs", "list", &format!("@{repository}")].map(Into::into);
    let program = Program::new(words.into(), "xbcloud-rs");
    let line: CommandLine =
        program.parse_from(&sources(&crate::settings::fallbacks(), false)).ok()?;
    let Command::List(args) = line.command else { return None };
    let root = root_place(args.root.place.as_deref(), &args.common).ok()?;
    let cache = cache::of_root(args.root.place.as_deref(), &args.common).ok()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().ok()?;
    let listed = runtime.block_on(async {
        let list = xb_repo::list::list_with(&root, cache.as_ref());
        tokio::time::timeout(LISTING_LIMIT, list).await
    });
    // A request may still wait; it ends with the process.
    runtime.shutdown_background();
    let mut lines: Vec<Listing> = listed.ok()?.ok()?;
    lines.retain(|line| line.state == State::Complete);
    lines.sort_by_key(|line| std::cmp::Reverse(line.finished));
    let latest = lines.first().map(|_| "latest".to_owned());
    Some(latest.into_iter().chain(lines.into_iter().map(|line| line.name)).collect())
}
