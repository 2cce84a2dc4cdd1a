//! Tables of the schema `mysql` that a server has to have. The trial server runs without accounts, so it starts without
//! them, and nothing else names those that are not InnoDB's.

use super::held::{BackupContents, SYSTEM};
use crate::table_id::TableId;

/// Tables that every server with `.frm` files has, and what is lost without them.
const REQUIRED: [(&str, &str); 10] = [
    ("columns_priv", "privileges on columns"),
    ("db", "privileges on schemas, without which no server starts"),
    ("event", "events"),
    ("func", "functions of plugins"),
    ("plugin", "the list of plugins"),
    ("proc", "stored procedures and functions"),
    ("procs_priv", "privileges on stored procedures and functions"),
    ("proxies_priv", "privileges of proxies"),
    ("servers", "the list of other servers"),
    ("tables_priv", "privileges on tables"),
];
/// The same for MariaDB only.
const REQUIRED_BY_MARIADB: [(&str, &str); 1] = [("roles_mapping", "the members of roles")];

/// Names the tables that a whole backup lacks. `version`: of the trial server.
pub(super) fn missing(holdings: &BackupContents, version: &str) -> Vec<String> {
    // MySQL from 8.0 on has all of them in its data dictionary.
    if holdings.data_dictionary || !holdings.is_whole() {
        return Vec::new();
    }
    let of_mariadb = REQUIRED_BY_MARIADB.iter().filter(|_| version.contains("MariaDB"));
    let required = REQUIRED.iter().chain(of_mariadb);
    let missing = required.filter(|(table, _)| !holdings.holds(&TableId::new(SYSTEM, table)));
    let what = |(table, lost): &(&str, &str)| {
        format!(
            "table {SYSTEM}.{table}: the backup does not have it, and so lacks {lost}: if the server does not have it \
             either, run mariadb-upgrade there"
        )
    };
    missing.map(what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "10.11.19-MariaDB";

    /// A data directory with these tables of the server, but for `left_out`.
    fn holdings(left_out: &str, info: &str) -> BackupContents {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(SYSTEM)).unwrap();
        std::fs::write(dir.path().join("xtrabackup_info"), info).unwrap();
        for (table, _) in REQUIRED.iter().chain(&REQUIRED_BY_MARIADB) {
            if *table != left_out {
                std::fs::write(dir.path().join(format!("{SYSTEM}/{table}.frm")), "").unwrap();
            }
        }
        BackupContents::read(dir.path()).unwrap()
    }

    #[test]
    fn each_table_of_the_server_is_missed_in_a_whole_backup_only() {
        assert_eq!(missing(&holdings("", "partial = N\n"), VERSION), [""; 0]);
        for (table, lost) in REQUIRED.iter().chain(&REQUIRED_BY_MARIADB) {
            let missing_in = |info| missing(&holdings(table, info), VERSION);
            let found = missing_in("partial = N\n");
            let named = |what: &String| what.contains(&format!("mysql.{table}:"));
            assert!(found.len() == 1 && found.iter().all(named), "{table}: {found:?}");
            assert!(found.concat().contains(lost), "{found:?}");
            for info in ["partial = Y\n", "tool_name = x\n"] {
                assert_eq!(missing_in(info), [""; 0], "{table}");
            }
        }
        let of_mysql = holdings("roles_mapping", "partial = N\n");
        assert_eq!(missing(&of_mysql, "5.7.44"), [""; 0]);
    }
}
