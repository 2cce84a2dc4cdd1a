//! Local time of a server's system, which statements in a log mean by the time zone `SYSTEM`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most changes that are taken. Zones change twice a year, a few of them four times.
const MAX_CHANGES: usize = 1000;
/// Largest offset, in seconds: the servers take time zones up to 14 hours from UTC.
const MAX_OFFSET: u32 = 15 * 3600;
/// Longest abbreviation of a zone that goes into a file.
const MAX_NAME: usize = 6;

/// Local time of a server's system. The server names it only by an abbreviation that several zones share, so it is
/// described by what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemZone {
    /// The abbreviation (`system_time_zone`).
    pub name: String,
    /// Unix times, each with the seconds east of UTC from then on. The first offset holds for all times before, too.
    pub offsets: Vec<(i64, i32)>,
}

impl SystemZone {
    /// The SQL expression of the offset at a Unix time, a number or a column, in a session whose time zone is `SYSTEM`.
    #[must_use]
    pub fn offset_at(time: impl fmt::Display) -> String {
        format!("TIMESTAMPDIFF(SECOND, '1970-01-01', FROM_UNIXTIME({time})) - {time}")
    }

    /// Returns whether another zone has the same offsets up to a Unix time.
    #[must_use]
    pub fn agrees_until(&self, other: &Self, time: i64) -> bool {
        let until = |zone: &Self| {
            let end = zone.offsets.partition_point(|(from, _)| *from <= time);
            zone.offsets.get(..end).map(<[_]>::to_vec)
        };
        until(self) == until(other)
    }

    /// Returns the zone as a file for the C library: `TZ=:PATH`. `None` if it cannot be one: without offsets, out of order,
    /// or beyond what a server can have. (RFC 9636, version 2, whose first block is for readers of times of 32 bits)
    #[must_use]
    pub fn to_file(&self) -> Option<Vec<u8>> {
        let (first, changes) = self.offsets.split_first()?;
        let is_ordered = self.offsets.is_sorted_by(|one, two| one.0 < two.0);
        let is_sane = self.offsets.iter().all(|(_, offset)| offset.unsigned_abs() <= MAX_OFFSET);
        if !is_ordered || !is_sane || changes.len() > MAX_CHANGES {
            return None;
        }
        let mut kinds = vec![first.1];
        let (mut times, mut kind_of_time) = (Vec::new(), Vec::new());
        for (time, offset) in changes {
            times.extend(time.to_be_bytes());
            let known = kinds.iter().position(|kind| kind == offset);
            let index = known.unwrap_or_else(|| {
                kinds.push(*offset);
                kinds.len() - 1
            });
            kind_of_time.push(u8::try_from(index).ok()?);
        }
        let letters = self.name.bytes().filter(u8::is_ascii_alphabetic).take(MAX_NAME);
        let mut name: Vec<u8> = letters.collect();
        // Shorter ones are none.
        if name.len() < 3 {
            name = b"LOCAL".to_vec();
        }
        name.push(0);
        let block = |times: &[u8], kind_of_time: &[u8], kinds: &[i32]| {
            let mut block = b"TZif2".to_vec();
            block.extend([0; 15]);
            // Of the marks of UTC and standard time and the leap seconds there are none.
            for count in [0, 0, 0, kind_of_time.len(), kinds.len(), name.len()] {
                block.extend(u32::try_from(count).ok()?.to_be_bytes());
            }
            block.extend([times, kind_of_time].concat());
            for kind in kinds {
                block.extend(kind.to_be_bytes());
                // Not daylight saving time; the one name.
                block.extend([0, 0]);
            }
            block.extend(&name);
            Some(block)
        };
        // No rule for what comes after.
        let end = b"\n\n".to_vec();
        Some([block(&[], &[], &[first.1])?, block(&times, &kind_of_time, &kinds)?, end].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(offsets: &[(i64, i32)]) -> SystemZone {
        SystemZone { name: "CET".to_owned(), offsets: offsets.to_vec() }
    }

    #[test]
    fn what_no_server_can_have_becomes_no_file() {
        let many: Vec<(i64, i32)> = (0..1002).map(|time| (time, 3600)).collect();
        let wrong: [&[(i64, i32)]; 5] =
            [&[], &[(5, 0), (5, 3600)], &[(5, 0), (4, 3600)], &[(0, 16 * 3600)], &many];
        for offsets in wrong {
            assert_eq!(zone(offsets).to_file(), None, "{offsets:?}");
        }
        assert!(zone(&many[..1001]).to_file().is_some());
        assert!(zone(&[(i64::MIN, i32::MIN)]).to_file().is_none());
    }

    #[test]
    fn a_file_has_the_changes_in_their_order() {
        let file = zone(&[(0, 3600), (1000, 7200), (1 << 32, 3600)]).to_file().unwrap();
        let mut expected = b"TZif2".to_vec();
        expected.extend([0; 15]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4]);
        expected.extend([0, 0, 14, 16, 0, 0]);
        expected.extend(b"CET\0TZif2");
        expected.extend([0; 15]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 4]);
        expected.extend([0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]);
        expected.extend([0, 0, 14, 16, 0, 0, 0, 0, 28, 32, 0, 0]);
        expected.extend(b"CET\0\n\n");
        assert_eq!(file, expected);
        // Letters only, and no empty name.
        let named = |name: &str| SystemZone { name: name.to_owned(), offsets: vec![(0, 0)] };
        assert!(named("+03").to_file().unwrap().ends_with(b"LOCAL\0\n\n"));
    }

    #[test]
    fn zones_agree_until_one_of_them_changes() {
        let (old, new) = (zone(&[(0, 3600), (1000, 7200)]), zone(&[(0, 3600), (2000, 7200)]));
        assert!(old.agrees_until(&new, 999) && !old.agrees_until(&new, 1000));
        assert!(old.agrees_until(&old, i64::MAX) && !old.agrees_until(&zone(&[(0, 0)]), 5));
    }
}
