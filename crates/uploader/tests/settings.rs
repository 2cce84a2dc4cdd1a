//! Settings whose values no request can hold: they are refused with a clear error, never a panic.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use proptest::prelude::*;
use xb_uploader::{
    AwsProfile, BucketLookup, ContainerCredentials, Encryption, Location, Policy, S3Settings,
    Store, StoreError, StoreErrorKind, StorePlace, StoreSettings, open,
};

fn opened(url: &str, settings: &StoreSettings) -> Result<Store, StoreError> {
    let location = Location::parse(url).unwrap().unwrap();
    open(&location, settings, policy(), false).map(|(store, _)| store)
}

fn policy() -> Policy {
    Policy::default().with_max_retries(0).with_retry_timeout(Duration::ZERO)
}

fn with_keys(endpoint: Option<&str>) -> StoreSettings {
    let mut settings = StoreSettings::default();
    settings.s3.endpoint = endpoint.map(str::to_owned);
    settings.s3.access_key = Some("id".to_owned());
    settings.s3.secret_key = Some("secret".to_owned());
    settings
}

/// The client panics on each of these when it sends the first request.
#[tokio::test]
async fn values_that_no_request_can_hold_are_refused() {
    let refused = |url: &str, settings: &StoreSettings| {
        let error = opened(url, settings).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Settings);
        error.to_string()
    };
    let with = |change: fn(&mut S3Settings)| {
        let mut settings = with_keys(Some("http://127.0.0.1:1"));
        change(&mut settings.s3);
        settings
    };
    for (settings, what) in [
        (
            with(|s3| s3.access_key = Some("topsecret\n".into())),
            "access key ends with a line break",
        ),
        (with(|s3| s3.secret_key = Some("topsecret\r\n".into())), "secret key ends with a line"),
        (with(|s3| s3.session_token = Some("topsecret\n".into())), "session token ends with"),
        (with(|s3| s3.session_token = Some(" topsecret".into())), "begins or ends with a space"),
        (with(|s3| s3.session_token = Some("top\u{1}secret".into())), "U+0001, at byte 3"),
        (with(|s3| s3.storage_class = Some("COLD\n".into())), "storage class"),
        (with(|s3| s3.region = Some("a/b".into())), "region"),
        (with(|s3| s3.endpoint = Some("http://127.0.0.1:1\n".into())), "endpoint"),
        (
            with(|s3| s3.encryption = Some(Encryption::Kms { key_id: Some("a\u{e9}".into()) })),
            "KMS key",
        ),
        (
            with(|s3| {
                (s3.access_key, s3.secret_key) = (None, None);
                s3.metadata_endpoint = Some("http://[".into());
            }),
            "metadata service",
        ),
        (
            with(|s3| {
                (s3.access_key, s3.secret_key) = (None, None);
                s3.container = Some(ContainerCredentials::Relative("/a b".into()));
            }),
            "container",
        ),
        (with(|s3| s3.lookup = BucketLookup::Dns), "--s3-bucket-lookup=path"),
    ] {
        let said = refused("s3://b/n", &settings);
        assert!(said.contains(what) && !said.contains("secret\""), "{said}");
        assert!(!said.contains("topsecret"), "{said}");
    }
    assert!(refused("s3://xn--/n", &with_keys(None)).contains("--s3-bucket-lookup=path"));
    for bucket in ["b[k]", "b k", "b%2e", "..", "b\\c", "\u{e9}"] {
        for settings in [with_keys(None), with_keys(Some("http://127.0.0.1:1"))] {
            assert!(refused(&format!("s3://{bucket}/n"), &settings).contains("bucket name"));
        }
        let google = refused(&format!("gs://{bucket}/n"), &StoreSettings::default());
        assert!(google.contains("bucket name"), "{google}");
        let azure = refused(&format!("azure://{bucket}/n"), &StoreSettings::default());
        assert!(azure.contains("container name"), "{azure}");
    }
}

