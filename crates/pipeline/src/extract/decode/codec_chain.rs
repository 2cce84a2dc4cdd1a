//! The layers of one file, as a chain of decoders.

use std::sync::Arc;

use xb_compressor::{FileCodecLimits, FileDecoder, Member, State};
use xb_encryptor::xbcrypt::{Cipher, Decoder, Event, Head, Limits, MAX_SIZE, open_chunk};

use super::{FileDecodeError, Layer};

/// Size of the buffer in front of every layer except the outermost.
const PIPE: usize = 64 << 10;
/// Memory of a layer before it has read how much it needs: buffer and codec context.
const START: u64 = 256 << 10;

/// Decodes the layers of one file from pieces of any length.
pub(crate) struct CodecChain {
    /// The outermost layer is first.
    stages: Vec<Stage>,
}

struct Stage {
    work: Work,
    /// Bytes of memory that the stage may hold.
    granted: u64,
    /// Output of the next outer layer that is not yet consumed. Unused in the outermost stage.
    held: Vec<u8>,
    taken: usize,
}

enum Work {
    Open(DecryptStage),
    Unpack(Member, Option<FileDecoder>),
}

/// Reason why the chain, or a stage of it, stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainStop {
    /// The output is full.
    Full,
    /// All input was consumed, and all output that follows from it was returned.
    Hungry,
    /// To continue, a stage needs more memory: [`CodecChain::grant`].
    Wants(MemoryNeed),
}

/// Memory that a stage needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryNeed {
    /// Number of the stage, counted from the outermost.
    stage: usize,
    /// Total memory of the stage in bytes.
    memory: u64,
}

impl CodecChain {
    pub(crate) fn new(
        layers: &[Layer],
        cipher: Option<&Arc<Cipher>>,
    ) -> Result<Self, FileDecodeError> {
        let stages = layers.iter().map(|layer| {
            let work = match layer {
                Layer::Xbcrypt => {
                    Work::Open(DecryptStage::new(cipher.ok_or(FileDecodeError::NoKey)?))
                }
                Layer::Codec(member) => Work::Unpack(*member, None),
            };
            Ok(Stage { work, granted: 0, held: Vec::new(), taken: 0 })
        });
        Ok(Self { stages: stages.collect::<Result<_, FileDecodeError>>()? })
    }

    /// Takes bytes from the front of `input`, and writes plain bytes to the front of `out`.
    pub(crate) fn run(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, ChainStop), FileDecodeError> {
        produce(&mut self.stages, input, out)
    }

    /// Ends the input, after [`CodecChain::run`] returned hungry, and checks that every layer is
    /// complete.
    pub(crate) fn finish(self) -> Result<(), FileDecodeError> {
        self.stages.into_iter().try_for_each(Stage::finish)
    }

    /// Total bytes of all stages if `want` is granted, and how many of them are new.
    pub(crate) fn cost(&self, want: MemoryNeed) -> (u64, u64) {
        let granted: u64 = self.stages.iter().map(|stage| stage.granted).sum();
        let own = self.stages.get(want.stage).map_or(0, |stage| stage.granted);
        let more = want.memory.saturating_sub(own);
        (granted.saturating_add(more), more)
    }

    /// Grants the memory requested by `want`.
    pub(crate) fn grant(&mut self, want: MemoryNeed) {
        if let Some(stage) = self.stages.get_mut(want.stage) {
            stage.granted = want.memory;
        }
    }
}

/// Produces output of the last of `stages`, which takes its input from the stages before it.
fn produce(
    stages: &mut [Stage],
    input: &mut &[u8],
    out: &mut [u8],
) -> Result<(usize, ChainStop), FileDecodeError> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok((0, ChainStop::Hungry)) };
    if before.is_empty() {
        return last.work.step(last.granted, 0, input, out);
    }
    let mut written = 0;
    loop {
        let mut source = last.held.get(last.taken..).unwrap_or_default();
        let there = source.len();
        let room = out.get_mut(written..).unwrap_or_default();
        let step = last.work.step(last.granted, before.len(), &mut source, room);
        last.taken += there - source.len();
        let (more, flow) = step?;
        written += more;
        if flow != ChainStop::Hungry {
            return Ok((written, flow));
        }
        last.held.resize(PIPE, 0);
        last.taken = 0;
        let refill = produce(before, input, &mut last.held);
        let (len, flow) = refill.inspect_err(|_| last.held.clear())?;
        last.held.truncate(len);
        if len == 0 {
            return Ok((written, flow));
        }
    }
}

