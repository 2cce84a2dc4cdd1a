//! Work on a piece of a file: compression and encryption.

use std::sync::Arc;

use bytes::Bytes;
use xb_compressor::{CodecError, PIECE_PLAIN, PieceEncoder};
use xb_encryptor::xbcrypt::{XbcryptError, new_iv, seal_chunk, sealed_len};

use super::{BLOCK, File, FileCipher, Transform};
use crate::flow::budget::Permit;
use crate::flow::slab::{Slab, SlabPool};
use crate::pack::error::PackError;

/// A job for one file. The jobs of a file are in order.
pub(super) enum Job {
    /// Plain bytes, and a lease large enough for the transformed bytes.
    Piece { file: Arc<File>, blocks: Vec<Slab>, permit: Permit },
    /// The file is complete.
    End(Arc<File>),
}

impl Job {
    /// Length of its plain bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Piece { blocks, .. } => blocks.iter().map(|block| block.len() as u64).sum(),
            Self::End(_) => 0,
        }
    }
}

/// Result of a job.
pub(super) type TransformOutput = Result<Transformed, PackError>;

/// Next stored bytes of a file, possibly none.
pub(super) struct Transformed {
    pub(super) file: Arc<File>,
    pub(super) blocks: Vec<Bytes>,
    pub(super) end: bool,
}

pub(super) struct TransformWorker {
    encoder: Option<PieceEncoder>,
    cipher: Option<FileCipher>,
    pool: SlabPool,
    /// Plain bytes, later the transformed bytes.
    plain: Vec<u8>,
    packed: Vec<u8>,
    sealed: Vec<u8>,
}

impl TransformWorker {
    pub(super) fn new(transform: &Transform, pool: SlabPool) -> Result<Self, CodecError> {
        let encoder = transform.compress.map(PieceEncoder::new).transpose()?;
        let packed = encoder.as_ref().map_or(0, |encoder| encoder.max_encoded_len(PIECE_PLAIN));
        Ok(Self {
            encoder,
            cipher: transform.encrypt.clone(),
            pool,
            plain: Vec::with_capacity(PIECE_PLAIN),
            packed: vec![0; packed],
            sealed: Vec::new(),
        })
    }

    pub(super) fn transform(&mut self, job: Job) -> TransformOutput {
        match job {
            Job::End(file) => Ok(Transformed { file, blocks: Vec::new(), end: true }),
            Job::Piece { file, blocks, permit } => {
                let blocks = self.piece(&file, blocks, permit)?;
                Ok(Transformed { file, blocks, end: false })
            }
        }
    }

    fn piece(
        &mut self,
        file: &File,
        blocks: Vec<Slab>,
        permit: Permit,
    ) -> Result<Vec<Bytes>, PackError> {
        self.plain.clear();
        for block in blocks {
            // Return the block to the pool at once, because the output uses the blocks again.
            self.plain.extend_from_slice(&block);
        }
        let mut out = BlockWriter { pool: &self.pool, permit, slab: None, blocks: Vec::new() };
        let bytes = match &mut self.encoder {
            Some(encoder) if file.compress => {
                let len = encoder.encode(&self.plain, &mut self.packed)?;
                self.packed.get(..len).unwrap_or_default()
            }
            _ => &self.plain,
        };
        match &self.cipher {
            Some(FileCipher { cipher, chunk_size }) if file.encrypt => {
                for piece in bytes.chunks(chunk_size.get()) {
                    self.sealed.resize(sealed_len(cipher, piece.len()), 0);
                    let iv = new_iv().map_err(XbcryptError::from)?;
                    seal_chunk(cipher, &iv, piece, &mut self.sealed)?;
                    out.write(&self.sealed);
                }
            }
            _ => out.write(bytes),
        }
        Ok(out.finish())
    }
}

/// Writes bytes into blocks that divide one lease between them.
struct BlockWriter<'a> {
    pool: &'a SlabPool,
    permit: Permit,
    slab: Option<Slab>,
    blocks: Vec<Bytes>,
}

impl BlockWriter<'_> {
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let slab = self.slab.get_or_insert_with(|| {
                let rest = self.permit.split_off(BLOCK as u64);
                self.pool.take(Some(std::mem::replace(&mut self.permit, rest)))
            });
            slab.fill_from(&mut bytes);
            if slab.is_full() {
                self.blocks.extend(self.slab.take().map(Slab::freeze));
            }
        }
    }

    /// Shrinks the last block to its content, because most files are small.
    fn finish(mut self) -> Vec<Bytes> {
        if let Some(mut slab) = self.slab.take() {
            let mut permit = slab.take_permit().unwrap_or_default();
            permit.shrink_to(slab.len() as u64);
            let tail = Tail { bytes: slab.to_vec(), _permit: permit };
            self.blocks.push(Bytes::from_owner(tail));
        }
        self.blocks
    }
}

struct Tail {
    bytes: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
