use super::*;
use crate::open::client::{CRC64, SHA256, SIGNED, TRANSPORT};
use crate::open::endpoint::bucket_address;
use crate::settings::provider::{Provider, StoreLimits};
use crate::settings::{Checksum, S3Settings};

#[test]
fn buckets_become_addresses() {
    let address = |endpoint, by_host| bucket_address(endpoint, "b", "r", by_host);
    assert_eq!(address(None, true), "https://b.s3.r.amazonaws.com");
    assert_eq!(address(None, false), "https://s3.r.amazonaws.com/b");
    assert_eq!(address(Some("http://h:1"), false), "http://h:1/b");
    assert_eq!(address(Some("http://h:1"), true), "http://b.h:1");
    assert_eq!(address(Some("http://b.h:1"), true), "http://b.h:1");
}

fn opened(url: &str, settings: &StoreSettings) -> Result<Store, StoreError> {
    let location = Location::parse(url).unwrap().unwrap();
    open(&location, settings, Policy::default(), false).map(|(store, _)| store)
}

fn with_keys(endpoint: Option<&str>) -> StoreSettings {
    let s3 = S3Settings {
        endpoint: endpoint.map(str::to_owned),
        access_key: Some("id".into()),
        secret_key: Some("secret".into()),
        ..S3Settings::default()
    };
    StoreSettings { s3, ..StoreSettings::default() }
}

#[tokio::test]
async fn the_protection_of_a_body_is_stated_for_each_store() {
    let protection = |settings: &StoreSettings| opened("s3://b/n", settings).unwrap().protection();
    assert_eq!(protection(&with_keys(None)), CRC64);
    assert_eq!(protection(&with_keys(Some("http://127.0.0.1:1"))), SIGNED);
    assert_eq!(protection(&with_keys(Some("https://127.0.0.1:1"))), TRANSPORT);
    let mut asked = with_keys(Some("https://127.0.0.1:1"));
    asked.s3.sign_bodies = true;
    assert_eq!(protection(&asked), SIGNED);
    asked.s3.checksum = Some(Checksum::Sha256);
    assert_eq!(protection(&asked), SHA256);
}

#[tokio::test]
async fn the_provider_sets_the_limits() {
    let store = opened("s3://b/n", &with_keys(Some("https://s3.nl-ams.scw.cloud"))).unwrap();
    assert_eq!(store.limits().max_parts, 1000);
    assert!(!store.traits.conditions);
    let mut other = with_keys(Some("https://s3.nl-ams.scw.cloud"));
    other.s3.provider = Some(Provider::Minio);
    assert_eq!(opened("s3://b/n", &other).unwrap().limits(), StoreLimits::S3);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_their_cause() {
    let message =
        |url: &str, settings: &StoreSettings| opened(url, settings).unwrap_err().to_string();
    assert!(message("azure://c/n", &StoreSettings::default()).contains("--azure-storage-account"));
    let mut half = with_keys(None);
    half.s3.secret_key = None;
    assert!(message("s3://b/n", &half).to_lowercase().contains("secret"));
    let mut headers = with_keys(None);
    headers.http.headers = vec![("bad name".into(), "x".into())];
    assert!(message("s3://b/n", &headers).contains("header name"));
    for secret in
        ["https://user:topsecret@h", "h:1/?topsecret", "https://topsecret@h/#x", "ftp://topsecret"]
    {
        let said = message("s3://b/n", &with_keys(Some(secret)));
        assert!(said.contains("endpoint") && !said.contains("topsecret"), "{said}");
    }
    let mut google = StoreSettings::default();
    google.google.credentials_file = Some("/nonexistent/key.json".into());
    assert!(message("gs://b/n", &google).contains("/nonexistent/key.json"));
}

#[tokio::test]
async fn credentials_of_a_token_service_are_refused_with_the_command_that_helps() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adc.json");
    let mut settings = StoreSettings::default();
    settings.google.credentials_file = Some(file.clone());
    for kind in
        ["external_account", "external_account_authorized_user", "impersonated_service_account"]
    {
        std::fs::write(&file, format!(r#"{{"type":"{kind}","audience":"a"}}"#)).unwrap();
        let said = opened("gs://b/n", &settings).unwrap_err().to_string();
        for word in [kind, "adc.json", "gcloud storage hmac create"] {
            assert!(said.contains(word), "{said}");
        }
    }
}
