//! Store that accepts everything and keeps almost nothing, to measure the code in front of it.
//!
//! It supports the part of S3 that a put needs. Objects below 512 KiB are kept, so that claims and
//! manifests can be read back; of larger objects, and of parts, only the length is kept.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::http::{Body, Head, copy_body};

/// Size in bytes below which an object is kept. Manifests are far smaller, and data objects of the
/// smallest common size, 1M, would fill the machine's memory.
const KEPT: u64 = 1 << 19;

/// Running server; dropping it ends the listener.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kept: Mutex<BTreeMap<String, Object>>,
    /// Number of requests by method.
    requests: Mutex<BTreeMap<String, u64>>,
    /// Delay of the response to a large body.
    delay: Duration,
    ended: AtomicBool,
}

/// Record of an object, or of an upload in parts.
#[derive(Debug, Default)]
struct Object {
    /// Lengths of the parts by number; a plain object has one part.
    parts: BTreeMap<String, u64>,
    /// Content; empty if it was too long.
    content: Vec<u8>,
    whole: bool,
}

impl Object {
    fn size(&self) -> u64 {
        self.parts.values().sum()
    }
}

impl Shared {
    fn new(delay: Duration) -> Self {
        let (kept, ended) = (Mutex::default(), AtomicBool::new(false));
        Self { kept, requests: Mutex::default(), delay, ended }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, method: &str) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(method.to_owned()).or_default() += 1;
    }
}

impl Sink {
    /// Starts the server on a free loopback port. `delay` delays the response to every large body.
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn start(delay: Duration) -> Self {
        Self::listen("127.0.0.1:0", delay)
    }

    /// Starts the server on `ADDRESS:PORT`; port 0 is a free one.
    ///
    /// # Panics
    /// The address is not available.
    #[must_use]
    pub fn listen(address: &str, delay: Duration) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("address");
        let shared = Arc::new(Shared::new(delay));
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if ours.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&ours)) else { continue };
                // A client that disconnects ends its connection.
                thread::spawn(move || serve(&shared, &client));
            }
        });
        Self { address, shared }
    }

    /// Returns `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the keys of all objects, with their bucket.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.shared.kept().keys().cloned().collect()
    }

    /// Returns the number of requests by method since the last call.
    #[must_use]
    pub fn take_requests(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread so that it sees the end.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(shared: &Shared, client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from, mut to) = (BufReader::with_capacity(1 << 20, client), client);
    while let Some(request) = Head::read(&mut from)? {
        shared.count(request.word(0));
        let body = request.request_body();
        if request.header("expect").is_some() {
            to.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut content = Vec::new();
        let len = match body {
            Body::Length(len) if len < KEPT => {
                copy_body(&mut from, &mut content, body, u64::MAX)?;
                len
            }
            _ => {
                let (len, _) = copy_body(&mut from, &mut io::sink(), body, u64::MAX)?;
                thread::sleep(shared.delay);
                len
            }
        };
        to.write_all(&answer(shared, &request, content, len))?;
    }
    Ok(())
}

fn answer(shared: &Shared, request: &Head, content: Vec<u8>, len: u64) -> Vec<u8> {
    let (path, query) = request.word(1).split_once('?').unwrap_or((request.word(1), ""));
    let path = &*unescaped(path);
    let field =
        |name: &str| query.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let mut kept = shared.kept();
    match request.word(0) {
        "PUT" if request.header("if-none-match").is_some() && find(&kept, path).is_some() => {
            said(412, "<Error><Code>PreconditionFailed</Code></Error>")
        }
        "PUT" => {
            let part = field("partNumber");
            let object = kept.entry(path.to_owned()).or_default();
            if part.is_none() {
                object.parts.clear();
            }
            object.parts.insert(part.unwrap_or_default().to_owned(), len);
            object.content = if part.is_none() { content } else { Vec::new() };
            object.whole = part.is_none();
            said(200, "")
        }
        "POST" if field("uploadId").is_some() => {
            if let Some(object) = kept.get_mut(path) {
                object.whole = true;
            }
            said(
                200,
                "<CompleteMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><ETag>\"0\"</ETag></CompleteMultipartUploadResult>",
            )
        }
        "POST" if field("uploads").is_some() || query == "uploads" => said(
            200,
            "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>sink</UploadId></InitiateMultipartUploadResult>",
        ),
        "POST" => said(200, &delete(&mut kept, path, &String::from_utf8_lossy(&content))),
        "GET" if field("list-type").is_some() => {
            said(200, &listing(&kept, path, &unescaped(field("prefix").unwrap_or_default())))
        }
        "GET" if field("uploads").is_some() => said(
            200,
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
        ),
        "HEAD" => match find(&kept, path) {
            Some(object) => head(200, object.size()).into_bytes(),
            None => head(404, 0).into_bytes(),
        },
        "GET" => match find(&kept, path) {
            Some(object) => whole(200, &object.content),
            None => said(404, "<Error><Code>NoSuchKey</Code></Error>"),
        },
        "DELETE" => {
            kept.remove(path);
            said(204, "")
        }
        _ => said(400, ""),
    }
}

/// Returns an object; there is none before its upload in parts is complete.
fn find<'a>(kept: &'a BTreeMap<String, Object>, path: &str) -> Option<&'a Object> {
    kept.get(path).filter(|object| object.whole)
}

