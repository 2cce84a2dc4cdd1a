//! The running server that rescued tables go to: where it is, and whether it can take them.

use std::collections::HashSet;

use xb_mysql::{Access, Client, Row, Timeouts};
use xb_reader::Printable;

use super::completing::TODO;
use super::grants::lacking;
use super::names::NamedTable;
use super::owners::referring;
use super::physical;
use super::rows::{SESSION, is_table, literal, sql};
use super::sink::{LOGIN, LiveServer, PREFIX, QuotedTable, next_step};
use crate::binlog::source::write_access::WriteAccess;
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::address::Address;
use crate::server::login::usual_access;

/// Reads the address of a server: the path of a socket, `HOST[:PORT]` or `mysql://[USER@]HOST[:PORT]`.
/// All else comes from the option files of the stock clients.
///
/// # Errors
/// [`BackupError::Login`], [`BackupError::Input`].
pub(super) fn access(address: &str) -> Result<Access, BackupError> {
    let place = Address::parse(address).ok_or_else(|| {
        BackupError::Login("--into takes mysql://[USER@]HOST[:PORT], without a password and a schema; put the password into the group [client] of ~/.my.cnf, and the schema into --as".to_owned())
    })?;
    let access = usual_access(|options| place.set(options));
    access.map_err(|error| BackupError::Input(format!("--into={address}: {error}")))
}

/// Tables that the server is to receive.
pub(super) struct TargetRequest<'a> {
    pub(super) tables: &'a [NamedTable],
    /// An existing table may be replaced.
    pub(super) replace: bool,
    /// A missing schema may be created.
    pub(super) create_schema: bool,
    /// It gets files, not rows.
    pub(super) physical: bool,
}

/// Logs in, and checks that the server can take the tables under these names.
///
/// # Errors
/// [`BackupError::Rescue`], [`BackupError::Interrupted`].
pub(super) async fn open(
    address: &str,
    wish: &TargetRequest<'_>,
    cancel: &CancelToken,
) -> Result<LiveServer, BackupError> {
    let failed = |what: String| BackupError::Rescue { table: "into the server".to_owned(), what };
    let access = access(address)?;
    let (target, account) = (access.target.clone(), access.account.clone());
    let connecting = tokio::task::spawn_blocking(move || {
        Client::connect(&target, &account, Timeouts { login: LOGIN, reply: None })
    });
    // Its time limit ends a connect that is left behind.
    let client = tokio::select! {
        done = connecting => done.map_err(|_| BackupError::Bug("the thread that logs in panicked"))?,
        signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
    };
    let client = client.map_err(|error| {
        failed(format!(
            "{address}: {error}; check the address, and put user and password into the group [client] of ~/.my.cnf"
        ))
    })?;
    let mut live = LiveServer {
        client,
        access,
        max_packet: 0,
        unfinished: Vec::new(),
        schema: None,
        lock: String::new(),
        is_away: false,
        remarks: Vec::new(),
    };
    tokio::task::block_in_place(|| look(&mut live, wish, address))?;
    Ok(live)
}

