//! Addresses of stores.

use crate::open::client::InvalidSettings;
use crate::request::answer::origin;
use crate::settings::checked::{Unusable, word};

/// Returns an endpoint with its scheme. The error does not repeat the endpoint: it may hold a
/// password.
pub(crate) fn with_scheme(endpoint: &str) -> Result<String, InvalidSettings> {
    // The parser of URLs drops some characters that the client would send.
    word("endpoint", Some(endpoint))?;
    let endpoint = endpoint.trim_end_matches('/');
    let endpoint = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("https://{endpoint}"),
    };
    let url = reqwest::Url::parse(&endpoint).map_err(|error| format!("the endpoint: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the endpoint contains a user name or a password, which would be visible in process lists and logs: leave them out, and give keys in options, option files or the environment".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "the endpoint has a `?` or a `#`: only scheme, host, port and path are used".into()
        );
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the endpoint must begin with http:// or https://".into());
    }
    Ok(endpoint)
}

/// Returns an endpoint as it is written usually: with its scheme, without the default port and a last `/`, the host in lower
/// case. What cannot be one is returned as it is.
#[must_use]
pub fn normal_endpoint(endpoint: &str) -> String {
    let url = with_scheme(endpoint).ok().and_then(|text| reqwest::Url::parse(&text).ok());
    url.map_or_else(|| endpoint.to_owned(), |url| url.as_str().trim_end_matches('/').to_owned())
}

/// Checks an address to which the client adds paths, and returns its origin.
pub(crate) fn origin_of(what: &'static str, address: &str) -> Result<String, InvalidSettings> {
    word(what, Some(address))?;
    // The client uses both parsers, and expects of each that it agrees with the other.
    let uri: http::Uri = address
        .parse()
        .map_err(|error| Unusable::new(what, format!("is not an address: {error}")))?;
    let url = reqwest::Url::parse(address)
        .map_err(|error| Unusable::new(what, format!("is not an address: {error}")))?;
    if uri.host().unwrap_or_default().is_empty() || url.host_str().is_none() {
        return Err(Unusable::new(what, "has no host").into());
    }
    Ok(origin(&uri))
}

pub(crate) fn is_plain(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Returns the address of a bucket.
pub(crate) fn bucket_address(
    endpoint: Option<&str>,
    bucket: &str,
    region: &str,
    by_host: bool,
) -> String {
    let default = format!("https://s3.{region}.amazonaws.com");
    let endpoint = endpoint.unwrap_or(&default);
    match endpoint.split_once("://") {
        Some((_, host)) if by_host && host.starts_with(&format!("{bucket}.")) => {
            endpoint.to_owned()
        }
        Some((scheme, host)) if by_host => format!("{scheme}://{bucket}.{host}"),
        _ => format!("{endpoint}/{bucket}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_endpoint_is_written_in_one_way() {
        for (written, normal) in [
            ("https://MinIO.example:443/", "https://minio.example"),
            ("minio.example", "https://minio.example"),
            ("http://minio.example:80//", "http://minio.example"),
            ("HTTP://10.0.0.1:9000", "http://10.0.0.1:9000"),
            ("https://minio.example/Path/", "https://minio.example/Path"),
            ("http://[::1]:9000/", "http://[::1]:9000"),
            ("", ""),
            ("https://user:word@host/", "https://user:word@host/"),
            ("ftp://Host", "ftp://Host"),
        ] {
            assert_eq!(normal_endpoint(written), normal, "{written}");
            assert_eq!(normal_endpoint(normal), normal, "{written}");
        }
    }
}
