//! Tests of each kind of store over HTTP, on real servers: the same calls, the same results.

use crate::common::*;
use bytes::Bytes;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::{azure, s3};
use xb_uploader::{
    AwsProfile, AzureSettings, Checksum, ContainerCredentials, GoogleSettings, PartSender,
    Provider, Store, StoreErrorKind, StoreSettings,
};

/// Puts, conditions, ranges, parts, listings and deletes.
async fn does_all(store: &Store, prefix: &str) {
    let key = |name: &str| format!("{prefix}{name}");
    let small = Bytes::from_static(b"some bytes");
    store.put(&key("run/0"), small.clone().into()).await.unwrap();
    store.put(&key("run/empty"), Bytes::new().into()).await.unwrap();
    assert_eq!(store.get(&key("run/0")).await.unwrap(), small);
    assert_eq!(store.get_range(&key("run/0"), 5..10, 10).await.unwrap(), &small[5..]);
    let longer = store.get_range(&key("run/0"), 0..5, 5).await.unwrap_err();
    assert_eq!(longer.kind, StoreErrorKind::Damaged);
    assert!(longer.to_string().contains("has 10 bytes, expected 5"), "{longer}");
    assert_eq!(store.size(&key("run/empty")).await.unwrap(), Some(0));
    assert_eq!(store.size(&key("run/none")).await.unwrap(), None);

    store.create(&key("once"), small.clone()).await.unwrap();
    let second = store.create(&key("once"), Bytes::from_static(b"others")).await.unwrap_err();
    assert_eq!(second.kind, StoreErrorKind::AlreadyExists, "{second}");
    // Repeating our own write is no conflict.
    store.create(&key("once"), small.clone()).await.unwrap();
    let obeys = store.refuses_existing(&key("once"), Bytes::from_static(b"others")).await.unwrap();
    assert_eq!(obeys, store.has_conditions());
    assert_eq!(store.get(&key("once")).await.unwrap(), small);

    let mut sender = PartSender::new(store.clone(), 3);
    let object = upload(&mut sender, &key("run/parts"), 2).await.unwrap();
    assert_eq!(sender.finish().await.unwrap().objects, 1);
    assert!(store.get(&key("run/parts")).await.unwrap() == object);

    let listed: Vec<_> =
        store.list(&key("run")).await.unwrap().into_iter().map(|l| (l.key, l.size)).collect();
    let parts = (key("run/parts"), object.len() as u64);
    assert_eq!(listed, [(key("run/0"), 10), (key("run/empty"), 0), parts]);
    let folders = store.folders(prefix.trim_end_matches('/')).await.unwrap();
    assert_eq!(folders, ["run"]);
    let keys = listed.into_iter().map(|(key, _)| key).chain([key("run/none")]).collect();
    store.delete_all(keys).await.unwrap();
    store.delete(&key("once")).await.unwrap();
    store.delete(&key("once")).await.unwrap();
    assert_eq!(store.list(prefix.trim_end_matches('/')).await.unwrap(), []);
}

#[tokio::test]
async fn s3_with_every_way_to_protect_a_body() {
    for checksum in [Checksum::None, Checksum::Crc64Nvme, Checksum::Sha256] {
        let bucket = s3::bucket();
        let mut settings = s3_settings(&bucket.endpoint());
        settings.s3.checksum = Some(checksum);
        settings.s3.storage_class = Some("STANDARD_IA".into());
        let store = opened(&bucket.url("a"), &settings, quick());
        does_all(&store, "a/").await;
        assert!(store.protection().contains(match checksum {
            Checksum::Crc64Nvme => "CRC-64/NVME",
            _ => "SHA-256",
        }));
    }
}

#[tokio::test]
async fn every_provider_profile_works_on_a_store_that_can_do_it_all() {
    for provider in [Provider::Plain, Provider::Google, Provider::Minio] {
        let bucket = s3::bucket();
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let mut settings = s3_settings(&proxy.endpoint());
        settings.s3.provider = Some(provider);
        let store = opened(&bucket.url("a"), &settings, quick());
        does_all(&store, "a/").await;
        assert_eq!(proxy.count("POST", "delete") > 0, provider.deletes_in_bulk(), "{provider}");
        let most = if provider == Provider::Plain { 1000 } else { 10_000 };
        assert_eq!(store.limits().max_parts, most);
    }
}

