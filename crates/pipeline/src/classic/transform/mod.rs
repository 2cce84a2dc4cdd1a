//! Compresses and encrypts files one by one on the way up, as xtrabackup does.
//!
//! ```text
//! pieces of chunks ──► gathered by file ──► workers ──────────► chunks of one file each,
//! in stream order      up to 4 MiB plain    compress, encrypt   up to 10 MiB ──► cut to objects
//!                      (one thread)         (n, in order)       (one thread)
//! ```
//!
//! Every piece becomes a whole frame and whole xbcrypt chunks, so that workers do not depend on
//! each other. Readers of these formats accept frames and chunks of any size.
//!
//! # Memory, and why there is no deadlock
//!
//! The reader's slabs and the workers' buffers are set aside from the run's memory. The rest is one
//! budget, from which only the gathering thread leases: for each piece, the memory for its plain
//! bytes, which later holds the transformed bytes. The lease travels with the bytes and is returned
//! when the store has them.
//!
//! Open files hold bytes that do not yet fill a piece, and stored bytes that do not yet fill a
//! chunk, or a part if objects have one size ([`fixed_size`](crate::classic::fixed_size)). Pieces
//! may use at most a quarter of the budget, stored bytes a quarter, or half for objects of one
//! size. When a limit would be exceeded, the fullest file is flushed early, as a short frame or a
//! short chunk. So at least a quarter of the budget is always with workers or on its way to the
//! store, needs no further lease, and is returned, however many files are open.

mod by_file;
mod chunks;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::sync::Arc;

use xb_compressor::{FileCodec, PIECE_PLAIN, PieceEncoder};
use xb_encryptor::xbcrypt::{ChunkSize, Cipher, sealed_len};
use xb_reader::RelPath;

pub(crate) use by_file::TransformStage;
pub(crate) use chunks::ChunkAssembler;

use crate::classic::fixed_size::{MIN_OBJECT, Sizes};
use crate::extract::decode::{Layer, Plan};
use crate::flow::plan::{PackPlan, PlanError, SLAB};
use crate::pack::error::{PackError, TransformError};

/// Pieces and chunks are held in blocks of this many bytes.
const BLOCK: usize = 64 << 10;
/// Minimum budget for files: with less, objects would become very small.
const LEAST: u64 = 16 << 20;

/// Files that are stored unchanged, because readers look at them first.
///
/// xtrabackup 8.0 does the same. 2.4 encrypts them, but never compresses them either.
const PLAIN: [&[u8]; 2] = [b"xtrabackup_checkpoints", b"mariadb_backup_checkpoints"];

/// Transformation of each file.
#[derive(Debug, Clone)]
pub struct Transform {
    /// Codec for files that are not compressed yet; `None` to leave them.
    pub compress: Option<FileCodec>,
    /// Cipher for files that are not encrypted yet; `None` to leave them.
    pub encrypt: Option<FileCipher>,
    /// Worker threads, at least one. The memory may allow fewer than requested.
    pub threads: usize,
}

/// Encryption of files.
#[derive(Clone)]
pub struct FileCipher {
    /// The cipher with its key.
    pub cipher: Arc<Cipher>,
    /// Plain bytes per xbcrypt chunk. A chunk never extends beyond a piece of 4 MiB.
    pub chunk_size: ChunkSize,
}

impl fmt::Debug for FileCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCipher").field("chunk_size", &self.chunk_size).finish_non_exhaustive()
    }
}

/// Division of a run's memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemorySplit {
    /// For the reader's slabs.
    pub(crate) slabs: u64,
    /// Worker threads.
    threads: usize,
    /// For all gathered, transformed and in-flight bytes.
    files: u64,
    /// Limit, within that, on the bytes that open files hold where they are cut into objects.
    pub(crate) idle: u64,
}

/// Minimum budget for files with objects of one size: half of it holds a part.
fn least_for_fixed_size(plan: &PackPlan) -> Result<u64, PlanError> {
    let object_size = plan.object_size.get();
    if object_size < MIN_OBJECT {
        return Err(PlanError::Object { object_size, least: MIN_OBJECT });
    }
    // On a store that requires equal parts, their size depends on the budget and is smallest here.
    let part = Sizes::new(plan, 0).needed();
    Ok(LEAST.max(2 * (part + SLAB as u64)))
}

impl Transform {
    /// Divides the plan's memory. `fixed_size` means that objects have one size.
    ///
    /// # Errors
    /// [`PlanError`] if the memory is too small, with the number of bytes needed.
    pub(crate) fn memory_split(
        &self,
        plan: &PackPlan,
        fixed_size: bool,
    ) -> Result<MemorySplit, PlanError> {
        // Slabs with the workers, one being read, one being taken apart.
        let slabs = (plan.depth + plan.threads + 2) as u64 * SLAB as u64;
        let worker = 3 * PIECE_PLAIN as u64;
        let least = if fixed_size { least_for_fixed_size(plan)? } else { LEAST };
        let needed = slabs + worker + least;
        if plan.memory < needed {
            let (memory, threads) = (plan.memory, plan.threads);
            return Err(PlanError::Memory { memory, threads, needed });
        }
        // At most half of the rest is used for workers' buffers.
        let fit = (plan.memory - slabs - least) / 2 / worker;
        let threads = self.threads.clamp(1, usize::try_from(fit).unwrap_or(usize::MAX).max(1));
        let files = plan.memory - slabs - threads as u64 * worker;
        let idle = if fixed_size { files / 2 } else { files / 4 };
        Ok(MemorySplit { slabs, threads, files, idle })
    }

    /// Maximum length of a transformed piece, in bytes.
    fn worst_len(&self) -> Result<usize, PackError> {
        let packed = match self.compress {
            Some(codec) => PieceEncoder::new(codec)?.max_encoded_len(PIECE_PLAIN),
            None => PIECE_PLAIN,
        };
        Ok(match &self.encrypt {
            None => packed,
            Some(FileCipher { cipher, chunk_size }) => {
                let chunks = packed.div_ceil(chunk_size.get());
                packed.saturating_add(chunks.saturating_mul(sealed_len(cipher, 0)))
            }
        })
    }
}

/// A file being transformed.
#[derive(Debug)]
struct File {
    /// Name after the transform.
    path: RelPath,
    compress: bool,
    encrypt: bool,
}

impl File {
    /// Decides what to do with the file `path`, whose layers are in `plan`.
    fn new(path: &RelPath, plan: &Plan, transform: &Transform) -> Result<Self, TransformError> {
        let mut name = path.as_bytes().to_vec();
        let plain = PLAIN.contains(&path.as_bytes());
        // A compressed file is not compressed again, and an encrypted file is left unchanged, so
        // that all names have suffixes that stock readers know.
        let codec = transform.compress.filter(|_| !plain && plan.layers.is_empty());
        let encrypted = plan.layers.contains(&Layer::Xbcrypt);
        let encrypt = transform.encrypt.is_some() && !plain && !encrypted;
        if let Some(codec) = codec {
            name.extend_from_slice(codec.member().suffix().as_bytes());
        }
        if encrypt {
            name.extend_from_slice(Layer::Xbcrypt.suffix());
        }
        let path = RelPath::new(&name)
            .map_err(|source| TransformError::TooLong { path: path.clone(), source })?;
        Ok(Self { path, compress: codec.is_some(), encrypt })
    }
}
