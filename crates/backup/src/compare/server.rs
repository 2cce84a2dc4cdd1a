//! The server that restored data is compared with: what it is, and where.

use std::time::Duration;

use xb_binlog::GtidState;
use xb_mysql::{Access, Error, Row};

use crate::binlog::source::role::filters;
use crate::cancel::CancelToken;
use crate::compare::request::CompareOptions;
use crate::compare_error::CompareError;
use crate::error::BackupError;
use crate::server::address::compared_access;
use crate::server::session::{Session, SessionError};

/// Time limit of each step of a login.
const LOGIN: Duration = Duration::from_secs(30);
/// Without these, a server does not show everything.
const GRANTS: [&str; 4] = ["SELECT", "SHOW VIEW", "TRIGGER", "EVENT"];
/// A server, and a connection to it.
pub(super) struct Server {
    /// As it was named.
    pub(super) name: String,
    pub(super) access: Access,
    pub(super) session: Session,
    pub(super) version: String,
}

/// The status of one connection of a replica to a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// Name of the connection; empty for the usual one.
    pub(super) connection: String,
    pub(super) applies: bool,
    /// Whether it was started with UNTIL.
    pub(super) has_until: bool,
    /// `server_id` of the source; 0 if it is not known.
    pub(super) source_id: u32,
    /// `MASTER_DELAY`, in seconds.
    pub(super) delay: u64,
    /// The applier's error; empty if it has none.
    pub(super) error: String,
    /// Values that move while it works.
    pub(super) at: String,
    /// Filters that are set, each as `NAME=VALUE`.
    pub(super) filters: Vec<String>,
}

impl Server {
    /// Connects, and checks that everything can be seen there.
    pub(super) async fn open(
        server: &str,
        options: &CompareOptions,
        cancel: &CancelToken,
    ) -> Result<Self, BackupError> {
        let access = compared_access(server, options.login_file.as_deref())?;
        let session = Session::open(&access, LOGIN, cancel).await;
        let session = session.map_err(|error| asked(server, error))?;
        let mut this = Self { name: server.to_owned(), access, session, version: String::new() };
        this.version = this.value("SELECT VERSION()", cancel).await?;
        if !this.version.contains("MariaDB") {
            let found = format!("version {}", this.version);
            return Err(CompareError::Fork { server: this.name, found }.into());
        }
        let grants = this.rows("SHOW GRANTS", cancel).await?;
        let missing = missing(&grants.iter().filter_map(first_text).collect::<Vec<_>>());
        match missing.is_empty() {
            true => Ok(this),
            false => {
                Err(CompareError::Grants { server: this.name, missing: missing.join(", ") }.into())
            }
        }
    }

    /// Connects once more, such as after the connection was closed.
    pub(super) async fn connect_again(&mut self, cancel: &CancelToken) -> Result<(), BackupError> {
        let session = Session::open(&self.access, LOGIN, cancel).await;
        self.session = session.map_err(|error| asked(&self.name, error))?;
        Ok(())
    }

    pub(super) async fn rows(
        &mut self,
        sql: &str,
        cancel: &CancelToken,
    ) -> Result<Vec<Row>, BackupError> {
        let rows = self.session.rows(sql, cancel).await;
        rows.map_err(|error| asked(&self.name, error))
    }

    pub(super) async fn run(&mut self, sql: &str, cancel: &CancelToken) -> Result<(), BackupError> {
        self.session.run(sql, cancel).await.map_err(|error| asked(&self.name, error))
    }

    pub(super) async fn value(
        &mut self,
        sql: &str,
        cancel: &CancelToken,
    ) -> Result<String, BackupError> {
        let rows = self.rows(sql, cancel).await?;
        let value = rows.first().and_then(first_text);
        value.ok_or_else(|| asked(&self.name, Error::Unexpected.into()))
    }

    /// The GTID position in this variable.
    pub(super) async fn gtids(
        &mut self,
        variable: &str,
        cancel: &CancelToken,
    ) -> Result<GtidState, BackupError> {
        let text = self.value(&format!("SELECT @@GLOBAL.{variable}"), cancel).await?;
        text.parse().map_err(|_| asked(&self.name, Error::Unexpected.into()))
    }

