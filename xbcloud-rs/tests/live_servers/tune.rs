//! `tune` measures, recommends, and leaves nothing in the store.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::s3;
use xb_testkit::sink::Sink;
use xb_testkit::stream::small_backup;

fn tune() -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args([
        "--no-defaults",
        "tune",
        "--upload-time=1",
        "--upload-size=8M",
        "--threads=2",
    ])
}

/// Everything below a folder.
fn entries(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(entries(&path));
        }
        found.push(path.display().to_string());
    }
    found
}

fn json(stdout: &[u8]) -> Value {
    serde_json::from_slice(stdout).unwrap()
}

/// Checks that the numbers of a report fit together.
fn adds_up(report: &Value, size: u64, priced: bool) {
    assert_eq!(report["size"], size);
    let best = &report["recommended"];
    for table in ["compress", "chunk_size", "parallel", "memory"] {
        let rows = report[table].as_array().unwrap();
        assert_eq!(rows.iter().filter(|row| *row == best).count(), 1, "{table}: {rows:?}");
        for row in rows {
            let number = |field: &str| row[field].as_f64().unwrap();
            assert!(number("stored") <= size as f64 && number("requests") > number("objects"));
            assert!(number("objects") * number("chunk_size") >= number("stored"), "{row}");
            assert!(number("seconds") > 0.0 && number("seconds").is_finite());
            assert!(best["seconds"].as_f64().unwrap() <= number("seconds") * 1.051, "{row}");
            if priced {
                let month = report["prices"]["storage_gib_month"].as_f64().unwrap();
                let expected = number("stored") / f64::from(1 << 30) * month;
                assert!((number("cost_storage_month") - expected).abs() < 1e-6, "{row}");
            } else {
                assert!(row["cost_backup"].is_null() && report["prices"].is_null());
            }
        }
    }
    // Each codec has its row, with the ratio that was measured.
    let codecs = report["machine"]["codecs"].as_array().unwrap();
    assert_eq!(codecs.len(), report["compress"].as_array().unwrap().len());
    for (codec, row) in codecs.iter().zip(report["compress"].as_array().unwrap()) {
        assert_eq!(codec["compress"], row["compress"]);
        let expected = codec["ratio"].as_f64().unwrap() * size as f64;
        assert!((row["stored"].as_f64().unwrap() - expected).abs() <= 2.0, "{codec} {row}");
    }
    assert_eq!(report["options"]["compress"], best["compress"]);
    assert_eq!(report["options"]["parallel"], best["parallel"].to_string());
}

#[test]
fn a_folder_is_measured_and_stays_as_it_was() {
    let scratch = Scratch::new();
    let (root, data) = (scratch.dir("root"), scratch.dir("data"));
    let stream = small_backup(3, 4 << 20);
    let url = format!("file://{}", root.display());
    let put = ["--no-defaults", "put", "--quiet", &format!("{url}/mon")];
    let program = env!("CARGO_BIN_EXE_xbcloud-rs");
    let _ = Cmd::new(program).args(put).stdin_bytes(stream.clone()).run().expect(0);
    let before = entries(&root);
    std::fs::write(data.join("ibdata1"), &stream).unwrap();
    std::fs::write(data.join("ib_logfile0"), vec![0; 1 << 20]).unwrap();
    let from = format!("--data-dir={}", data.display());
    let report = json(&tune().args(["--json", &from, &url]).run().expect(0).stdout);
    adds_up(&report, stream.len() as u64, false);
    assert_eq!(report["sample"]["files"], 1, "the redo log is not copied");
    assert!(report["link"]["requests"].as_u64().unwrap() > 5);
    assert_eq!(entries(&root), before);
    // The lines for the option file are accepted as options.
    let said = tune().args([&from, &url, "--prices=gcs"]).run().expect(0).stdout_text();
    let options = said.split("[xbcloud]\n").nth(1).unwrap();
    assert_eq!(options.lines().count(), 4, "{said}");
    assert!(said.contains("as of 20") && said.contains("https://cloud.google.com/"), "{said}");
    let file = scratch.join("options.cnf");
    std::fs::write(&file, format!("[xbcloud]\n{options}")).unwrap();
    let _ = Cmd::new(program)
        .arg(format!("--defaults-file={}", file.display()))
        .args(["put", "--quiet", &format!("{url}/tue")])
        .stdin_bytes(stream)
        .run()
        .expect(0);
}

#[test]
fn a_bucket_is_measured_and_stays_as_it_was() {
    let bucket = s3::bucket();
    bucket.put("shop/mon/object", b"of a backup");
    let before = bucket.list("");
    let stream = small_backup(4, 4 << 20);
    let report = tune()
        .args(bucket.options())
        .args(["--json", "--sealed", "--size=2T", "--prices=aws", &bucket.url("shop")])
        .stdin_bytes(stream.clone())
        .run()
        .expect(0);
    let report = json(&report.stdout);
    adds_up(&report, 2 << 40, true);
    assert_eq!(report["prices"]["provider"], "aws");
    assert_eq!(report["sample"]["total"], stream.len() as u64);
    let uploaded = report["link"]["uploaded"].as_u64().unwrap();
    assert!((1..=(8 << 20) + (64 << 10) + (6 << 10)).contains(&uploaded), "{uploaded}");
    assert_eq!(bucket.list(""), before);
    assert!(bucket.unfinished_uploads("").is_empty());
}

