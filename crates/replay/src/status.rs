//! What the server says about its applier.

use xb_mysql::{Client, Error, Rows};

/// What moves while a server works, and does not by our asking.
const COUNTERS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', \
                        'Handler_delete', 'Innodb_data_read', 'Innodb_data_written')";
const THREADS: &str = "SELECT id, state, stage, progress, examined_rows FROM \
                       information_schema.processlist WHERE user = 'system user' ORDER BY id";

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
}

impl Status {
    /// Asks the server. `None` if it is no replica.
    pub(crate) fn ask(client: &mut Client) -> Result<Option<Self>, Error> {
        let results = client.query("SHOW SLAVE STATUS")?.collect()?;
        let Some(Rows { columns, rows, .. }) = results.into_iter().next() else { return Ok(None) };
        let Some(row) = rows.first() else { return Ok(None) };
        let text = |name: &str| {
            let column = columns.iter().position(|column| column.name == name.as_bytes());
            let value = row.get(column.ok_or(Error::Unexpected)?).unwrap_or_default();
            Ok::<_, Error>(String::from_utf8_lossy(value).into_owned())
        };
        let number = |name| text(name)?.parse::<u64>().map_err(|_| Error::Unexpected);
        let code = number("Last_SQL_Errno")?;
        Ok(Some(Self {
            relay: (text("Relay_Log_File")?, number("Relay_Log_Pos")?),
            source: (text("Relay_Master_Log_File")?, number("Exec_Master_Log_Pos")?),
            is_running: text("Slave_SQL_Running")? == "Yes",
            error: match code {
                0 => String::new(),
                code => format!("error {code}: {}", without_statement(&text("Last_SQL_Error")?)),
            },
        }))
    }
}

/// The message without the statement that some end with: it may hold a password.
fn without_statement(message: &str) -> &str {
    message.split_once(". Query: '").map_or(message, |(before, _)| before)
}

/// A text that changes while the server does anything.
pub(crate) fn activity(client: &mut Client) -> Result<String, Error> {
    let mut text = String::new();
    for statement in [COUNTERS, THREADS] {
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