#[tokio::test]
async fn google_cloud_storage_natively() {
    let bucket = s3::open_bucket();
    let proxy = Proxy::google(bucket.address(), Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.json");
    let json = format!(
        r#"{{"gcs_base_url":"{}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#,
        proxy.endpoint()
    );
    std::fs::write(&key, json).unwrap();
    let mut google = GoogleSettings::default();
    google.credentials_file = Some(key);
    let mut settings = StoreSettings::default();
    settings.google = google;
    let url = format!("gs://{}/a", bucket.name());
    let store = opened(&url, &settings, quick());
    assert!(store.protection().contains("CRC-32C"));
    does_all(&store, "a/").await;
    abandons_and_cleans_up(&store, "a/").await;
}

#[tokio::test]
async fn google_cloud_storage_with_hmac_keys_through_its_xml_interface() {
    let bucket = s3::bucket();
    let mut google = GoogleSettings::default();
    google.endpoint = Some(bucket.endpoint());
    google.access_key = Some(s3::ACCESS_KEY.into());
    google.secret_key = Some(s3::SECRET_KEY.into());
    let mut settings = StoreSettings::default();
    settings.google = google;
    let store = opened(&format!("gs://{}/a", bucket.name()), &settings, quick());
    does_all(&store, "a/").await;
}

#[tokio::test]
async fn azure_blob_storage() {
    let container = azure::container();
    let mut azure = AzureSettings::default();
    azure.account = Some(azure::ACCOUNT.into());
    azure.access_key = Some(azure::KEY.into());
    azure.endpoint = Some(container.endpoint());
    azure.tier = Some("Cool".into());
    let mut settings = StoreSettings::default();
    settings.azure = azure;
    let url = format!("azure://{}/a", container.name());
    does_all(&opened(&url, &settings, quick()), "a/").await;

    // A wrong key fails at once.
    let mut wrong = settings.clone();
    wrong.azure.access_key = Some("AAAA".into());
    let error = opened(&url, &wrong, quick()).put("a/x", Bytes::new().into()).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Denied, 1), "{error}");
    let mut nowhere = settings.clone();
    nowhere.azure.development = true;
    nowhere.azure.account = None;
    nowhere.azure.access_key = None;
    let store = opened("azure://no-such-container/a", &nowhere, quick());
    let error = store.put("a/x", Bytes::new().into()).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::NoBucket, 1), "{error}");
    assert!(error.hint().unwrap().contains("create the container"), "{error}");
}

#[tokio::test]
async fn a_local_folder() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let store = opened(&url, &StoreSettings::default(), quick());
    does_all(&store, "a/").await;
}

/// An upload of a killed process is found by listing and removed; complete objects stay.
async fn abandons_and_cleans_up(store: &Store, prefix: &str) {
    let key = |name: &str| format!("{prefix}{name}");
    store.put(&key("whole"), Bytes::from_static(b"x").into()).await.unwrap();
    for name in ["dead/1", "dead/2", "other"] {
        let mut sender = PartSender::new(store.clone(), 2);
        sender.send(part(&key(name), 0, false)).await.unwrap();
        // Leaked on purpose, as by a process that was killed.
        std::mem::forget(sender);
    }
    let found = store.unfinished_uploads(&key("dead/")).await.unwrap();
    let keys: Vec<_> = found.iter().map(|upload| upload.key.clone()).collect();
    assert_eq!(keys, [key("dead/1"), key("dead/2")]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for upload in &found {
        assert!(upload.started.abs_diff(i64::try_from(now).unwrap()) < 3600, "{upload:?}");
        store.abort(upload).await.unwrap();
        store.abort(upload).await.unwrap();
    }
    let left = store.unfinished_uploads(prefix).await.unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    store.abort(&left[0]).await.unwrap();
    assert_eq!(store.unfinished_uploads(prefix).await.unwrap(), []);
    assert_eq!(store.get(&key("whole")).await.unwrap(), "x");
}

#[tokio::test]
async fn unfinished_uploads_are_found_and_removed() {
    let bucket = s3::bucket();
    let store = opened(&bucket.url("a"), &s3_settings(&bucket.endpoint()), quick());
    abandons_and_cleans_up(&store, "a/").await;
}

/// Keys that are renewed at their source are used from then on, during a run.
#[tokio::test]
async fn keys_renewed_in_a_profile_are_taken_up_in_mid_run() {
    let bucket = s3::bucket();
    let folder = tempfile::tempdir().unwrap();
    let credentials = folder.path().join("credentials");
    let write = |key: &str| {
        let secret = s3::SECRET_KEY;
        let text = format!("[p]\naws_access_key_id={key}\naws_secret_access_key={secret}\n");
        std::fs::write(&credentials, text).unwrap();
    };
    write(s3::ACCESS_KEY);
    // The first keys expire after two puts; by the time of the retry, the file has fresh ones.
    let expired = Rule::new("PUT", "/a/", Action::Refuse { status: 400, code: "ExpiredToken" });
    let proxy = Proxy::start(bucket.address(), vec![expired.skip(2).times(1)]);
    let mut settings = s3_settings(&proxy.endpoint());
    settings.s3.access_key = None;
    settings.s3.secret_key = None;
    settings.s3.profile = Some(AwsProfile {
        name: "p".into(),
        required: true,
        credentials: credentials.clone(),
        config: folder.path().join("config"),
    });
    let store = opened(&bucket.url("a"), &settings, quick());
    for n in 0..5 {
        if n == 2 {
            write(s3::OTHER_KEY);
        }
        store.put(&format!("a/{n}"), Bytes::from_static(b"x").into()).await.unwrap();
    }
    assert_eq!((store.list("a").await.unwrap().len(), store.traffic().retries()), (5, 1));

    // Keys that cannot be renewed: no second try.
    let expired = Rule::new("PUT", "/a/", Action::Refuse { status: 400, code: "ExpiredToken" });
    proxy.set_rules(vec![expired]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let error = store.put("a/x", Bytes::new().into()).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Denied, 1));
    assert!(error.hint().unwrap().contains("expired"), "{error}");
}

