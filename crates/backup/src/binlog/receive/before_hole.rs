//! Where a receiver continues if segments that it has stored are missing before the last one.

use xb_repo::archive::newest::{missing_before, one_segment_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::error::RepoError;
use xb_repo::root::Root;

use crate::binlog::receive::notice::{Notice, Tell};

/// The last segment of a stream up to this one before which none is missing: from there on, the server is asked again. One that has
/// purged that is asked for what is behind this one.
pub(crate) async fn before_hole(
    root: &Root,
    server: &str,
    last: Record<SegmentHead>,
    tell: &Tell,
) -> Result<Record<SegmentHead>, RepoError> {
    let (stream, number) = (&last.content.stream, last.content.number);
    let Some(missing) = missing_before(root, server, stream, number).await? else {
        return Ok(last);
    };
    let what = format!(
        "segment {missing} of stream {stream} is missing, although segment {number} behind it, up to {}, is there",
        last.content.to
    );
    tell(Notice::Lost(what));
    let before = match missing.checked_sub(1) {
        Some(before) => one_segment_head(root, server, stream, before).await?,
        None => None,
    };
    Ok(before.unwrap_or(last))
}
