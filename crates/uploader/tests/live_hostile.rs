//! Tests with a hostile store: it redirects, never ends, or responds with more than any real store
//! does.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;

use std::net::TcpListener;
use std::time::Duration;

use common::*;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::reply::Reply;
use xb_testkit::s3;
use xb_uploader::{
    ContainerCredentials, Encryption, Policy, Store, StoreError, StoreErrorKind, StoreSettings,
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
    // What a TLS server sends to a plain request: an alert, or a page.
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