/// The credentials service of a container is called again before its credentials expire.
#[tokio::test]
async fn credentials_of_a_container_are_renewed() {
    let bucket = s3::bucket();
    let source = CredentialSource::start(&[s3::ACCESS_KEY, s3::OTHER_KEY]);
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "pod-token").unwrap();
    let mut settings = s3_settings(&bucket.endpoint());
    settings.s3.access_key = None;
    settings.s3.secret_key = None;
    settings.s3.container = Some(ContainerCredentials::Full { url: source.url(), token_file });
    let store = opened(&bucket.url("a"), &settings, quick());
    let begin = std::time::Instant::now();
    let mut puts = 0;
    // The credentials are valid for less time than the client's safety margin, so they are renewed
    // soon.
    while source.asked() < 3 {
        store.put(&format!("a/{puts}"), Bytes::from_static(b"x").into()).await.unwrap();
        puts += 1;
        assert!(begin.elapsed().as_secs() < 60, "never renewed");
    }
    assert_eq!(store.list("a").await.unwrap().len(), puts);
    assert_eq!(store.traffic().retries(), 0);
}

#[tokio::test]
async fn permanent_refusals_are_not_tried_twice_and_come_with_advice() {
    let bucket = s3::bucket();
    let mut wrong = s3_settings(&bucket.endpoint());
    wrong.s3.secret_key = Some("wrong".into());
    let mut unknown = s3_settings(&bucket.endpoint());
    unknown.s3.access_key = Some("nobody".into());
    for (settings, url, advice) in [
        (wrong, bucket.url("a"), "secret"),
        (unknown, bucket.url("a"), "access key"),
        (s3_settings(&bucket.endpoint()), "s3://no-such-bucket/a".to_owned(), "bucket"),
    ] {
        let store = opened(&url, &settings, quick());
        for outcome in [
            store.put("a/x", Bytes::from_static(b"x").into()).await,
            store.list("a").await.map(drop),
            store.unfinished_uploads("a").await.map(drop),
        ] {
            let error = outcome.expect_err(&url);
            assert_eq!(error.attempts, 1, "{error}");
            assert!(
                error.hint().is_some_and(|hint| hint.contains(advice)),
                "{error} {:?}",
                error.hint()
            );
        }
    }
}

/// Additional headers are signed too; otherwise the store would reject the request.
#[tokio::test]
async fn further_headers_are_sent_and_signed() {
    let bucket = s3::bucket();
    let mut settings = s3_settings(&bucket.endpoint());
    settings.http.headers = vec![("x-amz-meta-shift".into(), "night".into())];
    let store = opened(&bucket.url("a"), &settings, quick());
    does_all(&store, "a/").await;
}

/// A gateway that lets in only requests with a header of its own, in a bucket that bills whoever reads
/// it: no kind of request lacks these headers.
#[tokio::test]
async fn further_headers_are_on_every_request() {
    let bucket = s3::bucket();
    let needed = ["x-gateway", "x-amz-request-payer"];
    let rules = needed.map(|name| Rule::new("", "", Action::answer(403)).without_header(name));
    let proxy = Proxy::start(bucket.address(), rules.into());
    let mut settings = s3_settings(&proxy.endpoint());
    settings.http.headers = vec![
        ("X-Gateway".into(), "let me in".into()),
        ("x-amz-request-payer".into(), "requester".into()),
    ];
    let store = opened(&bucket.url("a"), &settings, quick());
    does_all(&store, "a/").await;
    assert!(store.unfinished_uploads("a").await.unwrap().is_empty());
}
