//! Asks a server for the local time of its system.
//!
//! A server tells no more of it than an abbreviation (`system_time_zone`), so it is asked for local times of all years that a
//! TIMESTAMP can have, and the moments at which the offset changes are found by halving.

use std::collections::BTreeMap;

use xb_binlog::SystemZone;
use xb_mysql::{Client, Error};

/// The first Unix time that is asked for.
const FIRST: i64 = 86_400;
/// Interval between the first probes, in seconds. No zone changes its offset and changes it back in less.
const STEP: i64 = 6 * 86_400;
/// The square is the number of those times: up to the year 2106.
const SIDE: i64 = 91;
/// Most changes of the offset in those years: a zone has two to four a year.
const MAX_CHANGES: usize = 600;
/// Longest name of a zone that is kept, in characters. Each head of the archive has it.
const MAX_NAME: usize = 64;

/// Returns the local time of the server's system; `None` if what it answers is none.
pub(crate) fn system_zone(client: &mut Client) -> Result<Option<SystemZone>, Error> {
    client.run("SET SESSION time_zone = 'SYSTEM'")?;
    let rows = client.rows("SELECT @@GLOBAL.system_time_zone")?;
    let [name]: [String; 1] = rows.first().ok_or(Error::Unexpected)?.texts()?;
    let name = name.chars().take(MAX_NAME).collect();
    let rows = client.rows(format!(
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {SIDE} - 1) \
         SELECT t, {} FROM (SELECT {FIRST} + (a.n * {SIDE} + b.n) * {STEP} AS t FROM n AS a, n AS b) AS times",
        SystemZone::offset_at("t")
    ))?;
    let known = rows.iter().filter_map(|row| Some((number(row.get(0))?, number(row.get(1))?)));
    Ok(offsets(asked_for(known), |times| ask(client, times))?
        .map(|offsets| SystemZone { name, offsets }))
}

/// The answers about the times that were asked for. What else a server says is not believed: the difference of two numbers of
/// its own may have no place in one.
fn asked_for(answers: impl Iterator<Item = (i64, i32)>) -> BTreeMap<i64, i32> {
    const LAST: i64 = FIRST + (SIDE * SIDE - 1) * STEP;
    let is_asked = |time: i64| (FIRST..=LAST).contains(&time) && (time - FIRST) % STEP == 0;
    answers.filter(|(time, _)| is_asked(*time)).collect()
}

/// Finds when the offset of local time changes, from the offsets at some times. Many servers know none after 2037.
fn offsets<E>(
    mut known: BTreeMap<i64, i32>,
    mut ask: impl FnMut(&[i64]) -> Result<Option<Vec<i32>>, E>,
) -> Result<Option<Vec<(i64, i32)>>, E> {
    loop {
        let pairs = known.iter().zip(known.iter().skip(1));
        let changes = pairs.filter(|((_, one), (_, two))| one != two);
        let middles = changes.map(|((from, _), (to, _))| from + (to - from) / 2);
        let times: Vec<i64> = middles.filter(|middle| !known.contains_key(middle)).collect();
        if times.is_empty() {
            break;
        }
        let answers = match times.len() <= MAX_CHANGES {
            true => ask(&times)?,
            false => None,
        };
        let Some(answers) = answers else { return Ok(None) };
        known.extend(times.into_iter().zip(answers));
    }
    let mut offsets: Vec<(i64, i32)> = known.into_iter().collect();
    offsets.dedup_by_key(|(_, offset)| *offset);
    Ok(Some(offsets).filter(|offsets| !offsets.is_empty()))
}

/// The offsets of local time at some times; `None` if the server does not know one of them.
fn ask(client: &mut Client, times: &[i64]) -> Result<Option<Vec<i32>>, Error> {
    let asked: Vec<String> = times.iter().map(SystemZone::offset_at).collect();
    let rows = client.rows(format!("SELECT {}", asked.join(", ")))?;
    let row = rows.first().ok_or(Error::Unexpected)?;
    Ok(row.iter().map(number).collect())
}

fn number<N: std::str::FromStr>(value: Option<&[u8]>) -> Option<N> {
    std::str::from_utf8(value?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Asks a zone for its offsets, as a server would be asked.
    fn found(zone: &[(i64, i32)]) -> Option<Vec<(i64, i32)>> {
        let at = |time: &i64| {
            let index = zone.partition_point(|(from, _)| from <= time);
            zone[index.saturating_sub(1)].1
        };
        let times = (0..SIDE * SIDE).map(|number| FIRST + number * STEP);
        let known = times.map(|time| (time, at(&time))).collect();
        let answer = |times: &[i64]| Ok::<_, Infallible>(Some(times.iter().map(at).collect()));
        offsets(known, answer).unwrap()
    }

    #[test]
    fn a_zone_without_changes_has_one_offset() {
        assert_eq!(found(&[(0, 7200)]), Some(vec![(FIRST, 7200)]));
    }

    #[test]
    fn answers_of_no_zone_are_none() {
        let known = |of: fn(i64) -> i32| (0..SIDE * SIDE).map(|n| (n * STEP, of(n))).collect();
        let none = |_: &[i64]| Ok::<_, Infallible>(None);
        assert_eq!(offsets(BTreeMap::new(), none), Ok(None));
        assert_eq!(offsets(known(|n| i32::from(n > 5)), none), Ok(None));
        let same = |times: &[i64]| Ok::<_, Infallible>(Some(vec![0; times.len()]));
        assert_eq!(offsets(known(|n| i32::from(n % 2 == 1)), same), Ok(None));
    }

    #[test]
    fn times_that_were_not_asked_for_count_nothing() {
        let ends = [(i64::MIN, 0), (i64::MAX, 3600), (FIRST - STEP, 1), (FIRST + 1, 2)];
        assert_eq!(asked_for(ends.into_iter()), BTreeMap::new());
        let last = FIRST + (SIDE * SIDE - 1) * STEP;
        let right = [(FIRST, 3600), (FIRST + STEP, 3600), (last, 3600)];
        let known = asked_for(ends.into_iter().chain(right).chain([(last + STEP, 7)]));
        assert_eq!(known, BTreeMap::from(right));
        let none = |_: &[i64]| Ok::<_, Infallible>(None);
        assert_eq!(offsets(known, none), Ok(Some(vec![(FIRST, 3600)])));
    }

    proptest! {
        #[test]
        fn all_changes_of_a_zone_are_found_to_the_second(
            gaps in proptest::collection::vec(STEP + 1..40_000_000, 0..200),
            first in -48_i32..56,
        ) {
            let mut zone = vec![(FIRST, first * 900)];
            for gap in gaps {
                let (time, offset) = *zone.last().unwrap();
                let other = if offset == first * 900 { offset + 3600 } else { first * 900 };
                zone.push((time + gap, other));
            }
            zone.retain(|(time, _)| *time <= FIRST + (SIDE * SIDE - 1) * STEP);
            prop_assert_eq!(found(&zone), Some(zone));
        }
    }
}
