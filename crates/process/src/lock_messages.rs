//! Recognises in a producer's messages which locks it holds on the server. Only those that
//! block commits bound its waits:
//!
//! | lock | blocks |
//! |---|---|
//! | `BACKUP STAGE START` | nothing |
//! | `BACKUP STAGE FLUSH` | writes to tables without transactions (MyISAM, Aria) |
//! | `BACKUP STAGE BLOCK_DDL` | these, and changes of table definitions |
//! | `BACKUP STAGE BLOCK_COMMIT` | these, and commits |
//! | `LOCK TABLES FOR BACKUP` | writes to tables without transactions, changes of table definitions |
//! | `LOCK INSTANCE FOR BACKUP` | changes of table definitions |
//! | `LOCK BINLOG FOR BACKUP` | commits, if the binary log is on |
//! | `FLUSH TABLES WITH READ LOCK` | all writes and commits |
//!
//! mariadb-backup from 10.11 on names each stage (observed). Earlier versions announce all of them by
//! `Acquiring BACKUP LOCKS...`, and block commits soon after. xtrabackup names the statements that it
//! executes.

/// Change of the locks that a producer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The producer blocks commits, or is about to.
    Locked,
    /// The producer blocks writes to tables without transactions for a short time, but no commits.
    Partly,
    /// The producer blocks neither.
    Unlocked,
}

/// Messages of a lock that blocks commits.
const LOCKS: [&str; 4] = [
    "BACKUP STAGE BLOCK_COMMIT",
    "ACQUIRING BACKUP LOCKS",
    "LOCK BINLOG FOR BACKUP",
    "FLUSH TABLES WITH READ LOCK",
];
/// Messages of stages that do not, and in which mariadb-backup copies what they protect.
const PARTLY: [&str; 2] = ["BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL"];
/// Messages of a stage that blocks nothing, and of released locks.
const UNLOCKS: [&str; 4] =
    ["BACKUP STAGE START", "ALL TABLES UNLOCKED", "UNLOCK TABLES", "UNLOCK BINLOG"];
/// Messages that name a stage or a lock without a change: errors, and the end of a stage, which
/// takes effect with the next one only.
const NO_CHANGE: [&str; 4] =
    ["BACKUP STAGE END", "FINISHING BACKUP STAGE", "FINISHED BACKUP STAGE", "ERROR"];

/// Parses one line of a producer's messages; `None` if it does not concern such locks.
pub fn change(line: &[u8]) -> Option<Change> {
    let line = String::from_utf8_lossy(line).to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|words| line.contains(words));
    match () {
        () if has(&NO_CHANGE) => None,
        () if has(&UNLOCKS) => Some(Change::Unlocked),
        () if has(&PARTLY) => Some(Change::Partly),
        () if has(&LOCKS) => Some(Change::Locked),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_messages_of_the_producers_are_understood() {
        let (locked, unlocked) = (Some(Change::Locked), Some(Change::Unlocked));
        let partly = Some(Change::Partly);
        for (line, expected) in [
            // mariadb-backup 10.6
            ("[00] 2026-11-21 13:50:02 Acquiring BACKUP LOCKS...", locked),
            ("[00] 2026-11-21 13:50:03 Executing BACKUP STAGE END", None),
            ("[00] 2026-11-21 13:50:03 All tables unlocked", unlocked),
            // mariadb-backup 10.11 to 12
            ("[00] 2026-11-21 13:50:02 Starting BACKUP STAGE START", unlocked),
            ("[00] 2026-11-21 13:50:02 Acquired locks for BACKUP STAGE START", unlocked),
            ("[00] 2026-11-21 13:50:02 Starting BACKUP STAGE FLUSH", partly),
            ("[00] 2026-11-21 13:50:02 Started BACKUP STAGE BLOCK_DDL", partly),
            ("[00] 2026-11-21 13:50:02 Finished BACKUP STAGE BLOCK_DDL", None),
            ("[00] 2026-11-21 13:50:02 Starting BACKUP STAGE BLOCK_COMMIT", locked),
            ("[00] 2026-11-21 13:50:02 Acquired locks for BACKUP STAGE BLOCK_COMMIT", locked),
            ("[00] 2026-11-21 13:50:02 Finishing BACKUP STAGE BLOCK_COMMIT", None),
            ("[00] 2026-11-21 13:50:02 Starting BACKUP STAGE END", None),
            // xtrabackup 8.0, 8.4 and 9.x, on MySQL and on Percona Server
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing LOCK INSTANCE FOR BACKUP ...",
                None,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing LOCK TABLES FOR BACKUP ...",
                None,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing FLUSH TABLES WITH READ LOCK...",
                locked,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing FLUSH NO_WRITE_TO_BINLOG TABLES...",
                None,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing FLUSH NO_WRITE_TO_BINLOG BINARY LOGS",
                None,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing UNLOCK INSTANCE",
                None,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] Executing UNLOCK TABLES",
                unlocked,
            ),
            (
                "2026-11-21T13:50:02.1-00:00 0 [Note] [MY-011825] [Xtrabackup] All tables unlocked",
                unlocked,
            ),
            // xtrabackup 2.4, on Percona Server 5.7
            ("261121 13:50:02 Executing LOCK BINLOG FOR BACKUP...\n", locked),
            ("261121 13:50:02 Executing UNLOCK BINLOG", unlocked),
            // Others
            ("[01] 2026-11-21 13:50:02 Streaming ./shop/lock for backup.ibd", None),
            ("[00] Executing FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS...", None),
            ("Error on executing BACKUP LOCK for table x", None),
            ("completed OK!", None),
        ] {
            assert_eq!(change(line.as_bytes()), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = change(&line);
        }
    }
}
