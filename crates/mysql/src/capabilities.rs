//! Capabilities of a server and a client, as bits that both announce. Only those that both have are used.
//!
//! The upper 32 bits are MariaDB's extension: a server that is not MySQL leaves out [`MYSQL`] and
//! sends them where MySQL has a filler. This client asks for none of them, because each changes the
//! form of packets.

/// The server is MySQL, or the client does not know MariaDB's extension. Once `LONG_PASSWORD`.
pub const MYSQL: u64 = 1;
/// Columns have flags of two bytes.
const LONG_FLAG: u64 = 1 << 2;
/// The client names a database when it logs in.
pub(crate) const CONNECT_WITH_DB: u64 = 1 << 3;
/// The protocol of MySQL 4.1, the only one that is spoken here.
const PROTOCOL_41: u64 = 1 << 9;
/// The connection changes to TLS before the client logs in.
pub const TLS: u64 = 1 << 11;
/// The completion of a statement has a status.
const TRANSACTIONS: u64 = 1 << 13;
/// Answers of an authentication plugin may have any bytes.
const SECURE_CONNECTION: u64 = 1 << 15;
/// One query may have several statements.
const MULTI_STATEMENTS: u64 = 1 << 16;
/// One query may give several results.
const MULTI_RESULTS: u64 = 1 << 17;
/// Authentication is by plugins, by name.
const PLUGIN_AUTH: u64 = 1 << 19;
/// The first answer of an authentication plugin may have more than 255 bytes.
pub(crate) const PLUGIN_AUTH_LENENC: u64 = 1 << 21;
/// A completion may carry changes of the session's state.
pub const SESSION_TRACK: u64 = 1 << 23;
/// Rows end with an OK packet instead of an EOF packet, and columns with none.
pub const DEPRECATE_EOF: u64 = 1 << 24;
/// MariaDB: columns have an additional field about their type.
pub const MARIADB_EXTENDED_METADATA: u64 = 1 << 35;

/// MariaDB: the number of columns has an additional byte, which says whether their descriptions follow.
pub const MARIADB_CACHE_METADATA: u64 = 1 << 36;

/// Capabilities that this client asks for, besides [`TLS`] and [`CONNECT_WITH_DB`].
pub const WANTED: u64 = MYSQL
    | LONG_FLAG
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH
    | PLUGIN_AUTH_LENENC
    | DEPRECATE_EOF;

/// Capabilities that a server must have: servers without them are from before 2010.
pub const REQUIRED: u64 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
