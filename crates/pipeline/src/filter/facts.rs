//! Inspects an encrypted file without its key.

use std::io::{self, Read, Seek, SeekFrom};

use xb_encryptor::xbcrypt::{
    ErrorLocation, Head, Limits, Parsed, Version, XbcryptError, parse_head,
};
use xb_encryptor::{BLOCK_HEAD_LEN, BlockHead, KeysObject, KeysObjectError, SlotInfo, parse_block};
use xb_frame::{
    Codec, Event, FRAME_HEADER_LEN, FrameError, STREAM_HEADER_LEN, StreamHeader, StreamReader,
    TRAILER_LEN, Trailer,
};

use super::{FileKind, MAGIC_LEN};

/// Maximum length of the head of an xbcrypt chunk.
const MAX_HEAD: usize = 60;

/// Description of a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Facts {
    /// A native file, or a native stream.
    Native(Box<NativeFacts>),
    /// An xbcrypt file.
    Xbcrypt(XbcryptFacts),
}

/// The keys block at the front of a native file.
#[derive(Debug)]
#[non_exhaustive]
pub struct KeysFacts {
    /// Length of the block in bytes.
    pub block_len: u64,
    /// The key slots.
    pub keys_object: KeysObject,
}

impl KeysFacts {
    /// The key slots.
    pub fn slots(&self) -> impl Iterator<Item = SlotInfo> {
        self.keys_object.slots()
    }
}

/// Description of a native file without its key.
#[derive(Debug)]
#[non_exhaustive]
pub struct NativeFacts {
    /// Keys block; `None` for a stream as objects hold it.
    pub keys: Option<KeysFacts>,
    /// Header of the stream.
    pub header: StreamHeader,
    /// Codec of the first frame; `None` in a sealed stream.
    pub codec: Option<Codec>,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Trailer, if it is at the end and matches header and length; otherwise the file is
    /// incomplete. The trailer of a sealed stream is not authenticated.
    pub trailer: Result<Trailer, FrameError>,
}

impl NativeFacts {
    /// Number of bytes before the stream.
    #[must_use]
    pub fn stream_start(&self) -> u64 {
        self.keys.as_ref().map_or(0, |keys| keys.block_len)
    }
}

/// Description of an xbcrypt file by its chunk heads. Payloads are not checked.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct XbcryptFacts {
    /// Number of chunks of version 1, 2 and 3.
    pub chunks: [u64; 3],
    /// Number of chunks of versions 2 and 3 without an IV, which are not encrypted.
    pub not_encrypted: u64,
    /// Plain bytes in all chunks.
    pub plain_bytes: u64,
    /// Plain bytes in the largest chunk.
    pub largest: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Defect of the chunk at which the inspection stopped.
    pub damage: Option<XbcryptError>,
}

