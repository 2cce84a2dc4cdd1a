//! The body of a QuickLZ 1.5 packet, level 1, without streaming buffer.
//!
//! Plain bytes are literals and matches. A match does not state its distance: it names one of 4096
//! table entries, each the last position of three bytes with that hash. Reader and writer must
//! enter positions at the same moments. A packet may name an entry that was never made; this, and
//! every length and distance, is checked here.

/// The last position of three bytes, by their hash.
pub(super) struct Table {
    /// Position + 1; 0 for an empty entry.
    entries: Box<[u32; 1 << HASH_BITS]>,
    /// The first position that was neither entered nor skipped.
    next: usize,
}

impl Table {
    /// Memory of the entries.
    pub(super) const BYTES: u64 = 4 << HASH_BITS;
}

const HASH_BITS: u32 = 12;
/// Number of bytes in a hash.
const HASHED: usize = 3;
/// Shortest body of a compressed packet: writers pad to this length with arbitrary bytes.
const MIN_BODY: usize = 9;
/// Once only this many plain bytes are left, they are all literals.
const TAIL: usize = 11;

impl Default for Table {
    fn default() -> Self {
        Self { entries: Box::new([0; 1 << HASH_BITS]), next: 0 }
    }
}

impl Table {
    fn clear(&mut self) {
        self.entries.fill(0);
        self.next = 0;
    }

    fn get(&self, index: u16) -> Option<usize> {
        let entry = *self.entries.get(usize::from(index))?;
        usize::try_from(entry.checked_sub(1)?).ok()
    }

    /// Enters the pending positions whose three bytes are within `plain`.
    #[inline]
    fn enter(&mut self, plain: &[u8]) {
        for bytes in plain.get(self.next..).unwrap_or_default().windows(HASHED) {
            self.enter_next(bytes);
        }
    }

    #[inline]
    fn enter_next(&mut self, bytes: &[u8]) {
        let &[a, b, c] = bytes else { return };
        let value = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
        let hash = (value >> HASH_BITS ^ value) & ((1 << HASH_BITS) - 1);
        self.next += 1;
        if let Some(entry) = self.entries.get_mut(hash as usize) {
            // Blocks are below 4 GiB: their length is a u32 in the packet.
            *entry = u32::try_from(self.next).unwrap_or(0);
        }
    }
}

/// Decodes the body of one packet, which must fill `out` exactly and be used up.
///
/// # Errors
///
/// A description of the fault in the body.
pub(super) fn decode(body: &[u8], out: &mut [u8], table: &mut Table) -> Result<(), &'static str> {
    table.clear();
    let mut input = Input { rest: body, padded: body.len() == MIN_BODY };
    let mut len = 0;
    // Flags of the next items, lowest bit first, below a stop bit.
    let mut control = 1;
    while len < out.len() {
        if control == 1 {
            control = u32::from_le_bytes(input.take()?);
            if control == 0 {
                return Err("a control word has no stop bit");
            }
            continue;
        }
        if control & 1 == 1 {
            len = copy_match(&mut input, out, len, table)?;
            control >>= 1;
        } else if out.len() - len <= TAIL {
            return tail(&mut input, out, len, control);
        } else {
            let [literal] = input.take()?;
            if let Some(byte) = out.get_mut(len) {
                *byte = literal;
            }
            len += 1;
            control >>= 1;
            table.enter(out.get(..len).unwrap_or_default());
        }
    }
    input.end()
}

/// Copies one match after the first `len` bytes. Returns the new length.
#[inline]
fn copy_match(
    input: &mut Input<'_>,
    out: &mut [u8],
    len: usize,
    table: &mut Table,
) -> Result<usize, &'static str> {
    let word = u16::from_le_bytes(input.take()?);
    let count = match word & 15 {
        0 => usize::from(input.take::<1>()?[0]),
        code => usize::from(code) + 2,
    };
    let from = table.get(word >> 4).ok_or("a match refers to an empty entry")?;
    // A match shorter than three cannot come from the writer's table, nor be entered in ours.
    if count < HASHED {
        return Err("a match is shorter than three bytes");
    }
    let end = len + count;
    let (past, room) = out.get_mut(..end).ok_or("a match extends past the end")?.split_at_mut(len);
    let source = past.get(from..).ok_or("a match refers to data not yet decoded")?;
    match source.get(..count) {
        Some(source) => room.copy_from_slice(source),
        // Source and target overlap: the copy repeats itself.
        None if source.is_empty() => return Err("a match refers to data not yet decoded"),
        None => {
            for (byte, &past) in room.iter_mut().zip(source.iter().cycle()) {
                *byte = past;
            }
        }
    }
    // Enters the positions up to the match's first; those inside the match are skipped.
    table.enter(out.get(..len + HASHED).unwrap_or_default());
    table.next = end;
    Ok(end)
}

/// Decodes the last bytes: literals, still with control words between them.
fn tail(
    input: &mut Input<'_>,
    out: &mut [u8],
    len: usize,
    mut control: u32,
) -> Result<(), &'static str> {
    for byte in out.get_mut(len..).unwrap_or_default() {
        if control == 1 {
            input.take::<4>()?;
            control = 1 << 31;
        }
        [*byte] = input.take()?;
        control >>= 1;
    }
    input.end()
}

struct Input<'a> {
    rest: &'a [u8],
    padded: bool,
}

impl Input<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("the packet ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.padded || self.rest.is_empty() {
            return Ok(());
        }
        Err("the packet has data after its end")
    }
}
