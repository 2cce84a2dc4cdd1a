//! Input that needs a key: xbcrypt files, sealed streams, and keys objects.

use sha2::{Digest, Sha256};
use xb_encryptor::xbcrypt::{Algorithm, Cipher, Decrypter, Limits};
use xb_encryptor::{
    Backend, BlockHead, DataKey, FreshKey, Identities, KeyBytes, KeyMaterial, KeysObject,
    OpenStream, Passphrase, SEGMENT_LEN, SealContext, SealStream, SegmentLayout, parse_block,
};
use xb_testkit::vectors::read as fixture;

use crate::inputs::{fixtures, with_head};

/// Any bytes as an xbcrypt file, in any pieces: no panic, and the same result however the input is cut. Half of the inputs get matching checksums first; otherwise few would get past the first one.
pub(crate) fn xbcrypt(data: &[u8]) {
    let Some((&how, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if how & 1 == 1 {
        mend(&mut file);
    }
    let whole = read(&file, how, file.len().max(1));
    let pieces = read(&file, how, usize::from(how >> 2).max(1));
    assert_eq!(whole, pieces);
    assert!(whole.0.len() <= file.len());
}

fn read(file: &[u8], how: u8, step: usize) -> (Vec<u8>, Option<String>) {
    let algorithm = if how & 2 == 2 { Algorithm::None } else { Algorithm::Aes256 };
    let key = KeyBytes::new(&[1; 32]).expect("32 bytes");
    let cipher = Cipher::new(algorithm, Some(&key), Backend::default()).expect("a key");
    let limits = Limits { max_chunk: 1 << 16, ..Limits::ALL };
    let (mut out, mut decrypter) = (Vec::new(), Decrypter::new(cipher, limits));
    for piece in file.chunks(step) {
        if let Err(error) = decrypter.push(piece, &mut out) {
            return (out, Some(error.to_string()));
        }
    }
    let end = decrypter.finish().err().map(|error| error.to_string());
    (out, end)
}

/// Corrects the sizes of each chunk, up to the next magic, and its CRC.
fn mend(file: &mut [u8]) {
    let starts: Vec<usize> =
        (0..file.len()).filter(|&n| file[n..].starts_with(b"XBCRYP0")).collect();
    for (n, &start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(file.len());
        let chunk = &mut file[start..end];
        let head = match chunk.get(7) {
            Some(b'1') => 36,
            Some(b'2' | b'3') if chunk.get(36) == Some(&16) => 60,
            Some(b'2' | b'3') => 44,
            _ => continue,
        };
        if chunk.len() < head {
            continue;
        }
        let size = ((chunk.len() - head) as u64).to_le_bytes();
        let crc = crc32(&chunk[head..]).to_le_bytes();
        chunk[16..24].copy_from_slice(&size);
        chunk[24..32].copy_from_slice(&size);
        chunk[32..36].copy_from_slice(&crc);
        if head > 36 {
            chunk[37..44].fill(0);
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
        })
    })
}

/// Lengths around the borders of segments; the first segment also has a head of 40 bytes.
const LENGTHS: [usize; 8] =
    [0, 1, 700, 65_536, SEGMENT_LEN - 57, SEGMENT_LEN - 56, SEGMENT_LEN - 55, 2 * SEGMENT_LEN + 9];

/// A sealed body whose segments and bytes are changed in the ways that the input lists: never a
/// byte that was not sealed at this place, and whole only if nothing is changed. Also lengths and
/// positions of bodies of any length.
pub(crate) fn seal(data: &[u8]) {
    let Some((&[how, step], changes)) = data.split_first_chunk() else { return };
    if let Some((number, _)) = changes.split_first_chunk() {
        lengths(u64::from_le_bytes(*number));
    }
    let plain: Vec<u8> = changes
        .iter()
        .copied()
        .chain(0..=250)
        .cycle()
        .take(LENGTHS[usize::from(how % 8)])
        .collect();
    let fresh = FreshKey::generate().expect("random bytes");
    let commitment = fresh.key().commitment(&[1; 16]);
    let context = SealContext { stream_id: [1; 16], commitment, header: &[2; 128] };
    let (sealer, key) = fresh.sealer(&context, Backend::default()).expect("its own commitment");
    let mut sealed = Vec::new();
    let mut stream = SealStream::new(sealer).expect("a new sealer");
    stream.push(&plain, &mut sealed).expect("less than 4 PiB");
    stream.finish(&mut sealed).expect("less than 4 PiB");
    assert_eq!(SegmentLayout::NATIVE.sealed_len(plain.len() as u64), Some(sealed.len() as u64));

    let mut changed = sealed.clone();
    for change in changes.chunks_exact(3) {
        alter(&mut changed, change);
    }
    let step = 1 + usize::from(step) * sealed.len() / 255;
    let (out, whole) = open(&key, &context, &changed, step);
    assert!(plain.starts_with(&out));
    assert_eq!(whole, changed == sealed);
    assert!(!whole || out == plain);
    // The input itself, as a sealed body.
    assert_eq!(open(&key, &context, changes, step), (vec![], false));
}

