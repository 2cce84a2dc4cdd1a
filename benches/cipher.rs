//! Cost of the ciphers on one core: the seal on segments of 1 MiB, and xbcrypt version 3 (AES in
//! counter mode, SHA-256, CRC-32) on chunks of two sizes, with each backend. The default backend is
//! the faster one here.

#![allow(clippy::expect_used, missing_docs)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use xb_encryptor::xbcrypt::{
    Algorithm, Cipher, ErrorLocation, Limits, Parsed, new_iv, open_chunk, parse_head, seal_chunk,
    sealed_len,
};
use xb_encryptor::{Backend, FreshKey, KeyBytes, Opener, SEGMENT_LEN, SealContext, Sealer};

fn seal(c: &mut Criterion) {
    let mut group = c.benchmark_group("seal");
    for &backend in Backend::ALL {
        group.throughput(Throughput::Bytes(SEGMENT_LEN as u64));
        let context = |key: &FreshKey| SealContext {
            stream_id: [1; 16],
            commitment: key.key().commitment(&[1; 16]),
            header: &[2; 128],
        };
        let sealer = || {
            let key = FreshKey::generate().expect("random bytes");
            let context = context(&key);
            key.sealer(&context, backend).expect("its own commitment").0
        };
        let next = |sealer: &mut Sealer, buf: &mut [u8]| {
            let segment = sealer.next_segment(false).expect("less than 4 PiB");
            segment.seal(buf).expect("a full segment");
        };
        // The first segment is shorter and is not measured.
        let (mut long, mut buf) = (sealer(), vec![0x5a; SEGMENT_LEN]);
        next(&mut long, &mut buf[40..]);
        group.bench_function(format!("{backend:?} seal"), |b| {
            b.iter(|| next(&mut long, black_box(&mut buf)));
        });

        let key = FreshKey::generate().expect("random bytes");
        let context = context(&key);
        let (mut sealer, key) = key.sealer(&context, backend).expect("its own commitment");
        let opener = Opener::new(&key, &context, &sealer.head(), backend).expect("the right key");
        next(&mut sealer, &mut buf[40..]);
        next(&mut sealer, &mut buf);
        group.bench_function(format!("{backend:?} open"), |b| {
            b.iter_batched_ref(
                || buf.clone(),
                |buf| opener.open_segment(1, false, buf).expect("genuine"),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn xbcrypt(c: &mut Criterion) {
    let key = KeyBytes::new(&[7; 32]).expect("32 bytes");
    let mut group = c.benchmark_group("xbcrypt");
    for size in [64 << 10, 1 << 20] {
        let plain = vec![0x5a; size];
        group.throughput(Throughput::Bytes(size as u64));
        for &backend in Backend::ALL {
            let cipher = Cipher::new(Algorithm::Aes256, Some(&key), backend).expect("a key");
            let mut chunk = vec![0; sealed_len(&cipher, size)];
            group.bench_function(format!("{backend:?} seal {size}"), |b| {
                b.iter(|| {
                    let iv = new_iv().expect("random bytes");
                    seal_chunk(&cipher, &iv, black_box(&plain), &mut chunk).expect("it fits");
                });
            });
            let parsed = parse_head(&chunk, ErrorLocation::default(), &Limits::default());
            let Parsed::Head(head) = parsed.expect("our own") else { continue };
            let payload = &chunk[head.len()..];
            group.bench_function(format!("{backend:?} open {size}"), |b| {
                b.iter_batched_ref(
                    || payload.to_vec(),
                    |payload| open_chunk(&cipher, &head, payload).expect("our own"),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, seal, xbcrypt);
criterion_main!(benches);
