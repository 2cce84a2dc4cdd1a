//! Checks of a server that is to be cloned.

use xb_clone::{Error, ServerFacts, look, try_clone};
use xb_mysql::{Access, Target, Trust};

use crate::check::CheckLine;
use crate::error::BackupError;
use crate::write::clone_source::CloneRequest;

/// The plugin of clones.
const INSTALL: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so';";

/// Checks what a clone needs: login, TLS, rights, plugin, packet size, that no other clone runs; and what it
/// would lose. The fixes are statements for the server.
///
/// # Errors
/// [`BackupError::Bug`].
pub async fn check_clone(request: CloneRequest) -> Result<Vec<CheckLine>, BackupError> {
    let asked = tokio::task::spawn_blocking(move || {
        let Access { target, account } = &request.access;
        match look(target, account) {
            Ok(found) => {
                let tried = try_clone(target, account);
                judge(&found, &tried, &request)
            }
            Err(error) => vec![unreachable(&error, &request.access)],
        }
    });
    asked.await.map_err(|_| BackupError::Bug("the thread that asks the server panicked"))
}

/// Error of a login with a wrong name or password, or from a wrong host.
const ACCESS_DENIED: i32 = 1045;

/// The line about a server that cannot be asked.
fn unreachable(error: &Error, access: &Access) -> CheckLine {
    if let Error::Refused(why) = error {
        return CheckLine::failed("server", why, "clone a MySQL server of 8.0.30 or later");
    }
    let user = String::from_utf8_lossy(&access.account.user).into_owned();
    let found =
        |error: &dyn std::fmt::Display| format!("the login as {user} does not work: {error}");
    if let (Error::Server { source }, Some(hint)) = (error, error.hint())
        && error.code() != Some(ACCESS_DENIED)
    {
        return CheckLine::failed("server", found(source), hint);
    }
    CheckLine::failed(
        "server",
        found(error),
        format!(
            "check that the server is running, and the password in the group [client] of --login-file; for a new account: CREATE USER {user} IDENTIFIED BY '...' REQUIRE SSL; GRANT BACKUP_ADMIN, REFERENCES ON *.* TO {user}; {INSTALL}"
        ),
    )
}

fn judge(found: &ServerFacts, tried: &Result<(), Error>, request: &CloneRequest) -> Vec<CheckLine> {
    let ServerFacts { version, account, missing_rights, .. } = found;
    let code = tried.as_ref().err().and_then(Error::code);
    let mut lines = vec![CheckLine::ok(
        "server",
        format!("the login as {account} works; it is MySQL {version}"),
    )];
    lines.push(match &request.access.target {
        Target::Socket(_) => CheckLine::ok("tls", "needed on a socket only with encrypted tables"),
        Target::Tcp { trust: Trust::Fingerprint(_), .. } => {
            CheckLine::ok("tls", "the server's certificate has the fingerprint that was given")
        }
        Target::Tcp { .. } => {
            CheckLine::ok("tls", "an authority has signed the server's certificate")
        }
    });
    let rights = missing_rights.join(", ");
    let grant = format!("on the server: GRANT {rights} ON *.* TO {account};");
    lines.push(match missing_rights.as_slice() {
        [] => CheckLine::ok("grants", "BACKUP_ADMIN is granted, and no table is hidden"),
        // A role may grant it.
        ["BACKUP_ADMIN"] if tried.is_ok() => {
            CheckLine::ok("grants", "a role grants BACKUP_ADMIN, and no table is hidden")
        }
        _ => CheckLine::failed("grants", format!("{rights} is not granted to the account"), grant),
    });
    lines.push(match found.has_plugin {
        true => CheckLine::ok("plugin", "the plugin clone is active"),
        false => CheckLine::failed(
            "plugin",
            "the plugin clone is not loaded",
            format!("on the server: {INSTALL}"),
        ),
    });
    lines.push(match found.max_packet >= ServerFacts::LEAST_PACKET {
        true => CheckLine::ok("packet", format!("max_allowed_packet is {}", found.max_packet)),
        false => CheckLine::failed(
            "packet",
            format!("max_allowed_packet is {}, and a clone needs 2097152", found.max_packet),
            "on the server: SET PERSIST max_allowed_packet = 67108864;",
        ),
    });
    if found.encrypts_logs && !request.is_sealed {
        lines.push(CheckLine::failed(
            "keys",
            "the server encrypts its redo or undo log, and a clone contains the keys in clear text",
            "seal the backups, such as with --recipient",
        ));
    }
    if !found.empty_tables.is_empty() {
        lines.push(empty(found, request.allow_empty_tables));
    }
    lines.push(match tried {
        Ok(()) => CheckLine::ok("clone", "a clone can begin now"),
        Err(Error::Busy) => CheckLine::warning(
            "clone",
            "another clone of this server is running, or has just failed",
            format!(
                "let backups begin at different times; they wait for {} s",
                request.patience.as_secs()
            ),
        ),
        // Each has a line of its own.
        Err(_) if matches!(code, Some(1227 | 1524 | 3957)) => return lines,
        Err(error) => {
            let next = error.hint().unwrap_or("see the error log of the server");
            CheckLine::failed("clone", format!("a clone cannot begin: {error}"), next)
        }
    });
    lines
}

