//! Numbers and text in byte slices.

/// If only blanks are found instead of a chunk, the error quotes at most this many of them.
const QUOTE_BLANK_LEN: usize = 16;

/// Returns the first line of text that is not empty, if its end has arrived. The result does not
/// depend on what follows, so that errors are the same however the input was cut.
pub(super) fn first_line(text: &[u8]) -> Option<&[u8]> {
    let from = text.iter().position(|&b| !ends_text(b))?;
    let len = text[from..].iter().position(|&b| ends_text(b))?;
    Some(&text[from..from + len])
}

/// Returns the part of `text` that an error quotes: its first line, or the beginning of blanks.
pub(super) fn quotable(text: &[u8]) -> &[u8] {
    match first_line(text) {
        Some(line) => line,
        // Only zeros or empty lines: a few of them are enough for the error.
        None if text.iter().all(|&b| ends_text(b)) => text.get(..QUOTE_BLANK_LEN).unwrap_or(text),
        None => text,
    }
}

fn ends_text(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