fn look(live: &mut LiveServer, wish: &TargetRequest<'_>, address: &str) -> Result<(), BackupError> {
    let failed = |table: &str, what: String| BackupError::Rescue {
        table: Printable::new(table.as_bytes()).to_string(),
        what,
    };
    let shown = |error: xb_mysql::Error| format!("{address}: {error}{}", next_step(&error));
    let asked = |error: xb_mysql::Error| failed("into the server", shown(error));
    let version = live.client.greeting().version.clone();
    if !version.contains("MariaDB") {
        let what = format!(
            "{address} is MySQL {version}, and the tables are of MariaDB; write a dump instead, without --into"
        );
        return Err(failed("into the server", what));
    }
    let write_access = WriteAccess::ask(&mut live.client);
    let write_access =
        write_access.map_err(|error| failed("into the server", error.to_string()))?;
    if let Some(why) = refused_as_replica(&write_access) {
        return Err(failed("into the server", format!("{address}: {why}")));
    }
    if wish.physical
        && let Some(why) = physical::refused_by(&mut live.client).map_err(asked)?
    {
        return Err(failed("into the server", format!("{address}: {why}")));
    }
    live.client.run(SESSION).map_err(asked)?;
    let packet = live.client.rows("SELECT CAST(@@max_allowed_packet AS CHAR)").map_err(asked)?;
    let packet = packet.first().map(Row::texts::<1>).transpose().map_err(asked)?;
    live.max_packet = packet.and_then(|[text]| text.parse().ok()).unwrap_or(1 << 20);
    let mut schemas: Vec<&String> = wish.tables.iter().map(|table| &table.schema).collect();
    schemas.sort_unstable();
    schemas.dedup();
    for schema in schemas {
        let found = live.look(format!(
            "SELECT 1 FROM information_schema.schemata WHERE schema_name = {0} AND CAST(schema_name AS BINARY) = CAST({0} AS BINARY)",
            literal(schema)
        ));
        if found.map_err(asked)?.is_empty() {
            if !wish.create_schema {
                let what = "the server has no such schema; create it, or name another one with --as='SCHEMA.{table}'".to_owned();
                return Err(failed(schema, what));
            }
            continue;
        }
        let lacking = lacking(&mut live.client, schema).unwrap_or_default();
        if !lacking.is_empty() {
            let what = format!(
                "the login lacks privileges on this schema of the server: GRANT {} ON {}.*",
                lacking.join(", "),
                Printable::new(sql(schema).as_bytes())
            );
            return Err(failed(schema, what));
        }
        let left = live.look(format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = {} AND table_name LIKE '{}%'",
            literal(schema),
            PREFIX.replace('_', "\\\\_")
        ));
        let left: Vec<String> = left
            .map_err(asked)?
            .iter()
            .filter_map(|row| {
                row.texts().ok().map(|[table]| format!("{}.{}", sql(schema), sql(&table)))
            })
            .collect();
        let is_todo = |name: &String| name.ends_with(&format!("{TODO}`"));
        live.remarks.extend(left.iter().filter(|name| is_todo(name)).map(|todo| {
            format!(
                "{todo} holds the statements that complete the tables of a killed rescue. If no rescue is running, run those whose table `unfinished` no longer exists, in the order of their numbers, then drop {todo}"
            )
        }));
        let left: Vec<String> = left.into_iter().filter(|name| !is_todo(name)).collect();
        if !left.is_empty() {
            live.remarks.push(format!(
                "{}: left by a killed or running rescue; if no rescue is running, drop it; drop tables that end in _old last, because they hold replaced rows",
                left.join(", ")
            ));
        }
    }
    let folds = live.client.rows("SELECT CAST(@@lower_case_table_names AS CHAR)").map_err(asked)?;
    let folds = folds.first().and_then(|row| row.get(0)) != Some(b"0");
    let mut referred = None;
    let mut folded = HashSet::new();
    for NamedTable { schema, table, .. } in wish.tables {
        let name = format!("{schema}.{table}");
        // What is asked about a table is asked by its exact name.
        if folds && wish.replace && name != name.to_lowercase() {
            let what = "the server keeps names in lower case (lower_case_table_names), and may have another table of this name; give the name in lower case with --as".to_owned();
            return Err(failed(&name, what));
        }
        if folds && !folded.insert(name.to_lowercase()) {
            let what = "another one of these tables has this name in lower case, and the server keeps names so (lower_case_table_names); rescue one at a time, with other names in --as".to_owned();
            return Err(failed(&name, what));
        }
        live.refuse_held(schema, table).map_err(|error| failed(&name, shown(error)))?;
        let found = live
            .look(format!(
                "SELECT table_type FROM information_schema.tables WHERE {}",
                is_table(schema, table)
            ))
            .map_err(asked)?;
        let exists =
            || "the table exists; give another name with --as, or add --replace".to_owned();
        let Some([kind]) = found.first().map(Row::texts::<1>).transpose().map_err(asked)? else {
            let place = QuotedTable { schema: Some(schema.clone()), table: table.clone() };
            if folds && live.holds(&place).map_err(asked)? {
                return Err(failed(&name, exists()));
            }
            continue;
        };
        if kind == "VIEW" {
            return Err(failed(
                &name,
                "a view has this name; give another one with --as".to_owned(),
            ));
        }
        if !wish.replace {
            return Err(failed(&name, exists()));
        }
        let of_others = match &mut referred {
            Some(known) => known,
            None => referred.insert(referring(live).map_err(asked)?),
        };
        if let Some(child) = of_others.get(&[schema.to_lowercase(), table.to_lowercase()]) {
            let what = format!(
                "foreign keys of {} refer to the existing table, and would follow it instead of the new one; rescue it under another name, and swap the rows",
                Printable::new(child.as_bytes())
            );
            return Err(failed(&name, what));
        }
    }
    Ok(())
}

/// Returns why a server is not written to by clients, with the next step; `None` if it may be. What is written to a
/// replica is there only, and its own transactions can end its replication.
fn refused_as_replica(write_access: &WriteAccess) -> Option<String> {
    if let Some(closed) = &write_access.closed {
        return Some(format!("it {closed}; name the server that clients write to in --into"));
    }
    let sources = &write_access.connected;
    (!sources.is_empty()).then(|| {
        format!(
            "it is a replica of {}: the tables would be there only, and could end its replication; name the primary in --into. If it is the primary now, run RESET SLAVE ALL there; if clients write to it all the same, write a dump, without --into, and load that",
            Printable::new(sources.join(", ").as_bytes())
        )
    })
}

#[cfg(test)]
mod tests {
    use xb_mysql::Target;

    use super::*;

    #[test]
    fn an_address_is_a_socket_a_host_or_a_url() {
        let tcp = |address: &str| match access(address).unwrap() {
            Access { target: Target::Tcp { host, port, .. }, account } => {
                (host, port, String::from_utf8(account.user).unwrap())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(access("/run/s").unwrap().target, Target::Socket("/run/s".into()));
        assert!(matches!(access("localhost").unwrap().target, Target::Socket(_)));
        assert_eq!(tcp("db:3307").1, 3307);
        assert_eq!(tcp("mysql://me@db:3307"), ("db".to_owned(), 3307, "me".to_owned()));
        for bad in ["mysql://me:secret@db", "mysql://db/shop", "mysql://", "mariadb://u@"] {
            let error = access(bad).unwrap_err().to_string();
            assert!(error.contains("without a password") && !error.contains("secret"), "{error}");
        }
    }
}
