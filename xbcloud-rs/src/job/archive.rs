//! Messages of a monitor about archives of binary logs.

use std::time::Duration;

use crate::job::remarks::{Remarks, span};

/// Facts about the archive of a server's binary log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ArchiveFacts {
    /// The server.
    pub(crate) server: String,
    /// Age of the newest stored transaction, or of the time at which the server was idle.
    pub(crate) behind: Option<Duration>,
    /// Age of the last sign of life of a receiver.
    pub(crate) silent: Option<Duration>,
    /// Reason why logs are lost behind the newest backup, if any are.
    pub(crate) gap: Option<String>,
    /// Reason why the server's history began anew behind the newest backup, if it did.
    pub(crate) branch: Option<String>,
    /// Transactions of other servers that the present history lacks.
    pub(crate) stranded: Vec<String>,
    /// Why the last receiver could not go on, if so.
    pub(crate) trouble: Option<String>,
    /// Which segments that a receiver has stored are missing, if any are.
    pub(crate) missing: Option<String>,
    /// How far another stream has received them again, if one does.
    pub(crate) again: Option<String>,
    /// Name of the newest backup, and why the archive does not have its position, if so.
    pub(crate) uncovered: Option<(String, String)>,
    /// Age of the newest state to which a trial has replayed it.
    pub(crate) proven: Option<Duration>,
    /// How far in the future the latest of these times lies, if that is more than clocks differ: then its age is not known.
    pub(crate) ahead: Option<Duration>,
}

/// Limits for an archive; a limit that is not set is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ArchiveLimits {
    /// Largest age of its end, and of its last sign of life.
    pub(crate) age: Option<Duration>,
    /// Largest age of the state to which a trial has replayed it.
    pub(crate) proof_age: Option<Duration>,
}

