//! Keeps the secrets of a request out of messages: a store may quote the request in its response.

use std::borrow::Cow;

use http::{HeaderMap, header};

/// Minimum length of a value that counts as a secret. Shorter ones occur in ordinary text.
const LEAST: usize = 8;

/// Headers that clients of object stores send with a secret value.
const HEADERS: [&str; 6] = [
    "authorization",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-goog-encryption-key",
    "x-ms-encryption-key",
];

/// Fields of a URL's query that prove who sends the request.
const FIELDS: [&str; 4] = ["sig", "X-Amz-Signature", "X-Amz-Security-Token", "WebIdentityToken"];

/// Values of one request that no message may show.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Collects the secrets of a request. `own`: the user's headers, of which any may hold one.
    pub(crate) fn of(url: &reqwest::Url, headers: &HeaderMap, own: &HeaderMap) -> Self {
        let mut values = Vec::new();
        let secret = headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str()));
        for (name, value) in secret.chain(own) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            // Behind a scheme, such as `Bearer`.
            if name == header::AUTHORIZATION {
                values.extend(value.rsplit(' ').next().map(str::to_owned));
            }
            values.push(value);
        }
        let named = |name: &str| FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name));
        for (_, decoded) in url.query_pairs().filter(|(name, _)| named(name)) {
            values.push(decoded.into_owned());
        }
        for (name, encoded) in url
            .query()
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter_map(|f| f.split_once('='))
        {
            if named(name) {
                values.push(encoded.to_owned());
            }
        }
        values.retain(|value| value.len() >= LEAST);
        // A value may contain another one.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// Returns `text` without the secrets.
    pub(crate) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for secret in self.0.iter().map(String::as_str) {
            if text.contains(secret) {
                text = Cow::Owned(text.replace(secret, "(hidden)"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn no_form_of_a_secret_is_shown() {
        let url = "https://h/c/k?comp=list&sig=abcdefg%2Fh%3D&st=2026".parse().unwrap();
        let headers = |lines: &[(&'static str, &str)]| -> HeaderMap {
            let line = |&(name, value): &(&'static str, &str)| {
                (HeaderName::from_static(name), value.parse().unwrap())
            };
            lines.iter().map(line).collect()
        };
        let own = headers(&[("x-proxy-password", "correct horse"), ("x-amz-acl", "private")]);
        let headers = headers(&[
            ("authorization", "Bearer ya29.token"),
            ("x-amz-security-token", "IQoJb3JpZ2lu"),
            ("x-amz-date", "20261123T000000Z"),
        ]);
        let secrets = Secrets::of(&url, &headers, &own);
        let quoted = "token ya29.token, IQoJb3JpZ2lu and correct horse, sig=abcdefg%2Fh%3D \
                      (abcdefg/h=), 20261123T000000Z, private";
        assert_eq!(
            secrets.hide(quoted),
            "token (hidden), (hidden) and (hidden), sig=(hidden) ((hidden)), 20261123T000000Z, private"
        );
        assert_eq!(Secrets::default().hide("text"), "text");
    }
}
