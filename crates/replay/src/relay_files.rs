//! Writes relay logs and their index.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use xb_binlog::{AnyGtid, LogPosition, RelayEnd, RelayError, RelayWriter};

use crate::error::ReplayError;
use crate::place::failed;
use crate::request::{Piece, Progress, ReplayRequest, Watch};

/// Base name of the relay logs.
pub(crate) const BASE: &str = "relay";
/// Their index.
pub(crate) const INDEX: &str = "relay.index";
/// The index before the server may see it: MySQL removes the logs in it when it ends an earlier replica.
const HELD: &str = "relay.held";
/// Bytes of a log that are written at once: the output is as large.
const AT_ONCE: usize = 1 << 20;

/// Relay logs that are complete, in the order in which they are applied.
#[derive(Debug)]
pub(crate) struct RelayFiles {
    /// Names and lengths in bytes.
    pub(crate) logs: Vec<(String, u64)>,
    pub(crate) end: RelayEnd,
    /// Where the origin's settings were changed, in order.
    pub(crate) changes: Vec<SettingsChange>,
    /// They are made of the logs of several servers.
    pub(crate) is_moved: bool,
}

/// A change of the origin's settings between two transactions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingsChange {
    /// Relay log of the transaction before it, and its end in that log; `None` if there is none.
    pub(crate) after: Option<(String, u64)>,
    pub(crate) values: Vec<(String, String)>,
}

