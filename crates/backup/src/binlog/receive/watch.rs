//! Looks at the servers beside the connection that receives: how far the log of the one that is received from reached at a
//! moment, whether it replicates another one, and whether another one has taken its place.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use xb_binlog::{GtidSet, LogPosition};
use xb_mysql::Access;

use crate::archive_error::ArchiveError;
use crate::binlog::receive::session::Server;
use crate::binlog::receive::sources::{name, several_open};
use crate::binlog::source::settings::changes;
use crate::binlog::source::watched_server::{FAILED, ServerSnapshot, Watched};
use crate::binlog::source::write_access::WriteAccess;

/// A look on another thread, with what it finds.
type Looking<T> = OptionFuture<BoxFuture<'static, T>>;

/// Looks at the servers of a stream, again and again.
#[derive(Default)]
pub(super) struct Watch {
    /// Identity of the server that is received from.
    who: BTreeMap<String, String>,
    /// It, and its name; `None` during a look.
    own: Option<Watched>,
    name: String,
    others: Vec<Watched>,
    has_others: bool,
    looking: Looking<(Watched, Result<Option<ServerSnapshot>, ArchiveError>)>,
    looking_at_others: Looking<Vec<(Watched, Option<WriteAccess>)>>,
    /// When the present look at the others began, and when the last one that found none of them in its place.
    asked_others: Timestamp,
    clear: Option<Timestamp>,
    /// How long the server may be apart from its cluster, and since when it is.
    patience: Option<Duration>,
    apart: Option<Instant>,
    /// How far everything was stored when the look began.
    stored: Option<LogPosition>,
    /// Its standing at the last look.
    write_access: Option<WriteAccess>,
    /// What the head of the stream says of its settings.
    settings: BTreeMap<String, String>,
    doubts: Vec<String>,
    /// And of transactions that no log has.
    outside: GtidSet,
    /// Other ones, as found by the last look, and the end of the log then.
    found: Option<FoundSettings>,
    /// The oldest look whose end of the log is not stored yet.
    mark: Option<(Timestamp, LogPosition)>,
    failed: u32,
    /// Why nothing is covered.
    why: Option<String>,
}

/// Settings of a server, and a position in its log at which it had them.
pub(super) struct FoundSettings {
    pub(super) settings: BTreeMap<String, String>,
    pub(super) at: LogPosition,
}

impl Watch {
    /// Begins with the server that is received from, and those that may take its place.
    pub(super) fn new(
        access: &Access,
        server: &Server,
        others: &[Access],
        patience: Option<Duration>,
    ) -> Self {
        let of = |access: &Access| Watched::new(access.clone(), server.uuid.is_some());
        Self {
            who: server.write_access.who.clone(),
            own: Some(of(access)),
            name: name(access),
            others: others.iter().map(of).collect(),
            has_others: !others.is_empty(),
            patience,
            write_access: Some(server.write_access.clone()),
            settings: server.settings.clone(),
            doubts: server.doubts.clone(),
            outside: server.role.outside.clone(),
            ..Self::default()
        }
    }

    /// Begins looks, but at those that are being looked at. Everything is stored up to here.
    pub(super) fn begin(&mut self, stored: Option<LogPosition>) {
        if let Some(mut own) = self.own.take_if(Watched::is_due) {
            self.stored = stored;
            let who = self.who.clone();
            let look = move || {
                let found = own.look(&who);
                (own, found)
            };
            self.looking = Some(on_thread(look).boxed()).into();
        }
        if !self.others.is_empty() {
            self.asked_others = Timestamp::now();
            let looks = std::mem::take(&mut self.others).into_iter().map(|mut other| {
                on_thread(move || {
                    let write_access =
                        if other.is_due() { other.write_access().ok() } else { None };
                    (other, write_access)
                })
            });
            let looks = futures::future::join_all(looks.collect::<Vec<_>>());
            self.looking_at_others = Some(looks.boxed()).into();
        }
    }

