//! Seals a text with a passphrase and a key file, and opens it with one of them:
//!
//! ```sh
//! cargo run -p xb-encryptor --example seal -- 'the text'
//! ```

use std::error::Error;

use xb_encryptor::{
    Backend, FreshKey, KeyBytes, KeyMaterial, KeySlotSpec, KeysObject, OpenStream, SealContext,
    SealStream, new_stream_id,
};

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "the text".into());
    let mine = KeyBytes::new(b"0123456789abcdefghijklmnopqrstuv")?;
    let theirs = KeyBytes::new(b"vutsrqponmlkjihgfedcba9876543210")?;

    // Every stream has its own key; the keys object wraps it once per key slot.
    let stream_id = new_stream_id()?;
    let fresh = FreshKey::generate()?;
    let commitment = fresh.key().commitment(&stream_id);
    let context = SealContext { stream_id, commitment, header: &[0; 128] };
    let ways = [KeySlotSpec::Key(&mine), KeySlotSpec::Key(&theirs)];
    let keys_object = KeysObject::seal(fresh.key(), stream_id, &ways)?.encode().to_vec();

    let (sealer, _key) = fresh.sealer(&context, Backend::default())?;
    let (mut sealed, mut stream) = (Vec::new(), SealStream::new(sealer)?);
    stream.push(text.as_bytes(), &mut sealed)?;
    stream.finish(&mut sealed)?;
    println!("{} bytes sealed to {}", text.len(), sealed.len());

    let key = KeysObject::parse(&keys_object)?.open(&KeyMaterial::Key(&theirs))?;
    let (mut plain, mut stream) =
        (Vec::new(), OpenStream::new(&key, &context, Backend::default())?);
    stream.push(&sealed, &mut plain)?;
    stream.finish(&mut plain)?;
    println!("{}", String::from_utf8(plain)?);
    Ok(())
}
