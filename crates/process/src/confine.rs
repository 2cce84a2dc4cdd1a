//! Confinement: a program that can write only below certain directories. It is done by Landlock, which
//! Linux has in this form from 5.19 on if the system enables it.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};

/// Returns whether this system can confine programs.
pub(crate) fn is_supported() -> bool {
    rules().is_ok()
}

/// The reason why this system cannot confine programs.
pub(crate) fn why_not_supported() -> &'static str {
    match std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_call_filter(&status))
    {
        true => {
            "this system has no Landlock, or a filter of system calls denies it; in a unit, add SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self"
        }
        false => "this system has no Landlock",
    }
}

/// Returns whether a process with this status runs under a filter of system calls.
fn has_call_filter(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// All ways to change files and directories. The first version of Landlock lets nothing be moved to another directory, as
/// servers and backup programs do when a table is renamed, so the second one is required. What came later counts as far as
/// the system knows it: without `Truncate`, a file that is not open for writing can still be truncated.
fn changes() -> BitFlags<AccessFs> {
    AccessFs::from_write(ABI::V3)
}

fn rules() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(ABI::V2))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(changes())?
        .create()
}

/// Confines this process, and all that it starts, to writing below `places` and to `/dev/null`.
pub(crate) fn confine(places: &[PathBuf]) -> io::Result<()> {
    let mut rules = rules().map_err(io::Error::other)?;
    for place in places.iter().map(PathBuf::as_path).chain([Path::new("/dev/null")]) {
        let opened = match PathFd::new(place) {
            Err(_) if place == Path::new("/dev/null") => continue,
            opened => opened.map_err(io::Error::other)?,
        };
        let rule = PathBeneath::new(opened, changes());
        rules = rules.add_rule(rule).map_err(io::Error::other)?;
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other("this system has no Landlock")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_system_calls_is_seen() {
        for (status, has_filter) in [
            ("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", true),
            ("Seccomp:\t0\nSeccomp_filters:\t2\n", false),
            ("Seccomp:\t1\n", false),
            ("", false),
        ] {
            assert_eq!(has_call_filter(status), has_filter, "{status:?}");
        }
    }
}
