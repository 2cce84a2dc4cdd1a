//! Reads of objects, ranges and sizes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStoreExt as _,
};

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::bounds::{BoundExceeded, SMALL_OBJECT};
use crate::store::{Store, path_of};

impl Store {
    /// Reads a whole object of at most [`SMALL_OBJECT`] bytes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object, [`StoreErrorKind::Damaged`] if it is
    /// larger; other kinds after all retries.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.get_at_most(key, SMALL_OBJECT).await
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_at_most(&self, key: &str, most: u64) -> Result<Bytes, StoreError> {
        Ok(self.get_described(key, most).await?.0)
    }

    /// Like [`Store::get_at_most`], with the facts that the store states about the object.
    pub(crate) async fn get_described(
        &self,
        key: &str,
        most: u64,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let path = path_of(Operation::Get, key)?;
        self.reading(Operation::Get, key, most, || async {
            self.refuse_special(&path)?;
            let answer = self.objects.get(&path).await?;
            let size = answer.meta.size;
            if size > most {
                return Err(BoundExceeded::Object { size, most }.into());
            }
            let meta = answer.meta.clone();
            Ok((answer.bytes().await?, meta))
        })
        .await
    }

    /// Reads a range of an object that must have `size` bytes. The result has exactly the requested
    /// length. A response of another length, or that the object is missing, is requested once more:
    /// only if it comes twice is the object considered damaged or missing.
    ///
    /// A range that covers the whole object is requested as the object: some stores answer it with
    /// status 200, not 206.
    ///
    /// # Errors
    /// [`StoreErrorKind::Damaged`] if the object has another size, [`StoreErrorKind::NotFound`] if
    /// there is none, [`StoreErrorKind::Altered`] if the range is ignored; other kinds after all
    /// retries.
    pub async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let new = || Zeroed { bytes: vec![0; len], filled: 0 };
        Ok(self.get_range_into(key, range, size, new).await?.bytes.into())
    }

    /// Like [`Store::get_range`], into a buffer of the caller: `new` creates an empty one of the
    /// range's length, once for each try. A buffer that is used again saves the system the work of
    /// providing memory for every range.
    ///
    /// # Errors
    /// As [`Store::get_range`].
    pub async fn get_range_into<B: RangeBuffer>(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
        new: impl Fn() -> B,
    ) -> Result<B, StoreError> {
        match self.get_range_once(key, range.clone(), size, &new).await {
            Err(error)
                if matches!(
                    error.kind,
                    StoreErrorKind::Damaged | StoreErrorKind::Altered | StoreErrorKind::NotFound
                ) =>
            {
                if error.kind == StoreErrorKind::NotFound && !self.is_folder() {
                    self.pause(1).await;
                }
                self.traffic.count_retry();
                self.get_range_once(key, range, size, &new).await
            }
            outcome => outcome,
        }
    }

    async fn get_range_once<B: RangeBuffer>(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
        new: &impl Fn() -> B,
    ) -> Result<B, StoreError> {
        let path = path_of(Operation::Get, key)?;
        let wanted = range.end - range.start;
        let (found, received, buffer) = self
            .reading(Operation::Get, key, wanted, || async {
                self.keep_to_rate(usize::try_from(wanted).unwrap_or(usize::MAX)).await;
                let whole = range == (0..size);
                let range = (!whole).then(|| GetRange::Bounded(range.clone()));
                let options = GetOptions { range, ..GetOptions::default() };
                self.refuse_special(&path)?;
                let answer = self.objects.get_opts(&path, options).await?;
                let found = answer.meta.size;
                if found != size {
                    return Ok((found, 0, new()));
                }
                let given = answer.range.end.saturating_sub(answer.range.start);
                if given > wanted {
                    return Err(BoundExceeded::Bytes(wanted).into());
                }
                let (received, buffer) = collect(answer, new()).await?;
                Ok((found, received, buffer))
            })
            .await?;
        // The store reports the size with every range, so this check costs no request.
        if found != size {
            let message = format!("the object has {found} bytes, expected {size}");
            return Err(StoreError::new(Operation::Get, key, StoreErrorKind::Damaged, message));
        }
        if received as u64 != wanted {
            let message = format!(
                "the object is too short: requested bytes {}..{}, received {received}",
                range.start, range.end
            );
            return Err(StoreError::new(Operation::Get, key, StoreErrorKind::Damaged, message));
        }
        Ok(buffer)
    }

    /// Returns the size of an object, or `None` if there is no such object.
    ///
    /// # Errors
    /// Any error except "not found", after all retries.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let path = path_of(Operation::Head, key)?;
        let head = || async {
            self.refuse_special(&path)?;
            self.objects.head(&path).await
        };
        match self.retrying(Operation::Head, key, head).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Destination of a range: takes its bytes from the front, as they arrive.
