//! Requests and bytes needed to read one table from a bucket.

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::data::{mixed, noise};
use xb_testkit::fault::Proxy;
use xb_testkit::files::tree;
use xb_testkit::s3::options_for;
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

const MIB: usize = 1 << 20;

#[test]
fn one_table_takes_few_requests_and_little_more_than_its_bytes() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let table = noise(9, 6 * MIB + 321);
    let mut out = StreamWriter::new(Vec::new());
    out.file("ibdata1", &mixed(1, 12 * MIB), 10 * MIB);
    for n in 0..4 {
        out.file(&format!("other/t{n}.ibd"), &mixed(n, 18 * MIB), 10 * MIB);
    }
    out.file("shop/t.ibd", &table, 10 * MIB).file("shop/t.frm", b"frm", 99);
    out.file("other/z.ibd", &noise(3, 8 * MIB), 10 * MIB).info();
    let stream = out.finish();
    let scratch = Scratch::new();
    let key = scratch.join("key");
    std::fs::write(&key, [5; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key.display());
    let store = Store::Bucket(bucket);
    let Store::Bucket(bucket) = &store else { unreachable!() };
    for (name, options) in [
        ("packed", &["--chunk-size=16M"][..]),
        ("sealed", &["--chunk-size=16M", "--compress=zstd:1", &key]),
        ("classic", &["--layout=classic"]),
    ] {
        put_bytes(&store, name, options, &stream);
        let (seen, target) = (proxy.seen().len(), scratch.join(name));
        let mut restore = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["restore", "--json", "--files=shop/*"])
            .args(options_for(&proxy.endpoint()))
            .arg(format!("--target-dir={}", target.display()));
        if name == "sealed" {
            restore = restore.arg(&key);
        }
        let ran = restore.arg(bucket.url(&format!("backups/nightly/{name}"))).run().expect(0);
        // By what the store was asked for, not by what the program says.
        let others: &[&str] = match name {
            "packed" => &["/000000001", "/000000002"],
            // How far it was compressed decides where the table is.
            "sealed" => &[],
            _ => &["/other/"],
        };
        let asked: Vec<String> = proxy.seen().split_off(seen).into_iter().map(|s| s.path).collect();
        let strange = asked.iter().find(|path| {
            !path.contains("list-type") && others.iter().any(|other| path.contains(other))
        });
        assert_eq!(strange, None, "{name}: it has no byte of the table");
        let requests = asked.len();
        let text = ran.stderr_text();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let done = events.into_iter().find(|event| event["event"] == "done").unwrap();
        let read = done["stored_bytes"].as_u64().unwrap();
        let wanted = table.len() as u64 + 3;
        println!("{name}: {requests} requests, {read} bytes of {} for {wanted}", stream.len());
        assert_eq!(tree(&target).len(), 2);
        assert!(std::fs::read(target.join("shop/t.ibd")).unwrap() == table);
        // Allows one frame or segment at each end, and what compression does not save.
        assert!(read <= wanted + 4 * MIB as u64, "{name}: {read} bytes for {wanted}");
        assert!(requests <= 12, "{name}: {requests} requests");
    }
}
