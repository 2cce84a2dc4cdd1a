//! Detects the kind of input: an xbstream, a native stream, or raw bytes of unknown content.

use std::io::{Cursor, Read};

use xb_compressor::Compression;
use xb_encryptor::{BLOCK_HEAD_LEN, BlockHead, KeysObject, is_keys_block, parse_block};
use xb_frame::{STREAM_HEADER_LEN, StreamHeader, is_native};
use xb_pipeline::{Content, EndRule, SLAB};
use xb_repo::manifest::Layout;

use super::clone_keys::{Beginning, beginning};
use super::request::{PutLayout, PutRequest};
use crate::error::BackupError;

/// Number of leading bytes that distinguish the kinds.
const MAGIC_LEN: usize = 8;

/// Length of a header of tar.
const TAR_HEADER_LEN: usize = 512;
/// Offset of the magic of tar, and its bytes in every dialect but the oldest.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// An input whose beginning has been read.
#[derive(Debug)]
pub(crate) struct Input<R> {
    pub(crate) kind: Kind,
    /// The whole input, without the keys block of a native file.
    pub(crate) source: std::io::Chain<Cursor<Vec<u8>>, R>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Content that is still to be framed.
    Content(Content),
    /// An existing native stream, with its keys block if it is sealed.
    Native(Option<Box<KeysObject>>),
}

/// Reads the beginning of the input, and rejects an input that does not fit the request.
pub(super) async fn recognise_for<R: Read + Send + 'static>(
    request: &PutRequest,
    source: R,
) -> Result<Input<R>, BackupError> {
    let wanted = request.content.clone();
    let is_clear = !request.layout.is_encrypted();
    let reading = tokio::task::spawn_blocking(move || recognise(source, wanted, is_clear));
    let input = reading
        .await
        .map_err(|_| BackupError::Bug("the thread that reads the start of the input panicked"))??;
    let untouched = match &request.layout {
        PutLayout::Packed { compress, key_slots } => {
            // `auto` takes what is best for the input, here its own codec.
            let is_asked = ![Compression::default(), Compression::Auto].contains(compress);
            !is_asked && key_slots.is_empty()
        }
        PutLayout::Classic { .. } => true,
    };
    match (&input.kind, request.layout.kind()) {
        (Kind::Content(Content::Raw) | Kind::Native(_), Layout::Classic) => {
            Err(BackupError::Input("the classic layout stores only xbstreams".into()))
        }
        (Kind::Native(_), _) if !untouched => Err(BackupError::Input(
            "the input is a native stream, which is stored unchanged: compress and seal it where it is made"
                .into(),
        )),
        (Kind::Native(_), _) if demands_last_file(&request.content) => Err(BackupError::Input(
            "the input is a native stream, so its last file cannot be checked: remove --last-file, and check the input where the stream is made"
                .into(),
        )),
        _ => Ok(input),
    }
}

fn demands_last_file(content: &Content) -> bool {
    matches!(content, Content::Xbstream(input) if matches!(input.rule, EndRule::LastFile(_)))
}

/// Reads enough of the input to detect its kind. Blocks until the source supplies it.
///
/// # Errors
/// [`BackupError::Input`] if the input is of no kind that `wanted` allows; [`BackupError::ClearKeys`] if it is a clone whose
/// keys would be stored in clear, as far as its beginning shows that.
fn recognise<R: Read>(
    mut source: R,
    wanted: Content,
    is_clear: bool,
) -> Result<Input<R>, BackupError> {
    let mut start = Vec::new();
    read_up_to(&mut source, &mut start, MAGIC_LEN)?;
    if is_clear {
        refuse_clear_beginning(&mut source, &mut start, matches!(wanted, Content::Raw))?;
    }
    let kind = match wanted {
        Content::Raw if start.is_empty() => return Err(refused("the input is empty")),
        content @ Content::Raw => Kind::Content(content),
        _ if is_keys_block(&start) => {
            let keys_object = keys_block(&mut source, &mut start)?;
            start.clear();
            Kind::Native(Some(Box::new(keys_object)))
        }
        _ if is_native(&start) => Kind::Native(None),
        content if xb_reader::MAGIC.starts_with(start.get(..MAGIC_LEN).unwrap_or(&start)) => {
            Kind::Content(content)
        }
        _ => {
            let found: String = start.escape_ascii().map(char::from).collect();
            if is_tar(&mut source, start)? {
                return Err(BackupError::TarInput);
            }
            return Err(refused(format!(
                "the input is neither an xbstream nor a native stream: it starts with `{found}`"
            )));
        }
    };
    if let Kind::Native(keys_object) = &kind {
        read_up_to(&mut source, &mut start, STREAM_HEADER_LEN)?;
        check_header(&start, keys_object.as_deref())?;
    }
    Ok(Input { kind, source: Cursor::new(start).chain(source) })
}

/// Returns whether an input that is refused anyway is a tar archive. Reads only once more: a program that has written a line of
/// text, and waits, must be refused at once. Programs write an archive in whole headers.
fn is_tar(source: &mut impl Read, mut start: Vec<u8>) -> Result<bool, BackupError> {
    let read = start.len();
    start.resize(TAR_HEADER_LEN, 0);
    let more = loop {
        match source.read(start.get_mut(read..).unwrap_or_default()) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => break result.map_err(unreadable)?,
        }
    };
    start.truncate(read + more);
    let (at, magic) = TAR_MAGIC;
    Ok(start.get(at..).is_some_and(|rest| rest.starts_with(magic)))
}

