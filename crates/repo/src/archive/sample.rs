//! Records for tests, which change what they need.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::archive::record::{FORMAT, digest};
use crate::archive::segment::{Body, SegmentHead};
use crate::archive::stream::{StoredPosition, StreamHead, StreamOrigin};

/// Head of an unsealed stream of the server `shop`, with the log from its first event on.
#[must_use]
pub fn stream_head(stream: &str) -> StreamHead {
    StreamHead {
        format: FORMAT,
        stream: stream.to_owned(),
        server: "shop".to_owned(),
        tool: "test".to_owned(),
        started: Timestamp::UNIX_EPOCH,
        server_version: "9.7.4".to_owned(),
        server_id: 1,
        server_uuid: None,
        node: None,
        host: None,
        repeats: None,
        outside: None,
        start: at(4),
        gtids: None,
        begins: StreamOrigin::First,
        settings: BTreeMap::new(),
        settings_at: None,
        system_zone: None,
        engines: Vec::new(),
        doubts: Vec::new(),
        sealed: Vec::new(),
    }
}

/// Head of the segment of a stream with this number, from one offset of the first log to another one, without transactions. Its
/// content is `body`.
#[must_use]
pub fn segment_head(stream: &str, number: u64, [from, to]: [u64; 2], body: &[u8]) -> SegmentHead {
    SegmentHead {
        format: FORMAT,
        stream: stream.to_owned(),
        number,
        previous: digest(b""),
        from: at(from),
        to: at(to),
        next_log: None,
        description: String::new(),
        gtids_before: None,
        gtids_after: None,
        starts_inside: false,
        ends_inside: false,
        transactions: 0,
        domains: None,
        turns: None,
        commits: None,
        received: [Timestamp::UNIX_EPOCH; 2],
        last: None,
        barriers: Vec::new(),
        more_barriers: 0,
        prepared: 0,
        altering: 0,
        body: Body { id: None, len: body.len() as u64, sha256: digest(body) },
    }
}

/// A position in the first log.
#[must_use]
pub fn at(offset: u64) -> StoredPosition {
    StoredPosition { log: "bin.000001".into(), offset }
}
