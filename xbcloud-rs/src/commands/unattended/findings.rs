//! Facts about each server of a repository, from a listing, that `monitor` and `fleet` judge.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use xb_backup::ArchiveState;
use xb_repo::archive::stranded::StrandedTransactions;
use xb_repo::list::{Listing, State};
use xb_repo::names::BackupName;
use xb_repo::verification::Level;

use crate::job::{ArchiveFacts, BackupFacts};

/// Maximum difference between clocks.
const SKEW: i64 = 3600;

/// The same for an archive, whose age may be limited to a minute.
const ARCHIVE_SKEW: i64 = 60;

/// Why there is nothing to judge where backups are.
pub(crate) const ALL_IGNORED: &str =
    "every backup belongs to a server that --ignore-server leaves out";

/// Which backups are judged, and what proves them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedBackups<'a> {
    /// Only those of this server.
    pub(crate) server: Option<&'a String>,
    /// Servers that are left out.
    pub(crate) ignored: &'a [String],
    /// Archive streams whose left transactions the operator has accepted as lost, by the beginning of their IDs.
    pub(crate) accepted: &'a [String],
    /// Level from which a verification counts.
    pub(crate) level: Level,
}

/// The findings about each server that is asked for.
pub(crate) fn by_server(listings: &[Listing], asked: JudgedBackups<'_>) -> Vec<BackupFacts> {
    let wanted = |server: &Option<String>| is_wanted(asked, server.as_ref());
    let own = listings.iter().filter(|line| is_backup(line) || is_missing(line));
    let servers: BTreeSet<&Option<String>> =
        own.map(|line| &line.server).filter(|server| wanted(server)).collect();
    let level = asked.level;
    match servers.is_empty() {
        // There may be damage all the same.
        true => vec![found(listings, &asked.server.cloned(), level)],
        false => servers.into_iter().map(|server| found(listings, server, level)).collect(),
    }
}

/// Returns whether all backups are of servers that are left out.
pub(crate) fn all_are_ignored(listings: &[Listing], asked: JudgedBackups<'_>) -> bool {
    let own = listings.iter().filter(|line| is_backup(line) || is_missing(line));
    let mut own = own.peekable();
    // A backup that names no server may be of a requested one.
    let is_nameless =
        listings.iter().any(|line| line.state == State::Damaged || is_unreadable(line));
    asked.server.is_none()
        && !is_nameless
        && own.peek().is_some()
        && own.all(|line| !is_wanted(asked, line.server.as_ref()))
}

fn is_wanted(asked: JudgedBackups<'_>, server: Option<&String>) -> bool {
    match (asked.server, server) {
        (Some(wanted), server) => server == Some(wanted),
        (None, Some(server)) => !asked.ignored.contains(server),
        (None, None) => true,
    }
}

/// The findings about the archives of the servers that are asked for.
pub(crate) fn archives(
    states: &[ArchiveState],
    listings: &[Listing],
    asked: JudgedBackups<'_>,
) -> Vec<ArchiveFacts> {
    let wanted = states.iter().filter(|archive| is_wanted(asked, Some(&archive.server)));
    wanted
        .map(|archive| found_archive(archive, listings, asked.accepted, Timestamp::now()))
        .collect()
}

/// A state without any transaction for each of these servers that has backups and no archive: a missing log is no good
/// one.
pub(crate) fn without_archive(
    found: &[BackupFacts],
    archives: &[ArchiveFacts],
) -> Vec<ArchiveFacts> {
    let servers = found.iter().filter_map(|of| of.server.as_ref());
    let missing = servers.filter(|server| archives.iter().all(|of| of.server != **server));
    missing
        .map(|server| ArchiveFacts { server: server.clone(), ..ArchiveFacts::default() })
        .collect()
}

