//! HTTP connector that every request of every store passes through.
//!
//! The `object_store` crate's own retries are off. It folds details into one error text, so the
//! connector records them in a task-local for the one retry loop: status, `Retry-After`, kind of
//! transport failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::request::answer::{ATTEMPT, origin};
use crate::request::bounds::BodyBounds;
use crate::request::clock::StoreClock;
use crate::request::late_error::LateRequest;
use crate::request::listing::PageRequest;
use crate::request::rate::RateLimit;
use crate::request::secrets::Secrets;
use crate::request::transport::{broken, curl, note_broken};
use crate::request::watch::{Limits, Progress, ThrottledBody, WatchedBody};

/// Counters of a run against one store. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    /// Shared with the bodies that are being sent.
    sent: Arc<AtomicU64>,
    /// Whether the store has ever accepted the credentials.
    authenticated: AtomicBool,
    /// Whether the store has ever responded other than with a failure of its own.
    has_responded: AtomicBool,
    /// Time reported in the store's last response.
    store_clock: Mutex<Option<StoreClock>>,
    /// Time at which the store says to have written the last object that was created or changed under a condition here.
    written: Mutex<Option<StoreClock>>,
    /// Whether the store demands a checksum with each body that it stores.
    checked: AtomicBool,
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

    /// Returns the number of body bytes passed to connections, including those of retries. A local
    /// folder counts none.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn authenticated(&self) -> bool {
        self.0.authenticated.load(Ordering::Relaxed)
    }

    pub(crate) fn has_responded(&self) -> bool {
        self.0.has_responded.load(Ordering::Relaxed)
    }

    /// Sends the MD5 of each body from now on.
    pub(crate) fn send_checksums(&self) {
        self.0.checked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn store_clock(&self) -> Option<StoreClock> {
        *self.0.store_clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records when the store says to have written an object, in seconds since 1970, whose write was sent at `sent`.
    pub(crate) fn wrote(&self, modified: i64, sent: Instant) {
        if let Some(written) = StoreClock::written(modified, sent) {
            *self.0.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        }
    }

    /// Time by the store's clock, if it has reported any: what its last response states, but not later than the
    /// times of its objects show. A proxy puts its own clock into responses, and if that is ahead, a living run
    /// would look dead.
    pub(crate) fn now(&self) -> Option<i64> {
        let written = *self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        self.store_clock().into_iter().chain(written).map(StoreClock::now).min()
    }

    /// Records a response; `home` is set if it is the store's own.
    fn note<B>(&self, response: &http::Response<B>, home: bool) {
        let _ = ATTEMPT.try_with(|answer| answer.response(response));
        let date = response.headers().get(http::header::DATE).and_then(|v| v.to_str().ok());
        if let Some(store_clock) = date.and_then(StoreClock::date) {
            self.set_store_clock(store_clock);
        }
        let status = response.status();
        if status.is_success() {
            self.0.authenticated.store(true, Ordering::Relaxed);
        }
        if home && !status.is_server_error() {
            self.0.has_responded.store(true, Ordering::Relaxed);
        }
    }

    fn set_store_clock(&self, store_clock: StoreClock) {
        *self.0.store_clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(store_clock);
    }
}

/// Settings of the HTTP client, the same for every store.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) traffic: Traffic,
    pub(crate) limits: Limits,
    pub(crate) rate: Option<Arc<RateLimit>>,
    pub(crate) certificates: Vec<reqwest::Certificate>,
    /// The clients, once they exist.
    pub(crate) clients: Arc<OnceLock<Clients>>,
    pub(crate) insecure: bool,
    /// Headers of every request to the store. They may hold secrets.
    pub(crate) headers: HeaderMap,
    /// Origin of the store: the only one that gets these headers.
    pub(crate) home: String,
    /// Whether to send the CRC-32C of a body in the header of Google's own interface.
    pub(crate) goog_hash: bool,
}

/// Time limit for establishing a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// Time limit for link-local addresses, which respond at once or not at all.
const CONNECT_NEAR: Duration = Duration::from_secs(2);

