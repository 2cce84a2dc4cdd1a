//! What a producer's messages reveal about the locks that it holds on the server.
//!
//! mariadb-backup 10.11 was seen to write, among others, `Starting BACKUP STAGE START`, `Acquired
//! locks for BACKUP STAGE BLOCK_COMMIT`, `Executing BACKUP STAGE END`, `All tables unlocked`;
//! xtrabackup names the statements that it executes. `LOCK INSTANCE FOR BACKUP` does not count: it
//! only blocks changes of table definitions, and may be held during the whole backup.

/// Change of the locks that a producer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The producer holds locks: clients of the server may be waiting.
    Locked,
    /// The producer has released its locks.
    Unlocked,
}

/// Parses one line of a producer's messages; `None` if it does not concern locks.
pub fn change(line: &[u8]) -> Option<Change> {
    let line = String::from_utf8_lossy(line).to_ascii_uppercase();
    let unlocks = ["ALL TABLES UNLOCKED", "UNLOCK TABLES", "UNLOCK BINLOG"];
    if unlocks.iter().any(|words| line.contains(words)) {
        return Some(Change::Unlocked);
    }
    let stage = line.contains("BACKUP STAGE ") && !line.contains("BACKUP STAGE END");
    let locks = ["LOCK TABLES FOR BACKUP", "LOCK BINLOG FOR BACKUP"];
    let lock = locks.iter().any(|words| line.contains(words));
    let flush = line.contains("FLUSH TABLES WITH READ LOCK");
    (stage || lock || flush).then_some(Change::Locked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_messages_of_the_producers_are_understood() {
        let (locked, unlocked) = (Some(Change::Locked), Some(Change::Unlocked));
        for (line, expected) in [
            ("[00] 2026-11-21 13:50:02 Starting BACKUP STAGE START", locked),
            ("[00] 2026-11-21 13:50:02 Acquired locks for BACKUP STAGE BLOCK_COMMIT", locked),
            ("[00] 2026-11-21 13:50:03 Executing BACKUP STAGE END", None),
            ("[00] 2026-11-21 13:50:03 All tables unlocked", unlocked),
            ("Executing FLUSH TABLES WITH READ LOCK...", locked),
            ("Executing LOCK TABLES FOR BACKUP ...", locked),
            ("Executing LOCK INSTANCE FOR BACKUP ...", None),
            ("Executing LOCK BINLOG FOR BACKUP...\n", locked),
            ("Executing UNLOCK TABLES", unlocked),
            ("Executing UNLOCK INSTANCE", None),
            ("[00] 2026-11-21 13:50:02 Acquiring BACKUP LOCKS...", None),
            ("[01] 2026-11-21 13:50:02 Streaming ./shop/lock for backup.ibd", None),
            ("[00] Executing FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS...", None),
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
