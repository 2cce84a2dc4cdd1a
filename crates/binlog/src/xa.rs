//! XA transactions: their identity, and the event that prepares one.

use crate::fields::Fields;

/// Length limit of each part of an XID, in bytes. ("XA Transaction SQL Statements", MySQL Reference
/// Manual)
const MAX_PART: u32 = 64;

/// Identity of an XA transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xid {
    /// Format of the two other parts.
    pub format: u32,
    /// Global part, up to 64 bytes.
    pub global: Vec<u8>,
    /// Branch qualifier, up to 64 bytes.
    pub branch: Vec<u8>,
}

impl Xid {
    pub(crate) fn decode(
        format: u32,
        global: u32,
        branch: u32,
        fields: &mut Fields<'_>,
    ) -> Option<Self> {
        let mut part = |len: u32| {
            let len = usize::try_from(len).ok().filter(|_| len <= MAX_PART)?;
            fields.bytes(len).map(<[u8]>::to_vec)
        };
        Some(Self { format, global: part(global)?, branch: part(branch)? })
    }
}

/// An XA transaction is prepared, or committed in one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepare {
    /// The transaction is committed, not only prepared.
    pub is_one_phase: bool,
    /// The transaction.
    pub xid: Xid,
}

impl XaPrepare {
    /// Decodes the body of the event. (`mysql::binlog::event::XA_prepare_event`, MySQL Source Code
    /// Documentation; both lengths have four bytes, as seen in `fixtures/binlog`)
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(body);
        let is_one_phase = fields.u8()? != 0;
        let (format, global, branch) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Some(Self { is_one_phase, xid: Xid::decode(format, global, branch, &mut fields)? })
    }
}
