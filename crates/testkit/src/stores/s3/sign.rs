//! AWS Signature Version 4 for S3, from the algorithm's public description.

use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

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
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            b'/' if keep_slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns the current time in the form that signatures require.
pub(crate) fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Formats a time as the `Date` header of HTTP.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    // The first of January 1970 was a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        .get(usize::try_from(days % 7).unwrap_or_default());
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.get(usize::try_from(month - 1).unwrap_or_default());
    let (weekday, month) = (weekday.unwrap_or(&""), month.unwrap_or(&""));
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Returns the date of a day counted from 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Computes HMAC-SHA-256 (RFC 2104).
pub(crate) fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(data).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5C)).chain_update(inner).finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (day, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_453, (2025, 12, 31)),
            (20_454, (2026, 1, 1)),
        ] {
            assert_eq!(civil(day), date);
        }
    }

    #[test]
    fn encoding() {
        assert_eq!(encode("a/b c$@é~", true), "a/b%20c%24%40%C3%A9~");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
