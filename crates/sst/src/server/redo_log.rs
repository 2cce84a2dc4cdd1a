//! What a donor's redo log has since the last checkpoint.

use std::time::Duration;

use crate::context::Context;
use crate::server::sql::Sql;

/// Time limit for the server's answer. The joiner waits for the offer meanwhile.
const LIMIT: Duration = Duration::from_secs(5);

/// MariaDB's servers state the first, MySQL's since 8.0.30 the others.
const QUESTION: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_checkpoint_age', 'Innodb_redo_log_current_lsn', 'Innodb_redo_log_checkpoint_lsn')";

/// Asks this node's server for the length, in bytes, of what its redo log has since the last checkpoint: a backup brings all of it.
/// `None` if the server does not say.
pub(crate) fn since_checkpoint(context: &Context) -> Option<u64> {
    parse(&Sql::new(context).ask_within(LIMIT, QUESTION)?)
}

/// Parses the answer to [`QUESTION`].
fn parse(rows: &[[String; 2]]) -> Option<u64> {
    let value = |name: &str| {
        let found = rows.iter().find(|[known, _]| known.eq_ignore_ascii_case(name));
        found.and_then(|[_, value]| value.parse::<u64>().ok())
    };
    value("Innodb_checkpoint_age").or_else(|| {
        value("Innodb_redo_log_current_lsn")?.checked_sub(value("Innodb_redo_log_checkpoint_lsn")?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_both_products_are_understood() {
        let rows = |rows: &[(&str, &str)]| -> Vec<[String; 2]> {
            rows.iter().map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect()
        };
        let [now, then] = ["Innodb_redo_log_current_lsn", "Innodb_redo_log_checkpoint_lsn"];
        for (answer, bytes) in [
            (rows(&[("Innodb_checkpoint_age", "7340032")]), Some(7_340_032)),
            (rows(&[(then, "100"), (now, "160")]), Some(60)),
            // Another checkpoint may come between both.
            (rows(&[(then, "170"), (now, "160")]), None),
            (rows(&[(now, "160")]), None),
            (rows(&[("Innodb_checkpoint_age", "")]), None),
            (rows(&[]), None),
        ] {
            assert_eq!(parse(&answer), bytes, "{answer:?}");
        }
    }
}
