//! Opens a stream of an archive: finds its key, and checks that a holder of it wrote the stream's records.

use xb_encryptor::{DataKey, Keys};
use xb_repo::archive::listing::ListedStream;

use crate::error::BackupError;

/// Stream as these keys open it.
pub(crate) enum OpenedStream {
    /// It is sealed, and this is its key. What the key did not authenticate is a problem of the stream, and is
    /// ignored.
    Sealed(DataKey),
    /// It is not sealed.
    Plain,
    /// Its receiver was killed before it wrote the key slots, so that nothing else was stored.
    Empty,
    /// Its key slots are missing, although something else was stored.
    NoSlots,
    /// The keys do not open it, because of this.
    Locked(String),
}

/// Readable part of a stream.
pub(crate) enum Readable {
    /// Its segments, with the key if it is sealed; and what is wrong with that, if the reader has keys.
    Segments(Option<DataKey>, Option<String>),
    /// Nothing, because of this; without a reason, nothing is stored of it.
    Nothing(Option<String>),
}

impl OpenedStream {
    /// Returns the part that a reader with these keys can read, and its remarks.
    pub(crate) fn readable(self, keys: &Keys) -> Readable {
        match self {
            Self::Sealed(key) => Readable::Segments(Some(key), None),
            Self::Plain => {
                let what = (!keys.is_empty()).then_some("it is not sealed, but a key was given");
                Readable::Segments(None, what.map(str::to_owned))
            }
            Self::Empty => Readable::Nothing(None),
            Self::NoSlots => Readable::Nothing(Some("its key slots are missing".to_owned())),
            Self::Locked(what) => Readable::Nothing(Some(format!("keys: {what}"))),
        }
    }
}

/// Opens a stream of the archive of `server`.
///
/// # Errors
/// [`BackupError::Keys`] if it is sealed, and `keys` has none for any of its slots.
pub(crate) fn open(
    found: &mut ListedStream,
    server: &str,
    keys: &Keys,
    memory: u64,
) -> Result<OpenedStream, BackupError> {
    let Some(slots) = &found.keys else {
        let is_sealed =
            found.stream.as_ref().is_some_and(|stream| !stream.head.content.sealed.is_empty());
        return Ok(match is_sealed {
            false => OpenedStream::Plain,
            true if found.is_empty() => OpenedStream::Empty,
            true => OpenedStream::NoSlots,
        });
    };
    match keys.open(slots, memory) {
        None => {
            let slots: Vec<_> = slots.slots().map(|slot| slot.to_string()).collect();
            Err(BackupError::Keys(format!(
                "the archive of {server} is sealed, and no key was given; it opens with: {}",
                slots.join(", ")
            )))
        }
        Some(Err(error)) => Ok(OpenedStream::Locked(error.to_string())),
        Some(Ok(key)) => {
            found.authenticate(&key);
            Ok(OpenedStream::Sealed(key))
        }
    }
}
