//! A changed sealed body, and any bytes instead of one: no output from either, however they are
//! cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_encryptor::{Backend, DataKey, FreshKey, OpenStream, SealContext, SealStream};

fuzz_target!(|data: &[u8]| {
    let Some((&[at, with, step], plain)) = data.split_first_chunk() else { return };
    let fresh = FreshKey::generate().expect("random bytes");
    let commitment = fresh.key().commitment(&[1; 16]);
    let context = SealContext { stream_id: [1; 16], commitment, header: &[2; 128] };
    let (sealer, key) = fresh.sealer(&context, Backend::default()).expect("its own commitment");
    let mut sealed = Vec::new();
    let mut stream = SealStream::new(sealer).expect("a new sealer");
    stream.push(plain, &mut sealed).expect("less than 4 PiB");
    stream.finish(&mut sealed).expect("less than 4 PiB");

    let step = usize::from(step).max(1);
    assert_eq!(open(&key, &context, &sealed, step), (plain.to_vec(), true));

    let place = usize::from(at) * 7 % sealed.len();
    let mut changed = sealed.clone();
    changed[place] ^= with;
    changed.truncate(if with & 1 == 1 { changed.len() } else { place });
    if changed != sealed {
        assert_eq!(open(&key, &context, &changed, step), (vec![], false));
    }
    // The input itself, as a sealed body.
    assert_eq!(open(&key, &context, plain, step), (vec![], false));
});

fn open(key: &DataKey, context: &SealContext<'_>, sealed: &[u8], step: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut stream = OpenStream::new(key, context, Backend::default()).expect("the right key");
    let pushed = sealed.chunks(step).try_for_each(|piece| stream.push(piece, &mut out));
    let whole = pushed.is_ok() && stream.finish(&mut out).is_ok();
    (out, whole)
}
