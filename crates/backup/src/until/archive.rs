//! The archive of a server as a restore may use it: everything that is used is proven.

use std::collections::BTreeMap;
use std::sync::Arc;

use xb_encryptor::{DataKey, Keys};
use xb_repo::archive::listing::{servers, streams};
use xb_repo::archive::plan::Stream;

use crate::error::BackupError;
use crate::read::unlock::Accept;
use crate::session::Session;
use crate::until_error::UntilError;

/// The streams of a server, with the keys that open their segments.
pub(super) struct Archive {
    pub(super) server: String,
    pub(super) streams: Vec<Stream>,
    /// Keys of the sealed streams, by their IDs.
    pub(super) keys: BTreeMap<String, Arc<DataKey>>,
}

impl Archive {
    /// Reads the records of all streams. A stream that cannot be read or trusted is an error, even if the stop
    /// may lie before it: without it, an older state would look like the newest one.
    pub(super) async fn read(
        session: &Session,
        server: String,
        keys: &Keys,
        accept: Accept,
    ) -> Result<Self, BackupError> {
        let mut this = Self { server, streams: Vec::new(), keys: BTreeMap::new() };
        for mut found in streams(&session.root, &this.server).await? {
            let id = found.id.to_string();
            let wrong = |what: &str| {
                BackupError::from(UntilError::Stream { stream: id.clone(), what: what.to_owned() })
            };
            let is_empty = found.sizes.is_empty() && found.alive.is_none();
            let is_sealed = match &found.stream {
                Some(stream) => !stream.head.content.sealed.is_empty(),
                // A receiver that was killed before it had written the head.
                None if is_empty => continue,
                None => {
                    return Err(wrong(found.problems.first().map_or("no head", String::as_str)));
                }
            };
            let key = match &found.keys {
                Some(slots) => match keys.open(slots, session.resources.memory) {
                    Some(Ok(key)) => Some(key),
                    Some(Err(error)) => return Err(BackupError::Keys(format!("{id}: {error}"))),
                    None => {
                        let slots: Vec<_> = slots.slots().map(|slot| slot.to_string()).collect();
                        return Err(BackupError::Keys(format!(
                            "the archive of {} is sealed, and no key was given; it opens with: {}",
                            this.server,
                            slots.join(", ")
                        )));
                    }
                },
                None if is_sealed && is_empty => continue,
                None if is_sealed => return Err(wrong("its key slots are missing")),
                None if !keys.is_empty() && !accept.unsealed => {
                    return Err(wrong(
                        "it is not sealed, but a key was given: nothing proves that a holder of the key wrote it",
                    ));
                }
                None => None,
            };
            if let Some(key) = key {
                found.authenticate(&key);
                this.keys.insert(id.clone(), Arc::new(key));
            }
            // What is wrong with a segment counts if it is on the way, where it is missing then.
            let is_of_segment = |what: &&String| what.starts_with("segment ");
            if let Some(what) = found.problems.iter().find(|what| !is_of_segment(what)) {
                return Err(wrong(what));
            }
            this.streams.extend(found.stream);
        }
        match this.streams.is_empty() {
            true => Err(UntilError::NoArchive { server: this.server }.into()),
            false => Ok(this),
        }
    }

    pub(super) fn key(&self, stream: &str) -> Option<Arc<DataKey>> {
        self.keys.get(stream).cloned()
    }
}

/// The server whose archive is meant: that which the user names, that of the backup, or the only one.
pub(super) async fn which_server(
    session: &Session,
    named: Option<&str>,
    of_backup: Option<&str>,
) -> Result<String, BackupError> {
    if let Some(server) = named.or(of_backup) {
        return Ok(server.to_owned());
    }
    let mut all = servers(&session.root).await?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(UntilError::WhichServer(
            "no binary log is archived in this place: run `binlog receive`".to_owned(),
        )
        .into()),
        _ => Err(UntilError::WhichServer(format!(
            "binary logs of several servers are archived here ({}): name one with --server",
            all.join(", ")
        ))
        .into()),
    }
}