/// Judges an archive; without a limit, its age is not checked.
pub(crate) fn judge_archive(found: &ArchiveFacts, limits: ArchiveLimits) -> Remarks {
    let mut remarks = Remarks::default();
    let limit = limits.age;
    let name = format!("the archived log of {}", found.server);
    let is_late = |age: Option<Duration>| limit.is_some_and(|limit| age.is_none_or(|a| a > limit));
    let limit = limit.map_or_else(String::new, |limit| format!(", the limit is {}", span(limit)));
    match found.behind {
        None => remarks.critical.push(format!("{name} has no transaction")),
        Some(age) if is_late(Some(age)) => {
            remarks.critical.push(format!("{name} ends {} ago{limit}", span(age)));
        }
        Some(age) => remarks.good.push(format!("{name} ends {} ago", span(age))),
    }
    if is_late(found.silent) {
        let since =
            found.silent.map_or_else(|| "ever".to_owned(), |age| format!("for {}", span(age)));
        remarks
            .critical
            .push(format!("{name} has had no receiver {since}{limit}: see its unit xb-binlog@"));
    }
    if let Some(what) = &found.trouble {
        remarks.critical.push(format!(
            "{name} is not received any further: {what}; if that lasts, run FLUSH BINARY LOGS on the server"
        ));
    }
    if let Some(ahead) = found.ahead {
        remarks.critical.push(format!(
            "{name} has a time {} in the future: a clock is or was wrong, so the age of its end is unknown",
            span(ahead)
        ));
    }
    if let Some(what) = &found.missing {
        let step = match &found.again {
            Some(again) => format!("{again}: see whether its receiver runs"),
            None => "restart its receiver, which asks the server for them again".to_owned(),
        };
        remarks
            .critical
            .push(format!("{name}: {what}: {step}, take a backup, and find out who removed them"));
    }
    if let Some(reason) = &found.gap {
        remarks
            .critical
            .push(format!("{name} has a gap after the newest backup ({reason}): take a backup"));
    }
    if let Some(reason) = &found.branch {
        remarks
            .critical
            .push(format!("{name} has a branch after the newest backup ({reason}): take a backup"));
    }
    let stranded = found.stranded.iter();
    remarks.warnings.extend(stranded.map(|what| {
        format!(
            "{name}: {what}: `binlog show` finds them as long as the archive has them; if they are not missed, as after a restore to an earlier moment, give --accept-left=STREAM"
        )
    }));
    match (found.proven, limits.proof_age) {
        (Some(age), Some(limit)) if age > limit => remarks.critical.push(format!(
            "{name} is proven up to {} ago, the limit is {}",
            span(age),
            span(limit)
        )),
        (Some(age), _) => remarks.good.push(format!("{name} is proven up to {} ago", span(age))),
        (None, Some(_)) => {
            remarks.critical.push(format!(
                "{name} was never replayed by a trial: run verify --level=restore --until=latest"
            ));
        }
        (None, None) => {}
    }
    if let Some((backup, what)) = &found.uncovered {
        remarks
            .critical
            .push(format!("{name} cannot be replayed onto the newest backup {backup}: {what}"));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::monitor::{BackupFacts, Limits, judge};

    #[test]
    fn an_archive_that_is_late_silent_or_broken_is_critical() {
        let minute = Duration::from_secs(60);
        let good = ArchiveFacts {
            server: "shop".to_owned(),
            behind: Some(minute),
            silent: Some(minute),
            gap: None,
            branch: None,
            stranded: Vec::new(),
            trouble: None,
            missing: None,
            again: None,
            uncovered: None,
            proven: None,
            ahead: None,
        };
        let backup = BackupFacts {
            last: Some("n".to_owned()),
            newest: Some(("n".to_owned(), minute)),
            ..BackupFacts::default()
        };
        let verdict = |found: &ArchiveFacts, limit: Option<Duration>| {
            let archive = ArchiveLimits { age: limit, proof_age: None };
            let limits = Limits { archive, ..Limits::default() };
            judge(
                "r",
                Remarks::default(),
                std::slice::from_ref(&backup),
                std::slice::from_ref(found),
                limits,
            )
        };
        let limit = Some(minute * 15);
        let fine = verdict(&good, limit);
        assert!(fine.code == 0 && fine.line.contains("log of shop ends 1m ago"), "{}", fine.line);
        assert!(fine.line.contains("binlog_age=60s;;900;0"), "{}", fine.line);
        let late = ArchiveFacts { behind: Some(minute * 16), ..good.clone() };
        assert_eq!((verdict(&late, limit).code, verdict(&late, None).code), (2, 0));
        let ahead = ArchiveFacts { ahead: Some(minute * 120), ..good.clone() };
        let ahead = verdict(&ahead, limit);
        assert!(ahead.code == 2 && ahead.line.contains("2h in the future"), "{}", ahead.line);
        let silent = ArchiveFacts { silent: Some(minute * 16), ..good.clone() };
        assert!(verdict(&silent, limit).line.contains("no receiver for 16m, the limit is 15m"));
        assert_eq!(verdict(&ArchiveFacts { behind: None, ..good.clone() }, limit).code, 2);
        let proof = |proven: Option<Duration>| {
            let limits = ArchiveLimits { age: limit, proof_age: Some(minute * 60) };
            judge_archive(&ArchiveFacts { proven, ..good.clone() }, limits).critical.len()
        };
        assert_eq!((proof(Some(minute)), proof(Some(minute * 61)), proof(None)), (0, 1, 1));
        let stranded = vec!["stream 0a of server_id 1 has 0-1-10".to_owned()];
        let stranded = verdict(&ArchiveFacts { stranded, ..good.clone() }, limit);
        assert!(stranded.code == 1 && stranded.line.contains("has 0-1-10"), "{}", stranded.line);
        let uncovered = Some(("n".to_owned(), "it ends before".to_owned()));
        let uncovered = verdict(&ArchiveFacts { uncovered, ..good.clone() }, limit);
        assert!(uncovered.code == 2 && uncovered.line.contains("backup n: it ends before"));
        let missing = Some("segment 3 of stream 0a is missing".to_owned());
        let missing = verdict(&ArchiveFacts { missing, ..good.clone() }, limit);
        assert!(missing.code == 2 && missing.line.contains("segment 3"), "{}", missing.line);
        let trouble = Some("the server cannot send bin.000001".to_owned());
        let trouble = verdict(&ArchiveFacts { trouble, ..good.clone() }, limit);
        assert!(trouble.code == 2 && trouble.line.contains("FLUSH BINARY LOGS"));
        let branch = ArchiveFacts { branch: Some("other bytes".to_owned()), ..good.clone() };
        let branch = verdict(&branch, limit);
        assert!(branch.code == 2 && branch.line.contains("(other bytes): take a backup"));
        let gap = ArchiveFacts { gap: Some("purged".to_owned()), ..good };
        let gap = verdict(&gap, limit);
        assert!(gap.code == 2 && gap.line.contains("(purged): take a backup"), "{}", gap.line);
    }
}
