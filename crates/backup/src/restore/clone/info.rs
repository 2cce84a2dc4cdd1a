//! Facts about a clone, read from the store alone, and refusals because of them.

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

/// Longest text that is taken, in bytes: that of a million files has some 300 MB.
const MAX: usize = 1 << 30;

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
    parsed(request, &read?)
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
    parsed(request, &text_of(session, request, objects).await?)
}

fn parsed(request: &GetRequest, stream: &[u8]) -> Result<CloneInfo, BackupError> {
    let text = file_in(stream).map_err(|what| damaged(request, what))?;
    CloneInfo::parse(&text).map_err(|error| of_clone(request, error))
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

async fn read(session: &Session, request: &GetRequest) -> Result<Vec<u8>, BackupError> {
    let objects = session.cancel.or(find(session, request, None, None)).await?;
    text_of(session, request, objects).await
}

async fn text_of(
    session: &Session,
    request: &GetRequest,
    objects: Objects,
) -> Result<Vec<u8>, BackupError> {
    let plan = plan_beside(0, session.resources)?;
    let (_, text) = transfer(session, request, plan, objects, Text(Vec::new())).await?;
    Ok(text.0)
}

/// Keeps a short stream.
struct Text(Vec<u8>);

impl StreamSink for Text {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        if self.0.len().saturating_add(bytes.len()) > MAX {
            return Err(BackupError::Input(format!("{INFO} is longer than {MAX} bytes")));
        }
        self.0.extend_from_slice(&bytes);
        Ok(())
    }
}

/// The content of the one file of a stream.
fn file_in(stream: &[u8]) -> Result<Vec<u8>, String> {
    let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
    let mut text = Vec::new();
    while let Some(item) = reader.next().map_err(|error| error.to_string())? {
        if let Item::Data(bytes) = item {
            text.extend_from_slice(bytes);
        }
    }
    Ok(text)
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