    /// The status of each connection to a source.
    pub(super) async fn statuses(
        &mut self,
        cancel: &CancelToken,
    ) -> Result<Vec<Status>, BackupError> {
        let read = self.session.with(cancel, |client| {
            let mut all = Vec::new();
            for result in client.query("SHOW ALL SLAVES STATUS")?.collect()? {
                let names: Vec<&[u8]> = result.columns.iter().map(|one| &one.name[..]).collect();
                for row in &result.rows {
                    all.push(status(&names, row)?);
                }
            }
            Ok(all)
        });
        read.await.map_err(|error| asked(&self.name, error))
    }
}

fn status(names: &[&[u8]], row: &Row) -> Result<Status, Error> {
    let text = |name: &str| {
        let column = names.iter().position(|known| *known == name.as_bytes());
        let value = row.get(column.ok_or(Error::Unexpected)?).unwrap_or_default();
        Ok::<_, Error>(String::from_utf8_lossy(value).into_owned())
    };
    let number = |name| text(name).and_then(|text| text.parse().map_err(|_| Error::Unexpected));
    let code = number("Last_SQL_Errno")?;
    let error = text("Last_SQL_Error")?;
    // The rest may hold the values of a row, and a statement a password.
    let error = error.split("; ").next().filter(|text| !text.starts_with("Error '"));
    let error = error.unwrap_or("see Last_SQL_Error of SHOW SLAVE STATUS");
    Ok(Status {
        connection: text("Connection_name")?,
        applies: text("Slave_SQL_Running")? == "Yes",
        has_until: text("Until_Condition")? != "None",
        source_id: u32::try_from(number("Master_Server_Id")?).map_err(|_| Error::Unexpected)?,
        delay: number("SQL_Delay")?,
        error: match code {
            0 => String::new(),
            code => format!("error {code}: {error}"),
        },
        at: format!("{}:{}", text("Relay_Master_Log_File")?, text("Exec_Master_Log_Pos")?),
        filters: filters(names, row),
    })
}

/// An error of the server, or a request to cancel.
pub(super) fn asked(server: &str, error: SessionError) -> BackupError {
    match error {
        SessionError::Own(error) => error,
        SessionError::Server(error) => {
            CompareError::Server { server: server.to_owned(), what: error.to_string() }.into()
        }
    }
}

fn first_text(row: &Row) -> Option<String> {
    Some(String::from_utf8_lossy(row.get(0)?).into_owned())
}

/// The privileges on everything that these grants lack.
fn missing(grants: &[String]) -> Vec<&'static str> {
    let words = |grant: &String| {
        let (words, _) = grant.strip_prefix("GRANT ")?.split_once(" ON *.* TO ")?;
        Some(words.split(", ").map(str::to_owned).collect::<Vec<_>>())
    };
    let granted: Vec<String> = grants.iter().filter_map(words).flatten().collect();
    let has = |word: &str| granted.iter().any(|known| known == word || known == "ALL PRIVILEGES");
    GRANTS.into_iter().filter(|word| !has(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_to_see_everything() {
        let of = |grants: &[&str]| {
            missing(&grants.iter().map(|grant| (*grant).to_owned()).collect::<Vec<_>>())
        };
        assert!(of(&["GRANT ALL PRIVILEGES ON *.* TO `r`@`%` WITH GRANT OPTION"]).is_empty());
        assert!(
            of(&[
                "GRANT SELECT, SHOW VIEW, EVENT ON *.* TO `r`@`%` IDENTIFIED BY PASSWORD '*x'",
                "GRANT TRIGGER ON *.* TO `role`"
            ])
            .is_empty()
        );
        assert_eq!(
            of(&["GRANT SELECT ON `d`.* TO `r`@`%`", "GRANT SHOW VIEW, EVENT ON *.* TO `r`@`%`"]),
            ["SELECT", "TRIGGER"]
        );
    }
}
