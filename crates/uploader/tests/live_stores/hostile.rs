//! Tests with a hostile store: it redirects, never ends, or responds with more than any real store
//! does.

use std::net::TcpListener;
use std::time::Duration;

use crate::common::*;
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::reply::Reply;
use xb_testkit::{azure, s3};
use xb_uploader::{
    AbortRule, ContainerCredentials, Encryption, Policy, Store, StoreError, StoreErrorKind,
    StoreSettings,
};

fn settings_with_secrets(endpoint: &str) -> StoreSettings {
    let mut settings = s3_settings(endpoint);
    settings.s3.session_token = Some("topsecret-token".into());
    let key = xb_uploader::base64(&[7; 32]);
    settings.s3.encryption = Some(Encryption::Customer { key });
    settings.http.headers = vec![("X-Secret".into(), "topsecret-header".into())];
    settings
}

/// Opens a store that gives every request this reply.
fn replying(reply: Reply) -> (Proxy, Store) {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), vec![Rule::new("", "", Action::Reply(reply))]);
    let policy = quick().with_max_retries(1).with_stall(Duration::from_secs(1));
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    (proxy, store)
}

fn assert_damaged(error: &StoreError, what: &str) {
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Damaged, 1), "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

/// A store or a proxy that quotes our request in its response, as some do to help with signatures,
/// puts no secret into our log.
#[tokio::test]
async fn secrets_that_come_back_in_an_error_are_not_shown() {
    let bucket = s3::bucket();
    let key = xb_uploader::base64(&[7; 32]);
    let quoted = format!("x-secret: topsecret-header, topsecret-token, {key}");
    let bodies = [
        (400, format!("<Error><Code>InvalidRequest</Code><Message>{quoted}</Message></Error>")),
        (502, format!("<html>bad gateway: {quoted}</html>")),
    ];
    for (status, body) in bodies {
        let reply = Action::Reply(Reply::text(status, &body));
        let proxy = Proxy::start(bucket.address(), vec![Rule::new("", "", reply)]);
        let settings = settings_with_secrets(&proxy.endpoint());
        let store = opened(&bucket.url("a"), &settings, quick().with_max_retries(1));
        let errors = [
            store.get("a/x").await.unwrap_err(),
            store.put("a/x", "content".into()).await.unwrap_err(),
            store.list("a").await.unwrap_err(),
            store.unfinished_uploads("a").await.unwrap_err(),
        ];
        for error in errors {
            let text = format!("{error} {error:?}");
            assert!(text.contains("(hidden)"), "{text}");
            assert!(!text.contains("topsecret"), "{text}");
            // Listings do not carry the key.
            assert!(!text.contains(&key) || text.starts_with("list"), "{text}");
        }
    }
}

/// No request of any kind follows a redirect, so no other place sees our keys or content.
#[tokio::test]
async fn redirects_are_not_followed() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = format!("http://{}", stranger.local_addr().unwrap());
    let bucket = s3::bucket();
    for status in [301, 302, 303, 307, 308] {
        let reply = Reply::text(status, "").header(format!("Location: {elsewhere}/b/x"));
        let proxy = Proxy::start(bucket.address(), vec![Rule::new("", "", Action::Reply(reply))]);
        let settings = settings_with_secrets(&proxy.endpoint());
        let store = opened(&bucket.url("a"), &settings, quick());
        let errors = [
            store.get("a/x").await.unwrap_err(),
            store.put("a/x", "content".into()).await.unwrap_err(),
            store.size("a/x").await.unwrap_err(),
            store.list("a").await.unwrap_err(),
            store.delete("a/x").await.unwrap_err(),
            store.unfinished_uploads("a").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.kind, error.attempts), (StoreErrorKind::NotAStore, 1), "{error}");
            assert!(error.hint().unwrap().contains(&elsewhere), "{error}: {:?}", error.hint());
        }
    }
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.accept().is_err(), "a request went to the other place");
}

