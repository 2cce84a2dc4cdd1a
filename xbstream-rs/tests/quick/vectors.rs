//! Runs the built program on every vector.

use crate::support::{Cage, all_vectors, extract, linked_as, xbstream};

#[test]
fn extraction_gives_the_expected_files() {
    for vector in all_vectors() {
        for threads in [1, 4] {
            let cage = Cage::new();
            let ran = extract(&cage.inner, &vector.bytes, threads);
            let name = &vector.name;
            match &vector.plain {
                Some(plain) => {
                    assert_eq!(ran.code(), 0, "{name}: {ran:?}");
                    assert_eq!(&cage.files(), plain, "{name}");
                }
                None => {
                    assert_eq!(ran.code(), 1, "{name}: {ran:?}");
                    cage.files();
                    let said = ran.stderr_text();
                    assert_eq!(said.lines().count(), 2, "one error and one hint: {name}: {said}");
                    assert!(said.starts_with("xbstream-rs: extract: "), "{name}: {said}");
                    assert!(said.lines().nth(1).unwrap().starts_with("hint: "), "{name}: {said}");
                }
            }
            assert!(ran.stdout.is_empty(), "{name}: stdout is for data");
        }
    }
}

#[test]
fn a_listing_agrees_and_fails_where_extraction_fails() {
    for vector in all_vectors() {
        let ran = xbstream().args(["-t", "--json"]).stdin_bytes(vector.bytes).run();
        let name = &vector.name;
        // Only creating the file can show that there is a file in place of a directory.
        if name.ends_with("file-then-dir.xbs") {
            let _ = ran.expect(0);
            continue;
        }
        let Some(plain) = &vector.plain else {
            assert_eq!(ran.code(), 1, "{name}: {ran:?}");
            continue;
        };
        assert_eq!(ran.code(), 0, "{name}: {ran:?}");
        let listed: Vec<(String, u64)> = ran
            .stdout_text()
            .lines()
            .map(|line| {
                let entry: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(entry["complete"], true, "{name}: {line}");
                (entry["path"].as_str().unwrap().to_owned(), entry["size"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(listed.len(), plain.len(), "{name}: {listed:?}");
        for (file, size) in listed {
            assert_eq!(size, plain[&file].0, "{name}: {file}");
        }
    }
}

#[test]
fn links_with_the_names_of_the_stock_tools_do_the_same() {
    let bin = tempfile::tempdir().unwrap();
    for vector in all_vectors().into_iter().filter(|vector| vector.bytes.len() < 100_000) {
        for name in ["xbstream", "mbstream"] {
            let cage = Cage::new();
            let cmd = linked_as(name, &bin).args(["-x", "-p", "2", "-C"]).arg(&cage.inner);
            let ran = cmd.stdin_bytes(vector.bytes.clone()).run();
            let files = cage.files();
            if let Some(plain) = &vector.plain {
                assert_eq!((ran.code(), &files), (0, plain), "{}: {ran:?}", vector.name);
                assert!(ran.stderr.is_empty(), "stock says nothing: {ran:?}");
            } else {
                assert_eq!(ran.code(), 1, "{}: {ran:?}", vector.name);
                assert!(ran.stderr_text().starts_with(name), "{ran:?}");
            }
        }
    }
}

#[test]
fn a_cut_stream_can_be_salvaged() {
    let vectors = all_vectors();
    let whole = vectors.iter().find(|v| v.name.ends_with("interleaved-crafted.xbs")).unwrap();
    let plain = whole.plain.as_ref().unwrap();
    let mut kept = Vec::new();
    for cut in (1..whole.bytes.len()).step_by(997) {
        let cage = Cage::new();
        let cmd = xbstream().args(["-x", "--allow-truncated", "-C"]).arg(&cage.inner);
        let ran = cmd.stdin_bytes(&whole.bytes[..cut]).run().expect(0);
        let files = cage.files();
        for (name, facts) in &files {
            assert_eq!(Some(facts), plain.get(name), "cut at {cut}");
        }
        if files.len() < plain.len() {
            assert!(ran.stderr_text().contains("warning: the stream"), "{ran:?}");
        }
        for name in plain.keys().filter(|name| !files.contains_key(*name)) {
            // The file is named, unless none of it had arrived.
            let begun = whole.bytes[..cut].windows(name.len() + 4).any(|w| {
                w[..4] == u32::try_from(name.len()).unwrap().to_le_bytes()
                    && w[4..] == *name.as_bytes()
            });
            let named = ran.stderr_text().contains(&format!("{name}: not extracted"));
            assert!(
                named || !begun || ran.stderr_text().contains("inside the chunk"),
                "cut at {cut}: {ran:?}"
            );
        }
        kept.push(files.len());
        // Without the option it is an error, and the same files are kept.
        let cage = Cage::new();
        let _ = extract(&cage.inner, &whole.bytes[..cut], 2).expect(1);
        assert_eq!(cage.files(), files, "cut at {cut}");
    }
    assert!(kept.contains(&0) && kept.iter().any(|&n| n > 0 && n < plain.len()), "{kept:?}");
}
