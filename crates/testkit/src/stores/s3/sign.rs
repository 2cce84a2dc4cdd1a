//! AWS Signature Version 4 for S3, from the algorithm's public description.

pub(super) use base16ct::lower::encode_string as hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

/// Everything but the characters that a signature leaves as they are in a query.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for a path.
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// Input of a signature. Header names are in lower case; headers and query are sorted by name.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Encoded path.
    pub(super) path: &'a str,
    /// Encoded `name=value` pairs.
    pub(super) query: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body in hex.
    pub(super) body_hash: &'a str,
}

/// Returns the value of the `Authorization` header. `time` has the form `YYYYMMDDTHHMMSSZ`.
pub(super) fn authorization(
    request: &Request<'_>,
    (access_key, secret_key): (&str, &str),
    region: &str,
    time: &str,
) -> String {
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical =
        [request.method, request.path, request.query, &headers, &names, request.body_hash]
            .join("\n");
    let day = &time[..8];
    let scope = format!("{day}/{region}/s3/aws4_request");
    let digest = hex(&Sha256::digest(canonical));
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let mut key = format!("AWS4{secret_key}").into_bytes();
    for part in [day, region, "s3", "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    let signature = hex(&hmac(&key, to_sign.as_bytes()));
    format!(
        "AWS4-HMAC-SHA256 Credential={access_key}/{scope},SignedHeaders={names},Signature={signature}"
    )
}

/// Percent-encodes text as S3 signs it; slashes are kept if `keep_slash` is set.
pub(super) fn encode(text: &str, keep_slash: bool) -> String {
    utf8_percent_encode(text, if keep_slash { IN_PATH } else { IN_QUERY }).to_string()
}

/// Returns the current time in the form that signatures require.
pub(crate) fn now() -> String {
    stamp(Timestamp::now())
}

fn stamp(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Computes HMAC-SHA-256.
pub(crate) fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    code.update(data);
    code.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::date;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const KEYS: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");

    fn signature(request: &Request<'_>) -> String {
        let line = authorization(request, KEYS, "us-east-1", "20130524T000000Z");
        line.rsplit('=').next().unwrap_or_default().to_owned()
    }

    // The two GET examples of the Amazon S3 API reference, "Authenticating
    // Requests: Using the Authorization Header".
    #[test]
    fn published_examples() {
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ];
        let mut request = Request {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &headers,
            body_hash: EMPTY,
        };
        assert_eq!(
            signature(&request),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let headers = [headers[0], headers[2], headers[3]];
        request.headers = &headers;
        (request.path, request.query) = ("/", "max-keys=2&prefix=J");
        assert_eq!(
            signature(&request),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn dates() {
        for (day, text, weekday) in [
            (0, "19700101T000000Z", "Thu, 01 Jan 1970"),
            (58, "19700228T000000Z", "Sat, 28 Feb 1970"),
            (11_016, "20000229T000000Z", "Tue, 29 Feb 2000"),
            (11_017, "20000301T000000Z", "Wed, 01 Mar 2000"),
            (20_453, "20251231T000000Z", "Wed, 31 Dec 2025"),
            (20_454, "20260101T000000Z", "Thu, 01 Jan 2026"),
        ] {
            let time = Timestamp::from_second(day * 86_400).unwrap();
            assert_eq!(stamp(time), text);
            assert_eq!(date(time.into()), format!("{weekday} 00:00:00 GMT"));
        }
    }

    #[test]
    fn encoding() {
        assert_eq!(encode("a/b c$@é~", true), "a/b%20c%24%40%C3%A9~");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