/// The line about tables that a clone does not have.
fn empty(found: &ServerFacts, is_allowed: bool) -> CheckLine {
    const SHOWN: usize = 10;
    let names: Vec<&str> = found.empty_tables.iter().take(SHOWN).map(String::as_str).collect();
    let more = if found.empty_tables.len() > SHOWN { ", ..." } else { "" };
    let text = format!(
        "not InnoDB's, so they come back empty: {}{more} ({} in all)",
        names.join(", "),
        found.empty_tables.len()
    );
    match is_allowed {
        true => CheckLine::warning(
            "tables",
            text,
            "on the server: ALTER TABLE ... ENGINE=InnoDB; or dump them beside the backup",
        ),
        false => CheckLine::failed(
            "tables",
            text,
            "on the server: ALTER TABLE ... ENGINE=InnoDB; or accept that with --allow-empty-tables",
        ),
    }
}

#[cfg(test)]
mod tests {
    use xb_mysql::{Account, Fingerprint};

    use super::*;
    use crate::check::CheckState;

    fn request() -> CloneRequest {
        let trust = Trust::Fingerprint(Fingerprint([0; 32]));
        let target = Target::Tcp { host: "db".to_owned(), port: 1, trust, certificate: None };
        CloneRequest::new(Access { target, account: Account::default() }, false)
    }

    fn findings() -> ServerFacts {
        ServerFacts {
            version: "9.7.4".to_owned(),
            account: "'b'@'%'".to_owned(),
            missing_rights: Vec::new(),
            has_plugin: true,
            max_packet: 64 << 20,
            encrypts_logs: false,
            empty_tables: Vec::new(),
        }
    }

    /// Faults of the server's settings and of the login, each with its fix.
    fn faults(found: &ServerFacts, request: &CloneRequest) -> Vec<(CheckState, String)> {
        let lines = judge(found, &Ok(()), request);
        let faults = lines.into_iter().filter(|line| line.state != CheckState::Ok);
        faults.map(|line| (line.state, line.fix.unwrap())).collect()
    }

    #[test]
    fn a_missing_setting_is_named_with_the_statement_that_sets_it() {
        assert_eq!(faults(&findings(), &request()), []);
        let fault = |change: fn(&mut ServerFacts)| {
            let mut found = findings();
            change(&mut found);
            let mut all = faults(&found, &request());
            assert_eq!((all.len(), all[0].0), (1, CheckState::Failed), "{all:?}");
            all.remove(0).1
        };
        let fix = fault(|found| found.missing_rights = vec!["BACKUP_ADMIN", "REFERENCES"]);
        assert_eq!(fix, "on the server: GRANT BACKUP_ADMIN, REFERENCES ON *.* TO 'b'@'%';");
        assert!(fault(|found| found.has_plugin = false).contains(INSTALL));
        assert!(fault(|found| found.max_packet = 1 << 20).contains("SET PERSIST"));
        assert!(fault(|found| found.encrypts_logs = true).contains("--recipient"));
        let empty = |found: &mut ServerFacts| found.empty_tables = vec!["a.b (MyISAM)".to_owned()];
        assert!(fault(empty).contains("--allow-empty-tables"));
        let (mut found, mut allowed) = (findings(), request());
        (found.encrypts_logs, allowed.is_sealed) = (true, true);
        assert_eq!(faults(&found, &allowed), []);
        empty(&mut found);
        allowed.allow_empty_tables = true;
        assert_eq!(faults(&found, &allowed)[0].0, CheckState::Warning);
    }

    #[test]
    fn another_clone_is_waited_for_and_anything_else_fails() {
        let last = |tried| judge(&findings(), &tried, &request()).pop().unwrap();
        assert_eq!(last(Ok(())).state, CheckState::Ok);
        assert_eq!(last(Err(Error::Busy)).state, CheckState::Warning);
        assert_eq!(last(Err(Error::Stopped)).state, CheckState::Failed);
    }
}
