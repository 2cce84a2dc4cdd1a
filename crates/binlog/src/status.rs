//! Status variables of a statement: the settings of its session.

/// The variables, one after another. One whose length is not known ends the list, with all that follows.
#[derive(Debug, Clone)]
pub(crate) struct Status<'a>(&'a [u8]);

/// One variable: its number, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variable<'a>(&'a [u8]);

impl<'a> Status<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

/// Length of the first variable, with its number. ("QUERY_EVENT", documentation of MariaDB Server)
fn length(bytes: &[u8]) -> Option<usize> {
    Some(match bytes.first()? {
        // Flags, SQL mode, increment, names of months, character set of the schema, three character sets, tables that an
        // update changes, server of the source.
        0 | 3 | 10 => 5,
        1 | 9 => 9,
        4 => 7,
        7 | 8 => 3,
        // Time zone and catalogue.
        5 | 6 => 2 + usize::from(*bytes.get(1)?),
        // Name and host of who called.
        11 => {
            let host = 2 + usize::from(*bytes.get(1)?);
            host + 1 + usize::from(*bytes.get(host)?)
        }
        // Microseconds, and the XID of a change of tables.
        128 => 4,
        129 => 9,
        _ => return None,
    })
}

impl<'a> Iterator for Status<'a> {
    type Item = Variable<'a>;

    fn next(&mut self) -> Option<Variable<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let len = length(self.0).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at_checked(len).unwrap_or((self.0, &[]));
        self.0 = rest;
        Some(Variable(taken))
    }
}

impl<'a> Variable<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns whether all servers write the same. They do not agree on who calls, on the XID of a change of tables, and on the
    /// microseconds of a statement that is a transaction by itself.
    pub(crate) fn counts(self, is_standalone: bool) -> bool {
        match self.0.first() {
            // Only if it is one as we know it.
            Some(11 | 129) => length(self.0) != Some(self.0.len()),
            Some(128) => !is_standalone || self.0.len() != 4,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_their_lengths() {
        let bytes = [
            &[0, 1, 2, 3, 4][..],
            &[11, 1, b'u', 2, b'h', b'h'],
            &[128, 1, 2, 3],
            &[129, 1, 2, 3, 4, 5, 6, 7, 8],
            &[5, 2, b'z', b'z'],
            &[200, 11, 129],
        ];
        let all = bytes.concat();
        let found: Vec<&[u8]> = Status::new(&all).map(Variable::bytes).collect();
        assert_eq!(found, bytes);
        let counted = |alone| Status::new(&all).map(|one| one.counts(alone)).collect::<Vec<_>>();
        assert_eq!(counted(false), [true, false, true, false, true, true]);
        assert_eq!(counted(true), [true, false, false, false, true, true]);
        // A truncated block counts unchanged.
        for cut in [&[129, 1][..], &[11, 9, 1], &[128, 1], &[11]] {
            let found: Vec<_> = Status::new(cut).collect();
            assert_eq!(found, [Variable(cut)]);
            assert!(found[0].counts(true), "{cut:?}");
        }
    }
}
