//! Status variables of a statement: the settings of its session.

use crate::format::Fork;

/// The variables, one after another. One whose length is not known ends the list, with all that follows.
#[derive(Debug, Clone)]
pub(crate) struct Status<'a> {
    bytes: &'a [u8],
    fork: Fork,
}

/// One variable: its number, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variable<'a> {
    bytes: &'a [u8],
    fork: Fork,
}

impl<'a> Status<'a> {
    pub(crate) fn new(bytes: &'a [u8], fork: Fork) -> Self {
        Self { bytes, fork }
    }
}

fn length(bytes: &[u8], fork: Fork) -> Option<usize> {
    match fork {
        Fork::MariaDb => length_of_mariadb(bytes),
        Fork::MySql => length_of_mysql(bytes),
    }
}

/// Length of the first variable, with its number. ("QUERY_EVENT", documentation of MariaDB Server)
fn length_of_mariadb(bytes: &[u8]) -> Option<usize> {
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

/// The same of MySQL. ("Query_event", MySQL Source Code Documentation)
fn length_of_mysql(bytes: &[u8]) -> Option<usize> {
    Some(match bytes.first()? {
        // Those of both forks.
        0 | 1 | 3..=11 => return length_of_mariadb(bytes),
        // Schemas that are changed, each with a zero behind it; 254 stands for too many.
        12 => match bytes.get(1)? {
            254 => 2,
            number => {
                let names = bytes.get(2..)?.iter().enumerate().filter(|(_, byte)| **byte == 0);
                let ends = names.take(usize::from(*number)).map(|(at, _)| at + 3);
                ends.enumerate().find(|(n, _)| n + 1 == usize::from(*number)).map(|(_, end)| end)?
            }
        },
        // Microseconds, defaults of timestamps, number of a change of definitions, default collation, and whether a
        // primary key and encryption are demanded.
        13 => 4,
        16 | 19 | 20 => 2,
        17 => 9,
        18 => 3,
        _ => return None,
    })
}

impl<'a> Iterator for Status<'a> {
    type Item = Variable<'a>;

    fn next(&mut self) -> Option<Variable<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let len = length(self.bytes, self.fork).unwrap_or(self.bytes.len());
        let (taken, rest) = self.bytes.split_at_checked(len).unwrap_or((self.bytes, &[]));
        self.bytes = rest;
        Some(Variable { bytes: taken, fork: self.fork })
    }
}

impl<'a> Variable<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether all servers write the same. Those of MariaDB do not agree on who calls, on the XID of a change of
    /// tables, and on the microseconds of a statement that is a transaction by itself; those of MySQL not on the catalogue,
    /// on who calls, on the schemas, and on the number of a change of definitions.
    pub(crate) fn counts(self, is_standalone: bool) -> bool {
        let is_left_out = match (self.fork, self.bytes.first()) {
            (Fork::MariaDb, Some(11 | 129)) | (Fork::MySql, Some(6 | 11 | 12 | 17)) => true,
            (Fork::MariaDb, Some(128)) => is_standalone,
            _ => false,
        };
        // Only if it is one as we know it.
        !is_left_out || length(self.bytes, self.fork) != Some(self.bytes.len())
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
        let found: Vec<&[u8]> = Status::new(&all, Fork::MariaDb).map(Variable::bytes).collect();
        assert_eq!(found, bytes);
        let counted = |alone| {
            Status::new(&all, Fork::MariaDb).map(|one| one.counts(alone)).collect::<Vec<_>>()
        };
        assert_eq!(counted(false), [true, false, true, false, true, true]);
        assert_eq!(counted(true), [true, false, false, false, true, true]);
        // A truncated block counts unchanged.
        for cut in [&[129, 1][..], &[11, 9, 1], &[128, 1], &[11]] {
            let found: Vec<_> = Status::new(cut, Fork::MariaDb).collect();
            assert_eq!(found, [Variable { bytes: cut, fork: Fork::MariaDb }]);
            assert!(found[0].counts(true), "{cut:?}");
        }
    }

    #[test]
    fn variables_of_mysql_are_found_by_their_lengths() {
        let bytes = [
            &[0, 1, 2, 3, 4][..],
            &[1, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0],
            &[6, 3, b's', b't', b'd'],
            &[12, 2, b'd', 0, b'e', b'e', 0],
            &[12, 254],
            &[17, 7, 0, 0, 0, 0, 0, 0, 0],
            &[18, 255, 0],
            &[200, 17],
        ];
        let all = bytes.concat();
        let of_mysql = |bytes| Status::new(bytes, Fork::MySql);
        let found: Vec<&[u8]> = of_mysql(&all).map(Variable::bytes).collect();
        assert_eq!(found, bytes);
        let counted: Vec<bool> = of_mysql(&all).map(|one| one.counts(true)).collect();
        assert_eq!(counted, [true, true, false, false, false, false, true, true]);
        for cut in [&[12, 2, b'd', 0][..], &[12], &[17, 7, 0]] {
            let found: Vec<_> = of_mysql(cut).collect();
            assert!(found.len() == 1 && found[0].counts(false), "{cut:?}");
        }
        // None is named.
        assert_eq!(
            of_mysql(&[12, 0, 16, 1]).map(Variable::bytes).next(),
            Some(&[12, 0, 16, 1][..])
        );
    }
}