pub trait RangeBuffer: Send + 'static {
    /// The part that is not filled yet.
    fn room(&mut self) -> &mut [u8];

    /// Counts the first `len` bytes of [`RangeBuffer::room`] as filled. These bytes are still in the
    /// processor's cache, so this is the time to compute a checksum.
    fn advance(&mut self, len: usize);
}

/// Buffer for a single use.
struct Zeroed {
    bytes: Vec<u8>,
    filled: usize,
}

impl RangeBuffer for Zeroed {
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    fn advance(&mut self, len: usize) {
        self.filled += len;
    }
}

/// Bytes to copy before their checksums are computed: half of a processor's first cache, or less, so
/// that they are still there.
const BLOCK: usize = 16 << 10;

/// Bytes to copy at a time. The C library copies longer runs with an instruction that is a quarter
/// slower where source and destination lie differently within a page (Zen 4), and here they do:
/// the head of the response precedes the first piece.
const COPY: usize = 2 << 10;

/// Fills `buffer` from its front with the bytes of an answer, and returns their number.
async fn collect<B: RangeBuffer>(
    answer: GetResult,
    mut buffer: B,
) -> object_store::Result<(usize, B)> {
    let start = answer.range.start;
    if let GetResultPayload::File(file, _) = answer.payload {
        // Without the library's own buffer, which is fresh memory for every range.
        let reading = tokio::task::spawn_blocking(move || {
            let received = read_at(&file, start, &mut buffer)?;
            Ok::<_, std::io::Error>((received, buffer))
        });
        let read = match reading.await {
            Ok(read) => read,
            Err(panicked) => Err(panicked.into()),
        };
        return read.map_err(|source| object_store::Error::Generic {
            store: "folder",
            source: source.into(),
        });
    }
    let mut received = 0;
    let mut pieces = answer.into_stream();
    while let Some(piece) = pieces.try_next().await? {
        let room = buffer.room();
        if piece.len() > room.len() {
            return Err(BoundExceeded::Bytes((received + room.len()) as u64).into());
        }
        for block in piece.chunks(BLOCK) {
            let room = buffer.room().chunks_mut(COPY);
            room.zip(block.chunks(COPY))
                .for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
            buffer.advance(block.len());
        }
        received += piece.len();
    }
    Ok((received, buffer))
}

/// Bytes of a file to read at a time: half of a processor's second cache, or less.
const READ: usize = 256 << 10;

/// Reads into `buffer` from position `start` until it is full or the file ends. Returns the number
/// of bytes.
fn read_at(file: &File, start: u64, buffer: &mut impl RangeBuffer) -> std::io::Result<usize> {
    let mut received = 0;
    loop {
        let room = buffer.room();
        let wanted = room.len().min(READ);
        if wanted == 0 {
            return Ok(received);
        }
        match file.read_at(&mut room[..wanted], start + received as u64) {
            Ok(0) => return Ok(received),
            Ok(n) => {
                buffer.advance(n);
                received += n;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
