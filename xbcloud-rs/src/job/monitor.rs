//! The verdict of a monitor, in the convention of Nagios plugins.

use std::time::Duration;

use crate::job::archive::{ArchiveFacts, ArchiveLimits, judge_archive};
use crate::job::remarks::{Remarks, span};

/// Facts about the backups of one server in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BackupFacts {
    /// The server, if its backups name it.
    pub(crate) server: Option<String>,
    /// Name of the newest backup, whether it can be restored or not.
    pub(crate) last: Option<String>,
    /// Name and age of the newest backup that can be restored.
    pub(crate) newest: Option<(String, Duration)>,
    /// Whether it is unknown when the newest one was made, so that it counts as made when it was stored.
    pub(crate) is_undated: bool,
    /// Name and age of the newest backup that can be restored of those of which it is known when they were made.
    pub(crate) dated: Option<(String, Duration)>,
    /// Name, level and age of the newest backup with a sufficient proof. A proof is as old as the
    /// backup that it proves.
    pub(crate) proven: Option<(String, String, Duration)>,
    /// Names of backups that a verification found damaged, or whose manifest is.
    pub(crate) damaged: Vec<String>,
    /// Names of backups whose manifest cannot be read now, such as one in an archive class. It names no server, so it may
    /// be of each.
    pub(crate) unreadable: Vec<String>,
    /// Names of backups that cannot be restored, and why: an increment without its base, or one without its objects.
    pub(crate) broken: Vec<(String, String)>,
    /// Names of backups of which the last verification ended without a result, and why.
    pub(crate) unproven: Vec<(String, String)>,
    /// Names of the newest backups that are much smaller than usual and not accepted, and in what.
    pub(crate) shrunk: Vec<(String, String)>,
    /// Names of backups that no trusted host has signed.
    pub(crate) untrusted: Vec<String>,
    /// Names of backups whose end, or whose proof, lies in the future. Their age is unknown.
    pub(crate) future: Vec<String>,
    /// Number of complete backups.
    pub(crate) backups: usize,
    /// Number of those stored with `--raw`, which are of no server.
    pub(crate) raw: usize,
}

/// Limits; a limit that is not set is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limits {
    /// Largest age of the newest backup.
    pub(crate) age: Option<Duration>,
    /// Largest age of the newest proof.
    pub(crate) proof_age: Option<Duration>,
    /// Of an archive of binary logs.
    pub(crate) archive: ArchiveLimits,
}

/// Judgement of a monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Exit code: 0 OK, 1 warning, 2 critical, 3 unknown.
    pub(crate) code: u8,
    /// Its word in the convention of Nagios plugins.
    pub(crate) state: &'static str,
    /// One line: state, text, performance data. With a final newline.
    pub(crate) line: String,
    /// Parts of the line, by weight.
    pub(crate) remarks: Remarks,
}

impl Verdict {
    /// Returns the verdict if the repository could not be read.
    pub(crate) fn unknown(what: &str) -> Self {
        let remarks = Remarks { critical: vec![what.to_owned()], ..Remarks::default() };
        let line = format!("XBCLOUD UNKNOWN - {}\n", one_line(what));
        Self { code: 3, state: "UNKNOWN", line, remarks }
    }

    /// Returns the verdict about a repository that lacks what has to be there.
    pub(crate) fn critical(what: &str) -> Self {
        let remarks = Remarks { critical: vec![what.to_owned()], ..Remarks::default() };
        let line = format!("XBCLOUD CRITICAL - {}\n", one_line(what));
        Self { code: 2, state: "CRITICAL", line, remarks }
    }
}

