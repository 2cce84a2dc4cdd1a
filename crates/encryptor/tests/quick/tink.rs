//! Tink as the second implementation of the seal: each opens what the other seals.

use crate::common::{noise, python, run, write};
use sha2::{Digest, Sha256};
use xb_encryptor::{
    Backend, DataKey, FreshKey, KeyBytes, KeyMaterial, KeySlotSpec, KeysObject, OpenStream, Opener,
    SealContext, SealStream, SegmentLayout, TAG_LEN,
};

/// A Tink key is built from its raw bytes. `seal` and `open` work on files.
const SCRIPT: &str = r#"
import io, sys
import tink
from tink import streaming_aead, secret_key_access
from tink.proto import aes_gcm_hkdf_streaming_pb2 as gcm, common_pb2, tink_pb2

class Keep(io.BytesIO):
    """Tink closes what it writes to; the bytes are wanted after that."""
    def close(self):
        self.kept = self.getvalue()
        super().close()

verb, key, associated, source, target = sys.argv[1:]
streaming_aead.register()
raw = gcm.AesGcmHkdfStreamingKey(
    version=0, key_value=bytes.fromhex(key),
    params=gcm.AesGcmHkdfStreamingParams(
        ciphertext_segment_size=1 << 20, derived_key_size=32, hkdf_hash_type=common_pb2.SHA256))
keyset = tink_pb2.Keyset(primary_key_id=1, key=[tink_pb2.Keyset.Key(
    key_data=tink_pb2.KeyData(
        type_url='type.googleapis.com/google.crypto.tink.AesGcmHkdfStreamingKey',
        value=raw.SerializeToString(), key_material_type=tink_pb2.KeyData.SYMMETRIC),
    status=tink_pb2.ENABLED, key_id=1, output_prefix_type=tink_pb2.RAW)])
handle = tink.proto_keyset_format.parse(keyset.SerializeToString(), secret_key_access.TOKEN)
primitive = handle.primitive(streaming_aead.StreamingAead)
associated = bytes.fromhex(associated)
data = open(source, 'rb').read()
if verb == 'seal':
    out = Keep()
    with primitive.new_encrypting_stream(out, associated) as stream:
        stream.write(data)
    result = out.kept
else:
    with primitive.new_decrypting_stream(io.BytesIO(data), associated) as stream:
        result = stream.read()
open(target, 'wb').write(result)
"#;

const ID: [u8; 16] = [0x5a; 16];
const HEADER: [u8; 128] = [0x48; 128];

/// Lengths around the borders of the first segments.
fn lengths() -> Vec<usize> {
    let (first, second) = (1_048_520, 1_048_520 + 1_048_560);
    vec![0, 1, 1000, first - 1, first, first + 1, second - 1, second, second + 1, second + 70_000]
}

/// A data key whose bytes the test knows: a key command records them.
struct Known {
    key: Option<FreshKey>,
    bytes: Vec<u8>,
    dir: tempfile::TempDir,
}

impl Known {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = FreshKey::generate().unwrap();
        let path = dir.path().join("key");
        // The program does not wrap; it stores the key where the test finds it.
        let script = format!("cat > {}; echo wrapped", path.display());
        let words = ["sh", "-c", &script].map(std::ffi::OsString::from);
        let command = xb_encryptor::KeyCommand::new(words).unwrap();
        KeysObject::seal(key.key(), ID, &[KeySlotSpec::Command(&command)]).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len(), DataKey::LEN);
        Self { key: Some(key), bytes, dir }
    }

    fn context(&self) -> SealContext<'static> {
        let key = self.key.as_ref().unwrap().key();
        SealContext { stream_id: ID, commitment: key.commitment(&ID), header: &HEADER }
    }

    fn tink(&self, verb: &str, input: &[u8]) -> Result<Vec<u8>, String> {
        let source = write(&self.dir, "in", input);
        let target = self.dir.path().join("out");
        let _ = std::fs::remove_file(&target);
        let script = write(&self.dir, "by_tink.py", SCRIPT.as_bytes());
        let (key, aad) = (crate::common::hex(&self.bytes), crate::common::sha256(&HEADER));
        let target_name = target.to_str().unwrap();
        let arguments = [&script, verb, &key, &aad, &source, target_name];
        let (ok, _, stderr) = run(&python(), &arguments, b"");
        if ok { Ok(std::fs::read(&target).unwrap()) } else { Err(stderr) }
    }
}

