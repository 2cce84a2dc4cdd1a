//! Tells from the head of a segment whether the segment has the position of a backup.

use xb_binlog::GtidState;

use crate::archive::base::Base;
use crate::archive::listed_segment::ListedSegment;

/// Returns why a segment does not have the position of a backup between two of its transactions, as far as its head shows
/// it; `None` if nothing speaks against it.
#[must_use]
pub fn misplaced(head: &ListedSegment, base: &Base) -> Option<String> {
    let at = &base.position;
    let is_in =
        head.from.log == at.log() && (head.from.offset..=head.to.offset).contains(&at.offset());
    if !is_in {
        return Some(format!("the archive does not have the position {at}"));
    }
    if !fits(head, base) {
        let noted = base.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
        return Some(format!(
            "the archive has other transactions at {at} than the GTIDs {noted} that the backup records"
        ));
    }
    let (begin, end) = (head.begin(), head.end());
    let is_inside = (head.starts_inside && begin.as_ref() == Some(at))
        || (head.ends_inside && end.as_ref() == Some(at));
    let last = head.last.as_ref();
    let is_in_last = last.is_some_and(|last| {
        let [from, to] = &**last;
        to.log == *at.log() && from.offset < at.offset() && at.offset() < to.offset
    });
    if is_inside || is_in_last {
        return Some(format!("the position {at} lies within a transaction of the archive"));
    }
    let exact = match end.as_ref() == Some(at) {
        true => head.after(),
        false if begin.as_ref() == Some(at) => head.before(),
        false => None,
    };
    match (exact, &base.gtids) {
        (Some(found), Some(noted)) if are_apart(&found, noted) => Some(format!(
            "the archive has the GTIDs {found} at {at}, but the backup records {noted}"
        )),
        _ => None,
    }
}

/// Returns whether the GTIDs of a backup lie between those before and after a segment, so far as the log has their domains: a
/// server may have data of domains of which its log has nothing, as one that was built from a backup.
pub(super) fn fits(head: &ListedSegment, base: &Base) -> bool {
    let Some(noted) = &base.gtids else { return true };
    head.before().is_none_or(|before| before.is_within(noted))
        && head.after().is_none_or(|after| {
            // Nothing else compares the GTIDs in a segment whose beginning cannot be read alone.
            noted.is_within(&after) || (!head.starts_inside && is_within_common(noted, &after))
        })
}

/// Whether the states have a domain of MariaDB in common, and in each of these the first one reaches no further than the
/// second.
fn is_within_common(one: &GtidState, two: &GtidState) -> bool {
    let (GtidState::MariaDb(one), GtidState::MariaDb(two)) = (one, two) else { return false };
    let mut common = two.iter().filter_map(|last| Some((one.get(last.domain)?, *last))).peekable();
    common.peek().is_some() && common.all(|(gtid, last)| gtid.sequence <= last.sequence)
}

/// Whether the GTIDs that a log has up to a place cannot be those that a backup notes there. A backup of MariaDB may have
/// more domains: of those, the log has nothing.
#[must_use]
pub fn are_apart(archived: &GtidState, noted: &GtidState) -> bool {
    match (archived, noted) {
        (GtidState::MariaDb(archived), GtidState::MariaDb(noted)) => {
            archived.iter().any(|gtid| noted.get(gtid.domain) != Some(*gtid))
        }
        _ => archived != noted,
    }
}
