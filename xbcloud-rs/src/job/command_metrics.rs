//! Metrics of a command besides `run`: of a proof, or of an application of the retention rules. They share the
//! file of `run`, in which each command replaces only its own.

use jiff::Timestamp;

use crate::job::metrics::{Text, previous};

/// The commands, by the beginning of the names of their metrics. All other metrics are those of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `verify`.
    Proof,
    /// `prune`.
    Retention,
}

impl Family {
    const ALL: [Self; 2] = [Self::Proof, Self::Retention];

    fn prefix(self) -> &'static str {
        match self {
            Self::Proof => "xbcloud_proof_",
            Self::Retention => "xbcloud_retention_",
        }
    }

    /// Its name in the help of a metric.
    fn what(self) -> &'static str {
        match self {
            Self::Proof => "verification",
            Self::Retention => "application of the retention rules",
        }
    }
}

/// The end of a command.
pub(crate) struct CommandEnd {
    pub(crate) family: Family,
    pub(crate) repository: String,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    pub(crate) exit: u8,
    /// Further metrics: name without prefix, help, value.
    pub(crate) facts: Vec<(&'static str, &'static str, String)>,
}

/// Name of the metric of the level to which a verification was asked to go.
pub(crate) const ASKED_LEVEL: &str = "asked_level";

/// Returns whether the end of a verification says nothing new: a quick look that found nothing, after a deeper one.
fn is_shallower(ended: &CommandEnd, old: &str) -> bool {
    let asked = ended.facts.iter().find(|(name, ..)| *name == ASKED_LEVEL);
    let labels = Text::new(&ended.repository, None).labels();
    let name = format!("{}{ASKED_LEVEL}", ended.family.prefix());
    let number = |text: &str| text.parse::<u64>().ok();
    let before = previous(old, &name, &labels).and_then(|text| number(&text));
    let asked = asked.and_then(|(.., value)| number(value));
    ended.exit == 0 && before.zip(asked).is_some_and(|(before, asked)| before > asked)
}

/// Returns the text of the file after this end; `old` is the text before.
pub(crate) fn command_metrics(ended: &CommandEnd, old: Option<&str>) -> String {
    if let Some(old) = old.filter(|old| is_shallower(ended, old)) {
        return old.to_owned();
    }
    let (prefix, what) = (ended.family.prefix(), ended.family.what());
    let mut text = Text::new(&ended.repository, None);
    let mut add = |name: &str, help: &str, value: String| {
        text.one(&format!("{prefix}{name}"), help, value);
    };
    let is_ok = ended.exit == 0;
    add("success", &format!("Whether the last {what} succeeded."), u8::from(is_ok).to_string());
    add("exit_code", &format!("Exit code of the last {what}."), ended.exit.to_string());
    add(
        "end_timestamp_seconds",
        &format!("When the last {what} ended."),
        ended.ended.as_second().to_string(),
    );
    let seconds = ended.ended.duration_since(ended.began).as_secs_f64().max(0.0);
    add("duration_seconds", &format!("Duration of the last {what}."), seconds.to_string());
    let name = format!("{prefix}last_success_timestamp_seconds");
    let before = |old| previous(old, &name, &Text::new(&ended.repository, None).labels());
    let last = match is_ok {
        true => Some(ended.ended.as_second().to_string()),
        false => old.and_then(before),
    };
    if let Some(last) = last {
        let help = format!("When the last {what} that succeeded ended.");
        add("last_success_timestamp_seconds", &help, last);
    }
    for (name, help, value) in &ended.facts {
        add(name, help, value.clone());
    }
    kept(old, |name| !name.starts_with(prefix)) + &text.finish()
}

/// The metrics of other commands in the file of `run`.
pub(crate) fn beside_run(old: Option<&str>) -> String {
    kept(old, |name| Family::ALL.iter().any(|family| name.starts_with(family.prefix())))
}

/// The blocks of a file whose metrics are to be kept.
fn kept(old: Option<&str>, is_kept: impl Fn(&str) -> bool) -> String {
    let mut keeps = false;
    let mut kept = String::new();
    for line in old.unwrap_or_default().lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            keeps = is_kept(rest.split(' ').next().unwrap_or_default());
        }
        if keeps {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(family: Family, exit: u8, at: i64) -> CommandEnd {
        let at = Timestamp::from_second(at).unwrap();
        let facts = vec![("problems", "Problems found.", "0".to_owned())];
        CommandEnd { family, repository: "shop".to_owned(), began: at, ended: at, exit, facts }
    }

    #[test]
    fn each_command_replaces_only_its_own_metrics() {
        let run = "# HELP xbcloud_run_success X.\n# TYPE xbcloud_run_success gauge\nxbcloud_run_success{} 1\n";
        let proof = command_metrics(&ended(Family::Proof, 0, 1000), Some(run));
        assert!(proof.starts_with(run));
        let both = command_metrics(&ended(Family::Retention, 0, 2000), Some(&proof));
        assert!(both.starts_with(&proof) && both.contains("xbcloud_retention_success{"));
        let again = command_metrics(&ended(Family::Proof, 7, 3000), Some(&both));
        assert!(again.contains("xbcloud_proof_success{repository=\"shop\"} 0\n"));
        assert!(
            again.contains(
                "xbcloud_proof_last_success_timestamp_seconds{repository=\"shop\"} 1000\n"
            )
        );
        assert_eq!(again.matches("# HELP xbcloud_proof_success").count(), 1);
        assert!(again.contains(run) && again.contains("xbcloud_retention_success{"));
        let beside = beside_run(Some(&again));
        assert!(!beside.contains("xbcloud_run") && beside.contains("xbcloud_proof_success{"));
        assert_eq!(beside_run(None), "");
    }

    #[test]
    fn a_quick_look_leaves_a_deeper_proof_alone() {
        let asked = |level: u64, exit: u8, at: i64| {
            let mut ended = ended(Family::Proof, exit, at);
            ended.facts.push((ASKED_LEVEL, "Level.", level.to_string()));
            ended
        };
        let deep = command_metrics(&asked(6, 1, 1000), None);
        assert!(deep.contains("xbcloud_proof_success{repository=\"shop\"} 0\n"), "{deep}");
        assert_eq!(command_metrics(&asked(1, 0, 2000), Some(&deep)), deep);
        // Its findings count.
        let found = command_metrics(&asked(1, 7, 3000), Some(&deep));
        assert!(found.contains("xbcloud_proof_exit_code{repository=\"shop\"} 7\n"), "{found}");
        let again = command_metrics(&asked(6, 0, 4000), Some(&deep));
        assert!(again.contains("xbcloud_proof_success{repository=\"shop\"} 1\n"), "{again}");
    }
}
