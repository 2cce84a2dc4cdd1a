//! Types of events, by number.

/// Type of an event.
///
/// The numbers are those of "Binlog Event Header" in the documentation of MariaDB Server, and of
/// `mysql::binlog::event::Log_event_type` in MySQL Source Code Documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventType(pub u8);

impl EventType {
    /// A statement, with `BEGIN`, `COMMIT` and `ROLLBACK`.
    pub const QUERY: Self = Self(2);
    /// The server was shut down.
    pub const STOP: Self = Self(3);
    /// The log ends, and another one follows.
    pub const ROTATE: Self = Self(4);
    /// The first event of a log.
    pub const FORMAT_DESCRIPTION: Self = Self(15);
    /// A commit.
    pub const XID: Self = Self(16);
    /// A user variable that the next statement reads.
    pub(crate) const USER_VAR: Self = Self(14);
    /// A `LOAD DATA` in statement format.
    pub(crate) const EXECUTE_LOAD_QUERY: Self = Self(18);
    /// Names the table of the rows that follow.
    pub(crate) const TABLE_MAP: Self = Self(19);
    /// Something is missing in the log.
    pub const INCIDENT: Self = Self(26);
    /// Sent by an idle server; never in a file.
    pub const HEARTBEAT: Self = Self(27);
    /// The statement of the rows that follow (MySQL).
    pub(crate) const ROWS_QUERY: Self = Self(29);
    /// Begins a transaction (MySQL).
    pub const GTID: Self = Self(33);
    /// Begins a transaction that has no GTID (MySQL).
    pub const ANONYMOUS_GTID: Self = Self(34);
    /// Transactions of earlier logs (MySQL).
    pub const PREVIOUS_GTIDS: Self = Self(35);
    /// An XA transaction is prepared, or committed in one phase.
    pub const XA_PREPARE: Self = Self(38);
    /// Rows with parts of their values, of JSON (MySQL).
    pub(crate) const UPDATE_ROWS_PARTIAL: Self = Self(39);
    /// A whole transaction, compressed (MySQL).
    pub const TRANSACTION_PAYLOAD: Self = Self(40);
    /// A heartbeat of MySQL 8.0.26 and later.
    pub const HEARTBEAT_V2: Self = Self(41);
    /// Begins a transaction whose GTID has a tag (MySQL 8.3 and later).
    pub const GTID_TAGGED: Self = Self(42);
    /// Earlier logs that recovery still needs (MariaDB).
    pub(crate) const BINLOG_CHECKPOINT: Self = Self(161);
    /// Begins a transaction (MariaDB).
    pub const MARIADB_GTID: Self = Self(162);
    /// Last GTIDs of earlier logs (MariaDB).
    pub const GTID_LIST: Self = Self(163);
    /// The rest of the log is encrypted (MariaDB).
    pub const START_ENCRYPTION: Self = Self(164);
    /// A compressed statement (MariaDB).
    pub(crate) const QUERY_COMPRESSED: Self = Self(165);

    /// Returns whether every server states where an event of this type ends: one that lies between
    /// transactions, or begins or ends one.
    pub(crate) fn has_end(self) -> bool {
        matches!(
            self,
            Self::FORMAT_DESCRIPTION
                | Self::GTID_LIST
                | Self::MARIADB_GTID
                | Self::XID
                | Self::XA_PREPARE
                | Self::ROTATE
                | Self::STOP
                | Self::BINLOG_CHECKPOINT
                | Self::START_ENCRYPTION
        )
    }

    /// Returns the name by which `SHOW BINLOG EVENTS` lists the type; `None` if the type is unknown.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            2 => "Query",
            3 => "Stop",
            4 => "Rotate",
            5 => "Intvar",
            9 => "Append_block",
            11 => "Delete_file",
            13 => "RAND",
            14 => "User var",
            15 => "Format_desc",
            16 => "Xid",
            17 => "Begin_load_query",
            18 => "Execute_load_query",
            19 => "Table_map",
            23 => "Write_rows_v1",
            24 => "Update_rows_v1",
            25 => "Delete_rows_v1",
            26 => "Incident",
            27 => "Heartbeat",
            28 => "Ignorable",
            29 => "Rows_query",
            30 => "Write_rows",
            31 => "Update_rows",
            32 => "Delete_rows",
            33 => "Gtid",
            34 => "Anonymous_Gtid",
            35 => "Previous_gtids",
            36 => "Transaction_context",
            37 => "View_change",
            38 => "XA_prepare",
            39 => "Update_rows_partial",
            40 => "Transaction_payload",
            41 => "Heartbeat_v2",
            42 => "Gtid_tagged_log_event",
            160 => "Annotate_rows",
            161 => "Binlog_checkpoint",
            162 => "Gtid",
            163 => "Gtid_list",
            164 => "Start_encryption",
            165 => "Query_compressed",
            166 => "Write_rows_compressed_v1",
            167 => "Update_rows_compressed_v1",
            168 => "Delete_rows_compressed_v1",
            169 => "Write_rows_compressed",
            170 => "Update_rows_compressed",
            171 => "Delete_rows_compressed",
            _ => return None,
        })
    }
}