impl Connector {
    /// Creates the clients, or returns those that exist: a store needs them for several interfaces,
    /// and loading the certificates of the system takes milliseconds.
    fn clients(&self) -> reqwest::Result<Clients> {
        if let Some(clients) = self.clients.get() {
            return Ok(clients.clone());
        }
        let builder = |connect| {
            reqwest::Client::builder()
                .user_agent(concat!("xb-uploader/", env!("CARGO_PKG_VERSION")))
                // One connection for each request in flight: a stall on a shared connection would
                // hit all of them.
                .http1_only()
                // A redirect would take keys, tokens and content to another place.
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(connect)
                .danger_accept_invalid_certs(self.insecure)
        };
        let given = || self.certificates.iter().cloned();
        let only_given = |connect| builder(connect).tls_certs_only(given()).build();
        // A system without certificates, as a small container, can speak plain HTTP, and TLS with
        // the given ones.
        let far =
            builder(CONNECT).tls_certs_merge(given()).build().or_else(|_| only_given(CONNECT))?;
        // Services of the machine speak plain HTTP.
        let clients = Clients { far, near: only_given(CONNECT_NEAR)? };
        Ok(self.clients.get_or_init(|| clients).clone())
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let clients = self.clients().map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(WatchedConnector { clients, how: self.clone() }))
    }
}

/// Clients for stores, and for the services of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    far: reqwest::Client,
    near: reqwest::Client,
}

#[derive(Debug)]
struct WatchedConnector {
    clients: Clients,
    how: Connector,
}

/// Hosts that issue credentials to their machine or container.
const METADATA: [&str; 5] =
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "metadata.google.internal", "metadata"];

#[async_trait::async_trait]
impl HttpService for WatchedConnector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let how = &self.how;
        how.traffic.0.requests.fetch_add(1, Ordering::Relaxed);
        let host = request.uri().host().unwrap_or_default();
        let metadata = METADATA.contains(&host);
        let origin = origin(request.uri());
        let page = PageRequest::of(request.method(), request.uri()).filter(|_| !metadata);
        let late = LateRequest::of(request.method(), request.uri(), request.headers());
        // Some requests have no try around them.
        let noted = ATTEMPT
            .try_with(|answer| answer.request(request.uri(), metadata, page.is_some()))
            .unwrap_or(Ok(()));
        noted.map_err(|excess| HttpError::new(HttpErrorKind::Decode, excess))?;
        let limits = how.limits.once(how.traffic.has_responded());
        let request = self.prepared(request, origin == how.home)?;
        // Some requests have no try around them.
        let _ = ATTEMPT.try_with(|answer| answer.secrets.replace(request.secrets(&how.headers)));
        let has_body = request.body().is_some();
        let asked = request.0.headers().get(http::header::RANGE).cloned();
        let (request, progress) = request.into_parts_watched(how);
        let client = if metadata { &self.clients.near } else { &self.clients.far };
        let outcome = tokio::select! {
            outcome = client.execute(request) => outcome.map_err(|error| broken(&origin, &error)),
            stalled = progress.stalled(limits, has_body) => {
                note_broken(curl::TIMEOUT);
                let stalled = format!("{origin}: {stalled}");
                Err(HttpError::new(HttpErrorKind::Timeout, std::io::Error::other(stalled)))
            }
        };
        let response: http::Response<reqwest::Body> = outcome?.into();
        if !metadata {
            how.traffic.note(&response, origin == how.home);
        }
        let is_success = response.status().is_success();
        let bounds =
            ATTEMPT.try_with(|answer| answer.bounds(is_success)).unwrap_or(BodyBounds::SHORT);
        let (mut parts, body) = response.into_parts();
        if asked.is_some_and(|asked| is_that_range(&asked, &parts)) {
            parts.status = http::StatusCode::PARTIAL_CONTENT;
        }
        let body = http_body_util::BodyExt::map_err(body, move |error| broken(&origin, &error));
        let body = HttpResponseBody::new(body);
        let body = WatchedBody::new(body, limits, bounds, how.rate.clone());
        let body = HttpResponseBody::new(body);
        let body = match (page, late.filter(|_| !metadata)) {
            (Some(page), _) if is_success => {
                let body = body.bytes().await?;
                page.check(&body).map_err(undecoded)?;
                body.into()
            }
            (None, Some(late)) if is_success => {
                let body = body.bytes().await?;
                late.check(&body).map_err(undecoded)?;
                body.into()
            }
            _ => body,
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

fn undecoded(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, error)
}

/// Returns whether a success is the range that was asked for, by its own words: some stores (`rclone serve s3`) send one with
/// status 200. Its bytes are compared with their checksums as those of any other.
fn is_that_range(asked: &HeaderValue, answer: &http::response::Parts) -> bool {
    let stated = answer.headers.get(http::header::CONTENT_RANGE);
    let asked = asked.to_str().ok().and_then(|asked| asked.strip_prefix("bytes="));
    let stated = stated.and_then(|stated| stated.to_str().ok());
    let stated = stated.and_then(|stated| stated.strip_prefix("bytes ")?.split('/').next());
    answer.status == http::StatusCode::OK && asked.is_some() && asked == stated
}