/// Headers given for the store are sent nowhere else, and a redirect from the service that issues
/// credentials is not followed either.
#[tokio::test]
async fn a_credentials_service_sees_no_header_of_ours() {
    let bucket = s3::bucket();
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "pod-token").unwrap();
    let with = |url: String| {
        let mut settings = settings_with_secrets(&bucket.endpoint());
        settings.s3.encryption = None;
        (settings.s3.access_key, settings.s3.secret_key) = (None, None);
        settings.s3.session_token = None;
        let token_file = token.path().to_owned();
        settings.s3.container = Some(ContainerCredentials::Full { url, token_file });
        opened(&bucket.url("a"), &settings, quick())
    };
    let source = CredentialSource::start(&[s3::ACCESS_KEY]);
    let store = with(source.url());
    store.put("a/x", "content".into()).await.unwrap();
    assert!(source.asked() > 0 && source.heads().contains("pod-token"));
    assert!(!source.heads().contains("topsecret"), "{}", source.heads());

    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("Location: http://{}/", stranger.local_addr().unwrap());
    let reply = Action::Reply(Reply::text(302, "").header(target));
    let proxy = Proxy::start(bucket.address(), vec![Rule::new("", "", reply)]);
    with(proxy.endpoint()).get("a/x").await.unwrap_err();
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.accept().is_err(), "the token went to the other place");
}

#[tokio::test]
async fn an_object_that_is_too_large_is_not_read() {
    for length in [1_u64 << 40, 6 << 30, u64::from(u32::MAX)] {
        let reply = Reply::text(200, "x")
            .header(format!("Content-Length: {length}"))
            .header("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT")
            .header("ETag: \"1\"");
        let (_proxy, store) = replying(reply);
        assert_damaged(&store.get("a/x").await.unwrap_err(), "more than the limit of 16777216");
        // A store that ignores the range.
        assert!(store.get_range("a/x", 0..10, 10).await.is_err());
    }
    // A range that is longer than the one that was asked for.
    let reply = Reply::text(206, "x")
        .header(format!("Content-Length: {}", 1_u64 << 40))
        .header(format!("Content-Range: bytes 0-{}/{}", (1_u64 << 40) - 1, 1_u64 << 40))
        .header("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT")
        .header("ETag: \"1\"");
    let (_proxy, store) = replying(reply);
    assert!(store.get_range("a/x", 0..10, 1 << 40).await.is_err());
}

#[tokio::test]
async fn bodies_without_end_end() {
    let piece = vec![b'x'; 64 << 10];
    for pause in [Duration::ZERO, Duration::from_millis(100)] {
        let piece = if pause.is_zero() { &piece[..] } else { b"x" };
        // Errors are cut off, and judged by their status.
        let (_proxy, store) = replying(Reply::endless(400, piece, pause));
        assert!(store.put("a/x", "".into()).await.is_err());
        assert!(store.unfinished_uploads("a").await.is_err());
        let stated =
            Reply::endless(400, piece, pause).header(format!("Content-Length: {}", 1_u64 << 40));
        let (_proxy, store) = replying(stated);
        assert!(store.put("a/x", "".into()).await.is_err());
        assert!(store.list("a").await.is_err());
        // Everything else is refused.
        let (_proxy, store) = replying(Reply::endless(200, piece, pause));
        let error = store.list("a").await.unwrap_err();
        let uploads = store.unfinished_uploads("a").await.unwrap_err();
        if pause.is_zero() {
            assert_damaged(&error, "more than 33554432 bytes");
            assert_damaged(&uploads, "more than 33554432 bytes");
        } else {
            for error in [error, uploads] {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("less than 1024 bytes per second"), "{error}");
            }
        }
        assert!(store.get("a/x").await.is_err());
    }
}

#[tokio::test]
async fn listings_that_repeat_end() {
    let page = r"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken></ListBucketResult>";
    let (proxy, store) = replying(Reply::text(200, page));
    assert_damaged(&store.list("a").await.unwrap_err(), "the same page again");
    assert_damaged(&store.folders("a").await.unwrap_err(), "the same page again");
    assert_eq!(proxy.count("GET", ""), 4);
    let page = r"<ListMultipartUploadsResult><NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>";
    let (_proxy, store) = replying(Reply::text(200, page));
    assert_damaged(&store.unfinished_uploads("a").await.unwrap_err(), "the same page again");
}