/// Decodes percent escapes such as `%40`; an invalid escape stays as it is.
fn unescaped(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns a listing in one page; the names in benches need no escaping.
fn listing(kept: &BTreeMap<String, Object>, bucket: &str, prefix: &str) -> String {
    let bucket = bucket.trim_end_matches('/');
    let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (path, object) in kept.iter().filter(|(_, object)| object.whole) {
        let key = path.strip_prefix(bucket).and_then(|key| key.strip_prefix('/'));
        let Some(key) = key.filter(|key| key.starts_with(prefix)) else { continue };
        let size = object.size();
        text += &format!(
            "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"0\"</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        );
    }
    text + "</ListBucketResult>"
}

/// Deletes the objects in a bulk request and names each in the response; a client retries the
/// others.
fn delete(kept: &mut BTreeMap<String, Object>, bucket: &str, request: &str) -> String {
    let mut text = "<DeleteResult>".to_owned();
    for key in request.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
        kept.remove(&format!("{}/{key}", bucket.trim_end_matches('/')));
        text += &format!("<Deleted><Key>{key}</Key></Deleted>");
    }
    text + "</DeleteResult>"
}

fn said(status: u16, body: &str) -> Vec<u8> {
    whole(status, body.as_bytes())
}

fn whole(status: u16, body: &[u8]) -> Vec<u8> {
    [head(status, body.len() as u64).as_bytes(), body].concat()
}

fn head(status: u16, len: u64) -> String {
    format!(
        "HTTP/1.1 {status} said\r\ncontent-length: {len}\r\netag: \"0\"\r\nlast-modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_they_are_written() {
        assert_eq!(unescaped("a%2Fb%40c%zz%4"), "a/b@c%zz%4");
    }

    #[test]
    fn an_upload_in_parts_is_no_object_before_it_is_complete() {
        let shared = Shared::new(Duration::ZERO);
        let send = |line: &str, header: &str| {
            let request = format!("{line} HTTP/1.1\r\n{header}\r\n");
            let head = Head::read(&mut request.as_bytes()).unwrap().unwrap();
            String::from_utf8(answer(&shared, &head, Vec::new(), 7)).unwrap()
        };
        let ask = |line: &str| send(line, "");
        let put_new = |path: &str| send(&format!("PUT {path}"), "if-none-match: *\r\n");
        assert!(ask("PUT /b/x?partNumber=1&uploadId=sink").starts_with("HTTP/1.1 200"));
        assert!(ask("HEAD /b/x").starts_with("HTTP/1.1 404"));
        assert!(ask("GET /b/x").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /b/x?uploadId=sink").starts_with("HTTP/1.1 200"));
        assert!(ask("HEAD /b/x").contains("content-length: 7\r\n"));
        assert!(put_new("/b/x").starts_with("HTTP/1.1 412"));
        assert!(ask("PUT /b/y?partNumber=1&uploadId=sink").starts_with("HTTP/1.1 200"));
        assert!(put_new("/b/y").starts_with("HTTP/1.1 200"));
        assert!(ask("HEAD /b/y").contains("content-length: 7\r\n"));
    }

    #[test]
    fn many_are_removed_by_one_request() {
        let mut kept = BTreeMap::new();
        for path in ["/b/x", "/b/y", "/b/z"] {
            kept.insert(path.to_owned(), Object::default());
        }
        let request = "<Delete><Object><Key>x</Key></Object><Object><Key>z</Key></Object></Delete>";
        let answer = delete(&mut kept, "/b", request);
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["/b/y"]);
        assert_eq!(answer.matches("<Deleted>").count(), 2, "{answer}");
    }
}
