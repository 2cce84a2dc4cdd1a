//! HTTP connector that every request of every store passes through.
//!
//! The `object_store` crate's own retries are off. It folds details into one error text, so the
//! connector records them in a task-local for the one retry loop: status, `Retry-After`, kind of
//! transport failure.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::clock::Heard;
use crate::rate::RateLimit;
use crate::watch::{Limits, Progress, ThrottledBody, WatchedBody};

/// Counters of a run against one store. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    /// Whether the store has ever accepted the credentials.
    let_in: AtomicBool,
    /// Time reported in the store's last response.
    heard: Mutex<Option<Heard>>,
}

impl Traffic {
    /// Returns the number of requests sent, including retries and listings. A local folder counts
    /// none.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of tries that followed a failed one.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.0.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn let_in(&self) -> bool {
        self.0.let_in.load(Ordering::Relaxed)
    }

    pub(crate) fn heard(&self) -> Option<Heard> {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, heard: Heard) {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(heard);
    }
}

/// Result of the last request within one try.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Whether any request was sent.
    pub(crate) asked: Cell<bool>,
    pub(crate) status: Cell<Option<u16>>,
    pub(crate) retry_after: Cell<Option<Duration>>,
    /// Libcurl's number for the transport failure.
    pub(crate) broken: Cell<Option<u32>>,
    /// Region that the bucket reports.
    pub(crate) region: RefCell<Option<String>>,
    /// Whether the request went to the machine's own credentials service.
    pub(crate) metadata: Cell<bool>,
}

tokio::task_local! {
    pub(crate) static ANSWER: Answer;
}

/// Settings of the HTTP client, the same for every store.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) traffic: Traffic,
    pub(crate) limits: Limits,
    pub(crate) rate: Option<Arc<RateLimit>>,
    pub(crate) certificates: Vec<reqwest::Certificate>,
    pub(crate) insecure: bool,
    pub(crate) headers: HeaderMap,
    /// Whether to send the CRC-32C of a body in the header of Google's own interface.
    pub(crate) goog_hash: bool,
}

/// Time limit for establishing a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// Time limit for link-local addresses, which respond at once or not at all.
const CONNECT_NEAR: Duration = Duration::from_secs(2);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = |connect| {
            reqwest::Client::builder()
                .user_agent(concat!("xb-uploader/", env!("CARGO_PKG_VERSION")))
                // One connection for each request in flight: a stall on a shared connection would
                // hit all of them.
                .http1_only()
                .connect_timeout(connect)
                .tls_certs_merge(self.certificates.iter().cloned())
                .danger_accept_invalid_certs(self.insecure)
                .build()
                .map_err(|error| object_store::Error::Generic {
                    store: "HTTP client",
                    source: Box::new(error),
                })
        };
        let inner =
            Watched { far: client(CONNECT)?, near: client(CONNECT_NEAR)?, how: self.clone() };
        Ok(HttpClient::new(inner))
    }
}

#[derive(Debug)]
struct Watched {
    far: reqwest::Client,
    near: reqwest::Client,
    how: Connector,
}

/// Hosts that issue credentials to their machine or container.
const METADATA: [&str; 5] =
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "metadata.google.internal", "metadata"];

#[async_trait::async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let how = &self.how;
        how.traffic.0.requests.fetch_add(1, Ordering::Relaxed);
        let host = request.uri().host().unwrap_or_default().to_owned();
        let metadata = METADATA.contains(&host.as_str());
        let _ = ANSWER.try_with(|answer| {
            answer.asked.set(true);
            answer.status.set(None);
            answer.broken.set(None);
            answer.metadata.set(metadata);
        });
        let request = self.prepared(request)?;
        let has_body = request.body().is_some();
        let (request, progress) = request.into_parts_watched(how);
        let client = if metadata { &self.near } else { &self.far };
        let outcome = tokio::select! {
            outcome = client.execute(request) => outcome.map_err(|error| broken(&host, &error)),
            stalled = progress.stalled(how.limits, has_body) => {
                note_broken(curl::TIMEOUT);
                Err(HttpError::new(HttpErrorKind::Timeout, stalled))
            }
        };
        let response: http::Response<reqwest::Body> = outcome?.into();
        if !metadata {
            note(&response);
            let date = response.headers().get(http::header::DATE).and_then(|v| v.to_str().ok());
            if let Some(heard) = date.and_then(Heard::date) {
                how.traffic.hear(heard);
            }
            if response.status().is_success() {
                how.traffic.0.let_in.store(true, Ordering::Relaxed);
            }
        }
        let (parts, body) = response.into_parts();
        let body = http_body_util::BodyExt::map_err(body, move |error| broken(&host, &error));
        let body = WatchedBody::new(HttpResponseBody::new(body), how.limits, how.rate.clone());
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// Request for the client whose body is not watched yet.
struct Prepared(reqwest::Request, Option<object_store::client::HttpRequestBody>);

impl Prepared {
    fn body(&self) -> Option<&object_store::client::HttpRequestBody> {
        self.1.as_ref()
    }

    fn into_parts_watched(self, how: &Connector) -> (reqwest::Request, Arc<Progress>) {
        let Self(mut request, body) = self;
        let progress = Arc::new(Progress::start(body.is_none()));
        *request.body_mut() = Some(match body {
            Some(body) => reqwest::Body::wrap(ThrottledBody::new(
                body,
                Arc::clone(&progress),
                how.rate.clone(),
            )),
            None => bytes::Bytes::new().into(),
        });
        (request, progress)
    }
}

