//! From a URL and settings to a store and a place in it.

use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::RetryConfig;
use url::Url;

use crate::error::{StoreError, StoreErrorKind};
use crate::http::{Connector, Traffic};
use crate::policy::Policy;
use crate::store::Store;

/// A place in a store: which store, and the path within it (no slash at either end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Which kind of store, with what addresses it.
    pub place: Place,
    /// Path within the bucket or below the root folder; may be empty.
    pub path: String,
}

/// What a [`Location`] lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A folder of this machine; `path` counts from `/`.
    Local,
    /// An S3 bucket.
    S3 {
        /// Its name.
        bucket: String,
    },
}

/// A URL that names no place we know.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocationError {
    /// The scheme is not one of ours.
    #[error("`{scheme}://` is not supported; use file:///DIR/NAME or s3://BUCKET/PREFIX/NAME")]
    Scheme {
        /// What stood before `://`.
        scheme: String,
    },
    /// It does not parse, or parts are missing.
    #[error("`{url}` is not a usable location: {reason}")]
    Malformed {
        /// As given, without credentials.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Location {
    /// Parses `file:///DIR/...` or `s3://BUCKET/...`. Returns `None` when `text` is no URL at all
    /// (a plain name, as the stock tools take it).
    ///
    /// # Errors
    /// [`LocationError`] for an unknown scheme or a URL with parts missing.
    pub fn parse(text: &str) -> Option<Result<Self, LocationError>> {
        let (scheme, rest) = text.split_once("://")?;
        Some(Self::parse_url(text, &scheme.to_ascii_lowercase(), rest))
    }

    fn parse_url(text: &str, scheme: &str, rest: &str) -> Result<Self, LocationError> {
        let malformed = |reason| LocationError::Malformed {
            url: text.split('@').next_back().unwrap_or_default().to_owned(),
            reason,
        };
        match scheme {
            "file" => {
                let url = Url::parse(text).map_err(|_| malformed("it does not parse"))?;
                let path = url
                    .to_file_path()
                    .map_err(|()| malformed("a local folder is written file:///DIR/NAME"))?;
                let path = path.to_str().ok_or_else(|| malformed("the path is not UTF-8"))?;
                Ok(Self { place: Place::Local, path: path.trim_matches('/').to_owned() })
            }
            "s3" => {
                // Taken literally, as the stock tool does: no escapes, no query.
                let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(malformed("the bucket is missing"));
                }
                if bucket.contains(['@', ':', '?', '#']) {
                    return Err(malformed(
                        "the bucket name has characters that no bucket may have; keys go into options or the environment",
                    ));
                }
                Ok(Self {
                    place: Place::S3 { bucket: bucket.to_owned() },
                    path: path.trim_matches('/').to_owned(),
                })
            }
            other => Err(LocationError::Scheme { scheme: other.to_owned() }),
        }
    }
}

/// How a bucket name becomes part of the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BucketLookup {
    /// By path for an own endpoint or a name with dots, else as a host name.
    #[default]
    Auto,
    /// `https://BUCKET.HOST/KEY`.
    Dns,
    /// `https://HOST/BUCKET/KEY`.
    Path,
}