/// Applies one change to a sealed body.
fn alter(body: &mut Vec<u8>, change: &[u8]) {
    let (segment, amount) = (usize::from(change[1]) % 4, usize::from(change[2]));
    let start = |n: usize| (n * SEGMENT_LEN).min(body.len());
    let (from, to) = (start(segment), start(segment + 1));
    match change[0] % 6 {
        0 => {
            let at = (from + amount).min(body.len().saturating_sub(1));
            if let Some(byte) = body.get_mut(at) {
                *byte ^= 1 << (change[1] >> 5);
            }
        }
        1 => body.truncate(from + amount),
        2 => drop(body.drain(from..to)),
        3 => {
            let copy = body[from..to].to_vec();
            body.splice(to..to, copy);
        }
        4 => body[from..to].rotate_left(amount.min(to - from)),
        _ => body.extend(vec![change[1]; amount]),
    }
}

/// Lengths and positions of a body with this length.
fn lengths(plain: u64) {
    let layout = SegmentLayout::NATIVE;
    if let Some(sealed) = layout.sealed_len(plain) {
        assert_eq!(layout.plain_len(sealed), Some(plain));
        let last = layout.segments(plain).expect("it has a sealed length") - 1;
        assert_eq!(layout.plain_range(last, plain).end, plain);
        assert_eq!(layout.sealed_range(last, plain).end, sealed);
    }
    let place = layout.locate(plain);
    assert_eq!(layout.plain_range(place.index, u64::MAX).start + place.within as u64, plain);
    let _ = layout.plain_len(plain);
    assert!(layout.plain_range(plain, plain).is_empty() || plain == 0);
    let _ = layout.sealed_range(plain, plain);
}

fn open(key: &DataKey, context: &SealContext<'_>, sealed: &[u8], step: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut stream = OpenStream::new(key, context, Backend::default()).expect("the right key");
    let pushed = sealed.chunks(step.max(1)).try_for_each(|piece| stream.push(piece, &mut out));
    let whole = pushed.is_ok() && stream.finish(&mut out).is_ok();
    (out, whole)
}

/// Any text as a keys object, with a matching digest: no panic, never a key. A keys object that can be parsed is encoded as the same bytes, also in a block.
pub(crate) fn keys_object(data: &[u8]) {
    let _ = parse_block(data);
    if let Some(head) = data.first_chunk() {
        let _ = BlockHead::parse(head);
    }
    let _ = KeysObject::parse(data);

    let mut text = data.to_vec();
    text.push(b'\n');
    let digest: String = base16ct::lower::encode_string(&Sha256::digest(&text));
    text.extend(format!("sha256:{digest}\nhmac-sha256:{}\n", "0".repeat(64)).bytes());
    let Ok(keys_object) = KeysObject::parse(&text) else { return };
    assert_eq!(keys_object.encode(), text);
    let block = keys_object.encode_block().expect("it fits");
    assert_eq!(parse_block(&block).expect("our own").encode(), text);

    let key = KeyBytes::new(&[1; 32]).expect("32 bytes");
    assert!(keys_object.open(&KeyMaterial::Key(&key)).is_err());
    let (identities, _) = Identities::generate();
    assert!(keys_object.open(&KeyMaterial::Identities(&identities)).is_err());
    let passphrase = Passphrase::new("x".to_owned()).expect("not empty");
    let passphrase = KeyMaterial::Passphrase { passphrase: &passphrase, max_memory: 1 << 12 };
    assert!(keys_object.open(&passphrase).is_err());
}

pub(crate) fn xbcrypt_seeds() -> Vec<Vec<u8>> {
    let files = || fixtures("xbcrypt/good", ".xbcrypt");
    [with_head(&[41], files()), with_head(&[254], files())].concat()
}

/// Every length with every kind of change.
pub(crate) fn seal_seeds() -> Vec<Vec<u8>> {
    let changes = (0..6).flat_map(|kind| [[kind, 0, 9], [kind, 1, 0], [kind, 33, 200]]);
    let changes: Vec<_> = changes.map(|change| change.to_vec()).chain([vec![]]).collect();
    (0..8).flat_map(|length| with_head(&[length, 255], changes.clone())).collect()
}

/// The fixtures, without the check lines that the target adds.
pub(crate) fn keys_object_seeds() -> Vec<Vec<u8>> {
    let (keys, block) = (fixture("seal/keys"), fixture("seal/keys-block"));
    let text = String::from_utf8(keys.clone()).unwrap();
    let body = text.split_once("\nsha256:").map(|(body, _)| body.as_bytes().to_vec());
    [body.unwrap_or_default(), keys, block].into()
}
