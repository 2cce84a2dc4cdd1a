//! Tags of objects, and keys from a program, on a real S3 server.

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3::{ACCESS_KEY, REGION, SECRET_KEY, bucket};
use xb_testkit::stream::small_backup;

fn xbcloud(command: &str) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg(command)
}

/// Every object that a run creates is tagged, sent whole or in parts; no other request has tags.
#[test]
fn tags_are_set_on_every_new_object_and_sent_with_nothing_else() {
    let bucket = bucket();
    // Also a deletion, which is a POST.
    let others = ["GET", "HEAD", "DELETE"]
        .map(|method| Rule::new(method, "", Action::answer(400)).with_header("x-amz-tagging"));
    let delete = Rule::new("POST", "?delete", Action::answer(400)).with_header("x-amz-tagging");
    let parts = Rule::new("PUT", "partNumber", Action::answer(400)).with_header("x-amz-tagging");
    let rules = others.into_iter().chain([delete, parts]).collect();
    let proxy = Proxy::start(bucket.address(), rules);
    let command = |command: &str| {
        xbcloud(command)
            .args(bucket.options())
            .arg(format!("--s3-endpoint={}", proxy.endpoint()))
            .args(["--tag=team=db a+b", "--tag", "cost/center=47=11", "--quiet"])
    };
    let stream = small_backup(11, 7 << 20);
    for (name, options) in [
        ("small", &["--chunk-size=1M"][..]),
        ("parts", &["--chunk-size=8M", "--memory=16M", "--threads=1"]),
        ("classic", &["--layout=classic", "--md5"]),
    ] {
        let url = bucket.url(name);
        let _ = command("put").args(options).arg(&url).stdin_bytes(stream.clone()).run().expect(0);
        let got = command("get").arg(&url).run().expect(0);
        if name != "classic" {
            assert!(got.stdout == stream);
        }
        let _ = command("verify").args(["--level=checksum", &url]).run().expect(0);
    }
    let keys = bucket.list("");
    assert!(keys.len() > 20, "{keys:?}");
    for (key, _) in keys {
        let expected = [("cost/center", "47=11"), ("team", "db a+b")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(bucket.tags(&key), expected, "{key}");
    }
    let _ = command("delete").args(["--yes", &bucket.url("parts")]).run().expect(0);
}

#[test]
fn tags_are_refused_where_they_would_be_lost() {
    let scratch = Scratch::new();
    for (place, what) in [
        (format!("file://{}", scratch.join("n").display()), "not for a local directory"),
        ("gs://b/n".to_owned(), "not for Google Cloud Storage"),
        ("azure://c/n".to_owned(), "not for Azure"),
    ] {
        let put = xbcloud("put").args(["--tag=a=b", "--azure-storage-account=a", &place]);
        let refused = put.stdin_bytes(small_backup(1, 1000)).run().expect_failure();
        assert!(refused.stderr_text().contains(what), "{refused:?}");
    }
    let put = xbcloud("put").args(["--tag=a&b=c", "s3://b/n"]).stdin_bytes(*b"").run().expect(2);
    assert!(put.stderr_text().contains("tag `a&b`"), "{put:?}");
}

#[test]
fn keys_come_from_the_program_that_a_profile_names() {
    let bucket = bucket();
    let scratch = Scratch::new();
    let config = scratch.join("config");
    let keys = serde_json::json!({
        "Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY,
    });
    let printed = scratch.join("keys of the night.json");
    std::fs::write(&printed, keys.to_string()).unwrap();
    let profile = |name: &str, command: &str| {
        format!("[profile {name}]\nregion = {REGION}\ncredential_process = {command}\n")
    };
    let good = profile("good", &format!("cat '{}'", printed.display()));
    let bad = profile("bad", "sh -c 'echo no session >&2; exit 4'");
    let sso = "[profile sso]\nsso_session = x\n";
    std::fs::write(&config, format!("{good}{bad}{sso}")).unwrap();
    let command = |command: &str, profile: &str| {
        let endpoint = format!("--s3-endpoint={}", bucket.endpoint());
        xbcloud(command)
            .env("AWS_CONFIG_FILE", &config)
            .env("AWS_SHARED_CREDENTIALS_FILE", scratch.join("none"))
            .args([&endpoint, "--s3-bucket-lookup=path", "--quiet", "--max-retries=0"])
            .args([format!("--aws-profile={profile}"), bucket.url("n")])
    };
    let stream = small_backup(3, 100_000);
    let _ = command("put", "good").stdin_bytes(stream.clone()).run().expect(0);
    assert!(command("get", "good").run().expect(0).stdout == stream);
    let failed = command("get", "bad").run().expect_failure();
    let text = failed.stderr_text();
    assert!(text.contains("no session") && text.contains("sh failed with exit status 4"), "{text}");
    let refused = command("get", "sso").run().expect_failure();
    let hint = "credential_process = aws configure export-credentials --profile sso";
    assert!(refused.stderr_text().contains(hint), "{refused:?}");
}