    /// Waits for the next look, for ever if there is none; returns an error if another server is the one to receive from, or
    /// the stream's head does not say what the server is any more.
    pub(super) async fn next(&mut self) -> Result<(), ArchiveError> {
        tokio::select! {
            Some((own, found)) = &mut self.looking => {
                self.looking = None.into();
                self.own = Some(own);
                self.take(found).map_or(Ok(()), Err)
            }
            Some(found) = &mut self.looking_at_others => {
                self.looking_at_others = None.into();
                let moved = self.moved(&found);
                self.others = found.into_iter().map(|(other, _)| other).collect();
                if let Some(why) = moved {
                    return Err(why);
                }
                self.clear = Some(self.asked_others);
                Ok(())
            }
            else => std::future::pending().await,
        }
    }

    fn take(
        &mut self,
        found: Result<Option<ServerSnapshot>, ArchiveError>,
    ) -> Option<ArchiveError> {
        let look = match found {
            Ok(Some(look)) => look,
            Err(changed @ ArchiveError::Changed(_)) => return Some(changed),
            not_found => {
                self.failed += 1;
                if self.failed >= FAILED {
                    self.why = Some(match not_found {
                        Err(error) => error.to_string(),
                        Ok(_) => format!("{} leads to another server, too", self.name),
                    });
                }
                return None;
            }
        };
        self.failed = 0;
        self.why = match &look.write_access.sources[..] {
            [] => None,
            sources => Some(format!(
                "{} replicates {}, which may have committed more; receive from the primary",
                self.name,
                sources.join(" and ")
            )),
        };
        // Another one may be open already, and this one not replicate it yet.
        let is_demoted = self.has_others && look.write_access.closed.is_some();
        if is_demoted && self.why.is_none() {
            self.why = look.write_access.closed.as_ref().map(|why| format!("{} {why}", self.name));
        }
        self.apart = match look.write_access.is_apart {
            true => self.apart.or_else(|| Some(Instant::now())),
            false => None,
        };
        self.write_access = Some(look.write_access);
        // After RESET MASTER, the connection gets no word until the new log is as long as the old one was.
        if let (Some(stored), Some((_, end))) = (&self.stored, &look.end)
            && end.partial_cmp(stored).is_none_or(Ordering::is_lt)
        {
            return Some(ArchiveError::Differs(format!(
                "its log ends at {end}, and is stored up to {stored}"
            )));
        }
        let end = look.end.as_ref().map(|(_, end)| end.clone());
        if self.mark.is_none() && !is_demoted {
            self.mark = look.end.filter(|_| self.stored.is_some());
        }
        let mut changed = changes(&self.settings, &look.settings);
        changed.extend(look.doubts.into_iter().filter(|doubt| !self.doubts.contains(doubt)));
        // Data that was imported: what is received lacks it.
        let imported = look.outside.without(&self.outside);
        if !imported.is_empty() {
            changed.insert(format!("gtid_purged has {imported} now, which no log has"));
        }
        let changed: Vec<String> = changed.into_iter().collect();
        self.found = end
            .filter(|_| !changed.is_empty())
            .map(|at| FoundSettings { settings: look.settings, at });
        (!changed.is_empty()).then(|| ArchiveError::Changed(changed.join("; ")))
    }

    fn moved(&self, others: &[(Watched, Option<WriteAccess>)]) -> Option<ArchiveError> {
        let own = self.write_access.as_ref()?;
        // It gets everything once it is back.
        let is_patient = own.is_apart
            && self.apart.zip(self.patience).is_none_or(|(since, limit)| since.elapsed() < limit);
        if is_patient {
            return None;
        }
        let open = others.iter().find(|(_, write_access)| {
            write_access.as_ref().is_some_and(|it| it.closed.is_none() && !it.is_one_with(own))
        });
        let other = name(&open?.0.access);
        Some(match own.closed {
            None => several_open(&self.name, &other),
            Some(_) => ArchiveError::Moved(other),
        })
    }