impl Watched {
    fn prepared(&self, request: HttpRequest) -> Result<Prepared, HttpError> {
        let (mut parts, body) = request.into_parts();
        let authorization = parts.headers.get(http::header::AUTHORIZATION);
        let signed = |scheme| authorization.is_some_and(|a| a.as_bytes().starts_with(scheme));
        // AWS signatures cover all headers, so the client has added ours before. Azure's cover the
        // `x-ms-` headers: the store rejects unsigned ones.
        let (all, own) = (signed(b"AWS4-"), signed(b"SharedKey "));
        for (name, value) in &self.how.headers {
            let theirs = all || own && name.as_str().starts_with("x-ms-");
            if !theirs {
                parts.headers.entry(name).or_insert_with(|| value.clone());
            }
        }
        let body = (body.content_length() > 0).then_some(body);
        if let Some(body) =
            body.as_ref().filter(|_| self.how.goog_hash && parts.method == Method::PUT)
        {
            let (name, value) = goog_hash(body.clone());
            parts.headers.insert(name, value);
        }
        let url = reqwest::Url::parse(&parts.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        Ok(Prepared(request, body))
    }
}

/// Returns the `x-goog-hash` header for a body. Google rejects a body that does not match it.
fn goog_hash(mut body: object_store::client::HttpRequestBody) -> (HeaderName, HeaderValue) {
    use http_body::Body as _;
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // A body in memory is always ready.
    while let std::task::Poll::Ready(Some(Ok(frame))) =
        std::pin::Pin::new(&mut body).poll_frame(&mut context)
    {
        digest.update(frame.data_ref().map_or(&[][..], |data| data));
    }
    #[allow(clippy::cast_possible_truncation, reason = "a CRC-32 in the low half")]
    let crc = digest.finalize() as u32;
    let text = format!("crc32c={}", crate::encode::base64(&crc.to_be_bytes()));
    let value = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    (HeaderName::from_static("x-goog-hash"), value)
}

fn note(response: &http::Response<reqwest::Body>) {
    let header = |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let _ = ANSWER.try_with(|answer| {
        answer.status.set(Some(response.status().as_u16()));
        answer
            .retry_after
            .set(header("retry-after").and_then(|v| retry_after(v, SystemTime::now())));
        *answer.region.borrow_mut() = header("x-amz-bucket-region").map(str::to_owned);
    });
}

/// Maximum pause that a store may request.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Parses `Retry-After` in either of its forms: seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            SystemTime::from(until).duration_since(now).unwrap_or_default()
        }
    };
    Some(pause.min(LONGEST_PAUSE))
}

/// Libcurl's numbers of the transport failures that are distinguished here (`libcurl-errors`).
pub(crate) mod curl {
    pub(crate) const RESOLVE: u32 = 6;
    pub(crate) const CONNECT: u32 = 7;
    pub(crate) const PARTIAL: u32 = 18;
    pub(crate) const TIMEOUT: u32 = 28;
    pub(crate) const TLS: u32 = 35;
    pub(crate) const NOTHING: u32 = 52;
    pub(crate) const SEND: u32 = 55;
    pub(crate) const RECEIVE: u32 = 56;
    pub(crate) const CERTIFICATE: u32 = 60;
}

/// Transport failure, described in one line.
#[derive(Debug, thiserror::Error)]
#[error("{what} {host}: {cause}")]
struct Broken {
    what: &'static str,
    host: String,
    cause: String,
}

fn note_broken(code: u32) {
    let _ = ANSWER.try_with(|answer| answer.broken.set(Some(code)));
}

fn broken(host: &str, error: &reqwest::Error) -> HttpError {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut chain = String::new();
    while let Some(source) = cause.source() {
        cause = source;
        chain.push_str(&cause.to_string());
        chain.push(' ');
    }
    let said = |text: &str| chain.contains(text);
    let (code, kind, what) = if said("certificate") {
        (curl::CERTIFICATE, HttpErrorKind::Connect, "cannot trust")
    } else if said("dns error") {
        (curl::RESOLVE, HttpErrorKind::Connect, "cannot find")
    } else if error.is_connect() && error.is_timeout() {
        (curl::TIMEOUT, HttpErrorKind::Connect, "cannot connect to")
    } else if error.is_connect() {
        let tls = said("tls") || said("TLS") || said("InvalidMessage");
        (if tls { curl::TLS } else { curl::CONNECT }, HttpErrorKind::Connect, "cannot connect to")
    } else if said("closed before message completed") {
        (curl::NOTHING, HttpErrorKind::Request, "no answer from")
    } else if error.is_body() || error.is_decode() {
        (curl::PARTIAL, HttpErrorKind::Interrupted, "interrupted answer from")
    } else if said("Broken pipe") {
        (curl::SEND, HttpErrorKind::Interrupted, "broken connection to")
    } else {
        (curl::RECEIVE, HttpErrorKind::Interrupted, "broken connection to")
    };
    note_broken(code);
    let cause = if cause.source().is_none() && chain.is_empty() {
        error.to_string()
    } else {
        cause.to_string()
    };
    HttpError::new(kind, Broken { what, host: host.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_comes_in_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |value| retry_after(value, now);
        assert_eq!(asked(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(asked("999999"), Some(LONGEST_PAUSE));
        assert_eq!(asked("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("soon"), None);
        assert_eq!(asked("-1"), None);
    }

    #[test]
    fn googles_checksum_is_that_of_its_documentation() {
        // CRC-32C of "hello world" as `gsutil hash` shows it.
        let body = object_store::PutPayload::from_iter(
            [&b"hello "[..], b"world"].map(bytes::Bytes::from_static),
        );
        let (_, value) = goog_hash(body.into());
        assert_eq!(value, "crc32c=yZRlqg==");
    }
}
