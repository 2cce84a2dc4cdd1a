//! Differences between S3-compatible stores and Amazon S3, by provider.

use std::fmt;
use std::str::FromStr;

/// Limits of a store for sizes and numbers of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLimits {
    /// Minimum size of a part other than the last, in bytes.
    pub min_part: u64,
    /// Maximum size of a part and of a single put, in bytes.
    pub max_part: u64,
    /// Maximum number of parts of one object.
    pub max_parts: u64,
    /// Maximum size of an object, in bytes.
    pub max_object: u64,
    /// Whether all parts of an object but the last must have the same size.
    pub equal_parts: bool,
}

impl StoreLimits {
    /// Limits of most S3 stores, and of Google through either interface: parts of 5 MiB to 5 GiB, 10,000
    /// parts, objects of 5 TiB.
    pub const S3: Self = Self {
        min_part: 5 << 20,
        max_part: 5 << 30,
        max_parts: 10_000,
        max_object: 5 << 40,
        equal_parts: false,
    };
    /// Limits of Amazon S3: an object may have all its parts in full ("Amazon S3 multipart upload
    /// limits").
    const AWS: Self = Self { max_object: Self::S3.max_part * Self::S3.max_parts, ..Self::S3 };
    /// Limits of Azure: blocks of at most 4000 MiB, 50,000 blocks ("Scalability targets for Blob
    /// storage").
    pub const AZURE: Self = Self {
        min_part: 1 << 20,
        max_part: 4000 << 20,
        max_parts: 50_000,
        max_object: 50_000 * (4000 << 20),
        equal_parts: false,
    };
}

/// Provider of an S3-compatible store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// Amazon S3.
    Aws,
    /// Google's XML interface with HMAC keys: no conditional writes, no bulk deletes.
    Google,
    /// Cloudflare R2: equal parts, none of S3's newer checksums on parts.
    R2,
    /// Backblaze B2: no conditional writes.
    B2,
    /// Wasabi: no conditional writes.
    Wasabi,
    /// Scaleway: at most 1,000 parts, no conditional writes.
    Scaleway,
    /// Ceph's gateway, and stores built on it: conditional writes, no newer checksums.
    Ceph,
    /// MinIO.
    Minio,
    /// Any other store: assumed to support conditional writes and bulk deletes, but no checksums.
    Other,
    /// Features that every store supports: no conditional writes, no bulk deletes, no checksums,
    /// 1,000 equal parts.
    Plain,
}

const NAMES: [(Provider, &str); 10] = [
    (Provider::Aws, "aws"),
    (Provider::Google, "google"),
    (Provider::R2, "r2"),
    (Provider::B2, "b2"),
    (Provider::Wasabi, "wasabi"),
    (Provider::Scaleway, "scaleway"),
    (Provider::Ceph, "ceph"),
    (Provider::Minio, "minio"),
    (Provider::Other, "other"),
    (Provider::Plain, "plain"),
];

impl Provider {
    /// Returns the provider of an endpoint by its host name. Without an endpoint, this is Amazon
    /// S3.
    #[must_use]
    pub fn of_endpoint(endpoint: Option<&str>) -> Self {
        let Some(endpoint) = endpoint else { return Self::Aws };
        let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
        let host = host.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let below = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        [
            ("amazonaws.com", Self::Aws),
            ("amazonaws.com.cn", Self::Aws),
            ("storage.googleapis.com", Self::Google),
            ("r2.cloudflarestorage.com", Self::R2),
            ("backblazeb2.com", Self::B2),
            ("wasabisys.com", Self::Wasabi),
            ("scw.cloud", Self::Scaleway),
            ("digitaloceanspaces.com", Self::Ceph),
            ("cloud.ovh.net", Self::Ceph),
        ]
        .into_iter()
        .find_map(|(domain, provider)| below(domain).then_some(provider))
        .unwrap_or(Self::Other)
    }

    /// Returns the limits for sizes and numbers of parts.
    #[must_use]
    pub fn limits(self) -> StoreLimits {
        match self {
            Self::Scaleway => StoreLimits { max_parts: 1000, ..StoreLimits::S3 },
            Self::Plain => StoreLimits { max_parts: 1000, equal_parts: true, ..StoreLimits::S3 },
            Self::Aws => StoreLimits::AWS,
            Self::R2 => StoreLimits { equal_parts: true, ..StoreLimits::S3 },
            _ => StoreLimits::S3,
        }
    }

    /// Returns whether the store rejects a create-only write if the object exists (`If-None-Match: *`).
    #[must_use]
    pub fn has_conditions(self) -> bool {
        matches!(self, Self::Aws | Self::R2 | Self::Ceph | Self::Minio | Self::Other)
    }

    /// Returns whether a listing by folders may also show folders without objects. Stores on top of a file
    /// system (SeaweedFS, for example) keep them for a while.
    #[must_use]
    pub fn may_list_empty_folders(self) -> bool {
        matches!(self, Self::Minio | Self::Other | Self::Plain)
    }

    /// Returns whether the store deletes many objects in one request.
    #[must_use]
    pub fn deletes_in_bulk(self) -> bool {
        !matches!(self, Self::Google | Self::Plain)
    }

    /// Returns whether the store checks a CRC-64/NVME sent with puts and parts.
    #[must_use]
    pub(crate) fn checks_crc64(self) -> bool {
        self == Self::Aws
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            NAMES.iter().find(|(provider, _)| provider == self).map_or("other", |(_, name)| name);
        f.write_str(name)
    }
}

/// Error for an unknown provider name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown provider `{0}`: use aws, google, r2, b2, wasabi, scaleway, ceph, minio, other or plain"
)]
pub struct UnknownProvider(String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        let wanted = text.to_ascii_lowercase();
        let found = NAMES.iter().find(|(_, name)| *name == wanted);
        found.map(|(provider, _)| *provider).ok_or_else(|| UnknownProvider(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_tells_the_provider() {
        for (endpoint, provider) in [
            (None, Provider::Aws),
            (Some("https://s3.eu-west-1.amazonaws.com"), Provider::Aws),
            (Some("https://storage.googleapis.com/"), Provider::Google),
            (Some("https://0123abcd.eu.r2.cloudflarestorage.com"), Provider::R2),
            (Some("s3.us-west-004.backblazeb2.com:443"), Provider::B2),
            (Some("https://s3.fr-par.scw.cloud"), Provider::Scaleway),
            (Some("http://127.0.0.1:9000"), Provider::Other),
            (Some("https://amazonaws.com.example.org"), Provider::Other),
        ] {
            assert_eq!(Provider::of_endpoint(endpoint), provider, "{endpoint:?}");
        }
    }

    #[test]
    fn every_provider_has_a_name_that_leads_back() {
        for (provider, name) in NAMES {
            assert_eq!(
                (provider.to_string().as_str(), name.to_uppercase().parse()),
                (name, Ok(provider))
            );
        }
        assert!("nobody".parse::<Provider>().is_err());
    }
}
