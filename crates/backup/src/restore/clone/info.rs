//! Facts about a clone, read from the store alone, and refusals because of them.

use std::io::{PipeWriter, Read, Write as _};

use bytes::Bytes;
use xb_clone::{CloneInfo, INFO};
use xb_reader::{ChunkReader, Dialect, Item, Limits};

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::read::decoding::plan_beside;
use crate::read::find::{Objects, find};
use crate::read::get::transfer;
use crate::read::request::GetRequest;
use crate::read::stream_sink::StreamSink;
use crate::selection::Selection;
use crate::server::private::ServerOptions;
use crate::session::Session;

/// Reads what the clone of this request says about itself. No other file of it is read.
///
/// # Errors
/// [`BackupError::Damaged`] if it cannot be used; those of reading a backup.
pub(crate) async fn fetch_info(
    session: &Session,
    request: &mut GetRequest,
) -> Result<CloneInfo, BackupError> {
    let all = std::mem::replace(&mut request.files, Selection::exact([INFO.to_owned()]));
    let read = read(session, request).await;
    request.files = all;
    read
}

/// Reads the facts of the clone in these objects, to which they are reduced.
///
/// # Errors
/// As [`fetch_info`].
pub(crate) async fn info_in(
    session: &Session,
    request: &GetRequest,
    objects: Objects,
) -> Result<CloneInfo, BackupError> {
    let plan = plan_beside(0, session.resources)?;
    let failed = |source| BackupError::System { what: "cannot create a pipe", source };
    let (stream, pipe) = std::io::pipe().map_err(failed)?;
    // What arrives is read at once: of a text that is all spaces, nothing is kept.
    let parsed = tokio::task::spawn_blocking(move || CloneInfo::read(Content::new(stream)));
    // After an error, this lets go of the pipe, and the thread ends.
    let (_, text) = transfer(session, request, plan, objects, Text(Some(pipe))).await?;
    drop(text);
    let parsed =
        parsed.await.map_err(|_| BackupError::Bug("the thread that reads a clone panicked"))?;
    parsed.map_err(|error| of_clone(request, error))
}

/// Request of the restore of a clone.
#[derive(Debug, Clone)]
pub(crate) struct CloneOptions {
    /// How the server is started that prepares it; `None`: it is not prepared.
    pub(crate) server: Option<ServerOptions>,
    /// Memory of that server, in bytes.
    pub(crate) memory: Option<u64>,
    /// Its tables are made ready for export.
    pub(crate) exports: bool,
    /// A program that prepares backups is named, or options of one.
    pub(crate) has_program: bool,
    /// Keys may lie under a constant.
    pub(crate) allow_exposed_keys: bool,
}

/// Reads the facts about a clone, if it can be restored as requested.
///
/// # Errors
/// [`BackupError::Selection`] with the next step, before any of its data is read; [`BackupError::Damaged`].
pub(crate) async fn clone_to_restore(
    session: &Session,
    request: &mut GetRequest,
    asked: &CloneOptions,
) -> Result<CloneInfo, BackupError> {
    let name = request.name.to_string();
    refuse_parts(&name, request.files.is_all(), asked.exports)?;
    if asked.has_program {
        return Err(BackupError::Selection(format!(
            "{name} is a clone of MySQL, which the server itself prepares: use --mysqld and --mysqld-opts instead of --prepare-program and --prepare-opts"
        )));
    }
    let info = fetch_info(session, request).await?;
    if info.is_encrypted() && asked.server.is_none() && !asked.allow_exposed_keys {
        return Err(BackupError::Selection(format!(
            "{name} has encrypted tables, and until a server with a keyring starts on them, anyone who reads the files can decrypt them: add --prepare, or accept that with --allow-exposed-keys"
        )));
    }
    Ok(info)
}

/// Refuses to take single files out of a clone.
///
/// # Errors
/// [`BackupError::Selection`] with the next step.
pub(crate) fn refuse_parts(name: &str, is_all: bool, is_export: bool) -> Result<(), BackupError> {
    let next = match (is_all, is_export) {
        (true, false) => return Ok(()),
        (false, _) => {
            "restore all of it with --prepare and without --files, start a server on it, and dump the tables there"
        }
        (true, true) => {
            "restore all of it with --prepare, start a server on it, and run FLUSH TABLES ... FOR EXPORT there"
        }
    };
    Err(BackupError::Selection(format!(
        "{name} is a clone of MySQL, whose files are usable only together: {next}"
    )))
}

async fn read(session: &Session, request: &GetRequest) -> Result<CloneInfo, BackupError> {
    let objects = session.cancel.or(find(session, request, None, None)).await?;
    info_in(session, request, objects).await
}

/// Passes a stream on, until its reader has had enough and says why.
struct Text(Option<PipeWriter>);

impl StreamSink for Text {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        if self.0.as_mut().is_some_and(|pipe| pipe.write_all(&bytes).is_err()) {
            self.0 = None;
        }
        Ok(())
    }
}

/// The content of the one file of a stream.
struct Content<R> {
    reader: ChunkReader<R>,
    /// Bytes of the last piece, and how many of them were read.
    piece: Vec<u8>,
    at: usize,
}

impl<R: Read> Content<R> {
    fn new(stream: R) -> Self {
        let reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
        Self { reader, piece: Vec::new(), at: 0 }
    }
}

impl<R: Read> Read for Content<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        while self.at == self.piece.len() {
            match self.reader.next().map_err(std::io::Error::other)? {
                Some(Item::Data(bytes)) => {
                    self.piece.clear();
                    self.piece.extend_from_slice(bytes);
                    self.at = 0;
                }
                Some(_) => {}
                None => return Ok(0),
            }
        }
        let mut rest = self.piece.get(self.at..).unwrap_or_default();
        let len = rest.read(buf)?;
        self.at += len;
        Ok(len)
    }
}

fn damaged(request: &GetRequest, what: String) -> BackupError {
    BackupError::Damaged { name: request.name.to_string(), what }
}

/// An error of the clone itself.
fn of_clone(request: &GetRequest, error: xb_clone::Error) -> BackupError {
    match error {
        xb_clone::Error::Refused(what) => {
            BackupError::Selection(format!("{} cannot be restored: {what}", request.name))
        }
        error => damaged(request, error.to_string()),
    }
}