/// Bodies with status 200 that are no listing. A parser with defaults for every field reads each of
/// them as an empty one.
const NO_LISTINGS: [&str; 6] = [
    "",
    "<html><body>Welcome</body></html>",
    "<Error><Code>InternalError</Code><Message>try again</Message></Error>",
    "<ListBucketResult></ListBucketResult>",
    "<EnumerationResults><Blobs></Blobs></EnumerationResults>",
    "<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated></ListBucketResult>",
];

/// An answer that is not a listing is asked for again, and never counts as an empty one.
async fn no_listing_is_empty(proxy: &Proxy, store: &Store, is_s3: bool) {
    store.put("a/run/0", "content".into()).await.unwrap();
    let list = if is_s3 { "list-type=2" } else { "comp=list" };
    let cut = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated><Contents>";
    let outside = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>b/x</Key><Size>1</Size><LastModified>2026-11-21T10:00:00.000Z</LastModified></Contents></ListBucketResult>";
    for body in NO_LISTINGS.into_iter().chain([cut, outside]) {
        let rule = |part: &str, times| {
            Rule::new("GET", part, Action::Reply(Reply::text(200, body))).times(times)
        };
        // Once for each of three listings.
        for (n, listing) in ["objects", "folders", "is empty"].into_iter().enumerate() {
            proxy.set_rules(vec![rule(list, 1)]);
            let found = match n {
                0 => store.list("a").await.unwrap().len(),
                1 => store.folders("a").await.unwrap().len(),
                _ => usize::from(store.has_object("a", |_| true).await.unwrap()),
            };
            assert_eq!(found, 1, "{listing}: {body}");
        }
        proxy.set_rules(vec![rule("", u64::MAX)]);
        let mut errors = vec![
            store.list("a").await.unwrap_err(),
            store.folders("a").await.unwrap_err(),
            store.has_object("a", |_| true).await.unwrap_err(),
        ];
        if is_s3 {
            errors.push(store.unfinished_uploads("a").await.unwrap_err());
        }
        for error in errors {
            assert_eq!((error.kind, error.attempts), (StoreErrorKind::Unavailable, 3), "{error}");
            let text = error.to_string();
            assert!(text.contains("not a listing") && text.starts_with("list"), "{text}");
            assert!(text.contains(&proxy.endpoint()), "{text}");
        }
    }
}

fn two_tries() -> Policy {
    quick().with_max_retries(2)
}

#[tokio::test]
async fn an_answer_that_is_no_listing_is_no_empty_one() {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), two_tries());
    no_listing_is_empty(&proxy, &store, true).await;

    let bucket = s3::open_bucket();
    let proxy = Proxy::google(bucket.address(), Vec::new());
    let key = tempfile::NamedTempFile::new().unwrap();
    let json = format!(
        r#"{{"gcs_base_url":"{}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#,
        proxy.endpoint()
    );
    std::fs::write(key.path(), json).unwrap();
    let mut settings = StoreSettings::default();
    settings.google.credentials_file = Some(key.path().to_owned());
    let url = format!("gs://{}/a", bucket.name());
    no_listing_is_empty(&proxy, &opened(&url, &settings, two_tries()), true).await;

    let container = azure::container();
    let proxy = Proxy::start(container.address(), Vec::new());
    let settings = azure_settings(&proxy);
    let url = format!("azure://{}/a", container.name());
    no_listing_is_empty(&proxy, &opened(&url, &settings, two_tries()), false).await;
}

fn azure_settings(proxy: &Proxy) -> StoreSettings {
    let mut settings = StoreSettings::default();
    settings.azure.account = Some(azure::ACCOUNT.into());
    settings.azure.access_key = Some(azure::KEY.into());
    settings.azure.endpoint = Some(format!("{}/{}", proxy.endpoint(), azure::ACCOUNT));
    settings
}

