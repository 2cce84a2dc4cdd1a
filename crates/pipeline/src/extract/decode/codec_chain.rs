//! The layers of one file, as decoders one behind the other.

use std::sync::Arc;

use xb_compressor::{Member, MemberDecoder, MemberLimits, State};
use xb_encryptor::xbcrypt::{Cipher, Decoder, Event, Head, Limits, MAX_SIZE, open_chunk};

use super::{Layer, UndoError};

/// Size of the buffer in front of every layer but the outermost.
const PIPE: usize = 64 << 10;
/// What a layer holds before it has read how much it needs: buffer and codec context.
const START: u64 = 256 << 10;

/// Undoes the layers of one file, piece by piece, whatever the pieces are.
pub(crate) struct Chain {
    /// From the outside.
    stages: Vec<Stage>,
}

struct Stage {
    work: Work,
    /// Bytes of memory it may hold.
    granted: u64,
    /// What the layer outside has given and is not yet taken. Unused by the outermost.
    held: Vec<u8>,
    taken: usize,
}

enum Work {
    Open(Opening),
    Unpack(Member, Option<MemberDecoder>),
}

/// Why the chain, or one stage of it, has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The output is full.
    Full,
    /// All input is taken, and all that follows from it has been given out.
    Hungry,
    /// To go on a stage must hold more memory: [`Chain::grant`].
    Wants(Want),
}

/// What a stage must be able to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// Its number from the outside.
    stage: usize,
    /// Bytes altogether.
    memory: u64,
}

impl Chain {
    pub(crate) fn new(layers: &[Layer], cipher: Option<&Arc<Cipher>>) -> Result<Self, UndoError> {
        let stages = layers.iter().map(|layer| {
            let work = match layer {
                Layer::Xbcrypt => Work::Open(Opening::new(cipher.ok_or(UndoError::NoKey)?)),
                Layer::Codec(member) => Work::Unpack(*member, None),
            };
            Ok(Stage { work, granted: 0, held: Vec::new(), taken: 0 })
        });
        Ok(Self { stages: stages.collect::<Result<_, UndoError>>()? })
    }

    /// Takes bytes from the front of `input`, and gives plain ones to the front of `out`.
    pub(crate) fn run(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, Flow), UndoError> {
        produce(&mut self.stages, input, out)
    }

    /// The input is over and [`Chain::run`] is hungry: says whether every layer is whole.
    pub(crate) fn finish(self) -> Result<(), UndoError> {
        self.stages.into_iter().try_for_each(Stage::finish)
    }

    /// Bytes that all stages hold when `want` is granted, and how many more that is.
    pub(crate) fn cost(&self, want: Want) -> (u64, u64) {
        let granted: u64 = self.stages.iter().map(|stage| stage.granted).sum();
        let own = self.stages.get(want.stage).map_or(0, |stage| stage.granted);
        let more = want.memory.saturating_sub(own);
        (granted.saturating_add(more), more)
    }

    /// Grants what was asked for.
    pub(crate) fn grant(&mut self, want: Want) {
        if let Some(stage) = self.stages.get_mut(want.stage) {
            stage.granted = want.memory;
        }
    }
}

/// Output of the last of `stages`, which draws on those before it.
fn produce(
    stages: &mut [Stage],
    input: &mut &[u8],
    out: &mut [u8],
) -> Result<(usize, Flow), UndoError> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok((0, Flow::Hungry)) };
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
        if flow != Flow::Hungry {
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
    fn finish(self) -> Result<(), UndoError> {
        match self.work {
            Work::Open(opening) => opening.decoder.finish()?,
            Work::Unpack(_, Some(decoder)) => drop(decoder.finish()?),
            // Not one byte has come: whether that is in order is up to the format.
            Work::Unpack(member, None) => drop(MemberDecoder::new(member)?.finish()?),
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
    ) -> Result<(usize, Flow), UndoError> {
        let wants = |memory: u64| Flow::Wants(Want { stage, memory: memory.saturating_add(START) });
        if granted == 0 {
            return Ok((0, if input.is_empty() { Flow::Hungry } else { wants(0) }));
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
                        decoder.insert(MemberDecoder::metered(*member, MemberLimits::default())?)
                    }
                };
                decoder.grant(granted);
                let progress = decoder.decode(input, out)?;
                let flow = match progress.state {
                    State::OutputFull => Flow::Full,
                    State::NeedsMemory(memory) => wants(memory),
                    // Whatever comes after the end is the decoder's to refuse.
                    State::NeedsInput | State::Finished => Flow::Hungry,
                };
                Ok((progress.written, flow))
            }
        }
    }
}

/// Decrypts one chunk after the other. Nothing of a chunk comes out before its hash fits.
struct Opening {
    cipher: Arc<Cipher>,
    decoder: Decoder,
    /// A chunk for which there is no memory yet.
    waiting: Option<Head>,
    payload: Vec<u8>,
    /// Plain bytes in `payload`, and how many of them were given out.
    plain: usize,
    given: usize,
}

impl Opening {
    fn new(cipher: &Arc<Cipher>) -> Self {
        Self {
            cipher: Arc::clone(cipher),
            // As large as the format has them, since memory is asked for: to raise the chunk size far
            // beyond 64 MiB was the way to fewer objects with the stock tools.
            decoder: Decoder::new(Limits { max_chunk: MAX_SIZE, ..Limits::default() }),
            waiting: None,
            payload: Vec::new(),
            plain: 0,
            given: 0,
        }
    }

    /// Bytes written, and why it has stopped; the error is the memory it wants.
    fn step(
        &mut self,
        granted: u64,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, Result<Flow, u64>), UndoError> {
        let mut written = 0;
        loop {
            let ready = self.payload.get(self.given..self.plain).unwrap_or_default();
            let room = out.get_mut(written..).unwrap_or_default();
            let len = ready.len().min(room.len());
            room[..len].copy_from_slice(&ready[..len]);
            written += len;
            self.given += len;
            if written == out.len() {
                return Ok((written, Ok(Flow::Full)));
            }
            if let Some(head) = self.waiting {
                if head.payload_len > granted {
                    return Ok((written, Err(head.payload_len)));
                }
                let len = usize::try_from(head.payload_len).unwrap_or(usize::MAX);
                (self.plain, self.given, self.waiting) = (0, 0, None);
                self.payload.clear();
                // Exactly: that much was granted.
                self.payload.reserve_exact(len);
            }
            match self.decoder.next(input)? {
                None => return Ok((written, Ok(Flow::Hungry))),
                Some(Event::Head(head)) => self.waiting = Some(head),
                Some(Event::Data(piece)) => self.payload.extend_from_slice(piece),
                Some(Event::ChunkEnd(head)) => {
                    self.plain = open_chunk(&self.cipher, &head, &mut self.payload)?;
                }
            }
        }
    }
}
