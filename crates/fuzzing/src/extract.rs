//! The extractor: any stream into a folder.

use std::fs;

use xb_encryptor::xbcrypt::{Algorithm, Cipher};
use xb_encryptor::{Backend, KeyBytes};
use xb_pipeline::{Decrypt, Durability, ExtractOptions, FileDecoding, extract_from};
use xb_reader::{Dialect, Limits, TargetDir};

use crate::commands::scratch;
use crate::inputs::{fixtures, with_head};
use crate::xbstream;

/// Any bytes as a stream that is extracted: no panic, nothing outside the target, and nothing left
/// of unfinished files. Half of the inputs get matching checksums first.
pub(crate) fn extract(data: &[u8]) {
    let Some((&how, stream)) = data.split_first() else { return };
    let mut stream = stream.to_vec();
    if how & 1 == 1 {
        xbstream::mend(&mut stream);
    }
    let around = scratch().path().join("extract");
    let target = around.join("target");
    let _ = fs::remove_dir_all(&around);
    fs::create_dir_all(&target).expect("room");

    let key = KeyBytes::new(&[1; 32]).expect("32 bytes");
    let cipher = Cipher::new(Algorithm::Aes256, Some(&key), Backend::default()).expect("a key");
    let decoding = FileDecoding {
        decompress: how & 2 == 2,
        decrypt: if how & 4 == 4 {
            Decrypt::With(cipher.into())
        } else {
            FileDecoding::default().decrypt
        },
        threads: 1,
        memory: FileDecoding::MIN_MEMORY,
    };
    let mut options =
        ExtractOptions::default().with_durability(Durability::None).with_decoding(decoding);
    options.dialect =
        [Dialect::Auto, Dialect::Percona, Dialect::MariaDb][usize::from(how >> 3) % 3];
    options.limits = Limits { max_payload: 1 << 20, max_map_entries: 1 << 10 };
    options.allow_truncated = how & 128 == 128;
    let opened = TargetDir::open(&target).expect("a folder");
    let _ = extract_from(&stream[..], opened, options);
    let beside = fs::read_dir(&around).expect("a folder").count();
    assert_eq!(beside, 1, "something was written outside the target");
    assert!(!target.join(".xb-partial").exists(), "unfinished files are left");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let plain = xbstream::seeds().into_iter().map(|seed| seed[1..].to_vec());
    let layered = fixtures("pipeline", ".xbs");
    [with_head(&[1], plain), with_head(&[7], layered.clone()), with_head(&[130], layered)].concat()
}