/// Each removal on Azure is a request of its own, with an answer of its own.
#[tokio::test]
async fn azure_removes_what_it_says_it_has_removed() {
    let container = azure::container();
    let proxy = Proxy::start(container.address(), Vec::new());
    let settings = azure_settings(&proxy);
    let store = opened(&format!("azure://{}/a", container.name()), &settings, two_tries());
    let keys: Vec<String> =
        ["plain", "b c", "d+e%2Ff", "g#h?i", "é"].map(|name| format!("a/{name}")).to_vec();
    for key in &keys {
        store.put(key, b"content".as_slice().into()).await.unwrap();
    }
    let code = |status, code| {
        let refused = Action::Refuse { status, code };
        vec![Rule::new("DELETE", "plain", refused)]
    };
    for (status, reason) in
        [(409, "SnapshotsPresent"), (412, "LeaseIdMissing"), (409, "BlobImmutableDueToPolicy")]
    {
        proxy.set_rules(code(status, reason));
        let error = store.delete_all(keys[..1].to_vec()).await.unwrap_err();
        assert_ne!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.attempts, 1, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    proxy.set_rules(code(403, "AuthorizationPermissionMismatch"));
    let error = store.delete(&keys[0]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    proxy.set_rules(vec![Rule::new("DELETE", "plain", Action::answer(503)).times(1)]);
    store.delete_all(keys.clone()).await.unwrap();
    assert!(store.list("a").await.unwrap().is_empty());
    store.delete_all(keys).await.unwrap();
    assert_eq!(proxy.count("POST", ""), 0, "no batch");
}

/// Entries that a listing repeats count once. Two different ones of a key are asked for again.
#[tokio::test]
async fn an_entry_counts_once() {
    let bucket = s3::bucket();
    for key in ["a/0", "a/1", "a/2"] {
        bucket.put(key, b"content");
    }
    let edit = |edit, times| Rule::new("GET", "list-type=2", Action::Edit(edit)).times(times);
    let proxy = Proxy::start(bucket.address(), vec![edit(Edit::Double, u64::MAX)]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), two_tries());
    assert_eq!(store.list("a").await.unwrap().len(), 3);
    assert_eq!(proxy.count("GET", "list-type=2"), 1);
    let differ = Edit::Differ("<Size>7</Size>", "<Size>8</Size>");
    proxy.set_rules(vec![edit(differ, 1)]);
    assert_eq!(store.list("a").await.unwrap().len(), 3);
    proxy.set_rules(vec![edit(differ, u64::MAX)]);
    let error = store.list("a").await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Unavailable, 3), "{error}");
    assert!(error.to_string().contains("two different entries of a/0"), "{error}");
}

/// Runs [`Store::add_abort_rule`] on a bucket that has `before`, and returns the outcome and the
/// configuration that the store has then.
async fn with_abort_rule(
    bucket: &s3::Bucket,
    rules: Vec<Rule>,
) -> (Result<bool, StoreError>, Vec<String>) {
    let proxy = Proxy::start(bucket.address(), rules);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), two_tries());
    let rule = AbortRule { id: "ours", prefix: "a", days: 7 };
    let added = store.add_abort_rule(&rule).await;
    let puts = proxy.seen().into_iter().filter(|seen| seen.method == "PUT");
    (added, puts.map(|seen| seen.path).collect())
}

