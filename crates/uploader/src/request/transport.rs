//! Failures of a connection, told apart by libcurl's numbers.

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use crate::request::answer::ATTEMPT;

/// Libcurl's numbers of the transport failures that are distinguished here (`libcurl-errors`).
pub(crate) mod curl {
    pub(crate) const WEIRD: u32 = 8;
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
#[error("{what} {origin}: {cause}")]
struct Broken {
    what: &'static str,
    origin: String,
    cause: String,
}

/// Records a transport failure for the retry loop.
pub(crate) fn note_broken(code: u32) {
    let _ = ATTEMPT.try_with(|answer| answer.broken.set(Some(code)));
}

/// Classifies and records a failure of the client; `origin` is that of the request.
pub(crate) fn broken(origin: &str, error: &reqwest::Error) -> HttpError {
    let mut cause: &(dyn Error + 'static) = error;
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
        // The server's own words about the version of TLS.
        let tls = tls || said("fatal alert") || said("peer is incompatible");
        (if tls { curl::TLS } else { curl::CONNECT }, HttpErrorKind::Connect, "cannot connect to")
    } else if said("invalid HTTP") || said("parsed") {
        (curl::WEIRD, HttpErrorKind::Decode, "no HTTP from")
    } else if said("closed before message completed") {
        (curl::NOTHING, HttpErrorKind::Request, "no answer from")
    } else if error.is_body() || error.is_decode() {
        (curl::PARTIAL, HttpErrorKind::Interrupted, "broken off answer of")
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
    HttpError::new(kind, Broken { what, origin: origin.to_owned(), cause })
}
