//! Which tablespaces were imported into a server: their pages are in no increment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use xb_binlog::Fork;
use xb_mysql::Row;
use xb_process::{DiscardedSearch, HIGHEST, VERSION, lists_opened};
use xb_repo::manifest::history::HighestNumbers;

use crate::cancel::CancelToken;
use crate::server::login::{LoginError, log_in};
use crate::server::session::Session;

/// The tables with a tablespace of their own. Needs the privilege PROCESS.
const TABLES: &str = "information_schema.innodb_sys_tables WHERE space BETWEEN 1 AND 4294967279";

/// Time limit of each answer: a backup that is stored does not wait for a server that hangs.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// The same, where the server opens all tablespaces for the answer: 5,000 took 2 s.
const OPENING_LIMIT: Duration = Duration::from_secs(300);

/// A login to a MariaDB server, to look for imported tablespaces.
pub(super) struct ImportSearch<'a> {
    session: Session,
    /// [`lists_opened`].
    lists_opened: bool,
    cancel: &'a CancelToken,
}

impl<'a> ImportSearch<'a> {
    /// Logs in to the server of the producer `argv`.
    ///
    /// # Errors
    /// [`LoginError`].
    pub(super) async fn begin(
        argv: &[OsString],
        cancel: &'a CancelToken,
    ) -> Result<Self, LoginError> {
        let session = log_in(Fork::MariaDb, argv, cancel).await?;
        let mut search = Self { session, lists_opened: false, cancel };
        let rows = search.ask(VERSION).await?;
        if let Some([version]) = rows.first().map(Row::texts).transpose()? {
            search.lists_opened = lists_opened(&version);
        }
        Ok(search)
    }

    /// The highest numbers that the server has given. Tables that are made later have higher ones.
    ///
    /// # Errors
    /// [`LoginError::Session`].
    pub(super) async fn highest(&mut self) -> Result<HighestNumbers, LoginError> {
        let rows = self.ask(HIGHEST).await?;
        let found = rows.first().map(Row::texts).transpose()?;
        let numbers = found.and_then(|[table, space]| {
            Some(HighestNumbers { table: table.parse().ok()?, space: space.parse().ok()? })
        });
        Ok(numbers.ok_or(xb_mysql::Error::Unexpected)?)
    }

    /// Names of the tables that have no tablespace now because they were discarded, by its number. An import gives a table its
    /// tablespace back, and no new number.
    ///
    /// # Errors
    /// [`LoginError::Session`].
    pub(super) async fn discarded(&mut self) -> Result<BTreeMap<u32, String>, LoginError> {
        if !self.lists_opened {
            return Ok(BTreeMap::new());
        }
        let mut search = DiscardedSearch::default();
        while let Some(question) = search.question() {
            let limit = if question.opens_all { OPENING_LIMIT } else { REPLY_LIMIT };
            let rows = self.ask_within(question.sql, limit).await?;
            search.answer(rows.iter().map(Row::texts).collect::<Result<_, _>>()?);
        }
        Ok(search.found().ok_or(xb_mysql::Error::Unexpected)?)
    }

    /// A table whose tablespace was imported since the highest numbers were `then`: it has a newer number than its
    /// tablespace.
    ///
    /// # Errors
    /// [`LoginError::Session`].
    pub(super) async fn imported_since(
        &mut self,
        then: HighestNumbers,
    ) -> Result<Option<String>, LoginError> {
        let HighestNumbers { table, space } = then;
        let sql = format!(
            "SELECT CAST(name AS CHAR) FROM {TABLES} AND table_id > {table} AND space <= {space} ORDER BY table_id LIMIT 1"
        );
        let rows = self.ask(&sql).await?;
        Ok(rows.first().map(Row::texts).transpose()?.map(|[name]| name))
    }

    /// The rows of questions of two columns about tablespaces that the server has opened.
    ///
    /// # Errors
    /// [`LoginError::Session`], also of a server that does not list these.
    pub(super) async fn answers(
        &mut self,
        questions: &[String],
    ) -> Result<Vec<[String; 2]>, LoginError> {
        if !self.lists_opened {
            return Err(xb_mysql::Error::Unexpected.into());
        }
        let mut answers = Vec::new();
        for question in questions {
            let rows = self.ask(question).await?;
            answers.extend(rows.iter().map(Row::texts).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(answers)
    }

    /// Runs a statement.
    async fn ask(&mut self, sql: &str) -> Result<Vec<Row>, LoginError> {
        self.ask_within(sql, REPLY_LIMIT).await
    }

    async fn ask_within(&mut self, sql: &str, limit: Duration) -> Result<Vec<Row>, LoginError> {
        let rows = self.session.list_within(sql, limit, self.cancel).await?;
        Ok(rows.ok_or(xb_mysql::Error::Unusable)?)
    }
}
