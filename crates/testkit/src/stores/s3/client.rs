//! Small S3 client that inspects a store from outside, without any of the tested code.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::sign::{self, Request, authorization, encode, hex};
use crate::http::{Head, read_body};

/// Access key of every test server.
pub const ACCESS_KEY: &str = "testkey";
/// Second access key with the same rights.
pub const OTHER_KEY: &str = "otherkey";
/// Access key that may only read.
pub const READ_KEY: &str = "readkey";
/// Secret key of all access keys.
pub const SECRET_KEY: &str = "testsecret123";
/// Region that requests are signed for.
pub const REGION: &str = "us-east-1";

/// Sends one signed request on its own connection. `target` is an encoded path; `query` contains
/// plain pairs sorted by name, `further` headers that sort between `host` and
/// `x-amz-content-sha256`.
pub(super) fn request(
    address: &str,
    (method, target): (&str, &str),
    query: &[(&str, &str)],
    further: &[(&str, &str)],
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let time = sign::now();
    let body_hash = hex(&Sha256::digest(body));
    let query: Vec<String> =
        query.iter().map(|(k, v)| format!("{}={}", encode(k, false), encode(v, false))).collect();
    let query = query.join("&");
    let mut headers = vec![("host", address)];
    headers.extend(further);
    headers.extend([("x-amz-content-sha256", &*body_hash), ("x-amz-date", &*time)]);
    let signed = authorization(
        &Request { method, path: target, query: &query, headers: &headers, body_hash: &body_hash },
        (ACCESS_KEY, SECRET_KEY),
        REGION,
        &time,
    );
    let mut head =
        format!("{method} {target}{}{query} HTTP/1.1\r\n", if query.is_empty() { "" } else { "?" });
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("authorization: {signed}\r\ncontent-length: {}\r\n", body.len()));
    head.push_str("connection: close\r\n\r\n");

    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut from = BufReader::new(stream);
    let answer = Head::read(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let content = read_body(&mut from, answer.answer_body(method))?;
    Ok((answer.status(), content))
}

/// Bucket of a running server.
#[derive(Debug, Clone)]
pub struct Bucket {
    address: String,
    name: String,
}

impl Bucket {
    /// Creates a bucket; with `locks`, objects in it can be locked.
    pub(super) fn create(address: &str, name: &str, locks: bool) -> io::Result<Self> {
        let bucket = Self { address: address.to_owned(), name: name.to_owned() };
        let further = [("x-amz-bucket-object-lock-enabled", "true")];
        let further = if locks { &further[..] } else { &[] };
        let (status, body) = request(address, ("PUT", &format!("/{name}")), &[], further, b"")?;
        if status == 200 {
            return Ok(bucket);
        }
        Err(io::Error::other(format!("{status} {}", String::from_utf8_lossy(&body))))
    }

    /// Returns the name of the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `s3://BUCKET/path`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("s3://{}/{path}", self.name)
    }

    /// Returns the endpoint, `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns host and port of the server.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the options that direct our programs to this bucket's server.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        options_for(&self.endpoint())
    }

    /// Returns the keys below `prefix` with their sizes, in byte order.
    ///
    /// # Panics
    /// The store returns an unexpected response. The other functions panic in this case, too.
    #[must_use]
    pub fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        let size = |entry: &str| element(entry, "Size").parse().expect("size");
        self.entries(prefix).iter().map(|entry| (element(entry, "Key"), size(entry))).collect()
    }

    /// Returns the keys below `prefix` with their storage classes, in byte order.
    #[must_use]
    pub fn classes(&self, prefix: &str) -> Vec<(String, String)> {
        let class = |entry: &str| element(entry, "StorageClass");
        self.entries(prefix).iter().map(|entry| (element(entry, "Key"), class(entry))).collect()
    }

    /// Returns the listing entry of each key below `prefix`, in byte order of the keys.
    fn entries(&self, prefix: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut after = String::new();
        loop {
            let query = [("list-type", "2"), ("prefix", prefix), ("start-after", &after)];
            let text = self.expect(200, "GET", "", &query, b"");
            let text = String::from_utf8_lossy(&text).into_owned();
            found.extend(text.split("<Contents>").skip(1).map(str::to_owned));
            if element(&text, "IsTruncated") != "true" {
                break;
            }
            // SeaweedFS does not list in byte order: continue after the last key listed.
            after = element(found.last().expect("a truncated listing has keys"), "Key");
        }
        found.sort_by_key(|entry| element(entry, "Key"));
        found
    }

    /// Returns the content of an object, or `None` if there is no such object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self.call("GET", key, &[], b"");
        match status {
            200 => Some(body),
            404 => None,
            other => panic!("GET {key}: {other} {}", String::from_utf8_lossy(&body)),
        }
    }

    /// Returns the lock mode and end of an object's lock.
    #[must_use]
    pub fn lock_of(&self, key: &str) -> Option<(String, String)> {
        let (status, body) = self.call("GET", key, &[("retention", "")], b"");
        let text = String::from_utf8_lossy(&body).into_owned();
        (status == 200).then(|| (element(&text, "Mode"), element(&text, "RetainUntilDate")))
    }

    /// Stores an object.
    pub fn put(&self, key: &str, body: &[u8]) {
        let _ = self.expect(200, "PUT", key, &[], body);
    }

    /// Deletes an object.
    pub fn delete(&self, key: &str) {
        let _ = self.expect(204, "DELETE", key, &[], b"");
    }

    fn expect(
        &self,
        wanted: u16,
        method: &str,
        key: &str,
        query: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<u8> {
        let (status, answer) = self.call(method, key, query, body);
        let text = String::from_utf8_lossy(&answer);
        assert!(status == wanted, "{method} {}/{key}: {status} {text}", self.name);
        answer
    }

    fn call(&self, method: &str, key: &str, query: &[(&str, &str)], body: &[u8]) -> (u16, Vec<u8>) {
        let slash = if key.is_empty() { "" } else { "/" };
        let target = format!("/{}{slash}{}", self.name, encode(key, true));
        request(&self.address, (method, &target), query, &[], body)
            .unwrap_or_else(|e| panic!("{method} {target}: {e}"))
    }
}

/// Returns the stock options for a server at this endpoint.
#[must_use]
pub fn options_for(endpoint: &str) -> Vec<String> {
    vec![
        format!("--s3-endpoint={endpoint}"),
        format!("--s3-region={REGION}"),
        format!("--s3-access-key={ACCESS_KEY}"),
        format!("--s3-secret-key={SECRET_KEY}"),
        "--s3-bucket-lookup=path".to_owned(),
    ]
}

/// Returns the text of the first element of this name.
fn element(xml: &str, name: &str) -> String {
    let open = format!("<{name}>");
    let rest = xml.split_once(&open).map_or("", |(_, rest)| rest);
    let text = rest.split_once("</").map_or("", |(text, _)| text);
    let marks = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    marks.iter().fold(text.to_owned(), |text, (mark, plain)| text.replace(mark, plain))
}
