//! Whether the login may make triggers on the server, and sees those that are there: asked before anything is written.

use xb_mysql::{Client, Error};
use xb_reader::Printable;

use super::rows::sql;
use super::sink::PREFIX;

/// The server refuses the statement for want of a privilege.
const DENIED: u16 = 1142;

/// Refuses if the login has no privilege TRIGGER on a table, which need not exist: without it, triggers can neither be
/// made nor seen.
///
/// # Errors
/// What is missing, and what to do.
pub(super) fn refuse_without_trigger(
    client: &mut Client,
    (schema, table): (&str, &str),
) -> Result<(), String> {
    let name = format!("{}.{}", sql(schema), sql(table));
    // The server looks at the privilege first, whichever role it comes from, and then refuses the trigger, because it is
    // in another schema than the table. A lock that is held is as good an answer, and is not waited for.
    let ask = format!(
        "CREATE TRIGGER {PREFIX}schema.{PREFIX}trigger BEFORE INSERT ON {name} FOR EACH ROW SET @{PREFIX} = 1"
    );
    let answer = client.run("SET lock_wait_timeout = 0").and_then(|()| client.run(ask));
    client
        .run("SET lock_wait_timeout = DEFAULT")
        .map_err(|error| format!("the server: {error}"))?;
    match answer {
        Err(Error::Server(refused)) if refused.code == DENIED => Err(format!(
            "the login lacks the privilege TRIGGER on {schema}.{table} of the server, so its triggers can neither be made nor seen; GRANT TRIGGER ON {schema}.*, or give another name with --as",
            schema = Printable::new(schema.as_bytes()),
            table = Printable::new(table.as_bytes())
        )),
        _ => Ok(()),
    }
}