/// Request for the client whose body is not watched yet.
struct Prepared(reqwest::Request, Option<object_store::client::HttpRequestBody>);

impl Prepared {
    fn body(&self) -> Option<&object_store::client::HttpRequestBody> {
        self.1.as_ref()
    }

    fn secrets(&self, own: &HeaderMap) -> Secrets {
        Secrets::of(self.0.url(), self.0.headers(), own)
    }

    fn into_parts_watched(self, how: &Connector) -> (reqwest::Request, Arc<Progress>) {
        let Self(mut request, body) = self;
        let progress = Arc::new(Progress::start(body.is_none()));
        *request.body_mut() = Some(match body {
            Some(body) => reqwest::Body::wrap(ThrottledBody::new(
                body,
                Arc::clone(&progress),
                how.rate.clone(),
                Arc::clone(&how.traffic.0.sent),
            )),
            None => bytes::Bytes::new().into(),
        });
        (request, progress)
    }
}

impl WatchedConnector {
    fn prepared(&self, request: HttpRequest, home: bool) -> Result<Prepared, HttpError> {
        let (mut parts, body) = request.into_parts();
        let authorization = parts.headers.get(http::header::AUTHORIZATION);
        let signed = |scheme| authorization.is_some_and(|a| a.as_bytes().starts_with(scheme));
        // Stores reject headers of their own that the signature does not cover. The S3 client has added
        // and signed ours, but not on listings.
        let prefix = match (signed(b"AWS4-"), signed(b"SharedKey ")) {
            (true, _) => Some("x-amz-"),
            (_, true) => Some("x-ms-"),
            _ => None,
        };
        for (name, value) in self.how.headers.iter().filter(|_| home) {
            let unsigned = prefix.is_some_and(|prefix| name.as_str().starts_with(prefix));
            if !unsigned {
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
        if let Some(body) = body.as_ref().filter(|_| {
            self.how.traffic.0.checked.load(Ordering::Relaxed)
                && home
                && parts.method == Method::PUT
                && !parts.headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum"))
        }) {
            parts.headers.entry(CONTENT_MD5).or_insert_with(|| content_md5(body.clone()));
        }
        let url = reqwest::Url::parse(&parts.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        Ok(Prepared(request, body))
    }
}

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Passes the bytes of a body in memory to `add`.
fn each_piece(mut body: object_store::client::HttpRequestBody, mut add: impl FnMut(&[u8])) {
    use http_body::Body as _;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // A body in memory is always ready.
    while let std::task::Poll::Ready(Some(Ok(frame))) =
        std::pin::Pin::new(&mut body).poll_frame(&mut context)
    {
        add(frame.data_ref().map_or(&[][..], |data| data));
    }
}

/// Returns the `content-md5` header for a body, which any S3 store accepts as its checksum.
fn content_md5(body: object_store::client::HttpRequestBody) -> HeaderValue {
    use md5::Digest as _;
    let mut digest = md5::Md5::new();
    each_piece(body, |piece| digest.update(piece));
    let text = crate::request::encode::base64(&digest.finalize());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the `x-goog-hash` header for a body. Google rejects a body that does not match it.
fn goog_hash(body: object_store::client::HttpRequestBody) -> (HeaderName, HeaderValue) {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    each_piece(body, |piece| digest.update(piece));
    #[allow(clippy::cast_possible_truncation, reason = "a CRC-32 in the low half")]
    let crc = digest.finalize() as u32;
    let text = format!("crc32c={}", crate::request::encode::base64(&crc.to_be_bytes()));
    let value = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    (HeaderName::from_static("x-goog-hash"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the store's clock would be in 1970: nothing would ever be old enough to be dead.
    #[test]
    fn an_object_without_a_time_does_not_set_the_clock() {
        let traffic = Traffic::default();
        let now = |time: i64| (time..time + 60).contains(&traffic.now().unwrap());
        // The year 1 is what some programs write for no time.
        for none in [0, -62_135_596_800] {
            traffic.wrote(none, Instant::now());
            assert_eq!(traffic.now(), None, "{none}");
        }
        traffic.set_store_clock(StoreClock::date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap());
        traffic.wrote(0, Instant::now());
        assert!(now(784_111_777), "{:?}", traffic.now());
        traffic.wrote(784_000_000, Instant::now());
        assert!(now(784_000_000), "{:?}", traffic.now());
        traffic.wrote(0, Instant::now());
        assert!(now(784_000_000), "{:?}", traffic.now());
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