/// Reason why a file cannot be described.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactsError {
    /// The file cannot be read.
    #[error("cannot read: {0}")]
    Read(#[from] io::Error),
    /// The file has an unknown format.
    #[error("neither a native file nor an xbcrypt file: it starts with \"{}\"", got.escape_ascii())]
    Unknown {
        /// First bytes of the file.
        got: Vec<u8>,
    },
    /// The keys block of a native file cannot be read.
    #[error(transparent)]
    KeysObject(#[from] KeysObjectError),
    /// The header of a native stream cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Inspects a file without its key. `file` must be at its start.
///
/// # Errors
/// [`FactsError`]. Damage after the start of the file is not an error but part of the result.
pub fn facts<R: Read + Seek>(mut file: R) -> Result<Facts, FactsError> {
    let file_len = file.seek(SeekFrom::End(0))?;
    match FileKind::of(&read_at(&mut file, 0, MAGIC_LEN)?) {
        FileKind::Native => {
            let keys = keys(&mut file)?;
            Ok(Facts::Native(Box::new(native(&mut file, Some(keys), file_len)?)))
        }
        FileKind::NativeStream => Ok(Facts::Native(Box::new(native(&mut file, None, file_len)?))),
        FileKind::Xbcrypt | FileKind::Empty => Ok(Facts::Xbcrypt(xbcrypt(&mut file, file_len)?)),
        FileKind::Other(got) => Err(FactsError::Unknown { got }),
    }
}

/// Reads up to `len` bytes from `position`; fewer at the end of the file.
fn read_at(file: &mut (impl Read + Seek), position: u64, len: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::with_capacity(len);
    file.take(len as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn keys(file: &mut (impl Read + Seek)) -> Result<KeysFacts, FactsError> {
    let head = read_at(file, 0, BLOCK_HEAD_LEN)?;
    let Some(head) = head.first_chunk() else {
        return Err(KeysObjectError::Block { reason: "it is truncated" }.into());
    };
    let len = BlockHead::parse(head)?.block_len;
    let keys_object = parse_block(&read_at(file, 0, len)?)?;
    Ok(KeysFacts { block_len: len as u64, keys_object })
}

fn native(
    file: &mut (impl Read + Seek),
    keys: Option<KeysFacts>,
    file_len: u64,
) -> Result<NativeFacts, FactsError> {
    let start = keys.as_ref().map_or(0, |keys| keys.block_len);
    let front = read_at(file, start, STREAM_HEADER_LEN + FRAME_HEADER_LEN)?;
    let header = StreamHeader::parse(front.get(..STREAM_HEADER_LEN).unwrap_or(&front))?;
    if let (Some(keys), Some(commitment)) = (&keys, header.key_commitment()) {
        keys.keys_object.belongs_to(&header.id().0, commitment)?;
    }
    let codec = if header.is_sealed() { None } else { first_codec(&front) };
    let trailer = trailer(file, &header, file_len.saturating_sub(start), file_len)?;
    Ok(NativeFacts { keys, header, codec, file_len, trailer })
}

fn first_codec(mut front: &[u8]) -> Option<Codec> {
    let mut reader = StreamReader::new(xb_frame::Limits::default());
    while let Ok(Some(event)) = reader.next(&mut front) {
        if let Event::Frame(frame) = event {
            return Some(frame.codec);
        }
    }
    None
}

fn trailer(
    file: &mut (impl Read + Seek),
    header: &StreamHeader,
    stream_len: u64,
    file_len: u64,
) -> io::Result<Result<Trailer, FrameError>> {
    let position = file_len.saturating_sub(TRAILER_LEN as u64);
    let bytes = read_at(file, position, TRAILER_LEN)?;
    let cut = || FrameError::Truncated {
        place: xb_frame::ErrorLocation { part: xb_frame::Part::Trailer, position: stream_len },
    };
    let Some(bytes) = bytes.first_chunk() else { return Ok(Err(cut())) };
    Ok(Trailer::parse(bytes)
        .map_err(|_| cut())
        .and_then(|trailer| trailer.check(header, stream_len).map(|()| trailer)))
}

fn xbcrypt(file: &mut (impl Read + Seek), file_len: u64) -> io::Result<XbcryptFacts> {
    let mut facts = XbcryptFacts { file_len, ..XbcryptFacts::default() };
    let mut place = ErrorLocation::default();
    while place.offset < file_len {
        let bytes = read_at(file, place.offset, MAX_HEAD)?;
        let left = file_len - place.offset;
        match parse_head(&bytes, place, &Limits::ALL) {
            Err(error) => facts.damage = Some(error),
            Ok(Parsed::Head(head)) if head.len() as u64 + head.payload_len <= left => {
                facts.add(&head);
                place.chunk += 1;
                place.offset += head.len() as u64 + head.payload_len;
                continue;
            }
            Ok(Parsed::Head(head)) => {
                let missing = head.len() as u64 + head.payload_len - left;
                facts.damage = Some(XbcryptError::Cut { place, missing });
            }
            Ok(Parsed::Needs(needed)) => {
                let missing = (needed as u64).saturating_sub(left);
                facts.damage = Some(XbcryptError::Cut { place, missing });
            }
            Ok(_) => {}
        }
        break;
    }
    Ok(facts)
}

impl XbcryptFacts {
    fn add(&mut self, head: &Head) {
        let version = match head.version {
            Version::V1 => 0,
            Version::V2 => 1,
            _ => 2,
        };
        self.chunks[version] += 1;
        self.plain_bytes += head.plain_len();
        self.largest = self.largest.max(head.plain_len());
        if head.version != Version::V1 && head.iv.is_none() {
            self.not_encrypted += 1;
        }
    }
}
