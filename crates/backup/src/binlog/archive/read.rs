//! Reads the events of a segment.

use std::io::{Cursor, Write};

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_pipeline::Observer;
use xb_pipeline::filter::{OpenFile, read_stream};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::names::{segment_name, server_folder, stream_folder};
use xb_repo::archive::record::{Record, digest, front};
use xb_repo::archive::segment::SegmentHead;
use xb_repo::error::RepoError;
use xb_repo::hex::unhex;
use xb_repo::names::RunId;
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use crate::error::BackupError;
use crate::session::Session;

/// Largest segment that is read, in bytes: its plain size, what sealing adds, and its head.
const MAX_OBJECT: u64 = 64 << 20;

/// A segment as it is stored: its head is the one that is listed, and its body that which the head names.
#[derive(Debug)]
pub struct FetchedSegment {
    /// Its head.
    pub head: SegmentHead,
    body: Bytes,
}

/// Fetches a segment. The inner error says what is wrong with the object.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn fetch_segment(
    session: &Session,
    server: &str,
    segment: &ListedSegment,
) -> Result<Result<FetchedSegment, String>, BackupError> {
    let Some(stream) = RunId::parse(&segment.stream) else {
        return Ok(Err("the ID of its stream is malformed".to_owned()));
    };
    let folder = stream_folder(&server_folder(server).map_err(RepoError::from)?, stream);
    let read = object(&session.root, &folder, segment).await?;
    Ok(read.map(|(head, mut object)| {
        let body = object.split_off(front(&object).unwrap_or_default());
        FetchedSegment { head, body }
    }))
}

impl FetchedSegment {
    /// Writes its plain events to `out`: bytes of the log from the segment's position on. `key` is that of its stream, if
    /// it is sealed. What `out` gets is authentic, but complete only if the second value is `Ok`.
    ///
    /// # Errors
    /// [`BackupError::Bug`].
    pub async fn read<W: Write + Send + 'static>(
        self,
        session: &Session,
        key: Option<&DataKey>,
        mut out: W,
    ) -> Result<(W, Result<(), String>), BackupError> {
        let Self { head, body } = self;
        let id = head.body.id.as_deref().and_then(unhex::<16>);
        let key: Option<DataKey> = key.zip(id).map(|(key, id)| key.segment_key(&id));
        let settings =
            OpenFile { threads: session.resources.threads, max_memory: session.resources.memory };
        let reading = tokio::task::spawn_blocking(move || {
            let read =
                read_stream(Cursor::new(body), &mut out, key, settings, &Observer::default());
            (out, read.map(drop).map_err(|error| error.to_string()))
        });
        reading.await.map_err(|_| BackupError::Bug("a segment's thread panicked"))
    }
}

/// Reads the object of a segment, and compares the checksums of its head, which it returns, too, and its body.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be read; the inner error says what is wrong with the object.
pub(crate) async fn object(
    root: &Root,
    folder: &str,
    segment: &ListedSegment,
) -> Result<Result<(SegmentHead, Bytes), String>, RepoError> {
    let key = root.key(&format!("{folder}/{}", segment_name(segment.number)));
    if segment.stored_len > MAX_OBJECT {
        return Ok(Err(format!("its body has {} bytes", segment.stored_len)));
    }
    let bytes = match root.store().get_at_most(&key, MAX_OBJECT).await {
        Ok(bytes) => bytes,
        Err(error) if is_of_object(error.kind) => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let parts = front(&bytes).and_then(|len| bytes.split_at_checked(len));
    let Some((text, body)) = parts else { return Ok(Err("it has no head".to_owned())) };
    let own = match Record::<SegmentHead>::decode(text) {
        Ok(own) => own,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let head = own.content;
    if own.digest != segment.digest {
        let is_moved = head.number != segment.number || segment.stream != head.stream;
        return Ok(Err(match is_moved {
            true => format!(
                "it is segment {} of stream {}: it was moved here",
                head.number, head.stream
            ),
            false => {
                "its head differs from the one that the archive had before, or that a roll-up has"
                    .to_owned()
            }
        }));
    }
    let got = digest(body);
    match got == head.body.sha256 {
        true => Ok(Ok((head, bytes))),
        false => Ok(Err(format!(
            "damaged: the SHA-256 of its body is {got} instead of {}",
            head.body.sha256
        ))),
    }
}

fn is_of_object(kind: StoreErrorKind) -> bool {
    matches!(kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged | StoreErrorKind::Altered)
}