/// How to reach and enter an S3 store. Unset values are looked up where the client looks: instance
/// or container role.
#[derive(Clone, Default)]
pub struct S3Settings {
    /// `http://` or `https://` and a host; without a scheme it is https.
    pub endpoint: Option<String>,
    /// Default: us-east-1.
    pub region: Option<String>,
    /// Access key id.
    pub access_key: Option<String>,
    /// Secret access key.
    pub secret_key: Option<String>,
    /// Session token of temporary credentials.
    pub session_token: Option<String>,
    /// Address style.
    pub lookup: BucketLookup,
    /// Accept any certificate.
    pub insecure: bool,
    /// PEM bundle of additional certificate authorities, its content.
    pub ca_bundle: Option<Vec<u8>>,
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No secret reaches a log.
        f.debug_struct("S3Settings")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// Opens the store that `root` lies in. Returns it with what every key below `root` begins with
/// (empty for a folder, `a/b/` in a bucket).
///
/// A folder that is not there is made when `create` is set.
///
/// # Errors
/// [`StoreError`] when the settings cannot work; a bucket itself is not asked yet.
pub fn open(
    root: &Location,
    s3: &S3Settings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let traffic = Traffic::default();
    match &root.place {
        Place::Local => {
            let folder = format!("/{}", root.path);
            let refused = |message: String| {
                StoreError::new("open", &folder, StoreErrorKind::NotFound, message)
            };
            if create {
                std::fs::create_dir_all(&folder).map_err(|error| refused(error.to_string()))?;
            }
            let store = LocalFileSystem::new_with_prefix(&folder)
                .map_err(|error| refused(crate::error::root_message(&error)))?
                // Bytes and names are on disk when a put returns, as in any remote store.
                .with_fsync(true)
                // Stores know no empty folders.
                .with_automatic_cleanup(true);
            Ok((Store::new(Arc::new(store), None, policy, traffic), String::new()))
        }
        Place::S3 { bucket } => {
            let refused = |error: object_store::Error| {
                StoreError::new(
                    "open",
                    format!("s3://{bucket}"),
                    StoreErrorKind::Rejected,
                    crate::error::root_message(&error),
                )
            };
            let store = Arc::new(
                s3_builder(bucket, s3, &policy, &traffic).map_err(refused)?.build().map_err(refused)?,
            );
            let prefix =
                if root.path.is_empty() { String::new() } else { format!("{}/", root.path) };
            Ok((Store::new(store.clone(), Some(store), policy, traffic), prefix))
        }
    }
}

fn s3_builder(
    bucket: &str,
    s3: &S3Settings,
    policy: &Policy,
    traffic: &Traffic,
) -> object_store::Result<AmazonS3Builder> {
    let endpoint = s3.endpoint.as_ref().map(|given| {
        let given = given.trim_end_matches('/');
        if given.contains("://") { given.to_owned() } else { format!("https://{given}") }
    });
    let plain = endpoint.as_ref().is_some_and(|e| e.starts_with("http://"));
    let by_host = match s3.lookup {
        BucketLookup::Dns => true,
        BucketLookup::Path => false,
        // Dots in the name would fail the certificate check of a wildcard name.
        BucketLookup::Auto => endpoint.is_none() && !bucket.contains('.'),
    };
    let certificates = match &s3.ca_bundle {
        None => Vec::new(),
        Some(bundle) => reqwest::Certificate::from_pem_bundle(bundle).map_err(|error| {
            object_store::Error::Generic { store: "certificates", source: Box::new(error) }
        })?,
    };
    let connector = Connector {
        traffic: traffic.clone(),
        limits: crate::watch::Limits::of(policy),
        rate: None,
        certificates,
        insecure: s3.insecure,
        headers: http::HeaderMap::new(),
        goog_hash: false,
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(s3.region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(by_host)
        .with_allow_http(plain)
        .with_http_connector(connector)
        // One retry loop, ours.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        // TLS protects the body; over plain HTTP the signature has to.
        .with_unsigned_payload(!plain);
    if let Some(endpoint) = endpoint {
        // With host style the client wants the bucket in the endpoint already.
        builder = builder.with_endpoint(if by_host {
            insert_bucket(&endpoint, bucket)
        } else {
            endpoint
        });
    }
    if let Some(key) = &s3.access_key {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &s3.secret_key {
        builder = builder.with_secret_access_key(secret);
    }
    if let Some(token) = &s3.session_token {
        builder = builder.with_token(token);
    }
    Ok(builder)
}

fn insert_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(text).expect("a URL")
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(
            parse("file:///var/backup/shop/").unwrap(),
            Location { place: Place::Local, path: "var/backup/shop".into() }
        );
        let s3 = |bucket: &str, path: &str| Location {
            place: Place::S3 { bucket: bucket.into() },
            path: path.into(),
        };
        assert_eq!(parse("s3://b/a/b c/n").unwrap(), s3("b", "a/b c/n"));
        assert_eq!(parse("S3://b").unwrap(), s3("b", ""));
        assert!(Location::parse("nightly-2026").is_none());
    }

    #[test]
    fn unusable_urls_are_refused_without_repeating_credentials() {
        assert!(matches!(parse("swift://c/n"), Err(LocationError::Scheme { .. })));
        let error = parse("s3://key:topsecret@b/n").unwrap_err().to_string();
        assert!(!error.contains("topsecret"), "{error}");
        assert!(matches!(parse("s3:///n"), Err(LocationError::Malformed { .. })));
        assert!(matches!(parse("file://host/dir"), Err(LocationError::Malformed { .. })));
    }

    #[test]
    fn secrets_stay_out_of_debug() {
        let settings = S3Settings {
            secret_key: Some("topsecret".into()),
            access_key: Some("id".into()),
            ..S3Settings::default()
        };
        assert!(!format!("{settings:?}").contains("topsecret"));
    }
}