    /// Until when all commits are stored, if that is known anew, now that everything is stored up to here.
    /// No other server may have taken the place until then.
    pub(super) fn covered(&mut self, stored: Option<LogPosition>) -> Option<Timestamp> {
        let (has_others, clear) = (self.has_others, self.clear);
        let (at, _) = self.mark.take_if(|(at, end)| {
            let is_clear = !has_others || clear.is_some_and(|clear| clear >= *at);
            is_clear && stored.is_some_and(|stored| stored >= *end)
        })?;
        Some(at)
    }

    /// The settings that have ended the stream.
    pub(super) fn found(&mut self) -> Option<FoundSettings> {
        self.found.take()
    }

    /// Why nothing beyond the last transaction is covered, if so.
    pub(super) fn why(&self) -> Option<&String> {
        self.why.as_ref()
    }

    /// Returns whether the server replicates another one.
    pub(super) fn is_of_replica(&self) -> bool {
        self.write_access.as_ref().is_some_and(|write_access| !write_access.sources.is_empty())
    }
}

/// Runs what blocks. A panic is passed on.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(log: &str, offset: u64) -> Option<LogPosition> {
        LogPosition::new(log, offset)
    }

    fn write_access(id: &str, closed: Option<&str>, sources: &[&str]) -> WriteAccess {
        WriteAccess {
            who: BTreeMap::from([("server_id".to_owned(), id.to_owned())]),
            closed: closed.map(str::to_owned),
            is_apart: false,
            sources: sources.iter().map(|name| (*name).to_owned()).collect(),
            connected: Vec::new(),
            cluster: None,
        }
    }

    fn look(second: i64, log: &str, offset: u64) -> Result<Option<ServerSnapshot>, ArchiveError> {
        let end = at(log, offset).map(|end| (Timestamp::from_second(second).unwrap(), end));
        Ok(Some(ServerSnapshot {
            write_access: write_access("1", None, &[]),
            end,
            ..ServerSnapshot::default()
        }))
    }

    #[test]
    fn a_moment_is_covered_once_the_log_is_stored_up_to_its_end_then() {
        let mut watch = Watch { stored: at("bin.000002", 100), ..Watch::default() };
        watch.take(look(7, "bin.000002", 300));
        assert_eq!(watch.covered(at("bin.000002", 299)), None);
        // A later look does not put it off.
        watch.take(look(9, "bin.000003", 500));
        let covered = watch.covered(at("bin.000002", 300));
        assert_eq!(covered, Timestamp::from_second(7).ok());
        assert_eq!(watch.covered(at("bin.000002", 400)), None);
    }

    #[test]
    fn a_moment_is_covered_once_no_other_server_had_taken_the_place_then() {
        let second = |second| Timestamp::from_second(second).ok();
        let mut watch =
            Watch { stored: at("bin.000002", 100), has_others: true, ..Watch::default() };
        watch.take(look(7, "bin.000002", 300));
        assert_eq!(watch.covered(at("bin.000002", 300)), None);
        watch.clear = second(6);
        assert_eq!(watch.covered(at("bin.000002", 300)), None);
        watch.clear = second(8);
        assert_eq!(watch.covered(at("bin.000002", 300)), second(7));
        // Read-only, and no replica yet.
        let write_access = write_access("1", Some("is closed"), &[]);
        let end = second(9).zip(at("bin.000002", 300));
        watch.take(Ok(Some(ServerSnapshot { write_access, end, ..ServerSnapshot::default() })));
        watch.clear = second(10);
        assert_eq!(watch.covered(at("bin.000002", 300)), None);
        assert!(watch.why().unwrap().contains("is closed"));
    }

    #[test]
    fn a_node_that_is_apart_gets_time_to_come_back() {
        let access = Access {
            target: xb_mysql::Target::Socket("/2".into()),
            account: xb_mysql::Account::default(),
        };
        let others = [(Watched::new(access, false), Some(write_access("2", None, &[])))];
        let apart = || WriteAccess { is_apart: true, ..write_access("1", Some("is apart"), &[]) };
        let patience = Some(Duration::from_secs(3600));
        let mut watch = Watch { patience, has_others: true, ..Watch::default() };
        watch.take(Ok(Some(ServerSnapshot { write_access: apart(), ..ServerSnapshot::default() })));
        assert!(watch.moved(&others).is_none());
        watch.patience = Some(Duration::ZERO);
        assert!(watch.moved(&others).is_some());
    }

    #[test]
    fn a_log_that_became_shorter_ends_the_stream_and_covers_nothing() {
        let mut watch = Watch { stored: at("bin.000002", 100), ..Watch::default() };
        for (log, offset) in [("bin.000001", 300), ("bin.000002", 99), ("other.000002", 900)] {
            let found = watch.take(look(7, log, offset));
            assert!(matches!(found, Some(ArchiveError::Differs(_))), "{log}:{offset}: {found:?}");
        }
        assert_eq!(watch.covered(at("bin.000009", 1)), None);
        assert!(watch.take(look(8, "bin.000002", 100)).is_none());
        // Nothing is stored yet.
        assert!(Watch::default().take(look(9, "bin.000001", 4)).is_none());
    }

    #[test]
    fn transactions_that_come_to_be_in_no_log_end_the_stream() {
        let set = |text: &str| text.parse::<GtidSet>().unwrap();
        let known = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5";
        let mut watch = Watch { outside: set(known), ..Watch::default() };
        let mut take = |outside: &str| {
            let outside = set(outside);
            watch.take(Ok(Some(ServerSnapshot { outside, ..ServerSnapshot::default() })))
        };
        assert!(take(known).is_none());
        // It cannot be told while a log is purged.
        assert!(take("").is_none());
        let found = take("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7");
        let Some(ArchiveError::Changed(what)) = found else { panic!("{found:?}") };
        assert!(what.contains("3e11fa47-71ca-11e1-9e33-c80aa9429562:6-7"), "{what}");
    }

    #[test]
    fn a_failed_look_is_told_if_others_fail_too() {
        let mut watch = Watch::default();
        for expected in [false, false, true, true] {
            watch.take(Err(ArchiveError::Ended));
            assert_eq!(watch.why().is_some(), expected);
        }
        watch.take(look(7, "bin.000001", 300));
        assert_eq!(watch.why(), None);
        let write_access = write_access("1", None, &["db1:3306"]);
        watch.take(Ok(Some(ServerSnapshot { write_access, ..ServerSnapshot::default() })));
        assert!(watch.why().unwrap().contains("db1:3306") && watch.is_of_replica());
    }

    #[test]
    fn another_server_that_can_be_written_to_ends_the_stream() {
        let access = |id: u8| Access {
            target: xb_mysql::Target::Socket(format!("/{id}").into()),
            account: xb_mysql::Account::default(),
        };
        let moved = |own: WriteAccess, other: Option<WriteAccess>| {
            let watch = Watch { write_access: Some(own), ..Watch::default() };
            let other = (Watched::new(access(2), false), other);
            watch.moved(&[other]).map(|error| error.to_string())
        };
        let (open, closed) =
            (write_access("1", None, &[]), write_access("1", Some("is closed"), &[]));
        let other = write_access("2", None, &[]);
        assert!(moved(open.clone(), Some(other.clone())).unwrap().contains("both accept writes"));
        assert!(moved(closed.clone(), Some(other)).unwrap().contains("/2 is the primary now"));
        assert_eq!(moved(open.clone(), None), None);
        // Another name of the same one.
        assert_eq!(moved(open.clone(), Some(open.clone())), None);
        assert_eq!(moved(open, Some(write_access("2", Some("is closed"), &[]))), None);
        assert_eq!(moved(closed, Some(write_access("2", Some("is closed"), &[]))), None);
    }
}
