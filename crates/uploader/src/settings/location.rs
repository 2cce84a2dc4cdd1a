//! Parser of URLs that name a place in a store.
//!
//! A `file://` URL has percent escapes, as file URLs everywhere. Names in buckets are taken
//! literally, as the stock tool does. No URL has a query or a fragment here: `?` and `#` are
//! characters of a name.

/// Place in a store: which store, and the path within it (no slash at either end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Kind of store and its bucket or container.
    pub place: StorePlace,
    /// Path within the bucket or below the root folder; may be empty.
    pub path: String,
}

/// Store that contains a [`Location`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorePlace {
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
    /// Only `file://` has percent escapes: `%23` is `#`, and `%` itself is written `%25`.
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
                // A host in between would be another machine's folder.
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                if !path.starts_with('/') {
                    return Err(malformed("write a local directory as file:///DIR/NAME"));
                }
                let path = unescaped(path).map_err(malformed)?;
                if path.split('/').any(|part| part == "..") {
                    return Err(malformed("it contains `..` as a directory; write the full path"));
                }
                let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
                let parts: Vec<&str> = parts.collect();
                Ok(Self { place: StorePlace::Local, path: parts.join("/") })
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
                    "s3" => StorePlace::S3 { bucket },
                    "gs" | "google" => StorePlace::Google { bucket },
                    _ => StorePlace::Azure { container: bucket },
                };
                Ok(Self { place, path: path.trim_matches('/').to_owned() })
            }
            other => Err(LocationError::Scheme { scheme: other.to_owned() }),
        }
    }
}

/// Replaces the percent escapes of a path.
fn unescaped(path: &str) -> Result<String, &'static str> {
    const ESCAPE: &str =
        "it contains a % that does not start an escape: in file:// URLs write % as %25";
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match digit().zip(digit()).map(|(high, low)| high << 4 | low) {
            None => return Err(ESCAPE),
            Some(b'/' | 0) => return Err("it contains an escape that file names cannot contain"),
            Some(byte) => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the path is not UTF-8")
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
            Location { place: StorePlace::Local, path: "var/backup/shop".into() }
        );
        let s3 = |bucket: &str, path: &str| Location {
            place: StorePlace::S3 { bucket: bucket.into() },
            path: path.into(),
        };
        assert_eq!(parse("s3://b/a/b c/n").unwrap(), s3("b", "a/b c/n"));
        assert_eq!(parse("S3://b").unwrap(), s3("b", ""));
        for (url, place) in [
            ("gs://b/x/n", StorePlace::Google { bucket: "b".into() }),
            ("google://b/x/n/", StorePlace::Google { bucket: "b".into() }),
            ("azure://b/x/n", StorePlace::Azure { container: "b".into() }),
            ("az://b//x/n", StorePlace::Azure { container: "b".into() }),
        ] {
            assert_eq!(parse(url).unwrap(), Location { place, path: "x/n".into() });
        }
        assert!(Location::parse("nightly-2026").is_none());
    }

    /// `?` and `#` were once dropped with what follows: `delete file:///s/night#1` removed `night`.
    #[test]
    fn every_character_of_a_name_counts() {
        let path = |url: &str| parse(url).map(|location| location.path);
        for (url, name) in [
            ("file:///s/night#1", "s/night#1"),
            ("file:///s/night%231", "s/night#1"),
            ("file:///s/night%2523", "s/night%23"),
            ("file:///s/night?x=1", "s/night?x=1"),
            ("file:///s/night%3f", "s/night?"),
            ("file:///s/a%20b c/%C3%A4\u{f6}", "s/a b c/\u{e4}\u{f6}"),
            ("file://localhost/s//./n/", "s/n"),
            ("file:///s/a\\b", "s/a\\b"),
            ("s3://b/s/night#1", "s/night#1"),
            ("s3://b/s/night%231", "s/night%231"),
            ("gs://b/s/n?x#y%20", "s/n?x#y%20"),
            ("azure://c/s/n%2Fm", "s/n%2Fm"),
        ] {
            assert_eq!(path(url).unwrap(), name, "{url}");
        }
        for url in [
            "file:///s/100%",
            "file:///s/%2",
            "file:///s/%zz",
            "file:///s/a%2Fb",
            "file:///s/a%00b",
            "file:///s/%ff",
            "file:///s/../n",
            "file:///s/%2e%2E/n",
            "file://host/s/n",
            "file://localhosts/n",
        ] {
            assert!(path(url).is_err(), "{url}");
        }
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
