//! Whether the login may make triggers on the server, and sees those that are there: asked before anything is written.

use xb_mysql::{Client, Error};
use xb_reader::Printable;

use super::rows::sql;
use super::sink::PREFIX;
use super::tokens::{DoubleQuoted, Tokens};

/// The server refuses the statement for want of a privilege.
const DENIED: u16 = 1142;
/// It writes a binary log, and lets only accounts with SUPER make triggers. It says so before it looks at any privilege.
const UNTRUSTED: u16 = 1419;
/// It has looked at the privilege: others hold the table, there is no such schema or table, the trigger is in another schema.
const LOOKED: [u16; 4] = [1205, 1049, 1146, 1435];

/// The other privileges that a rescue needs on the schema of the new tables.
const NEEDED: [&str; 5] = ["SELECT", "INSERT", "CREATE", "ALTER", "DROP"];

/// A privilege that the login needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// To make triggers.
    Make,
    /// Only to see them.
    See,
}

/// Refuses if the login has no privilege TRIGGER on a table, which need not exist: without it, triggers can neither be
/// made nor seen.
///
/// # Errors
/// A text that names the privilege, and the next step.
pub(super) fn refuse_without_trigger(
    client: &mut Client,
    schema: &str,
    table: &str,
    need: Need,
) -> Result<(), String> {
    let name = format!("{}.{}", sql(schema), sql(table));
    // The server looks at the privilege first, whichever role it comes from, and then refuses the trigger, because it is
    // in another schema than the table. A lock that is held is as good an answer, and is not waited for.
    let ask = format!(
        "CREATE TRIGGER {PREFIX}schema.{PREFIX}trigger BEFORE INSERT ON {name} FOR EACH ROW SET @{PREFIX} = 1"
    );
    let answer = client.run("SET lock_wait_timeout = 0").and_then(|()| client.run(ask));
    let theirs = |error: Error| format!("the server: {error}");
    client.run("SET lock_wait_timeout = DEFAULT").map_err(theirs)?;
    let (shown, shown_schema) = (
        format!("{}.{}", Printable::new(schema.as_bytes()), Printable::new(table.as_bytes())),
        Printable::new(schema.as_bytes()),
    );
    let code = match answer {
        Ok(()) => return Ok(()),
        Err(Error::Server(refused)) if LOOKED.contains(&refused.code) => return Ok(()),
        Err(Error::Server(refused)) if [DENIED, UNTRUSTED].contains(&refused.code) => refused.code,
        Err(error) => return Err(theirs(error)),
    };
    if code == UNTRUSTED && need == Need::Make {
        return Err(format!(
            "the server writes a binary log and lets only accounts with the privilege SUPER create triggers, which {shown} needs: log in with such an account, run SET GLOBAL log_bin_trust_function_creators = 1, or give another name with --as"
        ));
    }
    if code == UNTRUSTED && holds_trigger(client, schema, table).map_err(theirs)? {
        return Ok(());
    }
    Err(format!(
        "the login lacks the privilege TRIGGER on {shown} of the server, so its triggers can be neither created nor read; GRANT TRIGGER ON {shown_schema}.*, or give another name with --as"
    ))
}

/// Returns whether the account, one of its enabled roles or PUBLIC has the privilege. `information_schema`
/// shows the privileges of a role only to those who may read the schema `mysql`.
fn holds_trigger(client: &mut Client, schema: &str, table: &str) -> Result<bool, Error> {
    let grants = client.rows("SHOW GRANTS")?;
    let grants = grants.iter().filter_map(|row| row.get(0));
    Ok(grants.map(String::from_utf8_lossy).any(|grant| gives(&grant, "TRIGGER", schema, table)))
}

/// The privileges on a schema that a rescue needs and the login does not have: the new tables are created there, filled, read
/// back, renamed, and dropped if the rescue fails.
///
/// # Errors
/// Any error of the server; one that has no accounts does not answer.
pub(super) fn lacking(client: &mut Client, schema: &str) -> Result<Vec<&'static str>, Error> {
    let grants = client.rows("SHOW GRANTS")?;
    let grants: Vec<_> = grants.iter().filter_map(|row| row.get(0)).collect();
    let has = |right: &str| {
        let mut texts = grants.iter().map(|grant| String::from_utf8_lossy(grant));
        texts.any(|grant| gives(&grant, right, schema, PREFIX))
    };
    Ok(NEEDED.into_iter().filter(|right| !has(right)).collect())
}

