//! XA transactions: their identity, and the event that prepares one.

use std::fmt;

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

    /// The transaction that a statement begins or completes, as servers write it: `XA COMMIT X'6f6e65',X'',1`. `None` if it
    /// has another form.
    pub(crate) fn of_statement(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let verbs = ["XA START ", "XA COMMIT ", "XA ROLLBACK "];
        let name = verbs.iter().find_map(|verb| text.strip_prefix(verb))?;
        let mut parts = name.split(',');
        let mut hex = || {
            let digits = parts.next()?.strip_prefix("X'")?.strip_suffix('\'')?;
            base16ct::mixed::decode_vec(digits).ok()
        };
        let (global, branch) = (hex()?, hex()?);
        let format = parts.next()?.trim().parse().ok()?;
        parts.next().is_none().then_some(Self { format, global, branch })
    }
}

/// As in statements: `X'6f6e65',X'',1`.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = base16ct::lower::encode_string;
        write!(f, "X'{}',X'{}',{}", hex(&self.global), hex(&self.branch), self.format)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_the_transaction_that_it_completes() {
        let found = Xid::of_statement(b"XA COMMIT X'6f6e65',X'62',3").unwrap();
        assert_eq!(
            (found.format, &found.global[..], &found.branch[..]),
            (3, &b"one"[..], &b"b"[..])
        );
        assert!(Xid::of_statement(b"XA ROLLBACK X'6F6E65',X'',1").is_some());
        for bad in [
            "XA COMMIT 'one'",
            "XA COMMIT X'6f',X'',1,2",
            "XA END X'6f',X'',1",
            "XA COMMIT X'6',X'',1",
        ] {
            assert_eq!(Xid::of_statement(bad.as_bytes()), None, "{bad}");
        }
    }
}