fn found_archive(
    archive: &ArchiveState,
    listings: &[Listing],
    accepted: &[String],
    now: Timestamp,
) -> ArchiveFacts {
    let age = |at: Timestamp| {
        Duration::from_secs(u64::try_from(now.as_second() - at.as_second()).unwrap_or_default())
    };
    let own = |line: &&Listing| {
        is_backup(line) && line.server.as_ref().is_none_or(|server| *server == archive.server)
    };
    let newest = listings.iter().filter(own).filter_map(|line| line.finished).max();
    let gap = archive.gaps.iter().rev().find(|(at, _)| newest.is_none_or(|newest| newest < *at));
    let is_accepted = |left: &str| accepted.iter().any(|id| left.starts_with(&**id));
    let branch = archive.branches.iter().rev().find(|branch| {
        newest.is_none_or(|newest| newest < branch.began) && !is_accepted(&branch.left)
    });
    let restorable = listings.iter().filter(own).filter(|line| line.restorable);
    let proven = restorable.filter_map(|line| line.verified?.proven_until).max();
    let is_missed = |left: &&StrandedTransactions| !is_accepted(&left.stream);
    let stranded = archive.stranded.iter().filter(is_missed);
    // A time in the future would look young for as long as it takes.
    let latest = [archive.stored_until, archive.alive, proven].into_iter().flatten().max();
    let ahead = latest.map(|at| at.as_second() - now.as_second());
    let ahead = ahead.filter(|seconds| *seconds > ARCHIVE_SKEW);
    ArchiveFacts {
        server: archive.server.clone(),
        behind: archive.stored_until.map(age),
        silent: archive.alive.map(age),
        gap: gap.map(|(_, reason)| reason.clone()),
        branch: branch.map(|branch| branch.reason.clone()),
        stranded: stranded.map(ToString::to_string).collect(),
        trouble: archive.trouble.clone(),
        missing: archive.missing.clone(),
        again: archive.again.clone(),
        uncovered: archive.uncovered.clone(),
        proven: proven.map(age),
        ahead: ahead.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
    }
}

/// The newest backup of a server that can be restored.
pub(crate) fn newest_of(listings: &[Listing], server: &str) -> Option<BackupName> {
    let own = listings.iter().filter(|line| {
        is_backup(line) && line.restorable && line.server.as_deref().is_none_or(|of| of == server)
    });
    let own = own.filter_map(|line| Some((!line.is_partial, line.finished?, &line.name)));
    let (.., name) = own.max()?;
    BackupName::new(name).ok()
}

/// A complete backup. What was stored with `--raw` is none of a server.
pub(crate) fn is_backup(line: &Listing) -> bool {
    line.state == State::Complete && !line.raw
}

/// A backup of which only the manifest is left. Like a damaged one, it counts for the server that it names.
fn is_missing(line: &Listing) -> bool {
    line.state == State::Missing && !line.raw
}

/// A manifest that may become readable again. One that no trusted host has signed is no backup.
fn is_unreadable(line: &Listing) -> bool {
    line.state == State::Unreadable && !line.untrusted
}