#[test]
fn tink_opens_our_seal() {
    for (n, len) in lengths().into_iter().enumerate() {
        let mut known = Known::new();
        let plain = noise(len);
        let context = known.context();
        let backend = Backend::ALL[n % Backend::ALL.len()];
        let (sealer, _) = known.key.take().unwrap().sealer(&context, backend).unwrap();
        let mut sealed = Vec::new();
        let mut stream = SealStream::new(sealer).unwrap();
        plain.chunks(99_991).for_each(|piece| stream.push(piece, &mut sealed).unwrap());
        stream.finish(&mut sealed).unwrap();
        assert_eq!(sealed.len() as u64, SegmentLayout::NATIVE.sealed_len(len as u64).unwrap());
        assert_eq!(known.tink("open", &sealed).unwrap(), plain, "{len} bytes");
    }
}

#[test]
fn we_open_the_seal_of_tink() {
    for len in lengths() {
        let known = Known::new();
        let plain = noise(len);
        let sealed = known.tink("seal", &plain).unwrap();
        assert_eq!(sealed.len() as u64, SegmentLayout::NATIVE.sealed_len(len as u64).unwrap());
        let key = known.key.as_ref().unwrap().key();
        for &backend in Backend::ALL {
            let mut out = Vec::new();
            let mut stream = OpenStream::new(key, &known.context(), backend).unwrap();
            sealed.chunks(65_537).for_each(|piece| stream.push(piece, &mut out).unwrap());
            assert_eq!(stream.finish(&mut out).unwrap(), len as u64);
            assert_eq!(out, plain, "{len} bytes");

            // Also from the last segment to the first.
            let opener =
                Opener::new(key, &known.context(), sealed.first_chunk().unwrap(), backend).unwrap();
            let layout = opener.layout();
            let segments = layout.segments(len as u64).unwrap();
            for index in (0..segments).rev() {
                let range = layout.sealed_range(index, len as u64);
                let mut buf = sealed[range.start as usize..range.end as usize].to_vec();
                let got = opener.open_segment(index, index + 1 == segments, &mut buf).unwrap();
                let want = layout.plain_range(index, len as u64);
                assert_eq!(got, buf.len() - TAG_LEN);
                assert_eq!(buf[..got], plain[want.start as usize..want.end as usize]);
            }
        }
    }
}

/// The comparison would prove little if Tink accepted everything.
#[test]
fn tink_refuses_the_same_seals() {
    let mut known = Known::new();
    let context = known.context();
    let (sealer, _) = known.key.take().unwrap().sealer(&context, Backend::default()).unwrap();
    let mut sealed = Vec::new();
    let mut stream = SealStream::new(sealer).unwrap();
    stream.push(&noise(1_100_000), &mut sealed).unwrap();
    stream.finish(&mut sealed).unwrap();
    assert!(known.tink("open", &sealed).is_ok());
    assert!(known.tink("open", &sealed[..1 << 20]).is_err(), "cut at a border");
    sealed[500] ^= 1;
    assert!(known.tink("open", &sealed).is_err(), "a flipped bit");
}

/// Checks the helper above: opening the keys object returns the same key.
#[test]
fn the_known_key_is_the_key() {
    let known = Known::new();
    let file = KeyBytes::new(&[9; 32]).unwrap();
    let key = known.key.as_ref().unwrap().key();
    let keys_object = KeysObject::seal(key, ID, &[KeySlotSpec::Key(&file)]).unwrap();
    assert!(keys_object.open(&KeyMaterial::Key(&file)).is_ok());
    assert_eq!(Sha256::digest(HEADER).len(), 32);
    // The formula of docs/spec/format.md.
    let okm = hkdf::Hkdf::<Sha256>::new(Some(&ID), &known.bytes);
    let mut commitment = [0; 32];
    okm.expand(b"xbrs key commitment 1", &mut commitment).unwrap();
    assert_eq!(key.commitment(&ID), commitment);
}
