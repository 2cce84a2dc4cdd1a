//! Whether the login may make triggers on the server, and sees those that are there: asked before anything is written.

use xb_mysql::{Client, Error};
use xb_reader::Printable;

use super::rows::{literal, sql};
use super::sink::PREFIX;

/// The server refuses the statement for want of a privilege.
const DENIED: u16 = 1142;
/// It writes a binary log, and lets only accounts with SUPER make triggers. It says so before it looks at any privilege.
const UNTRUSTED: u16 = 1419;
/// It has looked at the privilege: others hold the table, there is no such table, the trigger is in another schema.
const LOOKED: [u16; 3] = [1205, 1146, 1435];

/// What the login has to do with triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Make them.
    Make,
    /// Only see them.
    See,
}

/// Refuses if the login has no privilege TRIGGER on a table, which need not exist: without it, triggers can neither be
/// made nor seen.
///
/// # Errors
/// What is missing, and what to do.
pub(super) fn refuse_without_trigger(
    client: &mut Client,
    (schema, table): (&str, &str),
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
            "the server writes a binary log and lets only accounts with the privilege SUPER make triggers, and {shown} needs some: log in with it, SET GLOBAL log_bin_trust_function_creators = 1, or give another name with --as"
        ));
    }
    if code == UNTRUSTED && has_trigger_itself(client, (schema, table)).map_err(theirs)? {
        return Ok(());
    }
    Err(format!(
        "the login lacks the privilege TRIGGER on {shown} of the server, so its triggers can neither be made nor seen; GRANT TRIGGER ON {shown_schema}.*, or give another name with --as"
    ))
}

/// Returns whether the account itself has the privilege. One that comes from a role is not found.
fn has_trigger_itself(client: &mut Client, (schema, table): (&str, &str)) -> Result<bool, Error> {
    let (schema, table) = (literal(schema), literal(table));
    let host = "SUBSTRING_INDEX(CURRENT_USER(), '@', -1)";
    let user =
        format!("LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH({host}) - 1)");
    let of_account = format!(
        "privilege_type = 'TRIGGER' AND grantee = CONCAT('''', {user}, '''@''', {host}, '''')"
    );
    let found = client.rows(format!(
        "SELECT CAST(1 AS CHAR) FROM information_schema.user_privileges WHERE {of_account} \
         UNION ALL SELECT CAST(1 AS CHAR) FROM information_schema.schema_privileges WHERE {of_account} AND {schema} LIKE table_schema \
         UNION ALL SELECT CAST(1 AS CHAR) FROM information_schema.table_privileges WHERE {of_account} AND table_schema = {schema} AND table_name = {table}"
    ))?;
    Ok(!found.is_empty())
}