fn keys_block(source: &mut impl Read, bytes: &mut Vec<u8>) -> Result<KeysObject, BackupError> {
    let failed = |error: xb_encryptor::KeysObjectError| refused(format!("keys block: {error}"));
    read_up_to(source, bytes, BLOCK_HEAD_LEN)?;
    let Some(head) = bytes.first_chunk() else {
        return Err(refused("keys block: the input ends inside it"));
    };
    let head = BlockHead::parse(head).map_err(failed)?;
    read_up_to(source, bytes, head.block_len)?;
    parse_block(bytes).map_err(failed)
}

fn check_header(start: &[u8], keys_object: Option<&KeysObject>) -> Result<(), BackupError> {
    let header =
        StreamHeader::parse(start).map_err(|error| refused(format!("native stream: {error}")))?;
    if usize::try_from(header.max_plain()).is_ok_and(|most| most > SLAB) {
        let most = header.max_plain();
        return Err(refused(format!(
            "native stream: its frames of up to {most} bytes are larger than `get` accepts, {SLAB}"
        )));
    }
    match (header.key_commitment(), keys_object) {
        (None, None) => Ok(()),
        (Some(commitment), Some(keys_object)) => keys_object
            .belongs_to(&header.id().0, commitment)
            .map_err(|error| refused(format!("native stream: {error}"))),
        (Some(_), None) => Err(refused(
            "native stream: it is sealed, but its keys block is missing, so it could never be opened",
        )),
        (None, Some(_)) => Err(refused("native stream: it has a keys block, but is not sealed")),
    }
}

fn refuse_clear_beginning(
    source: &mut impl Read,
    start: &mut Vec<u8>,
    is_raw: bool,
) -> Result<(), BackupError> {
    match (beginning(source, start).map_err(unreadable)?, is_raw) {
        (Beginning::CloneWithKeys, _) => {
            Err(BackupError::ClearKeys("the clone has keys of encrypted tables in clear"))
        }
        (Beginning::Clone, true) => Err(BackupError::ClearKeys(
            "the input is a clone of MySQL, and --raw cannot see whether it has keys of encrypted tables in clear",
        )),
        (Beginning::Clone, false) | (Beginning::Other, _) => Ok(()),
    }
}

/// Reads until `bytes` has `len` bytes or the input ends.
fn read_up_to(source: &mut impl Read, bytes: &mut Vec<u8>, len: usize) -> Result<(), BackupError> {
    let missing = len.saturating_sub(bytes.len()) as u64;
    source.by_ref().take(missing).read_to_end(bytes).map(drop).map_err(unreadable)
}

fn unreadable(source: std::io::Error) -> BackupError {
    BackupError::System { what: "cannot read the input", source }
}

fn refused(what: impl Into<String>) -> BackupError {
    BackupError::Input(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xb_frame::StreamId;
    use xb_pipeline::XbstreamInput;
    use xb_reader::Dialect;

    fn xbstream() -> Content {
        Content::Xbstream(XbstreamInput { rule: EndRule::AnyEnd, dialect: Dialect::Auto })
    }

    #[test]
    fn kinds_are_distinguished_and_nothing_is_lost() {
        let native = StreamHeader::new(StreamId([1; 16])).encode().to_vec();
        for (bytes, is_native) in [
            (b"".to_vec(), false),
            (b"XBST".to_vec(), false),
            (b"XBSTCK01 and more".to_vec(), false),
            ([&native[..], b"body"].concat(), true),
        ] {
            let mut input = recognise(&bytes[..], xbstream(), true).unwrap();
            assert_eq!(matches!(input.kind, Kind::Native(None)), is_native);
            let mut all = Vec::new();
            input.source.read_to_end(&mut all).unwrap();
            assert_eq!(all, bytes);
        }
    }

    #[test]
    fn an_undetected_input_is_described() {
        let native = StreamHeader::new(StreamId([1; 16])).encode().to_vec();
        for (bytes, expected) in [
            (&b"\x1f\x8bgzip..."[..], "starts with `\\x1f\\x8bgzip..`"),
            (b"XBRKEY01", "keys block: the input ends inside it"),
            (&native[..100], "native stream: "),
        ] {
            let error = recognise(bytes, xbstream(), true).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(recognise(&b""[..], Content::Raw, true).is_err(), "a dead producer's nothing");
        assert!(recognise(&b"anything"[..], Content::Raw, true).is_ok());
    }

    proptest! {
        #[test]
        fn any_start_is_taken_or_refused(
            magic in prop::sample::select(vec![&b""[..], b"XBRKEY01", b"XBRSTR01", b"XBSTCK01"]),
            rest in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [magic, &rest].concat();
            if let Ok(mut input) = recognise(&bytes[..], xbstream(), true) {
                let mut all = Vec::new();
                input.source.read_to_end(&mut all).unwrap();
                prop_assert_eq!(all, bytes);
            }
        }
    }
}
