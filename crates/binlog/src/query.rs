//! Statements in a log.

use flate2::{Decompress, FlushDecompress};

use crate::fields::Fields;
use crate::format::Fork;
use crate::status::Status;
use crate::words::Quoting;

/// Bytes of a statement that are kept.
pub(crate) const MAX_TEXT: usize = Query::MAX_TEXT;
/// Bytes that a compressed text may have beside its content: lengths, and the heads of zlib.
const COMPRESSION: usize = 256;

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Number of the session's thread.
    pub thread: u32,
    /// Default schema.
    pub schema: Vec<u8>,
    /// Error that the statement ended with on the server, or 0.
    pub error: u16,
    /// Effect of the statement on its transaction.
    pub verb: Verb,
    /// The first KiB of the statement, decompressed.
    pub text: Vec<u8>,
    /// What quotes mean in it.
    pub(crate) quoting: Quoting,
}

/// Effect of a statement on its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `BEGIN`
    Begin,
    /// `COMMIT`
    Commit,
    /// `ROLLBACK`
    Rollback,
    /// `XA START`, and `XA END` in MySQL's logs: both are marks of a group
    XaStart,
    /// `XA COMMIT` or `XA ROLLBACK` of a prepared transaction
    XaEnd,
    /// Any other statement.
    Other,
}

impl Verb {
    /// Reads it from the beginning of a statement. Servers write these statements themselves, in one form.
    pub(crate) fn of(text: &[u8]) -> Self {
        match text {
            b"BEGIN" => Self::Begin,
            b"COMMIT" => Self::Commit,
            b"ROLLBACK" => Self::Rollback,
            _ if text.starts_with(b"XA START ") || text.starts_with(b"XA END ") => Self::XaStart,
            _ if text.starts_with(b"XA COMMIT ") || text.starts_with(b"XA ROLLBACK ") => {
                Self::XaEnd
            }
            _ => Self::Other,
        }
    }
}

/// Lengths of the variable parts, from the fixed part.
struct Lengths {
    thread: u32,
    error: u16,
    variables: usize,
    schema: usize,
}

impl Lengths {
    /// Thread (4), duration (4), length of the schema's name (1), error (2), length of the variables
    /// (2). ("QUERY_EVENT", documentation of MariaDB Server)
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let thread = fields.u32()?;
        fields.bytes(4)?;
        let schema = usize::from(fields.u8()?);
        let error = fields.u16()?;
        Some(Self { thread, error, variables: usize::from(fields.u16()?), schema })
    }
}

impl Query {
    /// Length of the part before the variables, in bytes.
    pub(crate) const FIXED: usize = 13;
    /// Bytes of a statement that are kept.
    pub(crate) const MAX_TEXT: usize = 1024;
    /// Fields of `LOAD DATA` between the fixed part of a statement and its variables: number of a file (4), two
    /// places in the statement (4 each), and what to do with duplicates (1). ("EXECUTE_LOAD_QUERY_EVENT",
    /// documentation of MariaDB Server)
    pub(crate) const LOAD: usize = 13;

    /// Bytes of the body that [`Query::decode`] needs, as far as `body` shows: at most 67 KiB.
    pub(crate) fn needed(body: &[u8]) -> usize {
        let lengths = Lengths::read(&mut Fields::new(body));
        lengths.map_or(Self::FIXED, |l| {
            Self::FIXED + l.variables + l.schema + 1 + MAX_TEXT + COMPRESSION
        })
    }

    /// Decodes the beginning of the body.
    pub(crate) fn decode(body: &[u8], is_compressed: bool) -> Option<Self> {
        let mut fields = Fields::new(body);
        let Lengths { thread, error, variables, schema } = Lengths::read(&mut fields)?;
        let quoting = quoting(fields.bytes(variables)?);
        let schema = fields.bytes(schema)?.to_vec();
        if fields.u8()? != 0 {
            return None;
        }
        let text = match is_compressed {
            true => decompressed(fields.rest())?,
            false => fields.rest().iter().copied().take(MAX_TEXT).collect(),
        };
        Some(Self { thread, schema, error, verb: Verb::of(&text), text, quoting })
    }

    /// The same of a `LOAD DATA`, which has the file and what becomes of duplicates before the variables.
    pub(crate) fn decode_load(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(Self::FIXED)?;
        Self::decode(&[fixed, rest.get(Self::LOAD..)?].concat(), false)
    }

    /// Whether more of the statement follows.
    pub(crate) fn is_cut(&self) -> bool {
        self.text.len() >= MAX_TEXT
    }

    #[cfg(test)]
    pub(crate) fn of_text(schema: &str, text: &str) -> Self {
        let lengths = [&[0; 8][..], &[u8::try_from(schema.len()).unwrap_or_default()], &[0; 4]];
        let body = [&lengths.concat()[..], schema.as_bytes(), &[0], text.as_bytes()].concat();
        Self::decode(&body, false).unwrap_or_else(|| unreachable!("{text}"))
    }
}

/// The variable of `sql_mode`, and its bits. ("QUERY_EVENT" and "SQL_MODE", documentation of MariaDB Server)
fn quoting(variables: &[u8]) -> Quoting {
    const SQL_MODE: u8 = 1;
    const ANSI_QUOTES: u64 = 1 << 2;
    const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;
    // The forks do not differ in it, nor in those before it.
    let mode = Status::new(variables, Fork::MariaDb).find_map(|variable| match variable.bytes() {
        [SQL_MODE, mode @ ..] => mode.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    });
    let has = |bit| mode.unwrap_or_default() & bit != 0;
    Quoting { has_ansi_names: has(ANSI_QUOTES), has_no_escapes: has(NO_BACKSLASH_ESCAPES) }
}

/// The beginning of a compressed text: one byte, whose low three bits are the size of a length that
/// follows it, then zlib. ("QUERY_COMPRESSED_EVENT", documentation of MariaDB Server)
fn decompressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Fields::new(bytes);
    let head = fields.u8()?;
    fields.bytes(usize::from(head & 7))?;
    let mut text = Vec::with_capacity(MAX_TEXT);
    // The input may be cut: what it shows so far is enough.
    let mut zlib = Decompress::new(true);
    zlib.decompress_vec(fields.rest(), &mut text, FlushDecompress::Sync).ok()?;
    text.truncate(MAX_TEXT);
    Some(text)
}
