//! Files compressed and encrypted one by one on the way up, as xtrabackup does it.
//!
//! ```text
//! pieces of chunks ──► gathered by file ──► workers ──────────► chunks of one file each,
//! in stream order      up to 4 MiB plain    compress, encrypt   up to 10 MiB ──► classic cut
//!                      (one thread)         (n, order kept)     (one thread)
//! ```
//!
//! Every piece becomes a whole frame and whole xbcrypt chunks, so that workers need nothing of each
//! other. Readers of these formats take frames and chunks of any size.
//!
//! # Memory, and why there is no deadlock
//!
//! Of the run's memory the reader's slabs and the workers' buffers are set apart. The rest is one
//! budget, and only the gathering thread leases from it: for each piece what will hold its bytes,
//! then as plain ones, later as what was made of them. The lease goes along and comes back when
//! the store has the bytes.
//!
//! Open files hold what is not a whole piece yet, and what is not a whole chunk, or a whole part where
//! objects are to be of one size ([`fixed_size`](crate::classic::fixed_size)). The first is at most a quarter of the
//! budget, the second as well, or half: where it would become more, the fullest file goes on early,
//! with a short frame or a short chunk. So at least a quarter of the budget is always with workers or
//! on its way to the store, needs no further lease, and comes back, however many files are open.

mod by_file;
mod chunks;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::sync::Arc;

use xb_compressor::{MemberCodec, PIECE_PLAIN, PieceEncoder};
use xb_encryptor::xbcrypt::{ChunkSize, Cipher, sealed_len};
use xb_reader::RelPath;

pub(crate) use by_file::TransformStage;
pub(crate) use chunks::ChunkAssembler;

use crate::classic::fixed_size::{MIN_OBJECT, Sizes};
use crate::extract::decode::{Layer, Plan};
use crate::flow::plan::{PackPlan, PlanError, SLAB};
use crate::pack::error::{MemberError, PackError};

/// Pieces and chunks are kept in blocks of this many bytes.
const BLOCK: usize = 64 << 10;
/// The least budget for files: below it objects would become very small.
const LEAST: u64 = 16 << 20;

/// Files that are stored as they are: their readers look at them first of all.
///
/// So does xtrabackup 8.0. 2.4 encrypts them, but never compresses them either.
const PLAIN: [&[u8]; 2] = [b"xtrabackup_checkpoints", b"mariadb_backup_checkpoints"];

/// What is done to each file.
#[derive(Debug, Clone)]
pub struct Transform {
    /// Codec for files that are not compressed yet.
    pub compress: Option<MemberCodec>,
    /// Cipher for files that are not encrypted yet.
    pub encrypt: Option<FileCipher>,
    /// Worker threads, at least one; the memory may allow fewer than asked for.
    pub threads: usize,
}

/// How files are encrypted.
#[derive(Clone)]
pub struct FileCipher {
    /// The cipher with its key.
    pub cipher: Arc<Cipher>,
    /// Plain bytes in an xbcrypt chunk. A chunk never reaches over a piece of 4 MiB.
    pub chunk_size: ChunkSize,
}

impl fmt::Debug for FileCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCipher").field("chunk_size", &self.chunk_size).finish_non_exhaustive()
    }
}

/// How a run's memory is divided, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemorySplit {
    /// For the reader's slabs.
    pub(crate) slabs: u64,
    /// Worker threads.
    threads: usize,
    /// For all that is gathered, made and on its way.
    files: u64,
    /// Of that, the most that open files may hold where they are cut to objects.
    pub(crate) idle: u64,
}

/// The least budget for files where objects are to be of one size: half of it holds a part.
fn least_for_fixed_size(plan: &PackPlan) -> Result<u64, PlanError> {
    let object_size = plan.object_size.get();
    if object_size < MIN_OBJECT {
        return Err(PlanError::Object { object_size, least: MIN_OBJECT });
    }
    // On a store that wants equal parts these depend on the budget, and are smallest here.
    let part = Sizes::new(plan, 0).needed();
    Ok(LEAST.max(2 * (part + SLAB as u64)))
}

impl Transform {
    /// Divides the plan's memory; `fixed_size` says that objects are to be of one size.
    ///
    /// # Errors
    /// [`PlanError`] when it is too little, with the number that is enough.
    pub(crate) fn memory_split(
        &self,
        plan: &PackPlan,
        fixed_size: bool,
    ) -> Result<MemorySplit, PlanError> {
        // With the workers, one being read, one being taken apart.
        let slabs = (plan.depth + plan.threads + 2) as u64 * SLAB as u64;
        let worker = 3 * PIECE_PLAIN as u64;
        let least = if fixed_size { least_for_fixed_size(plan)? } else { LEAST };
        let needed = slabs + worker + least;
        if plan.memory < needed {
            let (memory, threads) = (plan.memory, plan.threads);
            return Err(PlanError::Memory { memory, threads, needed });
        }
        // Half of what is left at most for workers' buffers.
        let fit = (plan.memory - slabs - least) / 2 / worker;
        let threads = self.threads.clamp(1, usize::try_from(fit).unwrap_or(usize::MAX).max(1));
        let files = plan.memory - slabs - threads as u64 * worker;
        let idle = if fixed_size { files / 2 } else { files / 4 };
        Ok(MemorySplit { slabs, threads, files, idle })
    }

    /// Most bytes that come of a piece.
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

/// One file on its way.
#[derive(Debug)]
struct File {
    /// Its new name.
    path: RelPath,
    compress: bool,
    encrypt: bool,
}

impl File {
    /// What becomes of the file `path`, whose layers `plan` has.
    fn new(path: &RelPath, plan: &Plan, transform: &Transform) -> Result<Self, MemberError> {
        let mut name = path.as_bytes().to_vec();
        let plain = PLAIN.contains(&path.as_bytes());
        // What is compressed is not compressed again, what is encrypted gets nothing more: so the
        // names are those that stock readers know.
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
            .map_err(|source| MemberError::TooLong { path: path.clone(), source })?;
        Ok(Self { path, compress: codec.is_some(), encrypt })
    }
}
