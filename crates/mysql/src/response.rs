//! The packets that answer a command: completion, error, column, row.
//! (MySQL: "OK_Packet", "EOF_Packet", "ERR_Packet", "Text Resultset"; MariaDB: "Result Set Packets".)

use std::ops::Range;

use crate::capabilities as can;
use crate::error::{Error, ServerError};
use crate::fields::Fields;

/// First byte of an OK packet.
pub(crate) const OK: u8 = 0x00;
/// First byte of an EOF packet, and of an OK packet that ends rows.
pub(crate) const EOF: u8 = 0xfe;
/// First byte of an error.
pub(crate) const ERR: u8 = 0xff;
/// First byte of a request for a local file; in a row, NULL.
pub(crate) const LOCAL_FILE: u8 = 0xfb;

/// Memory of the place of a value in a [`Row`], in bytes.
pub(crate) const VALUE_BYTES: usize = size_of::<Option<Range<usize>>>();

/// Another result follows.
const MORE_RESULTS: u16 = 1 << 3;
/// The state of the session has changed.
const STATE_CHANGED: u16 = 1 << 14;

/// The server's statement that it completed a command, or one of its results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// Number of rows that the statement changed.
    pub affected_rows: u64,
    /// The first number that AUTO_INCREMENT gave out, or 0.
    pub last_insert_id: u64,
    /// Status bits of the server.
    pub status: u16,
    /// Number of warnings; `SHOW WARNINGS` has their text.
    pub warnings: u16,
    /// A message for people; often empty, in no certain encoding.
    pub info: Vec<u8>,
}

impl Completion {
    /// Returns whether another result of the same command follows.
    #[must_use]
    pub(crate) fn more_results(&self) -> bool {
        self.status & MORE_RESULTS != 0
    }

    /// Parses an OK packet. Changes of the session's state are skipped: none matters to this client.
    pub(crate) fn ok(packet: &[u8], capabilities: u64) -> Result<Self, Error> {
        let mut fields = Fields::new("OK", packet);
        fields.u8()?;
        let mut completion = Self {
            affected_rows: fields.integer()?,
            last_insert_id: fields.integer()?,
            status: fields.u16()?,
            warnings: fields.u16()?,
            info: Vec::new(),
        };
        if capabilities & can::SESSION_TRACK == 0 {
            completion.info = fields.rest().to_vec();
        } else if !fields.is_empty() {
            completion.info = fields.string()?.to_vec();
            if completion.status & STATE_CHANGED != 0 {
                fields.string()?;
            }
            fields.end()?;
        }
        Ok(completion)
    }

    /// Parses an EOF packet.
    pub(crate) fn eof(packet: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("EOF", packet);
        fields.u8()?;
        let (warnings, status) = (fields.u16()?, fields.u16()?);
        fields.end()?;
        Ok(Self { status, warnings, ..Self::default() })
    }
}

impl ServerError {
    /// Parses an error packet. A server that does not know the client's capabilities yet sends no
    /// SQLSTATE.
    pub(crate) fn parse(packet: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("error", packet);
        fields.u8()?;
        let code = fields.u16()?;
        let state = match fields.peek() {
            Some(b'#') => fields.bytes(6)?.get(1..).unwrap_or_default(),
            _ => b"HY000",
        };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self { code, state: text(state), message: text(fields.rest()) })
    }
}

/// A column of a result. Names are in the character set of the connection, utf8mb4, but nothing
/// ensures that they are valid in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Database of the table, or empty.
    pub schema: Vec<u8>,
    /// Table, under the name that the statement gives it, or empty.
    pub table: Vec<u8>,
    /// Column, under the name that the statement gives it.
    pub name: Vec<u8>,
    /// Number of the collation: 63 is binary, 45 utf8mb4.
    pub collation: u16,
    /// Maximum length of a value, in bytes.
    pub length: u32,
    /// Number of the type, such as 3 for INT, 253 for VARCHAR, 252 for BLOB and TEXT.
    pub kind: u8,
    /// Flags, such as 1 for NOT NULL and 32 for UNSIGNED.
    pub flags: u16,
    /// Digits after the decimal point; 31 if their number varies.
    pub decimals: u8,
}

impl Column {
    pub(crate) fn parse(packet: &[u8], capabilities: u64) -> Result<Self, Error> {
        let mut fields = Fields::new("column", packet);
        // The catalogue is always `def`.
        fields.string()?;
        let (schema, table) = (fields.string()?.to_vec(), fields.string()?.to_vec());
        let _table_in_schema = fields.string()?;
        let name = fields.string()?.to_vec();
        let _name_in_table = fields.string()?;
        if capabilities & can::MARIADB_EXTENDED_METADATA != 0 {
            fields.string()?;
        }
        // The fields of fixed length are, again, a string; a later server may add some.
        let mut fixed = Fields::new("column", fields.string()?);
        fields.end()?;
        Ok(Self {
            schema,
            table,
            name,
            collation: fixed.u16()?,
            length: fixed.u32()?,
            kind: fixed.u8()?,
            flags: fixed.u16()?,
            decimals: fixed.u8()?,
        })
    }
}

/// A row of a result: one value a column, as text, or `None` for NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    packet: Vec<u8>,
    values: Vec<Option<Range<usize>>>,
}

impl Row {
    /// Parses a row. It must have exactly one value for each column.
    pub(crate) fn parse(packet: Vec<u8>, columns: usize) -> Result<Self, Error> {
        let mut fields = Fields::new("row", &packet);
        let mut values = Vec::with_capacity(columns);
        for _ in 0..columns {
            values.push(if fields.peek() == Some(LOCAL_FILE) {
                fields.u8()?;
                None
            } else {
                let length = fields.string()?.len();
                let end = packet.len() - fields.len();
                Some(end - length..end)
            });
        }
        fields.end()?;
        Ok(Self { packet, values })
    }

    /// Number of values, which is the number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no values; the protocol knows no such row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of a column, from 0; `None` for NULL, and where there is no such column.
    #[must_use]
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        self.values.get(column)?.clone().and_then(|range| self.packet.get(range))
    }

    /// All values, of exactly `N` columns without NULL, as text.
    ///
    /// # Errors
    /// [`Error::Unexpected`] if there are others, or if a value is not UTF-8.
    pub fn texts<const N: usize>(&self) -> Result<[String; N], Error> {
        let text = |value: Option<&[u8]>| String::from_utf8(value?.to_vec()).ok();
        let texts: Option<Vec<String>> = self.iter().map(text).collect();
        texts.and_then(|texts| texts.try_into().ok()).ok_or(Error::Unexpected)
    }

    /// All values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|column| self.get(column))
    }
}
