//! The permissions in docs/guide/runbook.md are sufficient, and each is needed.

use std::collections::BTreeSet;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3;
use xb_testkit::stream::small_backup;

const MIB: usize = 1 << 20;
const RUNBOOK: &str = include_str!("../../../docs/guide/runbook.md");

#[test]
fn the_policy_of_the_runbook_is_the_smallest() {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let scratch = Scratch::new();
    let run = |command: &str, words: &[&str], stdin: &[u8]| -> Ran {
        let words = words.iter().map(|word| word.replace("ROOT", &bucket.url("shop")));
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args([command, "--quiet", "--max-backoff=50"])
            .args(s3::options_for(&proxy.endpoint()))
            .args(words)
            .stdin_bytes(stdin)
            .run()
    };
    // Objects in several parts; a run that ends early and cleans up.
    let sizes = ["--chunk-size=32M", "--memory=32M"];
    let stream = small_backup(1, 40 * MIB);
    let _ = run("put", &[&sizes[..], &["ROOT/monday"]].concat(), &stream).expect(0);
    // A store that breaks a connection is asked whether it knows the upload.
    proxy.set_rules(vec![Rule::new("PUT", "partNumber=2", Action::CutRequest(1000)).times(1)]);
    let _ = run("put", &[&sizes[..], &["ROOT/sunday"]].concat(), &stream).expect(0);
    proxy.set_rules(Vec::new());
    let _ = run("put", &[&sizes[..], &["ROOT/tuesday"]].concat(), &stream).expect(0);
    // An upload that the store does not accept is aborted.
    proxy.set_rules(vec![Rule::new("PUT", "partNumber=2", Action::answer(507))]);
    let _ = run("put", &[&sizes[..], &["ROOT/short"]].concat(), &stream).expect_failure();
    proxy.set_rules(Vec::new());
    let _ = run("list", &["ROOT"], b"").expect(0);
    let _ = run("show", &["ROOT/latest"], b"").expect(0);
    let _ = run("verify", &["ROOT/latest", "--level=decrypt"], b"").expect(0);
    let target = format!("--target-dir={}", scratch.join("data").display());
    let _ = run("restore", &["ROOT/latest", &target], b"").expect(0);
    let _ = run("pin", &["ROOT/monday"], b"").expect(0);
    let _ = run("unpin", &["ROOT/monday"], b"").expect(0);
    let _ = run("copy", &["ROOT/tuesday", "ROOT/copied"], b"").expect(0);
    let _ = run("delete", &["--yes", "ROOT/copied"], b"").expect(0);
    let _ = run("gc", &["--yes", "ROOT"], b"").expect(0);
    let _ = run("prune", &["--yes", "--keep-last=1", "ROOT"], b"").expect(0);

    let requests = proxy.seen();
    let used: BTreeSet<&str> =
        requests.iter().map(|seen| action(&seen.method, &seen.path)).collect();
    assert_eq!(used, allowed().iter().map(String::as_str).collect());
    // Objects, too, only below the prefix.
    let prefix = format!("/{}/shop/", bucket.name());
    for seen in &requests {
        let path = seen.path.split('?').next().unwrap();
        let of_bucket = path.trim_end_matches('/') == format!("/{}", bucket.name());
        assert!(of_bucket || path.starts_with(&prefix), "{seen:?}");
    }
}

/// The permission that Amazon requires for a request.
fn action(method: &str, path: &str) -> &'static str {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let has = |name: &str| {
        query.split('&').any(|pair| pair.split('=').next().is_some_and(|key| key == name))
    };
    match method {
        "GET" if has("uploads") => "s3:ListBucketMultipartUploads",
        "GET" if has("list-type") => "s3:ListBucket",
        "GET" if has("uploadId") => "s3:ListMultipartUploadParts",
        "HEAD" if path.trim_matches('/').split('/').count() == 1 => "s3:ListBucket",
        "GET" | "HEAD" => "s3:GetObject",
        "DELETE" if has("uploadId") => "s3:AbortMultipartUpload",
        "POST" if has("delete") => "s3:DeleteObject",
        "DELETE" => "s3:DeleteObject",
        "PUT" | "POST" => "s3:PutObject",
        _ => panic!("{method} {path}"),
    }
}

/// The actions of the policy in the runbook.
fn allowed() -> BTreeSet<String> {
    let (_, policy) = RUNBOOK.split_once("```json\n").unwrap();
    let (policy, _) = policy.split_once("```").unwrap();
    let policy: Value = serde_json::from_str(policy).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    statements
        .flat_map(|statement| statement["Action"].as_array().unwrap())
        .map(|action| action.as_str().unwrap().to_owned())
        .collect()
}