/// Compares the findings about each server, and about the archives of binary logs, with the limits. A
/// repository without any server is one without a backup. `missed`: what this host has stored there and does not find.
pub(crate) fn judge(
    repository: &str,
    missed: Remarks,
    servers: &[BackupFacts],
    archives: &[ArchiveFacts],
    limits: Limits,
) -> Verdict {
    let nothing = [BackupFacts::default()];
    let servers = if servers.is_empty() { &nothing } else { servers };
    let mut all = missed;
    for found in servers {
        let remarks = judge_one(found, limits);
        let named = |text: String| match (&found.server, servers.len()) {
            (_, 1) => text,
            (Some(server), _) => format!("{server}: {text}"),
            (None, _) => format!("without a server's name: {text}"),
        };
        all.critical.extend(remarks.critical.into_iter().map(named));
        all.warnings.extend(remarks.warnings.into_iter().map(named));
        all.good.extend(remarks.good.into_iter().map(named));
    }
    for archive in archives {
        let remarks = judge_archive(archive, limits.archive);
        all.critical.extend(remarks.critical);
        all.warnings.extend(remarks.warnings);
        all.good.extend(remarks.good);
    }
    let (code, state) = match (all.critical.is_empty(), all.warnings.is_empty()) {
        (false, _) => (2, "CRITICAL"),
        (true, false) => (1, "WARNING"),
        (true, true) => (0, "OK"),
    };
    let text = [&*all.critical, &all.warnings, &all.good].concat().join("; ");
    let line = format!(
        "XBCLOUD {state} - {}: {} | {}\n",
        one_line(repository),
        one_line(&text),
        data(servers, archives, limits)
    );
    Verdict { code, state, line, remarks: all }
}

fn judge_one(found: &BackupFacts, limits: Limits) -> Remarks {
    let Remarks { mut critical, mut warnings, mut good } = Remarks::default();
    match &found.newest {
        None if found.last.is_none() && found.raw > 0 => critical.push(format!(
            "there is no backup: {} whose content was not inspected (raw bytes, or native streams) do not count",
            found.raw
        )),
        None if found.last.is_none() => critical.push("there is no backup".to_owned()),
        None => critical.push("no backup can be restored".to_owned()),
        Some((name, age)) => {
            let mut text = format!("the newest backup {name} is {} old", span(*age));
            if found.is_undated {
                text += " by when it was stored, and may be older";
                let dated = found.dated.as_ref().zip(limits.age);
                if let Some(((name, age), _)) = dated.filter(|((_, age), limit)| age > limit) {
                    let age = span(*age);
                    warnings.push(format!(
                        "{name}, the newest of which it is known when it was made, is {age} old"
                    ));
                }
            }
            match limits.age {
                Some(limit) if *age > limit => {
                    critical.push(format!("{text}, the limit is {}", span(limit)));
                }
                _ => good.push(text),
            }
        }
    }
    match (&found.proven, limits.proof_age) {
        (None, Some(_)) if found.newest.is_some() => {
            critical.push("no backup is verified up to the requested level".to_owned());
        }
        (None, _) => {}
        (Some((name, level, age)), limit) => {
            let text =
                format!("the newest proven backup ({level} of {name}) is {} old", span(*age));
            match limit {
                Some(limit) if *age > limit => {
                    critical.push(format!("{text}, the limit is {}", span(limit)));
                }
                _ => good.push(text),
            }
        }
    }
    let faults = found.damaged.iter().map(|name| (name, "is damaged".to_owned()));
    let broken =
        found.broken.iter().map(|(name, why)| (name, format!("cannot be restored, {why}")));
    for (name, what) in faults.chain(broken) {
        // The newest backup would be restored first; an older one only weakens the history.
        match found.last.as_ref() == Some(name) || found.newest.is_none() {
            true => critical.push(format!("{name} {what}")),
            false => warnings.push(format!("{name} {what}")),
        }
    }
    if let Some(name) = found.unreadable.last() {
        let more = match found.unreadable.len() - 1 {
            0 => String::new(),
            more => format!(" (and those of {more} more)"),
        };
        warnings.push(format!("the manifest of {name}{more} cannot be read now"));
    }
    // The host of the verification may be the cause, so this is no damage.
    warnings.extend(found.unproven.iter().map(|(name, why)| format!("{name}: {why}")));
    for (name, what) in &found.shrunk {
        warnings.push(format!("{name} is much smaller than usual ({what}) and not accepted"));
    }
    for name in &found.untrusted {
        warnings.push(format!("{name} is not signed by a trusted host"));
    }
    for name in &found.future {
        warnings.push(format!("{name} has a time in the future: check the clocks"));
    }
    Remarks { critical, warnings, good }
}