fn found(listings: &[Listing], server: &Option<String>, level: Level) -> BackupFacts {
    // A time in the future would look young for as long as it takes.
    let is_future = |age: Option<i64>| age.is_some_and(|seconds| seconds < -SKEW);
    let seconds = |age: Option<i64>| {
        let seconds = age.filter(|_| !is_future(age))?;
        Some(Duration::from_secs(u64::try_from(seconds.max(0)).unwrap_or_default()))
    };
    let future =
        |line: &&Listing| is_future(line.age_seconds) || is_future(line.verified_age_seconds);
    let complete = || listings.iter().filter(|line| is_backup(line) && line.server == *server);
    // A manifest that cannot be read names no server, so it may be of each.
    let nameless = || listings.iter().filter(|line| line.state == State::Damaged);
    let unreadable = || listings.iter().filter(|line| is_unreadable(line));
    let missing = || listings.iter().filter(|line| is_missing(line) && line.server == *server);
    let failed = |line: &&Listing| line.verified.is_some_and(|proof| proof.failed.is_some());
    // Only what can be restored now counts as a backup, or an accepted increment whose base is elsewhere.
    let can_be_used = |l: &&Listing| l.restorable || l.is_accepted_without_base();
    // A partial backup is no newest one, and proves nothing, while there is a whole one that can be used.
    let has_whole = complete().filter(can_be_used).any(|line| !line.is_partial);
    let meant = || complete().filter(can_be_used).filter(|line| !(has_whole && line.is_partial));
    let aged = || meant().filter_map(|line| Some((line, seconds(line.age_seconds)?)));
    let newest = aged().min_by_key(|(line, age)| (*age, Reverse(line.finished)));
    let dated = aged().filter(|(line, _)| line.undated.is_none()).min_by_key(|(_, age)| *age);
    // A later try that failed at the requested level, or below it, leaves the proof in doubt. One that could not
    // begin does not.
    let is_doubtful = |line: &Listing| {
        line.failed_try.as_ref().is_some_and(|of| of.level <= level && !of.refused)
    };
    let proves = |line: &&Listing| line.is_verified(level) && !is_doubtful(line);
    let proven = meant().filter(proves).filter_map(|line| {
        // A new proof of an old backup makes it no younger.
        let age = seconds(line.verified_age_seconds)?.max(seconds(line.age_seconds)?);
        Some((line, age))
    });
    let last = complete().chain(missing()).filter(|line| !is_future(line.age_seconds));
    let last = last.filter_map(|line| Some((line.finished?.as_second(), &line.name)));
    let last = last.chain(nameless().map(|line| (line.written, &line.name))).max();
    let last = last.or_else(|| unreadable().map(|line| (line.written, &line.name)).max());
    let unproven = complete().filter_map(|line| Some((line.name.clone(), line.open_question()?)));
    let broken = complete().filter(|line| !line.is_accepted_without_base());
    let broken = broken.filter_map(|line| Some((line.name.clone(), line.broken.clone()?)));
    const UNREAD: &str = "because its verification record cannot be read, and may hold a fault: `verify --level=pages` replaces it if it is damaged, `--level=restore` in any case";
    let unread = complete().filter(|line| line.unread_record);
    let broken = broken.chain(unread.map(|line| (line.name.clone(), UNREAD.to_owned())));
    let broken =
        broken.chain(missing().filter_map(|line| Some((line.name.clone(), line.fault()?))));
    let damaged = complete().filter(failed).chain(nameless());
    BackupFacts {
        server: server.clone(),
        last: last.map(|(_, name)| name.clone()),
        broken: broken.collect(),
        newest: newest.map(|(line, age)| (line.name.clone(), age)),
        is_undated: newest.is_some_and(|(line, _)| line.undated.is_some()),
        dated: dated.map(|(line, age)| (line.name.clone(), age)),
        proven: proven.min_by_key(|(_, age)| *age).map(|(line, age)| {
            let level = line.verified.and_then(|proof| proof.level);
            let level = level.map_or(String::new(), |level| level.to_string());
            (line.name.clone(), level, age)
        }),
        damaged: damaged.map(|line| line.name.clone()).collect(),
        unreadable: unreadable().map(|line| line.name.clone()).collect(),
        unproven: unproven.collect(),
        shrunk: complete()
            .filter(|line| line.in_doubt)
            .filter_map(|line| Some((line.name.clone(), line.shrunk.clone()?)))
            .collect(),
        // It may say of itself that it is of any server.
        untrusted: listings.iter().filter(|l| l.untrusted).map(|l| l.name.clone()).collect(),
        future: complete().filter(future).map(|line| line.name.clone()).collect(),
        backups: complete().count(),
        raw: listings.iter().filter(|l| l.state == State::Complete && l.raw).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_backups_has_an_archive_or_a_state_without_one() {
        let found = |server: &str| BackupFacts {
            server: Some(server.to_owned()),
            ..BackupFacts::default()
        };
        let archive =
            |server: &str| ArchiveFacts { server: server.to_owned(), ..ArchiveFacts::default() };
        let nameless = BackupFacts::default();
        let missing =
            without_archive(&[found("a"), found("b"), nameless], &[archive("a"), archive("c")]);
        assert_eq!(missing.iter().map(|of| of.server.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(missing[0].behind.is_none());
    }

    #[test]
    fn a_time_in_the_future_is_no_age() {
        let time = |second| Timestamp::from_second(second).ok();
        let of = |stored_until, alive| {
            let state = ArchiveState::new("shop", stored_until, alive);
            found_archive(&state, &[], &[], Timestamp::from_second(10_000).unwrap()).ahead
        };
        assert_eq!(of(time(9_000), time(10_050)), None);
        assert_eq!(of(time(9_000), time(17_200)), Some(Duration::from_secs(7200)));
        assert_eq!(of(time(17_200), time(9_000)), Some(Duration::from_secs(7200)));
    }

    #[test]
    fn what_a_restore_has_left_is_missed_until_it_is_accepted() {
        let left = |digit: &str| StrandedTransactions {
            stream: digit.repeat(32),
            server: "server_id 1".to_owned(),
            gtids: "0-1-10".parse().unwrap(),
        };
        let mut state = ArchiveState::new("shop", None, None);
        state.stranded = vec![left("a"), left("b")];
        let of = |accepted: &[&str]| {
            let accepted: Vec<String> = accepted.iter().map(|id| (*id).to_owned()).collect();
            let found = found_archive(&state, &[], &accepted, Timestamp::UNIX_EPOCH);
            found.stranded.join("; ")
        };
        assert!(of(&[]).contains("aaaa") && of(&[]).contains("bbbb"));
        assert_eq!(of(&["aaaaaaaa"]), left("b").to_string());
        assert_eq!(of(&[&"a".repeat(32), "bbbbbbbbb"]), "");
    }
}
