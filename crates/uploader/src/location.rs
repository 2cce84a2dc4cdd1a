//! Parser of URLs that name a place in a store.

use url::Url;

/// Place in a store: which store, and the path within it (no slash at either end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Kind of store and its bucket or container.
    pub place: Place,
    /// Path within the bucket or below the root folder; may be empty.
    pub path: String,
}

/// Store that contains a [`Location`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Local file system; `path` is relative to `/`.
    Local,
    /// S3 bucket.
    S3 {
        /// Name of the bucket.
        bucket: String,
    },
    /// Bucket of Google Cloud Storage.
    Google {
        /// Name of the bucket.
        bucket: String,
    },
    /// Container of Azure Blob Storage.
    Azure {
        /// Name of the container.
        container: String,
    },
}

/// Error for a URL that names no supported place.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocationError {
    /// The scheme is not supported.
    #[error(
        "`{scheme}://` is not supported; use file:///DIR/NAME, s3://BUCKET/PREFIX/NAME, gs://BUCKET/PREFIX/NAME or azure://CONTAINER/PREFIX/NAME"
    )]
    Scheme {
        /// Text before `://`.
        scheme: String,
    },
    /// The URL does not parse, or parts are missing.
    #[error("`{url}` is not a usable location: {reason}")]
    Malformed {
        /// URL as given, without credentials.
        url: String,
        /// Reason of the failure.
        reason: &'static str,
    },
}

impl Location {
    /// Parses `file:///DIR/...`, `s3://BUCKET/...`, `gs://BUCKET/...` (also `google://`) or
    /// `azure://CONTAINER/...` (also `az://`). Returns `None` if `text` is not a URL (a plain name,
    /// as the stock tools accept it).
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
                let url = Url::parse(text).map_err(|_| malformed("it is not a URL"))?;
                let path = url
                    .to_file_path()
                    .map_err(|()| malformed("write a local directory as file:///DIR/NAME"))?;
                let path = path.to_str().ok_or_else(|| malformed("the path is not UTF-8"))?;
                Ok(Self { place: Place::Local, path: path.trim_matches('/').to_owned() })
            }
            "s3" | "gs" | "google" | "az" | "azure" => {
                // Taken literally, as the stock tool does: no escapes, no query.
                let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(malformed("the bucket is missing"));
                }
                if bucket.contains(['@', ':', '?', '#']) {
                    return Err(malformed(
                        "the bucket name contains invalid characters; give keys by options or in the environment",
                    ));
                }
                let bucket = bucket.to_owned();
                let place = match scheme {
                    "s3" => Place::S3 { bucket },
                    "gs" | "google" => Place::Google { bucket },
                    _ => Place::Azure { container: bucket },
                };
                Ok(Self { place, path: path.trim_matches('/').to_owned() })
            }
            other => Err(LocationError::Scheme { scheme: other.to_owned() }),
        }
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
        for (url, place) in [
            ("gs://b/x/n", Place::Google { bucket: "b".into() }),
            ("google://b/x/n/", Place::Google { bucket: "b".into() }),
            ("azure://b/x/n", Place::Azure { container: "b".into() }),
            ("az://b//x/n", Place::Azure { container: "b".into() }),
        ] {
            assert_eq!(parse(url).unwrap(), Location { place, path: "x/n".into() });
        }
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
}
