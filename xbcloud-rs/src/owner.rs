//! Turns a user name into the owner of files.

use std::path::Path;
use std::process::{Command, Stdio};

use xb_backup::Owner;
use xb_cli::Failure;

/// Parses `USER[:GROUP]`, as names or numbers; the default group is the user's own.
pub(crate) fn owner(text: &str) -> Result<Owner, Failure> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let unknown = |what: &str, name: &str| {
        Failure::usage(format!("--owner={text}: there is no {what} `{name}`"))
    };
    let entry = lookup("passwd", user);
    let number = |field: usize| entry.as_ref()?.split(':').nth(field)?.parse::<u32>().ok();
    let user_id = number(2).or_else(|| user.parse().ok()).ok_or_else(|| unknown("user", user))?;
    let group = match group {
        None => number(3).ok_or_else(|| unknown("group of the user", user))?,
        Some(group) => lookup("group", group)
            .and_then(|entry| entry.split(':').nth(2)?.parse().ok())
            .or_else(|| group.parse().ok())
            .ok_or_else(|| unknown("group", group))?,
    };
    Ok(Owner { user: user_id, group })
}

/// Looks up a name or number in a system table. `getent` also reads directory services.
fn lookup(table: &str, name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with('-') {
        return None;
    }
    let asked = Command::new("getent")
        .args([table, name])
        // It needs nothing of it, and some of it is secret.
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    if let Ok(answer) = asked
        && answer.status.success()
    {
        return String::from_utf8(answer.stdout).ok()?.lines().next().map(str::to_owned);
    }
    let text = std::fs::read_to_string(Path::new("/etc").join(table)).ok()?;
    text.lines().find(|line| line.split(':').next() == Some(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_owners() {
        for text in ["root", "root:root", "0:0", "0"] {
            let found = owner(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(found, Owner { user: 0, group: 0 }, "{text}");
        }
        assert_eq!(owner("12345:54321").unwrap(), Owner { user: 12345, group: 54321 });
        for bad in ["", "no-such-user-here", "root:no-such-group", "--help", "54321"] {
            assert!(owner(bad).is_err(), "{bad}");
        }
    }
}
