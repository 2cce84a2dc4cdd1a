//! Notes of one try about the store's responses, on which the retry loop decides.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, Uri};

use crate::request::bounds::{BodyBounds, BoundExceeded, LISTING, PAGES};
use crate::request::secrets::Secrets;

/// Result of the last request within one try.
#[derive(Debug, Default)]
pub(crate) struct AttemptNotes {
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
    /// Origin of the request.
    pub(crate) origin: RefCell<String>,
    /// Origin to which the response redirects.
    pub(crate) redirect: RefCell<Option<String>>,
    /// The store's ID of the request.
    pub(crate) request_id: RefCell<Option<String>>,
    /// Secrets that no message about the response may show.
    pub(crate) secrets: RefCell<Secrets>,
    /// Error code in a header: Azure sends it with responses that have no body.
    pub(crate) code: RefCell<Option<String>>,
    /// Maximum size of the object or range that the try reads, in bytes.
    pub(crate) content: Cell<Option<u64>>,
    /// Bytes of all bodies so far.
    pub(crate) received: Cell<u64>,
    /// Pages of a listing that were requested.
    pages: RefCell<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    hasher: RandomState,
    asked: HashSet<u64>,
}

tokio::task_local! {
    pub(crate) static ATTEMPT: AttemptNotes;
}

impl AttemptNotes {
    /// For a try that reads at most `most` bytes of an object.
    pub(crate) fn reading(most: u64) -> Self {
        Self { content: Cell::new(Some(most)), ..Self::default() }
    }

    /// Records a request; `listing` is set if it asks for a page of a listing.
    ///
    /// # Errors
    /// [`BoundExceeded`] if the listing that it continues has no end.
    pub(crate) fn request(
        &self,
        uri: &Uri,
        metadata: bool,
        listing: bool,
    ) -> Result<(), BoundExceeded> {
        self.asked.set(true);
        self.status.set(None);
        self.broken.set(None);
        self.metadata.set(metadata);
        *self.origin.borrow_mut() = origin(uri);
        if !listing {
            return Ok(());
        }
        let mut pages = self.pages.borrow_mut();
        let page = pages.hasher.hash_one(uri.to_string());
        if !pages.asked.insert(page) {
            return Err(BoundExceeded::Repeated);
        }
        match (pages.asked.len() > PAGES, self.received.get() > LISTING) {
            (true, _) => Err(BoundExceeded::Pages),
            (_, true) => Err(BoundExceeded::Listing),
            _ => Ok(()),
        }
    }

    /// Records a response of a store.
    pub(crate) fn response<B>(&self, response: &Response<B>) {
        let headers = response.headers();
        let owned = |name| text(headers, name).map(str::to_owned);
        self.status.set(Some(response.status().as_u16()));
        let pause = text(headers, "retry-after");
        self.retry_after.set(pause.and_then(|value| retry_after(value, SystemTime::now())));
        *self.region.borrow_mut() = owned("x-amz-bucket-region");
        *self.code.borrow_mut() = owned("x-ms-error-code");
        *self.request_id.borrow_mut() =
            ["x-amz-request-id", "x-ms-request-id", "x-guploader-uploadid"]
                .into_iter()
                .find_map(owned);
        let target = text(headers, "location").filter(|_| response.status().is_redirection());
        *self.redirect.borrow_mut() = target.and_then(|to| to.parse().ok()).map(|to| origin(&to));
    }

    /// Bounds of the body of the response with this status.
    pub(crate) fn bounds(&self, is_success: bool) -> BodyBounds {
        match (is_success, self.content.get()) {
            (false, _) => BodyBounds::ERROR,
            (true, Some(most)) => BodyBounds::content(most),
            (true, None) => BodyBounds::SHORT,
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Scheme, host and port of a URL. Requests to different origins may reach different parties.
pub(crate) fn origin(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    match uri.port_u16() {
        Some(port)
            if (scheme.as_str(), port) != ("https", 443)
                && (scheme.as_str(), port) != ("http", 80) =>
        {
            format!("{scheme}://{host}:{port}")
        }
        _ => format!("{scheme}://{host}"),
    }
}

/// Maximum pause that is read from a response.
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
    fn origins_differ_in_scheme_host_and_port() {
        let of = |url: &str| origin(&url.parse().unwrap());
        assert_eq!(of("https://H:443/a?b"), "https://h");
        assert_eq!(of("https://h/x"), "https://h");
        assert_eq!(of("http://h:443"), "http://h:443");
        assert_eq!(of("http://h:80"), "http://h");
        assert_ne!(of("https://b.h"), of("https://h"));
    }

    #[test]
    fn a_listing_ends() {
        let answer = AttemptNotes::default();
        let ask = |query: &str| {
            answer.request(&format!("http://h/b?{query}").parse().unwrap(), false, true)
        };
        assert_eq!(ask("list-type=2&prefix=a"), Ok(()));
        assert_eq!(ask("list-type=2&prefix=a&continuation-token=x"), Ok(()));
        assert_eq!(ask("list-type=2&prefix=a"), Err(BoundExceeded::Repeated));
        let other = "http://h/b?uploadId=1".parse().unwrap();
        assert_eq!((0..2).find_map(|_| answer.request(&other, false, false).err()), None);
        for page in 2..PAGES {
            assert_eq!(ask(&format!("restype=container&comp=list&marker={page}")), Ok(()));
        }
        assert_eq!(ask("comp=list&marker=more"), Err(BoundExceeded::Pages));
        let answer = AttemptNotes::default();
        answer.received.set(LISTING + 1);
        let page = "http://h/b?uploads=".parse().unwrap();
        assert_eq!(answer.request(&page, false, true), Err(BoundExceeded::Listing));
    }
}
