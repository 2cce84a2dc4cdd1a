//! How far the archives of a repository reach, by few requests.

use jiff::Timestamp;
use xb_repo::archive::listing::servers;
use xb_repo::archive::newest::{Outline, outlines};
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::binlog::coverage::{Coverage, covers_now};

/// The archive of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveState {
    /// Name of the server.
    pub server: String,
    /// Everything up to this time is stored: time of the last transaction, or at which the server was idle.
    pub stored_until: Option<Timestamp>,
    /// Last sign of life of a receiver.
    pub alive: Option<Timestamp>,
    /// When streams began behind a gap, and why.
    pub gaps: Vec<(Timestamp, String)>,
    /// Why the archive does not have the position of the newest backup, and its name, if so.
    pub uncovered: Option<(String, String)>,
}

/// Reads how far the archive of each server reaches, and whether it has the position of the server's newest
/// backup, whose name `newest` returns. Takes three requests for each stream, and few more for each server;
/// segments are not listed. What they state is not authenticated.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn archive_states(
    root: &Root,
    newest: impl Fn(&str) -> Option<BackupName>,
) -> Result<Vec<ArchiveState>, RepoError> {
    let mut states = Vec::new();
    for server in servers(root).await? {
        match outlines(root, &server).await {
            Ok(found) => {
                let mut state = state(root, server, &found).await?;
                if let Some(name) = newest(&state.server) {
                    state.uncovered = uncovered(root, &state.server, &name).await?;
                }
                states.push(state);
            }
            // A folder that is no archive.
            Err(RepoError::Name(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

async fn uncovered(
    root: &Root,
    server: &str,
    name: &BackupName,
) -> Result<Option<(String, String)>, RepoError> {
    let manifest = match root.manifest(name).await {
        Ok(manifest) => manifest,
        // The listing reports a manifest that cannot be read.
        Err(error) if error.is_of_one_object() => None,
        Err(error) => return Err(error),
    };
    let Some(manifest) = manifest else { return Ok(None) };
    Ok(match covers_now(root, server, &manifest).await? {
        Some(Coverage::Uncovered(what)) => Some((name.to_string(), what)),
        Some(Coverage::Covered) | None => None,
    })
}

async fn state(root: &Root, server: String, found: &[Outline]) -> Result<ArchiveState, RepoError> {
    let records = || found.iter().filter_map(|outline| Some(&outline.alive.as_ref()?.content));
    let mut stored_until = records().filter_map(|alive| alive.covered_until).max();
    // Several receivers may be at work: the latest stored transaction counts.
    let newest = found.iter().filter(|outline| !outline.has_ended).chain(found.last());
    for outline in newest.rev().take(2) {
        if let Some(last) = outline.last_segment(root).await? {
            let commits = last.content.commits;
            let until = commits.and_then(|c| Timestamp::from_second(c.last.into()).ok());
            stored_until = stored_until.max(until);
        }
    }
    let gaps = found.iter().filter_map(|outline| {
        let head = &outline.head.content;
        match &head.begins {
            StreamOrigin::Gap { reason, .. } => Some((head.started, reason.clone())),
            _ => None,
        }
    });
    let gaps = gaps.collect();
    let alive = records().map(|alive| alive.written).max();
    Ok(ArchiveState { server, stored_until, alive, gaps, uncovered: None })
}
