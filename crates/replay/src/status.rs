//! Status of the server's applier.

use xb_mysql::{Client, Error, Rows};

use crate::dialect::Dialect;

/// State of the applier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Relay log of the transaction that is next, and the offset in it.
    pub(crate) relay: (String, u64),
    /// The source's log and the offset in it up to which everything is applied.
    pub(crate) source: (String, u64),
    pub(crate) is_running: bool,
    /// Error that ended it; empty if none did.
    pub(crate) error: String,
    /// Its number; 0 if none did.
    pub(crate) code: u64,
}

impl Status {
    /// Asks the server. `None` if it is not a replica.
    pub(crate) fn ask(client: &mut Client, dialect: &Dialect) -> Result<Option<Self>, Error> {
        let results = client.query(dialect.status)?.collect()?;
        let Some(Rows { columns, rows, .. }) = results.into_iter().next() else { return Ok(None) };
        let Some(row) = rows.first() else { return Ok(None) };
        let text = |name: &str| {
            let column = columns.iter().position(|column| column.name == name.as_bytes());
            let value = row.get(column.ok_or(Error::Unexpected)?).unwrap_or_default();
            Ok::<_, Error>(String::from_utf8_lossy(value).into_owned())
        };
        let number = |name| text(name)?.parse::<u64>().map_err(|_| Error::Unexpected);
        let [relay, relay_offset, source, source_offset, is_running, code, error] = dialect.columns;
        let code = number(code)?;
        let mut error = text(error)?;
        if let (Some(statement), false) = (dialect.worker_error, code == 0)
            && let Some(row) = client.rows(statement)?.first()
        {
            [error] = row.texts()?;
        }
        Ok(Some(Self {
            relay: (text(relay)?, number(relay_offset)?),
            source: (text(source)?, number(source_offset)?),
            is_running: text(is_running)? == "Yes",
            error: match code {
                0 => String::new(),
                code => format!("error {code}: {}", without_statement(&error)),
            },
            code,
        }))
    }
}

/// The message without the statement that some end with: it may hold a password.
fn without_statement(message: &str) -> &str {
    message.split_once(". Query: '").map_or(message, |(before, _)| before)
}

/// A text that changes while the server does anything.
pub(crate) fn activity(client: &mut Client, dialect: &Dialect) -> Result<String, Error> {
    let mut text = String::new();
    for statement in dialect.activity {
        for row in client.rows(statement)? {
            for value in row.iter() {
                text.push_str(&String::from_utf8_lossy(value.unwrap_or_default()));
                text.push(' ');
            }
        }
    }
    Ok(text)
}

/// The one value of a statement.
pub(crate) fn value(client: &mut Client, statement: &str) -> Result<String, Error> {
    let rows = client.rows(statement)?;
    let [value] = rows.first().ok_or(Error::Unexpected)?.texts()?;
    Ok(value)
}
