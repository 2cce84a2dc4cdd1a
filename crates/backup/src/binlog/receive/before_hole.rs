//! Where a receiver continues if segments that it has stored are missing before the last one.

use xb_repo::archive::newest::{missing_before, one_segment_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::error::RepoError;
use xb_repo::root::Root;

use crate::binlog::receive::notice::{Notice, Tell};

/// The last segment before those that are missing before this one of its stream; `None` if none is missing, or nothing is left
/// before them. From there on, the server may have to be asked again.
pub(crate) async fn before_hole(
    root: &Root,
    server: &str,
    last: &SegmentHead,
    tell: &Tell,
) -> Result<Option<Record<SegmentHead>>, RepoError> {
    let (stream, number) = (&last.stream, last.number);
    let Some(missing) = missing_before(root, server, stream, number).await? else {
        return Ok(None);
    };
    tell(Notice::Lost(format!(
        "segment {missing} of stream {stream} is missing, although segment {number} behind it, up to {}, is there",
        last.to
    )));
    match missing.checked_sub(1) {
        Some(before) => one_segment_head(root, server, stream, before).await,
        None => Ok(None),
    }
}