/// Lifecycle rules that a wrong answer leaves out are not deleted.
#[tokio::test]
async fn lifecycle_rules_of_others_are_never_written_away() {
    let get =
        |reply: Reply, times| Rule::new("GET", "lifecycle", Action::Reply(reply)).times(times);
    let none = || Reply::text(404, "<Error><Code>NoSuchLifecycleConfiguration</Code></Error>");
    let foreign = "<Rule><ID>theirs</ID><Status>Enabled</Status><Filter><Prefix>b/</Prefix></Filter><Expiration><Days>9</Days></Expiration></Rule>";
    let theirs = |rule: &str| {
        Reply::text(200, &format!("<LifecycleConfiguration>{rule}</LifecycleConfiguration>"))
    };
    let bucket = s3::bucket();
    // Rules, and then none, or other ones.
    for other in [none(), theirs(""), theirs(&foreign.replace('9', "8"))] {
        let rules = vec![get(theirs(foreign), 1), get(other.clone(), u64::MAX)];
        let (added, puts) = with_abort_rule(&bucket, rules).await;
        assert_eq!((added.unwrap_err().kind, puts), (StoreErrorKind::Altered, vec![]));
        let rules = vec![get(other, 1), get(theirs(foreign), u64::MAX)];
        let (added, puts) = with_abort_rule(&bucket, rules).await;
        assert_eq!((added.unwrap_err().kind, puts), (StoreErrorKind::Altered, vec![]));
    }
    // Answers that say nothing about rules.
    let answers = [
        (Reply::text(404, "<Error><Code>NoSuchKey</Code></Error>"), StoreErrorKind::NotFound),
        (Reply::text(404, ""), StoreErrorKind::NotFound),
        (Reply::text(200, ""), StoreErrorKind::Unavailable),
        (Reply::text(200, "<html></html>"), StoreErrorKind::Unavailable),
        (theirs("<s3:Rule/>"), StoreErrorKind::Rejected),
        (theirs("<Rule><![CDATA[x]]></Rule>"), StoreErrorKind::Rejected),
    ];
    for (answer, kind) in answers {
        let (added, puts) = with_abort_rule(&bucket, vec![get(answer, u64::MAX)]).await;
        let error = added.unwrap_err();
        assert_eq!((error.kind, puts), (kind, vec![]), "{error}");
        let by_hand = error.hint().is_some_and(|hint| hint.contains("<ID>ours</ID>"));
        assert!(by_hand || kind == StoreErrorKind::Unavailable, "{:?}", error.hint());
    }
    // A store that loses the other rules is found out afterwards.
    let taken = Action::Reply(Reply::text(200, ""));
    let rules = vec![
        get(theirs(foreign), 2),
        Rule::new("PUT", "lifecycle", taken),
        get(theirs("<Rule><ID>ours</ID></Rule>"), u64::MAX),
    ];
    let (added, puts) = with_abort_rule(&bucket, rules).await;
    let error = added.unwrap_err();
    assert_eq!((error.kind, puts.len()), (StoreErrorKind::Damaged, 2), "{error}");
    assert!(error.hint().unwrap().contains(foreign), "{:?}", error.hint());
    // It gets them back, without ours, unless someone else has changed them meanwhile.
    let taken = || Rule::new("PUT", "lifecycle", Action::Reply(Reply::text(200, "")));
    let later = "<Rule><ID>ours</ID></Rule><Rule><ID>later</ID></Rule>";
    for (lacks, puts_there, named) in
        [("<Rule><ID>ours</ID></Rule>", 2, "run `gc` regularly"), (later, 1, foreign)]
    {
        let back = get(theirs(foreign), u64::MAX);
        let rules = vec![get(theirs(foreign), 2), taken(), get(theirs(lacks), 1).skip(2), back];
        let (added, puts) = with_abort_rule(&bucket, rules).await;
        let error = added.unwrap_err();
        assert_eq!((error.kind, puts.len()), (StoreErrorKind::Damaged, puts_there), "{error}");
        assert!(error.hint().unwrap().contains(named), "{:?}", error.hint());
    }
    // A real bucket without rules, and with ours.
    assert!(with_abort_rule(&bucket, Vec::new()).await.0.unwrap());
    assert!(!with_abort_rule(&bucket, Vec::new()).await.0.unwrap());
}

