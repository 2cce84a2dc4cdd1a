//! Rules of the proxy: which requests they match, and what it does with them.

use crate::http::Head;
use crate::http::fault::edit::Edit;
use crate::http::reply::Reply;

/// Action on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The body is read, the server never sees the request, and this status is returned.
    Answer {
        /// HTTP status.
        status: u16,
        /// Seconds in the `Retry-After` header, if it is sent.
        retry_after: Option<u32>,
    },
    /// As `Answer`, with a given S3 error code.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Text of the `Code` element.
        code: &'static str,
    },
    /// As `Answer`, with a response that the test makes up.
    Reply(Reply),
    /// The body is read at this many bytes per second, then the request proceeds as usual.
    Slow(u64),
    /// The connection is reset after this many bytes of the request's body were passed on.
    CutRequest(u64),
    /// The connection ends after this many bytes of the response's body were passed on.
    CutAnswer(u64),
    /// The server handles the request, but its response is dropped with the connection.
    LoseAnswer,
    /// The first byte of the response's body is changed.
    Alter,
    /// The entries of the listing in the response's body are changed.
    Edit(Edit),
    /// Nothing is passed on or returned until [`Proxy::release`], then the connection ends.
    Stall,
    /// The whole request is read, counted by [`Proxy::held`], and passed on at [`Proxy::release`]:
    /// a request that was long on its way.
    Hold,
    /// The request is passed on; the times in the head of its response are this many seconds ahead, as if they had
    /// passed.
    Ahead(u64),
    /// The request is passed on; only the `Date` of its response is this many seconds ahead, as that of a proxy
    /// with a wrong clock.
    WrongDate(u64),
    /// The request is passed on without its condition (`If-None-Match`), as a store that ignores
    /// it would see it. Its signature goes, too: the bucket must accept anonymous requests
    /// ([`crate::stores::s3::open_bucket`]).
    Unconditional,
    /// The request is passed on without its `Range`, as a cache that only keeps whole objects does.
    WholeObject,
    /// A part of an object is answered as asked for, but with status 200, as `rclone serve s3` does it.
    PartAs200,
    /// A write is answered with success, and the server never sees it: a store that loses it.
    Swallow,
    /// A removal of many objects ("DeleteObjects") is answered with status 200, and the server never sees it. Each object has
    /// this code in the answer; without one, it is named as removed.
    Keep(Option<&'static str>),
}

impl Action {
    /// Returns a plain error status, as a store in trouble sends it.
    #[must_use]
    pub fn answer(status: u16) -> Self {
        Self::Answer { status, retry_after: None }
    }
}

/// Match condition and action for requests.
#[derive(Debug, Clone)]
pub struct Rule {
    method: String,
    part: String,
    /// Header that a matching request has or lacks, in lower case; empty: any request.
    header: &'static str,
    lacks: bool,
    skip: u64,
    times: u64,
    every: u64,
    action: Action,
    seen: u64,
}

impl Rule {
    /// Matches all requests of this method (empty: any) whose path with its query contains `part`.
    #[must_use]
    pub fn new(method: &str, part: &str, action: Action) -> Self {
        let (method, part) = (method.to_owned(), part.to_owned());
        Self {
            method,
            part,
            header: "",
            lacks: false,
            skip: 0,
            times: u64::MAX,
            every: 1,
            action,
            seen: 0,
        }
    }

    /// Matches only requests with this header, given in lower case.
    #[must_use]
    pub fn with_header(mut self, header: &'static str) -> Self {
        self.header = header;
        self
    }

    /// Matches only requests without this header, given in lower case.
    #[must_use]
    pub fn without_header(mut self, header: &'static str) -> Self {
        (self.header, self.lacks) = (header, true);
        self
    }

    /// Lets the first `n` matching requests pass.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Acts on only `n` matching requests.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Acts only on every `n`-th matching request, starting with the first.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.every = n;
        self
    }

    pub(super) fn fits(&self, method: &str, path: &str) -> bool {
        (self.method.is_empty() || self.method == method) && path.contains(&self.part)
    }

    /// Counts a request and returns the action if the rule applies to it.
    pub(super) fn count(&mut self, request: &Head) -> Option<Action> {
        let fits = self.header.is_empty() || request.header(self.header).is_some() != self.lacks;
        if !fits || !self.fits(request.word(0), request.word(1)) {
            return None;
        }
        self.seen += 1;
        let nth = self.seen - 1;
        let counts =
            nth >= self.skip && nth - self.skip < self.times && nth.is_multiple_of(self.every);
        counts.then(|| self.action.clone())
    }
}
