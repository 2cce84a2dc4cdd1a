//! Contents for test files: the same arguments produce the same bytes everywhere.

/// Size of one page of the page-like data, in bytes; InnoDB's default page size.
pub const PAGE: usize = 16 * 1024;

/// Steele and Vigna's `splitmix64`: small, and random enough to be incompressible.
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// Creates a separate sequence for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ 0x2545_F491_4F6C_DD1D)
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "endless; an iterator adds nothing")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Fills `buf` with noise.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for piece in buf.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Returns `len` incompressible bytes.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Noise::new(seed).fill(&mut out);
    out
}

/// Returns `len` bytes that look like a table file: page headers, rows of words and rising numbers,
/// zeros at the end of each page, and some pages of noise.
#[must_use]
pub fn pages(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 8] = [
        b"order ",
        b"invoice ",
        b"customer ",
        b"pending ",
        b"Helsinki ",
        b"Lisbon ",
        b"alpha ",
        b"returned ",
    ];
    let mut noise = Noise::new(seed);
    let mut out = Vec::with_capacity(len + PAGE);
    let mut number = 0_u32;
    while out.len() < len {
        let start = out.len();
        out.resize(start + PAGE, 0);
        let page = &mut out[start..];
        if number % 4 == 3 {
            noise.fill(page);
        } else {
            page[4..8].copy_from_slice(&number.to_be_bytes());
            let filled = PAGE / 2 + usize::try_from(noise.below(PAGE as u64 / 2 - 64)).unwrap_or(0);
            let mut at = 38;
            while at < filled {
                let draw = noise.next();
                let word = WORDS[usize::from(draw.to_le_bytes()[0] % 8)];
                page[at..at + word.len()].copy_from_slice(word);
                page[at + word.len()] = draw.to_le_bytes()[4];
                at += word.len() + 1;
            }
        }
        number += 1;
    }
    out.truncate(len);
    out
}

/// Returns half page-like, half incompressible data, in runs of 64 KiB to 256 KiB.
#[must_use]
pub fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut draw = Noise::new(seed ^ 0x6D69_7865);
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let run = usize::try_from((1 + draw.below(4)) << 16).unwrap_or(PAGE).min(len - out.len());
        let part = draw.next();
        out.extend(if part & 1 == 0 { pages(part, run) } else { noise(part, run) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeatable_and_of_the_length_asked_for() {
        for len in [0, 1, 7, PAGE - 1, PAGE, 5 * PAGE + 3] {
            assert_eq!(noise(1, len).len(), len);
            assert_eq!(pages(1, len), pages(1, len));
            assert_eq!(mixed(1, len), mixed(1, len));
            assert_eq!(mixed(1, len).len(), len);
        }
        assert_ne!(noise(1, 64), noise(2, 64));
        assert_ne!(mixed(1, 4096), mixed(2, 4096));
    }

    #[test]
    fn pages_have_zero_tails_and_noise_has_none() {
        let zeros = |bytes: &[u8]| bytes.windows(16).filter(|w| w.iter().all(|b| *b == 0)).count();
        assert!(zeros(&pages(3, 64 * PAGE)) > 1000);
        assert_eq!(zeros(&noise(3, 64 * PAGE)), 0);
    }
}
