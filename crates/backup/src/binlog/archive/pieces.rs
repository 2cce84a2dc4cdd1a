//! Fetches the segments that a replay needs, ahead of who reads them.

use std::io::Write;
use std::sync::Arc;

use futures::StreamExt as _;
use tokio::sync::mpsc;
use xb_binlog::{LogPosition, Repeats};
use xb_encryptor::DataKey;
use xb_repo::archive::listed_segment::ListedSegment;

use crate::binlog::archive::read::fetch_segment;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;
use crate::until_error::UntilError;

/// Memory of a segment that is fetched, in bytes: as it is stored, and its events.
const OF_ONE: u64 = 64 << 20;

/// A part of a segment that a replay needs.
#[derive(Debug, Clone)]
pub(crate) struct NeededSegment {
    pub(crate) segment: Arc<ListedSegment>,
    pub(crate) key: Option<Arc<DataKey>>,
    /// Offset behind the last byte that counts.
    pub(crate) until: u64,
    /// Number of its server in the history.
    pub(crate) server: usize,
    /// Transactions that the archive has already, and that its stream has again.
    pub(crate) repeats: Option<Repeats>,
}

/// The events of a segment, from its position on.
pub(crate) struct SegmentEvents {
    /// Its number among those that are needed.
    pub(crate) number: usize,
    /// Format description of the log, as the head has it.
    pub(crate) description: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
}

/// Part of a segment that counts, and its place.
pub(crate) struct Part<'a> {
    pub(crate) log: &'a str,
    /// Format description of the log.
    pub(crate) description: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

impl NeededSegment {
    /// Returns the part of this segment that counts: the first one of a replay begins at `start`.
    pub(crate) fn part<'a>(
        &'a self,
        fetched: &'a SegmentEvents,
        start: &LogPosition,
    ) -> Result<Part<'a>, BackupError> {
        let head = &self.segment;
        let offset = if fetched.number == 0 { start.offset() } else { head.from.offset };
        let place = |offset: u64| usize::try_from(offset.checked_sub(head.from.offset)?).ok();
        let bytes = place(offset)
            .zip(place(self.until))
            .and_then(|(from, until)| fetched.bytes.get(from..until));
        match bytes {
            Some(bytes) => {
                Ok(Part { log: &head.from.log, description: &fetched.description, offset, bytes })
            }
            None => Err(UntilError::Segment {
                stream: head.stream.to_string(),
                number: head.number,
                what: "its positions do not fit its events".to_owned(),
            }
            .into()),
        }
    }
}

/// Fetches segments in order, as many at once as the memory allows.
pub(crate) fn fetch(
    session: &Session,
    server: &str,
    needed: &Arc<[NeededSegment]>,
) -> mpsc::Receiver<Result<SegmentEvents, BackupError>> {
    let at_once = (session.resources.memory / OF_ONE).clamp(1, 4);
    let at_once = usize::try_from(at_once).unwrap_or(1);
    let (sender, receiver) = mpsc::channel(1);
    let (session, server, needed) = (session.clone(), server.to_owned(), Arc::clone(needed));
    tokio::spawn(async move {
        let reading = (0..needed.len()).map(|number| {
            let (session, server, needed) = (&session, &server, &needed);
            async move {
                let one = needed.get(number).ok_or(BackupError::Bug("a segment of no number"))?;
                let (description, bytes) = session.cancel.or(read(session, server, one)).await?;
                Ok(SegmentEvents { number, description, bytes })
            }
        });
        let mut reading = std::pin::pin!(futures::stream::iter(reading).buffered(at_once));
        while let Some(fetched) = reading.next().await {
            let is_last = fetched.is_err();
            if sender.send(fetched).await.is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// The format description of its log, and its events.
async fn read(
    session: &Session,
    server: &str,
    needed: &NeededSegment,
) -> Result<(Vec<u8>, Vec<u8>), BackupError> {
    let head = &needed.segment;
    let wrong = |what: String| UntilError::Segment {
        stream: head.stream.to_string(),
        number: head.number,
        what,
    };
    let length = head.to.offset.saturating_sub(head.from.offset);
    if length > OF_ONE {
        return Err(wrong(format!("its head states {length} bytes of events")).into());
    }
    let limit = usize::try_from(length).unwrap_or(usize::MAX);
    // A buffer that grows would take twice as much.
    let out = LimitedBuffer { bytes: Vec::with_capacity(limit), limit };
    let fetched = fetch_segment(session, server, head).await?.map_err(wrong)?;
    let description = base16ct::lower::decode_vec(&fetched.head.description)
        .map_err(|_| wrong("its format description is malformed".to_owned()))?;
    let (out, read) = fetched.read(session, needed.key.as_deref(), out).await?;
    read.map_err(wrong)?;
    if out.bytes.len() != limit {
        let found = out.bytes.len();
        return Err(wrong(format!("it has {found} bytes of events instead of {length}")).into());
    }
    session.observer.add_stored(head.stored_len);
    Ok((description, out.bytes))
}

/// Takes as many bytes as a head states.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            return Err(std::io::Error::other("more events than its head states"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