#[test]
fn a_signal_leaves_nothing() {
    let scratch = Scratch::new();
    let (root, sample) = (scratch.dir("root"), scratch.join("sample"));
    std::fs::write(&sample, small_backup(5, 1 << 20)).unwrap();
    let mut run = tune()
        .args(["--upload-time=600", "--upload-size=64G", &format!("--sample={}", sample.display())])
        .arg(format!("file://{}", root.display()))
        .spawn();
    // Once there are objects, the measurement is on its way.
    run.until("objects of the measurement", || !entries(&root).is_empty());
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), 128 + 15);
    assert_eq!(entries(&root), Vec::<String>::new());
}

#[test]
fn a_signal_during_slow_requests_leaves_nothing() {
    let (scratch, store) = (Scratch::new(), Sink::start(Duration::from_millis(300)));
    let sample = scratch.join("sample");
    std::fs::write(&sample, small_backup(6, 1 << 20)).unwrap();
    let mut options = s3::options_for(&store.endpoint());
    options.push(format!("--sample={}", sample.display()));
    let mut run = tune()
        .args(options)
        .args(["--upload-time=600", "--upload-size=64G", "s3://any/shop"])
        .spawn();
    run.until("uploads", || store.keys().len() >= 8);
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), 128 + 15);
    assert_eq!(store.keys(), Vec::<String>::new());
}

#[test]
fn a_store_that_fails_is_named_and_a_sample_is_needed() {
    let scratch = Scratch::new();
    let sample = format!("--sample={}", scratch.join("none").display());
    let missing = tune().args([&sample, "--link=1M"]).run().expect(1).stderr_text();
    assert!(missing.contains("none: No such file"), "{missing}");
    std::fs::write(scratch.join("empty"), b"").unwrap();
    let empty = format!("--sample={}", scratch.join("empty").display());
    let said = tune().args([&empty, "--link=1M"]).run().expect(1).stderr_text();
    assert!(said.contains("the sample is empty"), "{said}");
    std::fs::write(scratch.join("none"), small_backup(7, 1 << 20)).unwrap();
    let _ = tune().args([&sample]).run().expect(2);
    let _ = tune().args([&sample, "--link=1M", "file:///tmp"]).run().expect(2);
    let absent = format!("file://{}", scratch.join("absent").display());
    let _ = tune().args([&sample, &absent]).run().expect_failure();
    // Only this machine, on a thin and on a fat link.
    let on = |link: &str| {
        let report = tune().args([&sample, link, "--size=100G", "--json"]).run().expect(0).stdout;
        json(&report)["recommended"]["seconds"].as_f64().unwrap()
    };
    let (thin, fat) = (on("--link=100K"), on("--link=1G"));
    assert!(thin > fat * 2.0, "{thin} {fat}");
}

#[test]
fn a_sample_that_would_mislead_is_refused() {
    let scratch = Scratch::new();
    let (file, short) = (scratch.join("stream"), scratch.join("short"));
    std::fs::write(&file, small_backup(8, 2 << 20)).unwrap();
    std::fs::write(&short, small_backup(8, 100_000)).unwrap();
    let sample = format!("--sample={}", file.display());
    // The size of a pipe's stream is unknown; that of a file is not.
    let piped = tune().args(["--link=1M"]).stdin_bytes(small_backup(8, 2 << 20)).run();
    let said = piped.expect(2).stderr_text();
    assert!(said.contains("add --size"), "{said}");
    let read = tune().args(["--link=1M", "--json"]).stdin_file(&file).run().expect(0);
    let len = std::fs::metadata(&file).unwrap().len();
    assert_eq!(json(&read.stdout)["size"], len);
    // Too little data, and settings that no backup can have.
    let short = format!("--sample={}", short.display());
    let said = tune().args([&short, "--link=1M"]).run().expect(1).stderr_text();
    assert!(said.contains("the sample has only 9") && said.contains("1.00 MiB"), "{said}");
    for wrong in ["--link=0", "--size=0", "--sample-size=0", "--max-memory=1M"] {
        let _ = tune().args([&sample, "--link=1M", wrong]).run().expect(2);
    }
    // A known link is planned within the same limit as a measured one.
    let few = tune().args([&sample, "--link=1M", "--max-parallel=2", "--json"]).run().expect(0);
    assert_eq!(json(&few.stdout)["recommended"]["parallel"], 2);
    let folder = format!("--sample={}", scratch.dir("folder").display());
    let said = tune().args([&folder, "--link=1M"]).run().expect(1).stderr_text();
    assert!(said.contains("use --data-dir"), "{said}");
}

#[test]
fn a_store_of_another_provider_has_no_built_in_prices() {
    let store = Sink::start(Duration::ZERO);
    let scratch = Scratch::new();
    let file = scratch.join("stream");
    std::fs::write(&file, small_backup(9, 1 << 20)).unwrap();
    let report = tune()
        .args(s3::options_for(&store.endpoint()))
        .args(["--json", &format!("--sample={}", file.display()), "s3://any/shop"])
        .run()
        .expect(0);
    assert!(json(&report.stdout)["prices"].is_null());
    assert_eq!(store.keys(), Vec::<String>::new());
}