impl RelayFiles {
    /// Writes the relay logs into `dir`. Memory is that of one piece, twice.
    pub(crate) fn write<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        dir: &Path,
        request: &ReplayRequest,
        pieces: impl IntoIterator<Item = Result<Piece, E>>,
        watch: &mut Watch<'_>,
    ) -> Result<Self, ReplayError> {
        let mut writer = RelayWriter::new(request.plan.clone());
        let (mut out, mut logs, mut file) = (Vec::new(), Vec::<(String, u64)>::new(), None);
        let (mut is_first, mut is_moved, mut bytes) = (true, false, 0);
        let mut changes = Vec::new();
        for piece in pieces {
            if (watch.is_cancelled)() {
                return Err(ReplayError::Cancelled);
            }
            match piece.map_err(|error| ReplayError::Source(error.into()))? {
                Piece::NextServer(repeats) => {
                    writer.next_server(repeats)?;
                    is_moved = true;
                }
                Piece::Log { name, format, offset } => {
                    let expected = &request.position;
                    if is_first && LogPosition::new(&name, offset).as_ref() != Some(expected) {
                        let found = format!("{name}:{offset}");
                        return Err(ReplayError::Gap { expected: expected.clone(), found });
                    }
                    is_first = false;
                    let abandoned = writer.begin_log(&name, &format, offset)?;
                    cut_off(&mut logs, file.take(), abandoned)?;
                }
                Piece::Settings(values) => {
                    changes.push(SettingsChange { after: logs.last().cloned(), values });
                }
                Piece::Bytes(piece) => {
                    for some in piece.chunks(AT_ONCE) {
                        writer.push(some, &mut out)?;
                        if !out.is_empty() {
                            append(dir, &mut logs, &mut file, &out)?;
                            bytes += out.len() as u64;
                            out.clear();
                            (watch.progress)(Progress::Writing(bytes, writer.transactions()));
                        }
                    }
                }
            }
            if writer.is_stopped() {
                break;
            }
        }
        // Behind the last transaction, nothing depends on them.
        changes.retain(|change| change.after.as_ref() != logs.last());
        let end = writer.finish()?;
        if let Some(AnyGtid::MariaDb(gtid)) = end.never_ended.first() {
            return Err(RelayError::OpenAlter(*gtid).into());
        }
        let this = Self { logs, end, changes, is_moved };
        this.write_index(dir)?;
        Ok(this)
    }

    fn write_index(&self, dir: &Path) -> Result<(), ReplayError> {
        let index = dir.join(HELD);
        let lines = self.logs.iter().map(|(name, _)| format!("{}\n", dir.join(name).display()));
        std::fs::write(&index, lines.collect::<String>()).map_err(failed(&index))
    }

    /// Shows the server which relay logs there are.
    pub(crate) fn show(dir: &Path) -> std::io::Result<()> {
        std::fs::rename(dir.join(HELD), dir.join(INDEX))
    }

    /// Checks that no log has lost anything: a server cuts off what it takes for damage, and would then wait for more.
    ///
    /// # Errors
    /// [`ReplayError::Cut`].
    pub(crate) fn check_lengths(&self, dir: &Path) -> Result<(), ReplayError> {
        for (name, length) in &self.logs {
            let path = dir.join(name);
            let found = match std::fs::metadata(&path) {
                Ok(meta) => meta.len(),
                Err(source) => return Err(ReplayError::NotDurable { path, source }),
            };
            if found != *length {
                return Err(ReplayError::Cut { path, found, expected: *length });
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.logs.iter().map(|(_, length)| length).sum()
    }

    /// Bytes before this position of a relay log.
    pub(crate) fn bytes_before(&self, log: &str, offset: u64) -> u64 {
        let before = self.logs.iter().take_while(|(name, _)| name != log);
        before.map(|(_, length)| length).sum::<u64>() + offset
    }
}

/// Cuts bytes off the end of the present relay log, which is complete now.
fn cut_off(
    logs: &mut [(String, u64)],
    file: Option<(PathBuf, File)>,
    bytes: u64,
) -> Result<(), ReplayError> {
    if let (Some((path, file)), Some((_, length))) = (file, logs.last_mut()) {
        *length -= bytes;
        file.set_len(*length).map_err(failed(&path))?;
    }
    Ok(())
}

/// Appends to the present relay log, or begins the next.
fn append(
    dir: &Path,
    logs: &mut Vec<(String, u64)>,
    file: &mut Option<(PathBuf, File)>,
    bytes: &[u8],
) -> Result<(), ReplayError> {
    if file.is_none() {
        let name = format!("{BASE}.{:06}", logs.len() + 1);
        let path = dir.join(&name);
        let made = File::create_new(&path).map_err(failed(&path))?;
        logs.push((name, 0));
        *file = Some((path, made));
    }
    if let (Some((path, file)), Some((_, length))) = (file, logs.last_mut()) {
        file.write_all(bytes).map_err(failed(path))?;
        *length += bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panic")]
mod tests {
    use std::collections::BTreeSet;

    use xb_binlog::{RelayPlan, ReplayStop};
    use xb_testkit::daemon::Scratch;

    use super::*;

    #[test]
    fn a_log_that_the_server_has_cut_is_an_error() {
        let dir = Scratch::new();
        let names = ["relay.000001", "relay.000002"];
        for name in names {
            std::fs::write(dir.join(name), [0; 10]).unwrap();
        }
        let plan = RelayPlan {
            start: "".parse().unwrap(),
            stop: ReplayStop::End,
            servers: 0,
            leave_out: BTreeSet::new(),
            may_leave_out_ddl: false,
            never_ended: BTreeSet::new(),
            outside: Default::default(),
        };
        let logs = names.map(|name| (name.to_owned(), 10)).to_vec();
        let end = RelayWriter::new(plan).finish().unwrap();
        let files = RelayFiles { logs, end, changes: Vec::new(), is_moved: false };
        files.check_lengths(dir.path()).unwrap();
        File::options().write(true).open(dir.join(names[1])).unwrap().set_len(7).unwrap();
        let error = files.check_lengths(dir.path()).unwrap_err();
        assert!(error.to_string().contains("relay.000002: "), "{error}");
        assert!(error.to_string().contains("to 7 of 10 bytes"), "{error}");
        assert!(!error.is_data_untouched());
        std::fs::remove_file(dir.join(names[0])).unwrap();
        files.check_lengths(dir.path()).unwrap_err();
    }
}