/// The code that a store gives for a single object within a success counts, and an answer that
/// does not name an object deletes none.
#[tokio::test]
async fn a_deletion_counts_as_the_store_answers_for_each_object() {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), two_tries());
    let keys = || vec!["a/0".to_owned(), "a/1 & 2".to_owned()];
    let answer = |inside: &str, times| {
        let text = format!("<DeleteResult>{inside}</DeleteResult>");
        vec![Rule::new("POST", "delete", Action::Reply(Reply::text(200, &text))).times(times)]
    };
    let refusal = |code: &str| {
        format!(
            "<Deleted><Key>a/0</Key></Deleted><Error><Key>a/1 &amp; 2</Key><Code>{code}</Code><Message>no</Message></Error>"
        )
    };
    for (code, kind, tries) in [
        ("AccessDenied", StoreErrorKind::Denied, 1),
        ("MalformedXML", StoreErrorKind::Rejected, 1),
        ("SlowDown", StoreErrorKind::Unavailable, 3),
    ] {
        proxy.set_rules(answer(&refusal(code), u64::MAX));
        let error = store.delete_all(keys()).await.unwrap_err();
        assert_eq!((error.kind, error.attempts), (kind, tries), "{error}");
        assert!(error.to_string().contains(&format!("a/1 & 2: {code} no")), "{error}");
        let error = store.delete("a/1 & 2").await.unwrap_err();
        assert_eq!((error.kind, error.attempts), (kind, tries), "{error}");
    }
    proxy.set_rules(answer(&refusal("NoSuchKey"), u64::MAX));
    store.delete_all(keys()).await.unwrap();
    store.delete("a/1 & 2").await.unwrap();
    proxy.set_rules(answer("", u64::MAX));
    let error = store.delete("a/0").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    for nothing in [
        "",
        "<Deleted><Key>a/0</Key></Deleted>",
        "<Error><Key>other</Key><Code>InternalError</Code></Error>",
    ] {
        for key in keys() {
            bucket.put(&key, b"content");
        }
        proxy.set_rules(answer(nothing, 1));
        store.delete_all(keys()).await.unwrap();
        assert_eq!(bucket.list("a/"), []);
        proxy.set_rules(answer(nothing, u64::MAX));
        let error = store.delete_all(keys()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
}

/// The operator limits the pauses, not the store.
#[tokio::test]
async fn a_pause_is_not_longer_than_the_operator_allows() {
    let busy = Reply::text(503, "<Error><Code>SlowDown</Code></Error>").header("Retry-After: 3600");
    let (proxy, store) = replying(busy);
    let error = store.put("a/x", "".into()).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Unavailable, 2), "{error}");
    assert!(error.to_string().contains("status 503 SlowDown"), "{error}");
    assert!(error.to_string().contains(&proxy.endpoint()), "{error}");
}

/// A wrong scheme is an error at once, with the right one in the hint.
#[tokio::test]
async fn a_wrong_scheme_is_named() {
    let bucket = s3::bucket();
    let https = format!("https://{}", bucket.address());
    let store = opened(&bucket.url("a"), &s3_settings(&https), Policy::default());
    let error = store.list("a").await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::NotAStore, 1), "{error}");
    assert!(error.hint().unwrap().contains("http://"), "{error}: {:?}", error.hint());
    // The answer of a TLS server to a plain request: an alert, or a page.
    let alert = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", alert.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = alert.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 10]).unwrap();
    });
    let store = opened(&bucket.url("a"), &s3_settings(&endpoint), Policy::default());
    let error = store.list("a").await.unwrap_err();
    server.join().unwrap();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::NotAStore, 1), "{error}");
    assert!(error.hint().unwrap().contains("https://"), "{error}: {:?}", error.hint());
    let page = "Client sent an HTTP request to an HTTPS server.\n";
    let (_proxy, store) = replying(Reply::text(400, page));
    let error = store.list("a").await.unwrap_err();
    assert!(error.hint().unwrap().contains("https://"), "{error}: {:?}", error.hint());
}

/// One wrong answer does not make an object damaged; the same answer twice does.
#[tokio::test]
async fn a_short_answer_is_asked_for_again() {
    let bucket = s3::bucket();
    let content = xb_testkit::data::noise(3, 1000);
    bucket.put("a/x", &content);
    let short = Reply::text(206, "0123456789")
        .header("Content-Range: bytes 0-9/10")
        .header("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT")
        .header("ETag: \"1\"");
    let rule = |times| Rule::new("GET", "/a/x", Action::Reply(short.clone())).times(times);
    let proxy = Proxy::start(bucket.address(), vec![rule(1)]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    assert!(store.get_range("a/x", 0..1000, 1000).await.unwrap() == content);
    assert_eq!((proxy.count("GET", "/a/x"), store.traffic().retries()), (2, 1));
    proxy.set_rules(vec![rule(2)]);
    let error = store.get_range("a/x", 0..1000, 1000).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
}
