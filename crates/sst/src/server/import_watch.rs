//! Tables of the donor whose tablespaces are imported while it is backed up: the backup program leaves their rows out, and
//! ends with success.

use std::collections::BTreeSet;
use std::time::Duration;

use xb_pipeline::Scanned;
use xb_process::{
    DiscardedSearch, DroppedTablespaces, ImportedNotDropped, StreamedTables, TablesBefore, VERSION,
    lists_opened,
};

use crate::cancel::CancelToken;
use crate::context::Context;
use crate::contract::args::Product;
use crate::run::Run;
use crate::server::sql::Sql;

/// Time limit of each answer: a joiner waits.
const LIMIT: Duration = Duration::from_secs(30);
/// The same, where the server opens all tablespaces for the answer: 5,000 took 2 s.
const OPENING_LIMIT: Duration = Duration::from_secs(120);

/// The donor's tables before its backup.
#[derive(Debug)]
pub(crate) struct ImportWatch {
    /// `None` with another server than MariaDB, whose backup program locks DDL out.
    sql: Option<Sql>,
    before: TablesBefore,
}

impl ImportWatch {
    /// Asks the server. One that does not answer is no error: then its backup is judged by less.
    pub(crate) fn begin(context: &Context) -> Self {
        let is_asked = context.args.product == Product::MariaDb;
        let sql = is_asked.then(|| Sql::new(context)).filter(|sql| {
            let version = sql.ask_within::<1>(LIMIT, VERSION).unwrap_or_default();
            version.first().is_some_and(|[version]| lists_opened(version))
        });
        let discarded = sql.as_ref().and_then(|sql| discarded(sql, &context.cancel));
        Self { sql, before: TablesBefore { discarded: discarded.unwrap_or_default() } }
    }

    /// Checks after the end of the program that it did not leave out what was imported.
    ///
    /// # Errors
    /// [`ImportedNotDropped`].
    pub(crate) fn refuse(
        &self,
        run: &Run<'_>,
        dropped: &DroppedTablespaces,
        scanned: &Scanned,
    ) -> Result<(), ImportedNotDropped> {
        let stream = StreamedTables {
            has_definition: &|table| scanned.defined.has(table),
            without_tablespace: &scanned.without_tablespace.first,
        };
        let questions = dropped.questions(&self.before, stream);
        let ask = |sql: &Sql| {
            let answers = questions.iter().map(|question| sql.ask_within::<2>(LIMIT, question));
            Some(answers.collect::<Option<Vec<_>>>()?.concat())
        };
        dropped.judge(&run.name(), self.sql.as_ref().and_then(ask).as_deref(), stream)
    }
}

/// The tablespaces of tables that have none now, because they were discarded.
fn discarded(sql: &Sql, cancel: &CancelToken) -> Option<BTreeSet<u32>> {
    let mut search = DiscardedSearch::default();
    while let Some(question) = search.question() {
        cancel.check().ok()?;
        let limit = if question.opens_all { OPENING_LIMIT } else { LIMIT };
        search.answer(sql.ask_within(limit, question.sql)?);
    }
    Some(search.found()?.into_keys().collect())
}