/// Kubernetes may write such a file.
#[tokio::test]
async fn the_token_of_a_container_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "topsecret\n").unwrap();
    let mut settings = StoreSettings::default();
    let url = "http://127.0.0.1:1/".to_owned();
    settings.s3.container = Some(ContainerCredentials::Full { url, token_file });
    let said = opened("s3://b/n", &settings).unwrap_err().to_string();
    assert!(said.contains("ends with a line break") && !said.contains("topsecret"), "{said}");
}

/// A program's keys are first seen when a request needs them.
#[tokio::test]
async fn keys_that_no_request_can_hold_end_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    std::fs::write(&file, "[default]\naws_access_key_id=id\naws_secret_access_key=s\naws_session_token=top\u{1}secret\n").unwrap();
    let mut settings = with_keys(Some("http://127.0.0.1:1"));
    (settings.s3.access_key, settings.s3.secret_key) = (None, None);
    settings.s3.profile = Some(AwsProfile {
        name: "default".into(),
        required: true,
        credentials: file,
        config: "/dev/null".into(),
    });
    let store = opened("s3://b/n", &settings).unwrap();
    for error in [
        store.size("key").await.unwrap_err(),
        store.delete_all(vec!["key".into()]).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Denied);
        let said = error.to_string();
        assert!(said.contains("session token") && !said.contains("secret"), "{said}");
    }
}

/// Settings of every kind of store, each filled in from `texts`.
fn settings_of([a, b, c, d]: &[String; 4]) -> StoreSettings {
    let endpoint = || Some("http://127.0.0.1:1".to_owned());
    let mut settings = StoreSettings::default();
    let s3 = &mut settings.s3;
    (s3.endpoint, s3.region) = (endpoint(), Some(d.clone()));
    (s3.access_key, s3.secret_key) = (Some(a.clone()), Some(b.clone()));
    (s3.session_token, s3.storage_class) = (Some(c.clone()), Some(c.clone()));
    s3.encryption = Some(Encryption::Kms { key_id: Some(d.clone()) });
    let google = &mut settings.google;
    (google.endpoint, google.region) = (endpoint(), Some(d.clone()));
    (google.access_key, google.secret_key) = (Some(a.clone()), Some(b.clone()));
    (google.session_token, google.storage_class) = (Some(c.clone()), Some(b.clone()));
    let azure = &mut settings.azure;
    (azure.endpoint, azure.account) = (endpoint(), Some(a.clone()));
    (azure.access_key, azure.tier) = (Some("a2V5".to_owned()), Some(d.clone()));
    settings
}

/// Text that settings hold, now and then with a character that no request can hold.
fn text() -> impl Strategy<Value = String> {
    ("[a-z0-9]{1,8}", prop_oneof![6 => "", 1 => "[\\PC\n\t \u{1}]{1,2}"])
        .prop_map(|(text, end)| text + &end)
}

proptest! {
    /// Whatever the settings hold, they are refused, or a request with them ends in an error.
    #[test]
    fn no_setting_panics(
        texts in [text(), text(), text(), text()],
        bucket in "[a-z0-9]{1,6}[\\[\\]\\PC]{0,1}",
        by_host: bool,
    ) {
        let mut settings = settings_of(&texts);
        settings.s3.lookup = if by_host { BucketLookup::Dns } else { BucketLookup::Path };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for place in [
                StorePlace::S3 { bucket: bucket.clone() },
                StorePlace::Google { bucket: bucket.clone() },
                StorePlace::Azure { container: bucket.clone() },
            ] {
                let location = Location { place, path: String::new() };
                if let Ok((store, _)) = open(&location, &settings, policy(), false) {
                    prop_assert!(store.size("key").await.is_err());
                    prop_assert!(store.delete_all(vec!["key".into()]).await.is_err());
                }
            }
            Ok(())
        })?;
    }
}