impl Stage {
    fn finish(self) -> Result<(), FileDecodeError> {
        match self.work {
            Work::Open(opening) => opening.decoder.finish()?,
            Work::Unpack(_, Some(decoder)) => drop(decoder.finish()?),
            // No byte has arrived; the format decides whether that is valid.
            Work::Unpack(member, None) => drop(FileDecoder::new(member)?.finish()?),
        }
        Ok(())
    }
}

impl Work {
    fn step(
        &mut self,
        granted: u64,
        stage: usize,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, ChainStop), FileDecodeError> {
        let wants = |memory: u64| {
            ChainStop::Wants(MemoryNeed { stage, memory: memory.saturating_add(START) })
        };
        if granted == 0 {
            return Ok((0, if input.is_empty() { ChainStop::Hungry } else { wants(0) }));
        }
        let granted = granted.saturating_sub(START);
        match self {
            Self::Open(opening) => {
                let (written, flow) = opening.step(granted, input, out)?;
                Ok((written, flow.unwrap_or_else(wants)))
            }
            Self::Unpack(member, decoder) => {
                let decoder = match decoder {
                    Some(decoder) => decoder,
                    None => {
                        decoder.insert(FileDecoder::metered(*member, FileCodecLimits::default())?)
                    }
                };
                decoder.grant(granted);
                let progress = decoder.decode(input, out)?;
                let flow = match progress.state {
                    State::OutputFull => ChainStop::Full,
                    State::NeedsMemory(memory) => wants(memory),
                    // Bytes after the end are rejected by the decoder.
                    State::NeedsInput | State::Finished => ChainStop::Hungry,
                };
                Ok((progress.written, flow))
            }
        }
    }
}

/// Decrypts one chunk after the other. No byte of a chunk is returned before its hash is checked.
struct DecryptStage {
    cipher: Arc<Cipher>,
    decoder: Decoder,
    /// A chunk that waits for memory.
    waiting: Option<Head>,
    payload: Vec<u8>,
    /// Number of plain bytes in `payload`, and how many of them were returned.
    plain: usize,
    given: usize,
}

impl DecryptStage {
    fn new(cipher: &Arc<Cipher>) -> Self {
        Self {
            cipher: Arc::clone(cipher),
            // Up to the format's maximum, because memory is requested first. Stock tools needed
            // chunk sizes far above 64 MiB to create fewer objects.
            decoder: Decoder::new(Limits { max_chunk: MAX_SIZE, ..Limits::default() }),
            waiting: None,
            payload: Vec::new(),
            plain: 0,
            given: 0,
        }
    }

    /// Returns the number of bytes written and why it stopped; the inner error is the memory it
    /// needs.
    fn step(
        &mut self,
        granted: u64,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, Result<ChainStop, u64>), FileDecodeError> {
        let mut written = 0;
        loop {
            let ready = self.payload.get(self.given..self.plain).unwrap_or_default();
            let room = out.get_mut(written..).unwrap_or_default();
            let len = ready.len().min(room.len());
            room[..len].copy_from_slice(&ready[..len]);
            written += len;
            self.given += len;
            if written == out.len() {
                return Ok((written, Ok(ChainStop::Full)));
            }
            if let Some(head) = self.waiting {
                if head.payload_len > granted {
                    return Ok((written, Err(head.payload_len)));
                }
                let len = usize::try_from(head.payload_len).unwrap_or(usize::MAX);
                (self.plain, self.given, self.waiting) = (0, 0, None);
                self.payload.clear();
                // Exactly, because this much was granted.
                self.payload.reserve_exact(len);
            }
            match self.decoder.next(input)? {
                None => return Ok((written, Ok(ChainStop::Hungry))),
                Some(Event::Head(head)) => self.waiting = Some(head),
                Some(Event::Data(piece)) => self.payload.extend_from_slice(piece),
                Some(Event::ChunkEnd(head)) => {
                    self.plain = open_chunk(&self.cipher, &head, &mut self.payload)?;
                }
            }
        }
    }
}
