//! Asks a server for the local time of its system.
//!
//! A server tells no more of it than an abbreviation (`system_time_zone`), so it is asked for local times over many years,
//! and the moments at which the offset changes are found by halving.

use std::collections::BTreeMap;

use xb_binlog::SystemZone;
use xb_mysql::{Client, Error};

/// The years that are asked for, 2020 to 2037, as Unix times: beyond, some servers know no local time.
const YEARS: std::ops::RangeInclusive<i64> = 1_577_836_800..=2_145_916_800;
/// Seconds between two times that are asked for first, in one statement of 470 columns. No zone goes to another offset
/// and back in less.
const STEP: usize = 14 * 86_400;
/// Offsets change at such seconds.
const QUARTER: i64 = 900;
/// Most changes of the offset in those years: a zone has two to four a year.
const MAX_CHANGES: usize = 100;

/// Returns the local time of the server's system; `None` if what it answers is none.
pub(super) fn system_zone(client: &mut Client) -> Result<Option<SystemZone>, Error> {
    client.run("SET SESSION time_zone = 'SYSTEM'")?;
    let rows = client.rows("SELECT @@GLOBAL.system_time_zone")?;
    let [name] = rows.first().ok_or(Error::Unexpected)?.texts()?;
    Ok(offsets(|times| ask(client, times))?.map(|offsets| SystemZone { name, offsets }))
}

/// Finds when the offset of local time changes.
fn offsets<E>(
    mut ask: impl FnMut(&[i64]) -> Result<Option<Vec<i32>>, E>,
) -> Result<Option<Vec<(i64, i32)>>, E> {
    let mut known = BTreeMap::new();
    let mut times: Vec<i64> = YEARS.step_by(STEP).collect();
    while !times.is_empty() {
        let Some(offsets) = ask(&times)? else { return Ok(None) };
        known.extend(times.iter().copied().zip(offsets));
        let pairs = known.iter().zip(known.iter().skip(1));
        let changes = pairs.filter(|((_, one), (_, two))| one != two);
        let middles =
            changes.map(|((from, _), (to, _))| from + (to - from) / QUARTER / 2 * QUARTER);
        times = middles.filter(|middle| !known.contains_key(middle)).collect();
        if times.len() > MAX_CHANGES {
            return Ok(None);
        }
    }
    let mut offsets: Vec<(i64, i32)> = known.into_iter().collect();
    offsets.dedup_by_key(|(_, offset)| *offset);
    Ok(Some(offsets))
}

/// The offsets of local time at some times. A server without an answer answers NULL.
fn ask(client: &mut Client, times: &[i64]) -> Result<Option<Vec<i32>>, Error> {
    let asked: Vec<String> = times.iter().map(|time| SystemZone::offset_at(*time)).collect();
    let rows = client.rows(format!("SELECT {}", asked.join(", ")))?;
    let row = rows.first().ok_or(Error::Unexpected)?;
    let offset = |value: Option<&[u8]>| std::str::from_utf8(value?).ok()?.parse().ok();
    Ok(row.iter().map(offset).collect())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn found(zone: &[(i64, i32)], asked: &mut usize) -> Option<Vec<(i64, i32)>> {
        let at = |time: i64| {
            let index = zone.partition_point(|(from, _)| *from <= time);
            zone[index.saturating_sub(1)].1
        };
        let answer = |times: &[i64]| {
            *asked += times.len();
            Ok::<_, Infallible>(Some(times.iter().map(|time| at(*time)).collect()))
        };
        offsets(answer).unwrap()
    }

    #[test]
    fn a_zone_without_changes_takes_one_statement() {
        let mut asked = 0;
        assert_eq!(found(&[(0, 7200)], &mut asked), Some(vec![(*YEARS.start(), 7200)]));
        assert_eq!(asked, 470);
    }

    #[test]
    fn answers_of_no_zone_are_none() {
        let mut turn = 0;
        let answer = |times: &[i64]| {
            turn += 1;
            Ok::<_, Infallible>(Some(
                (0..times.len()).map(|one| i32::try_from(one * turn % 7).unwrap()).collect(),
            ))
        };
        assert_eq!(offsets(answer), Ok(None));
        assert_eq!(offsets(|_: &[i64]| Ok::<_, Infallible>(None)), Ok(None));
    }

    proptest! {
        #[test]
        fn all_changes_of_a_zone_are_found_to_the_second(
            gaps in proptest::collection::vec(1345_i64..30_000, 0..60),
            first in -48_i32..56,
        ) {
            let mut zone = vec![(*YEARS.start(), first * 900)];
            for gap in gaps {
                let (time, offset) = *zone.last().unwrap();
                zone.push((time + gap * QUARTER, if offset == first * 900 { offset + 3600 } else { first * 900 }));
            }
            zone.retain(|(time, _)| *time <= *YEARS.end() - i64::try_from(STEP).unwrap());
            prop_assert_eq!(found(&zone, &mut 0), Some(zone));
        }
    }
}