/// Returns whether a line of `SHOW GRANTS` gives a privilege on a table.
fn gives(grant: &str, right: &str, schema: &str, table: &str) -> bool {
    let tokens = Tokens::new(grant.as_bytes(), DoubleQuoted::Names);
    let tokens: Option<Vec<&[u8]>> = tokens.map(|token| Some(token.ok()?.text)).collect();
    let tokens = tokens.unwrap_or_default();
    let mut parts = tokens.split(|token| *token == b"ON");
    let (Some(rights), Some([of, b".", on, b"TO", ..])) = (parts.next(), parts.next()) else {
        return false;
    };
    // Names of columns stand in parentheses.
    let mut depth = 0;
    let has = rights.iter().enumerate().any(|(at, token)| {
        depth += i32::from(*token == b"(") - i32::from(*token == b")");
        // Not ALTER ROUTINE for ALTER, and not the columns of a table for all of it.
        let is_whole = |next: &&[u8]| [&b","[..], b"PRIVILEGES"].contains(next);
        depth == 0
            && [right.as_bytes(), b"ALL"].contains(token)
            && rights.get(at + 1).is_none_or(is_whole)
    });
    let (schema, table) = (letters(schema), letters(table));
    has && match (*of, *on) {
        (b"*", b"*") => true,
        (of, b"*") => is_like(&schema, &letters(&name_of(of))),
        (of, on) => schema == letters(&name_of(of)) && table == letters(&name_of(on)),
    }
}

/// The name in a quoted token.
fn name_of(token: &[u8]) -> String {
    let text = String::from_utf8_lossy(token);
    let inner = text.strip_prefix('`').and_then(|text| text.strip_suffix('`'));
    inner.unwrap_or(&text).replace("``", "`")
}

/// In small letters: a server may keep its names so.
fn letters(name: &str) -> Vec<char> {
    name.to_lowercase().chars().collect()
}

/// Compares a name with a pattern of SQL.
fn is_like(name: &[char], pattern: &[char]) -> bool {
    let (wanted, rest) = match pattern {
        [] => return name.is_empty(),
        ['%', rest @ ..] => return (0..=name.len()).any(|at| is_like(&name[at..], rest)),
        ['\\', wanted, rest @ ..] => (Some(wanted), rest),
        ['_', rest @ ..] => (None, rest),
        [wanted, rest @ ..] => (Some(wanted), rest),
    };
    let Some((first, after)) = name.split_first() else { return false };
    wanted.is_none_or(|wanted| wanted == first) && is_like(after, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_for_a_table() {
        for (grant, gives) in [
            ("GRANT ALL PRIVILEGES ON *.* TO `a`@`%` WITH GRANT OPTION", true),
            ("GRANT SELECT, TRIGGER, DELETE HISTORY ON `my\\_shop`.* TO PUBLIC", true),
            ("GRANT TRIGGER ON `my%`.* TO `r`", true),
            ("GRANT TRIGGER ON `%p`.* TO `r`", true),
            ("GRANT TRIGGER ON `m%_s%`.* TO `r`", true),
            ("GRANT TRIGGER ON `my_shop`.`par``t` TO `r`", true),
            ("GRANT SELECT (`id`, `TRIGGER`), TRIGGER ON `my_shop`.`par``t` TO `r`", true),
            ("GRANT SELECT (id, TRIGGER, x) ON `my_shop`.`par``t` TO `r`", false),
            ("GRANT TRIGGER ON `my%`.`par``t` TO `r`", false),
            ("GRANT TRIGGER ON `my_shop`.`par` TO `r`", false),
            ("GRANT TRIGGER ON `my\\_`.* TO `r`", false),
            ("GRANT TRIGGER ON `%q`.* TO `r`", false),
            ("GRANT SELECT, INSERT ON *.* TO `TRIGGER`@`%`", false),
            ("GRANT `TRIGGER` TO `a`@`%`", false),
            ("SET DEFAULT ROLE `r` FOR `a`@`%`", false),
            ("GRANT TRIGGER ON `my_sh", false),
            ("", false),
        ] {
            assert_eq!(super::gives(grant, "TRIGGER", "my_shop", "par`t"), gives, "{grant}");
        }
        let grant =
            "GRANT SELECT, INSERT, CREATE, CREATE VIEW, ALTER ROUTINE ON `my_shop`.* TO `a`@`%`";
        let lacks = NEEDED.map(|right| !super::gives(grant, right, "my_shop", PREFIX));
        assert_eq!(lacks, [false, false, false, true, true]);
    }
}
