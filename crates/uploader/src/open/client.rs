//! Parts shared by the clients of all stores: the connector, options, and descriptions of what
//! protects a body.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::{Attribute, AttributeValue, Attributes, ClientOptions, RetryConfig};

use crate::policy::Policy;
use crate::request::http::{Connector, Traffic};
use crate::request::rate::RateLimit;
use crate::request::watch::Limits;
use crate::settings::HttpSettings;
use crate::settings::tags::Tags;

/// Reason why settings are invalid.
pub(crate) type InvalidSettings = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const CRC64: &str = "CRC-64/NVME, checked by the store";
pub(crate) const SHA256: &str = "SHA-256, checked by the store";
pub(crate) const SIGNED: &str = "SHA-256 in the signature";
pub(crate) const CRC32C: &str = "CRC-32C, checked by the store";
pub(crate) const TRANSPORT: &str = "TLS only: the store checks nothing";
pub(crate) const NOTHING: &str = "nothing: plain HTTP, and the store checks nothing";

/// Settings that a client needs in addition to the address and the keys of its store.
pub(crate) struct ClientSettings {
    pub(crate) connector: Connector,
    pub(crate) policy: Policy,
    pub(crate) traffic: Traffic,
    pub(crate) tags: Tags,
}

impl ClientSettings {
    /// Client settings that must be made here because the client signs the default headers.
    pub(crate) fn options(&self, plain: bool) -> ClientOptions {
        ClientOptions::new()
            .with_allow_http(plain)
            .with_timeout_disabled()
            .with_default_headers(self.connector.headers.clone())
    }
}

pub(crate) fn connector(
    http: &HttpSettings,
    policy: &Policy,
    traffic: &Traffic,
) -> Result<Connector, InvalidSettings> {
    let certificates = match &http.ca_bundle {
        None => Vec::new(),
        Some(bundle) => reqwest::Certificate::from_pem_bundle(bundle)?,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &http.headers {
        let mut value = HeaderValue::from_str(value)?;
        // The value may be a secret.
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.as_bytes())?, value);
    }
    Ok(Connector {
        traffic: traffic.clone(),
        limits: Limits::of(policy),
        rate: http.limit_rate.map(|rate| Arc::new(RateLimit::new(rate))),
        certificates,
        clients: Arc::default(),
        insecure: http.insecure,
        headers,
        home: String::new(),
        goog_hash: false,
    })
}

/// Switches off the client's retries: [`Store`](crate::Store) has the only retry loop.
pub(crate) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Refusal of tags for a store to which the client cannot send them.
pub(crate) fn no_tags(store: &str) -> InvalidSettings {
    format!("tags (--tag) are supported only by S3 and compatible stores, not for {store}").into()
}

pub(crate) fn storage_class(class: Option<String>) -> Attributes {
    class.into_iter().map(|class| (Attribute::StorageClass, AttributeValue::from(class))).collect()
}