/// Performance data: `age=10800s;;93600;0 ...`. Of several servers, the oldest counts.
fn data(servers: &[BackupFacts], archives: &[ArchiveFacts], limits: Limits) -> String {
    let backups: usize = servers.iter().map(|found| found.backups).sum();
    let mut data = vec![format!("backups={backups};;;0")];
    let mut add = |name: &str, age: Option<Duration>, limit: Option<Duration>| {
        if let Some(age) = age {
            let limit = limit.map_or(String::new(), |limit| limit.as_secs().to_string());
            data.push(format!("{name}={}s;;{limit};0", age.as_secs()));
        }
    };
    let newest = servers.iter().filter_map(|found| found.newest.as_ref());
    add("age", newest.map(|(_, age)| *age).max(), limits.age);
    let proven = servers.iter().filter_map(|found| found.proven.as_ref());
    add("proof_age", proven.map(|(_, _, age)| *age).max(), limits.proof_age);
    let behind = archives.iter().filter_map(|found| found.behind).max();
    add("binlog_age", behind, limits.archive.age);
    let proven = archives.iter().filter_map(|found| found.proven).max();
    add("binlog_proof_age", proven, limits.archive.proof_age);
    data.join(" ")
}

/// Removes line ends and the character that begins performance data.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '|' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn judge_all(name: &str, servers: &[BackupFacts], limits: Limits) -> Verdict {
        judge(name, Remarks::default(), servers, &[], limits)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn found(age: u32, proof: Option<u32>) -> BackupFacts {
        BackupFacts {
            server: None,
            last: Some("n2".into()),
            newest: Some(("n2".into(), HOUR * age)),
            is_undated: false,
            dated: Some(("n2".into(), HOUR * age)),
            proven: proof.map(|age| ("n1".into(), "pages".into(), HOUR * age)),
            damaged: Vec::new(),
            unreadable: Vec::new(),
            broken: Vec::new(),
            unproven: Vec::new(),
            shrunk: Vec::new(),
            untrusted: Vec::new(),
            future: Vec::new(),
            backups: 2,
            raw: 0,
        }
    }

    #[test]
    fn ages_are_compared_with_their_limits() {
        let (age, proof_age) = (Some(HOUR * 26), Some(HOUR * 24 * 8));
        let limits = Limits { age, proof_age, ..Limits::default() };
        let state = |found: &BackupFacts| {
            let verdict = judge_all("shop", from_ref(found), limits);
            assert_eq!(verdict.line.lines().count(), 1);
            (verdict.code, verdict.line)
        };
        let (code, line) = state(&found(3, Some(28)));
        assert_eq!(code, 0);
        assert_eq!(
            line,
            "XBCLOUD OK - shop: the newest backup n2 is 3h old; the newest proven backup (pages of n1) is 1d 4h old \
             | backups=2;;;0 age=10800s;;93600;0 proof_age=100800s;;691200;0\n"
        );
        let (code, line) = state(&found(27, Some(28)));
        assert!(code == 2 && line.contains("n2 is 1d 3h old, the limit is 1d 2h"), "{line}");
        let (code, line) = state(&found(3, Some(200)));
        assert!(code == 2 && line.contains("proven") && line.contains("the limit is 8d"), "{line}");
        assert_eq!(state(&found(3, None)).0, 2);
        let (code, line) = state(&BackupFacts::default());
        assert!(code == 2 && line.contains("there is no backup |"), "{line}");
        let (code, line) = state(&BackupFacts { raw: 3, ..BackupFacts::default() });
        assert!(code == 2 && line.contains("no backup: 3 whose content was not"), "{line}");
        assert_eq!(judge_all("shop", &[], limits).code, 2);
        assert_eq!(judge_all("shop", &[found(3, None)], Limits::default()).code, 0);
        assert_eq!(
            judge_all("shop", &[found(26, Some(1))], limits).code,
            0,
            "the limit itself is allowed"
        );
    }

    #[test]
    fn damage_is_critical_in_the_newest_backup() {
        let mut found = found(3, None);
        found.damaged = vec!["n1".into()];
        assert_eq!(judge_all("s", from_ref(&found), Limits::default()).code, 1);
        found.damaged.push("n2".into());
        assert_eq!(judge_all("s", from_ref(&found), Limits::default()).code, 2);
    }

    #[test]
    fn a_verification_without_a_result_is_a_warning() {
        let mut found = found(3, None);
        found.unproven = vec![("n2".into(), "the last try to verify level restore failed".into())];
        let verdict = judge_all("s", from_ref(&found), Limits::default());
        assert_eq!(verdict.code, 1);
        assert!(verdict.line.contains("n2: the last try"), "{}", verdict.line);
    }

    #[test]
    fn a_broken_chain_is_critical_at_the_end_of_a_history() {
        let mut found = found(3, None);
        found.broken = vec![("i1".into(), "its base f1 is missing".into())];
        let verdict = judge_all("s", from_ref(&found), Limits::default());
        assert_eq!(verdict.code, 1);
        assert!(verdict.line.contains("i1 cannot be restored, its base f1 is missing"));
        found.last = Some("i1".into());
        assert_eq!(judge_all("s", from_ref(&found), Limits::default()).code, 2);
        let found = BackupFacts { newest: None, ..found };
        let verdict = judge_all("s", from_ref(&found), Limits::default());
        assert!(verdict.code == 2 && verdict.line.contains("no backup can be restored"));
    }

    #[test]
    fn each_server_is_judged_by_itself() {
        let limits = Limits { age: Some(HOUR * 26), ..Limits::default() };
        let db = |name: &str, age| BackupFacts { server: Some(name.into()), ..found(age, None) };
        assert_eq!(judge_all("s", &[db("db1", 3), db("db2", 4)], limits).code, 0);
        let verdict = judge_all("s", &[db("db1", 3), db("db2", 55 * 24)], limits);
        assert_eq!(verdict.code, 2);
        assert!(verdict.line.contains("db2: the newest backup n2 is 55d old"), "{}", verdict.line);
        assert!(verdict.line.contains("backups=4;;;0 age=4752000s;;93600;0"), "{}", verdict.line);
        let nameless = found(55 * 24, None);
        let verdict = judge_all("s", &[nameless, db("db1", 3)], limits);
        assert!(verdict.code == 2 && verdict.line.contains("without a server's name: "));
    }

    #[test]
    fn a_backup_of_unknown_age_hides_no_missing_night() {
        let limits = Limits { age: Some(HOUR * 26), ..Limits::default() };
        let undated = BackupFacts { is_undated: true, ..found(3, None) };
        let said = judge_all("s", &[BackupFacts { dated: None, ..undated.clone() }], limits);
        assert!(said.code == 0 && said.line.contains("may be older"), "{}", said.line);
        let dated = Some(("n1".into(), HOUR * 50));
        let said = judge_all("s", &[BackupFacts { dated, ..undated }], limits);
        assert!(said.code == 1 && said.line.contains("n1, the newest of which"), "{}", said.line);
    }

    #[test]
    fn a_shrunk_backup_is_a_warning() {
        let shrunk = vec![("n2".into(), "5 bytes instead of 100".into())];
        let verdict =
            judge_all("s", &[BackupFacts { shrunk, ..found(3, None) }], Limits::default());
        assert_eq!(verdict.code, 1);
        assert!(verdict.line.contains("n2 is much smaller than usual (5 bytes instead of 100)"));
    }

    #[test]
    fn a_time_in_the_future_is_no_age() {
        let found = BackupFacts { future: vec!["n3".into()], ..found(3, None) };
        let verdict = judge_all("s", from_ref(&found), Limits::default());
        assert!(verdict.code == 1 && verdict.line.contains("n3 has a time in the future"));
        assert_eq!(
            judge_all("s", &[BackupFacts { newest: None, ..found }], Limits::default()).code,
            2
        );
    }

    #[test]
    fn a_line_stays_one_line() {
        let verdict = Verdict::unknown("a\nb|c");
        assert_eq!((verdict.code, &*verdict.line), (3, "XBCLOUD UNKNOWN - a b c\n"));
    }
}
