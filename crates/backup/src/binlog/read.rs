//! Reads the events of a segment.

use std::io::{Cursor, Write};

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_pipeline::Observer;
use xb_pipeline::filter::{OpenFile, read_stream};
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

/// Reads a segment, and writes its plain events to `out`: bytes of the log from the segment's position on.
/// `key` is that of its stream, if it is sealed. What `out` gets is authentic, but complete only if the
/// second value is `Ok`. The inner error says what is wrong with the object.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn read_segment<W: Write + Send + 'static>(
    session: &Session,
    server: &str,
    segment: &Record<SegmentHead>,
    key: Option<&DataKey>,
    mut out: W,
) -> Result<Result<(W, Result<(), String>), String>, BackupError> {
    let head = &segment.content;
    let Some(stream) = RunId::parse(&head.stream) else {
        return Ok(Err("the ID of its stream is malformed".to_owned()));
    };
    let folder = stream_folder(&server_folder(server).map_err(RepoError::from)?, stream);
    let body = match body(&session.root, &folder, segment).await? {
        Ok(body) => body,
        Err(what) => return Ok(Err(what)),
    };
    let id = head.body.id.as_deref().and_then(unhex::<16>);
    let key: Option<DataKey> = key.zip(id).map(|(key, id)| key.segment_key(&id));
    let settings =
        OpenFile { threads: session.resources.threads, max_memory: session.resources.memory };
    let reading = tokio::task::spawn_blocking(move || {
        let read = read_stream(Cursor::new(body), &mut out, key, settings, &Observer::default());
        (out, read.map(drop).map_err(|error| error.to_string()))
    });
    reading.await.map(Ok).map_err(|_| BackupError::Bug("a segment's thread panicked"))
}

/// Reads the body of a segment.
async fn body(
    root: &Root,
    folder: &str,
    segment: &Record<SegmentHead>,
) -> Result<Result<Bytes, String>, RepoError> {
    let read = object(root, folder, segment).await?;
    Ok(read.map(|mut bytes| bytes.split_off(front(&bytes).unwrap_or_default())))
}

/// Reads the object of a segment, and compares the checksums of its head and its body.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be read; the inner error says what is wrong with the object.
pub(super) async fn object(
    root: &Root,
    folder: &str,
    segment: &Record<SegmentHead>,
) -> Result<Result<Bytes, String>, RepoError> {
    let head = &segment.content;
    let key = root.key(&format!("{folder}/{}", segment_name(head.number)));
    if head.body.len > MAX_OBJECT {
        return Ok(Err(format!("its body has {} bytes", head.body.len)));
    }
    let bytes = match root.store().get_at_most(&key, MAX_OBJECT).await {
        Ok(bytes) => bytes,
        Err(error) if is_of_object(error.kind) => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let parts = front(&bytes).and_then(|len| bytes.split_at_checked(len));
    let Some((text, body)) = parts else { return Ok(Err("it has no head".to_owned())) };
    if digest(text) != segment.digest {
        let own = Record::<SegmentHead>::decode(text).map(|own| own.content);
        let is_moved = |own: &SegmentHead| own.number != head.number || own.stream != head.stream;
        return Ok(Err(match own {
            Ok(own) if is_moved(&own) => {
                format!("it is segment {} of stream {}: it was moved here", own.number, own.stream)
            }
            Ok(_) => {
                "its head differs from the one that the archive had before, or that a roll-up has"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        }));
    }
    let got = digest(body);
    match got == head.body.sha256 {
        true => Ok(Ok(bytes)),
        false => Ok(Err(format!(
            "damaged: the SHA-256 of its body is {got} instead of {}",
            head.body.sha256
        ))),
    }
}

fn is_of_object(kind: StoreErrorKind) -> bool {
    matches!(kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged | StoreErrorKind::Altered)
}
