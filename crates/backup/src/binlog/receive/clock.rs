//! The clock of a server, compared with that of this host.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use xb_mysql::{Client, Error};
use xb_repo::archive::segment::AHEAD;

/// A difference of more seconds is reported: one of [`AHEAD`] makes stops by time doubtful.
pub(crate) const NOTED: i64 = AHEAD / 2;

/// Seconds by which the server's clock is surely ahead of this host's; negative if it is behind.
///
/// # Errors
/// [`Error`] of the connection; [`Error::Unexpected`] if the server names no time.
pub(crate) fn ahead(client: &mut Client) -> Result<i64, Error> {
    let before = Timestamp::now();
    let rows = client.rows("SELECT UTC_TIMESTAMP(6)")?;
    let [time] = rows.first().ok_or(Error::Unexpected)?.texts()?;
    difference(&time, [before, Timestamp::now()]).ok_or(Error::Unexpected)
}

/// The same of a time that the server has named between two times of this host.
fn difference(time: &str, [before, after]: [Timestamp; 2]) -> Option<i64> {
    let time = time.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let nearest = time.clamp(before, after.max(before));
    Some(time.duration_since(nearest).as_secs())
}

/// Warning of a difference that matters: one of more than [`NOTED`] seconds.
pub(crate) fn differs(ahead: i64) -> Option<String> {
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    let seconds = ahead.unsigned_abs();
    (seconds > NOTED.unsigned_abs()).then(|| {
        format!(
            "the server's clock is {seconds} s {way} this host's: a restore until a time (`--until=TIME`) may be refused or end up to {seconds} s off"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_clocks_surely_differ_is_reported() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let of = |second| difference("2026-11-28 12:52:00.250000", [at(second), at(second + 2)]);
        let same = "2026-11-28T12:52:00Z".parse::<Timestamp>().unwrap().as_second();
        // The answer took two seconds.
        assert_eq!([of(same), of(same - 1), of(same - 2)], [Some(0); 3]);
        assert_eq!(of(same - 22), Some(20));
        assert_eq!(of(same + 20), Some(-19));
        assert_eq!(difference("0000-00-00", [at(0), at(1)]), None);
        assert_eq!((differs(NOTED), differs(-NOTED)), (None, None));
        let (ahead, behind) = (differs(20).unwrap(), differs(-19).unwrap());
        assert!(ahead.contains("20 s ahead of") && behind.contains("19 s behind"));
    }
}
