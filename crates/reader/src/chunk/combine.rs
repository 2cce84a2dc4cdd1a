//! Combines the CRCs of two pieces into the CRC of both.
//!
//! `crc_fast` can do this for every CRC, but squares a matrix of 64 columns for each bit of the
//! length: for a piece of 1 MiB, that takes half as long as the CRC of the piece itself. This takes
//! a fortieth, because it multiplies polynomials, as zlib does.

use crc_fast::CrcAlgorithm;

/// Combines CRCs of one algorithm.
///
/// ```
/// use xb_reader::{CrcCombiner, crc32};
///
/// let both = CrcCombiner::CRC32.combine(crc32(b"ab").into(), crc32(b"c").into(), 1);
/// assert_eq!(both, u64::from(crc32(b"abc")));
/// ```
#[derive(Debug)]
pub struct CrcCombiner {
    algorithm: CrcAlgorithm,
    /// The polynomial without its highest term; the top bit is the coefficient of x^0.
    polynomial: u64,
    /// The polynomial 1: only the top bit is set.
    one: u64,
    /// x^(2^n) modulo the polynomial. A length of 64 bits counts bytes, of 8 = 2^3 bits each.
    powers: [u64; 64 + 3],
}

impl CrcCombiner {
    /// CRC-32 as in zlib.
    pub const CRC32: &'static Self = &Self::new(CrcAlgorithm::Crc32IsoHdlc, 0xedb8_8320, 32);
    /// CRC-32C.
    pub const CRC32C: &'static Self = &Self::new(CrcAlgorithm::Crc32Iscsi, 0x82f6_3b78, 32);
    /// CRC-64/NVME.
    pub const CRC64: &'static Self = &Self::new(CrcAlgorithm::Crc64Nvme, 0x9a6c_9329_ac4b_c9b5, 64);

    const fn new(algorithm: CrcAlgorithm, polynomial: u64, width: u32) -> Self {
        let one = 1 << (width - 1);
        let mut powers = [one >> 1; 64 + 3];
        let mut n = 1;
        while n < powers.len() {
            powers[n] = multiply(polynomial, one, powers[n - 1], powers[n - 1]);
            n += 1;
        }
        Self { algorithm, polynomial, one, powers }
    }

    /// Algorithm of the CRCs.
    #[must_use]
    pub fn algorithm(&self) -> CrcAlgorithm {
        self.algorithm
    }

    /// Returns the CRC of two pieces from the CRC of each. The second is `len` bytes long.
    #[must_use]
    pub fn combine(&self, first: u64, second: u64, len: u64) -> u64 {
        // Appending a zero bit multiplies by x. The initial value and the final mask of all three
        // algorithms cancel out.
        let moved = self.powers.iter().skip(3).enumerate().fold(first, |moved, (bit, power)| {
            if len >> bit & 1 == 1 {
                multiply(self.polynomial, self.one, *power, moved)
            } else {
                moved
            }
        });
        moved ^ second
    }
}

/// Multiplies two polynomials modulo a third.
const fn multiply(polynomial: u64, one: u64, a: u64, mut b: u64) -> u64 {
    let (mut product, mut bit) = (0, one);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ polynomial } else { b >> 1 };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use crc_fast::{checksum, checksum_combine};
    use proptest::prelude::*;

    use super::*;

    const ALL: [&CrcCombiner; 3] = [CrcCombiner::CRC32, CrcCombiner::CRC32C, CrcCombiner::CRC64];

    proptest! {
        #[test]
        fn pieces_combine_to_the_whole(
            data in proptest::collection::vec(any::<u8>(), 0..3000), cut in 0_usize..3000,
        ) {
            let (a, b) = data.split_at(cut.min(data.len()));
            for crc in ALL {
                let of = |bytes: &[u8]| checksum(crc.algorithm(), bytes);
                prop_assert_eq!(crc.combine(of(a), of(b), b.len() as u64), of(&data));
            }
        }

        #[test]
        fn any_length_combines_as_in_the_library(a: u32, b: u32, len in 1_u64..u64::MAX >> 3) {
            for crc in ALL {
                let expected = checksum_combine(crc.algorithm(), a.into(), b.into(), len);
                prop_assert_eq!(crc.combine(a.into(), b.into(), len), expected);
            }
        }
    }
}
