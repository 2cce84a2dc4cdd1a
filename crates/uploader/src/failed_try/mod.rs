//! Failed tries of requests: whether to repeat one, its message, and its hint.

mod denied;
pub(crate) mod message;
pub(crate) mod notice;

use std::borrow::Cow;

use object_store::Error;

use crate::error::{StoreErrorKind, root_message};
use crate::failed_try::denied::{denied, is_about_keys, protected};
use crate::failed_try::message::describe;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::answer::AttemptNotes;
use crate::request::bounds::is_excess;
use crate::request::listing::element;
use crate::request::transport::curl;
use crate::service::{NO_ACCESS, Service};

/// Codes within a success with which another try may succeed.
pub(crate) const TRANSIENT: [&str; 9] = [
    "InternalError",
    // Of a conditional deletion, while another request changes the object.
    "ConditionalRequestConflict",
    "SlowDown",
    "SlowDownWrite",
    "ServiceUnavailable",
    "RequestTimeout",
    "OperationAborted",
    "ThrottlingException",
    "TooManyRequests",
];
/// Codes within a success that deny permission.
pub(crate) const FORBIDDEN: [&str; 3] = ["AccessDenied", "AllAccessDisabled", "AccountProblem"];

/// Classification of one failed try.
#[derive(Debug)]
pub(crate) struct RetryDecision {
    pub(crate) kind: StoreErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<Cow<'static, str>>,
    /// Whether to try again.
    pub(crate) again: bool,
    /// Whether to ask once more all the same: the answer would be final, but does not fit what the store said before.
    pub(crate) once_more: bool,
}

/// Facts of the run that the classification depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryContext {
    /// Kind of the store, in whose words hints are given.
    pub(crate) service: Service,
    /// Whether another try may find fresh credentials.
    pub(crate) refreshable: bool,
    /// Whether the store has accepted the credentials before.
    pub(crate) authenticated: bool,
    /// Whether the store has responded before.
    pub(crate) has_responded: bool,
    /// Seconds by which this machine's clock is ahead of the store's, if the store reports a time.
    pub(crate) clock_ahead: Option<i64>,
    /// The operation.
    pub(crate) operation: Operation,
}

/// Classifies a failure: by status and error code if the store responded, otherwise by the state of
/// the connection.
pub(crate) fn judge(
    error: &Error,
    answer: &AttemptNotes,
    policy: &Policy,
    about: RetryContext,
) -> RetryDecision {
    let message = root_message(error);
    let said = |code: &str| message.contains(code);
    let status = answer.status.get();
    let may_fail_late = matches!(about.operation, Operation::Copy | Operation::Complete);
    let late = element(&message, "Code").filter(|_| may_fail_late && status == Some(200));
    let late = late.filter(|code| !TRANSIENT.contains(&&**code));
    let refused = || {
        // If an answer has no body, a header may have the code.
        let code = answer.code.borrow().clone().unwrap_or_default();
        denied(about.service, &format!("{message} {code}"), about.clock_ahead)
    };
    let (kind, hint): (StoreErrorKind, Option<Cow<'static, str>>) = match error {
        _ if is_excess(error) => (StoreErrorKind::Damaged, Some(EXCESS.into())),
        // A page about the scheme is a response, too.
        _ if (!about.has_responded || status == Some(400)) && wrong_scheme(&message).is_some() => {
            (StoreErrorKind::NotAStore, wrong_scheme(&message).map(Cow::Borrowed))
        }
        _ if is_full(status, &message) => (StoreErrorKind::Full, None),
        _ if said(NO_LENGTH) => (StoreErrorKind::Altered, Some(NO_LENGTHS.into())),
        // The clock was right before: a proxy may have held the request.
        _ if said("RequestTimeTooSkewed") && about.authenticated => {
            (StoreErrorKind::Unavailable, refused())
        }
        _ if said(NOT_PARTIAL) => (StoreErrorKind::Altered, Some(NO_RANGES.into())),
        _ if no_such_bucket(&message) => {
            (StoreErrorKind::NoBucket, Some(about.service.no_bucket().into()))
        }
        _ if THAW.iter().any(|(code, _)| said(code)) => {
            let hint = THAW.iter().find(|(code, _)| said(code)).map(|(_, hint)| (*hint).into());
            (StoreErrorKind::Rejected, hint)
        }
        Error::NotFound { .. } => (StoreErrorKind::NotFound, None),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => {
            (StoreErrorKind::AlreadyExists, protected(&message).map(Cow::Borrowed))
        }
        // Of a listing whose requests were accepted before, it is the token of its next page.
        _ if about.operation == Operation::List
            && about.authenticated
            && !about.refreshable
            && said("<Code>InvalidToken</Code>") =>
        {
            (StoreErrorKind::Rejected, Some(NO_SUCH_PAGE.into()))
        }
        _ if EXPIRED.iter().any(|code| said(code)) => expired(about),
        _ if said("<Code>AuthorizationHeaderMalformed</Code>") => {
            (StoreErrorKind::Denied, refused())
        }
        // S3 returns this code with status 400.
        _ if said("<Code>RequestTimeout</Code>") => (StoreErrorKind::Unavailable, None),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            (StoreErrorKind::Denied, refused())
        }
        // A local folder has no status: its errors are final, especially a full disk.
        Error::Generic { store: "LocalFileSystem", .. } => judge_local(&message),
        Error::Generic { .. } if said("Received redirect") => (
            StoreErrorKind::NotAStore,
            match (about.service, &*answer.region.borrow()) {
                (Service::S3, None) => {
                    Some("the bucket is in another region; give it with --s3-region".into())
                }
                _ => redirected(answer),
            },
        ),
        // The store began its answer before the work was done, and the error is within.
        Error::Generic { .. } if late.is_some() => match late.as_deref().unwrap_or_default() {
            code if FORBIDDEN.contains(&code) => (StoreErrorKind::Denied, refused()),
            "NoSuchKey" | "NoSuchUpload" => (StoreErrorKind::NotFound, None),
            _ => (StoreErrorKind::Rejected, None),
        },
        Error::Generic { .. } => match (status, answer.broken.get()) {
            // No request was sent: the settings or a file with credentials are wrong.
            _ if !answer.asked.get() => (StoreErrorKind::Rejected, None),
            _ if answer.metadata.get() && !about.authenticated => (
                StoreErrorKind::Denied,
                Some(about.service.no_credentials().into()),
            ),
            (_, Some(curl::CERTIFICATE)) => (
                StoreErrorKind::NotAStore,
                Some(untrusted(&message, about.service).into()),
            ),
            (Some(401 | 403), _) => (StoreErrorKind::Denied, refused()),
            // No bucket can have such a name.
            (Some(400), _)
                if said("<Code>InvalidBucketName</Code>")
                    || said("<Code>InvalidResourceName</Code>") =>
            {
                (StoreErrorKind::NoBucket, Some(about.service.no_bucket().into()))
            }
            (Some(300..=399), _) => (StoreErrorKind::NotAStore, redirected(answer)),
            // A listing names no object: the endpoint took the bucket for a part of one's key.
            (Some(404), _) if said("<Code>NoSuchKey</Code>") => (
                StoreErrorKind::NotAStore,
                Some("the endpoint has no such bucket: remove the path from the endpoint; the bucket belongs in the URL of the backup".into()),
            ),
            (Some(501 | 505), _) => {
                (StoreErrorKind::Rejected, about.service.unsupported().map(Cow::Borrowed))
            }
            // A failing server, an interrupted response, or none.
            (None | Some(200..=299 | 408 | 429 | 500..=599), broken) => {
                (StoreErrorKind::Unavailable, unreached(broken, about))
            }
            // Why the store refuses is in the part of the answer that did not arrive.
            (Some(404 | 409 | 412), broken @ Some(_)) => {
                (StoreErrorKind::Unavailable, unreached(broken, about))
            }
            (Some(_), _) => (StoreErrorKind::Rejected, protected(&message).map(Cow::Borrowed)),
        },
        _ => (StoreErrorKind::Rejected, None),
    };
    let again = kind == StoreErrorKind::Unavailable
        || status.is_some_and(|status| policy.also_statuses.contains(&status))
        || answer.broken.get().is_some_and(|code| policy.also_transport.contains(&code));
    let once_more = match (kind, status) {
        // A proxy may have refused it, or held the first request of all.
        (StoreErrorKind::Denied, Some(401 | 403)) => {
            let code = answer.code.borrow();
            about.authenticated || !is_about_keys(&message, code.as_deref().unwrap_or_default())
        }
        // A store without conditional writes says so each time.
        (StoreErrorKind::Rejected, Some(501)) => about.operation == Operation::Create,
        // Twice, and the upload is gone.
        (StoreErrorKind::NotFound, Some(404)) => about.operation == Operation::PutPart,
        // The request is a sound one, as far as we know: a proxy may have cut or altered it.
        (StoreErrorKind::Rejected, Some(400)) => true,
        // A range that was within the object.
        (StoreErrorKind::Altered, _) | (_, Some(416)) => true,
        // A proxy may have made it up, as any other answer.
        (_, Some(200)) => late.is_some(),
        _ => false,
    };
    RetryDecision { kind, message: describe(&message, answer), hint, again, once_more }
}

const LONG_NAME: &str = "file systems take names of at most 255 bytes, and the classic layout appends 21 to each: use --layout=packed, or an object store";
/// Message of the client about a range that was answered with the whole object.
const NOT_PARTIAL: &str = "Received non-partial response when range requested";
/// Message of the client about an answer to a read that does not say how long it is.
const NO_LENGTH: &str = "Content-Length Header missing from response";
const NO_LENGTHS: &str = "a proxy in front of the store leaves out the length of objects (Content-Length): go around the proxy, or change its settings";
const NO_RANGES: &str = "the store, or a proxy in front of it, ignores the range of a request: go around the proxy, or change its settings; `check` tries a range";
const NO_SUCH_PAGE: &str = "the store does not know the place in a listing that an earlier answer named: a proxy in front of it may alter answers, or send requests to several stores; go around the proxy";
const EXCESS: &str = "a working store does not respond like this: check the endpoint and the object that the error names";

/// Returns whether the store is full: 507 by its rules, 400 or 403 for the quota of a bucket or an owner (MinIO; Ceph and
/// others).
fn is_full(status: Option<u16>, message: &str) -> bool {
    status == Some(507)
        || ["QuotaExceeded</Code>", "StorageFull</Code>"].iter().any(|code| message.contains(code))
}

/// Kind and hint of an error of a local directory.
pub(crate) fn judge_local(message: &str) -> (StoreErrorKind, Option<Cow<'static, str>>) {
    let is = |number: i32| message.contains(&format!("os error {number})"));
    let (kind, hint) = if is(13) {
        (StoreErrorKind::Denied, Some(NO_ACCESS))
    } else if is(28) || is(122) {
        (StoreErrorKind::Full, None)
    } else if is(30) {
        (
            StoreErrorKind::Rejected,
            Some("mount its file system writable, or name another directory"),
        )
    } else if is(36) {
        (StoreErrorKind::Rejected, Some(LONG_NAME))
    } else {
        (StoreErrorKind::Rejected, None)
    };
    (kind, hint.map(Cow::Borrowed))
}

/// Hint for a store that redirects. Requests carry keys and content, so none follows.
fn redirected(answer: &AttemptNotes) -> Option<Cow<'static, str>> {
    if let Some(region) = &*answer.region.borrow() {
        return Some(format!("the bucket is in another region; add --s3-region={region}").into());
    }
    let target = answer.redirect.borrow();
    let target = target.as_deref().unwrap_or("another address");
    Some(format!("redirects are not followed, because requests carry keys; if {target} is the right place, name it as the endpoint").into())
}

/// Hint for a certificate that does not check.
fn untrusted(message: &str, service: Service) -> &'static str {
    let message = message.to_ascii_lowercase();
    let said = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    if said(&["expired", "not valid after"]) {
        return "the certificate of the endpoint has expired: renew it, or set the clock of this machine if that is ahead";
    }
    if said(&["notvalidyet", "not valid yet", "not valid before"]) {
        return "the certificate of the endpoint is not valid yet: set the clock of this machine";
    }
    if said(&["not valid for name", "notvalidforname"]) {
        return match service {
            Service::S3 => {
                "the certificate of the endpoint is for another host name: check the host of the endpoint, and --s3-bucket-lookup"
            }
            _ => {
                "the certificate of the endpoint is for another host name: check the host of the endpoint"
            }
        };
    }
    "the certificate of the endpoint is not trusted; give its certificate authority with --cacert"
}

/// Hint if the endpoint speaks TLS and we do not, or the other way round.
fn wrong_scheme(message: &str) -> Option<&'static str> {
    let message = message.to_ascii_lowercase();
    let said = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    if said(&["invalidcontenttype", "wrong version number"]) {
        return Some(
            "the endpoint does not speak TLS at this port: write it with http://, or name the right port",
        );
    }
    let tls = [
        "http request was sent to https port",
        "http request to an https server",
        "plain http to an ssl-enabled",
        "invalid http version",
    ];
    said(&tls).then_some("the endpoint does not speak plain HTTP at this port: write it with https://, or name the right port")
}

/// Hint for a store that has not responded in this run at all.
fn unreached(broken: Option<u32>, about: RetryContext) -> Option<Cow<'static, str>> {
    if about.has_responded {
        return None;
    }
    let hint = match broken? {
        curl::CONNECT | curl::RESOLVE if proxy().is_some() => {
            return proxy().map(|name| {
                format!("the environment variable {name} names a proxy for this endpoint: check it, or name the endpoint's host in NO_PROXY").into()
            });
        }
        curl::RESOLVE => {
            "check the host name of the endpoint, and the name service of this machine; --reach-timeout sets how long to try"
        }
        curl::CONNECT => {
            "nothing accepts connections at this address: check host, port and scheme of the endpoint; --reach-timeout sets how long to try"
        }
        curl::TLS => {
            "the TLS handshake failed: check host, port and scheme of the endpoint; it must support TLS 1.2 or 1.3"
        }
        _ => {
            "check the endpoint and the network: the store has not responded in this run yet; --reach-timeout sets how long to try"
        }
    };
    Some(hint.into())
}

/// The first environment variable that names a proxy.
fn proxy() -> Option<&'static str> {
    const NAMES: [&str; 6] =
        ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    NAMES.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Error codes for objects in an archive class, which must be restored before they can be read,
/// with a hint for each.
const THAW: [(&str, &str); 3] = [
    (
        "InvalidObjectState",
        "the objects are in an archive storage class; restore each with `aws s3api restore-object --restore-request Days=7`, or the prefix with a batch job, wait minutes to days, and try again",
    ),
    (
        "BlobArchived",
        "the blobs are in the archive tier; move each with `az storage blob set-tier --tier Cool`, wait some hours, and try again",
    ),
    ("BlobBeingRehydrated", "the blobs are being rehydrated; try again when that is done"),
];

/// S3 error codes for expired credentials.
const EXPIRED: [&str; 4] =
    ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"];

fn no_such_bucket(message: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"]
        .iter()
        .any(|said| message.contains(said))
}

fn expired(about: RetryContext) -> (StoreErrorKind, Option<Cow<'static, str>>) {
    if about.refreshable {
        return (
            StoreErrorKind::Unavailable,
            Some(
                "the temporary credentials have expired, and their source provided no new ones; check the source"
                    .into(),
            ),
        );
    }
    (
        StoreErrorKind::Denied,
        Some("the temporary credentials have expired; for long runs use a source that renews them, such as a profile, a role or a web identity".into()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: RetryContext = RetryContext {
        service: Service::S3,
        refreshable: false,
        authenticated: true,
        has_responded: true,
        clock_ahead: None,
        operation: Operation::Get,
    };

    fn verdict(error: Error, status: Option<u16>, broken: Option<u32>) -> RetryDecision {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(status);
        answer.broken.set(broken);
        let about = OLD;
        judge(&error, &answer, &Policy::default(), about)
    }

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn a_refusal_that_did_not_arrive_whole_is_asked_for_again() {
        for status in [404, 409, 412] {
            assert!(verdict(generic("cut"), Some(status), Some(18)).again, "{status}");
            assert!(!verdict(generic("whole"), Some(status), None).again, "{status}");
        }
    }

    #[test]
    fn temporary_errors_are_retried() {
        for status in [408, 429, 500, 502, 503, 504, 599, 200] {
            assert!(verdict(generic("x"), Some(status), None).again, "{status}");
        }
        for code in
            [curl::RESOLVE, curl::CONNECT, curl::TIMEOUT, curl::RECEIVE, curl::NOTHING, curl::TLS]
        {
            assert!(verdict(generic("x"), None, Some(code)).again, "{code}");
        }
        assert!(verdict(generic("<Code>RequestTimeout</Code>"), Some(400), None).again);
    }

    #[test]
    fn permanent_errors_fail_at_once_with_advice() {
        let denied =
            |text: &str| Error::PermissionDenied { path: String::new(), source: text.into() };
        for (error, status, kind, advice) in [
            (denied("<Code>AccessDenied</Code>"), 403, StoreErrorKind::Denied, "policies"),
            (
                denied(
                    "<Code>AccessDenied</Code><Message>Access Denied because object protected by object lock.</Message>",
                ),
                403,
                StoreErrorKind::Denied,
                "default retention",
            ),
            (denied("<Code>SignatureDoesNotMatch</Code>"), 403, StoreErrorKind::Denied, "secret"),
            (generic("<Code>ExpiredToken</Code>"), 400, StoreErrorKind::Denied, "expired"),
            (
                denied("<Code>InvalidObjectState</Code>"),
                403,
                StoreErrorKind::Rejected,
                "restore-object",
            ),
            (generic("<Code>BlobArchived</Code>"), 409, StoreErrorKind::Rejected, "set-tier"),
            (
                generic("Received redirect without LOCATION"),
                301,
                StoreErrorKind::NotAStore,
                "--s3-region",
            ),
            (
                Error::NotFound { path: String::new(), source: "<Code>NoSuchBucket</Code>".into() },
                404,
                StoreErrorKind::NoBucket,
                "bucket",
            ),
            (
                generic("<Code>InvalidBucketName</Code>"),
                400,
                StoreErrorKind::NoBucket,
                "check its name",
            ),
        ] {
            let verdict = verdict(error, Some(status), None);
            assert!(!verdict.again && verdict.kind == kind, "{verdict:?}");
            assert!(verdict.hint.as_deref().unwrap().contains(advice), "{verdict:?}");
        }
        let certificate = verdict(generic("x"), None, Some(curl::CERTIFICATE));
        assert!(!certificate.again && certificate.hint.unwrap().contains("--cacert"));
        assert!(!verdict(generic("bad request"), Some(400), None).again);
    }

    #[test]
    fn hints_are_in_the_words_of_the_store_that_answered() {
        let denied =
            |text: &str| Error::PermissionDenied { path: String::new(), source: text.into() };
        let missing = Error::NotFound { path: String::new(), source: "ContainerNotFound".into() };
        for (error, status, broken, advice) in [
            (denied("<Code>AuthenticationFailed</Code>"), Some(403), None, Some("SAS")),
            (
                denied("<Code>AuthorizationPermissionMismatch</Code>"),
                Some(403),
                None,
                Some("racwdl"),
            ),
            (denied("<Code>AccessDenied</Code>"), Some(403), None, Some("Blob Data Contributor")),
            (generic("x"), Some(403), None, Some("Blob Data Contributor")),
            (missing, Some(404), None, Some("create the container")),
            (generic("Received redirect without LOCATION"), Some(301), None, Some("endpoint")),
            (generic("x"), Some(501), None, None),
            (generic("not valid for name"), None, Some(curl::CERTIFICATE), Some("host name")),
            (
                generic("<Code>BlobImmutableDueToPolicy</Code>"),
                Some(409),
                None,
                Some("immutability"),
            ),
        ] {
            let answer = AttemptNotes::default();
            answer.asked.set(true);
            answer.status.set(status);
            answer.broken.set(broken);
            let about = RetryContext { service: Service::Azure, ..OLD };
            let verdict = judge(&error, &answer, &Policy::default(), about);
            let hint = verdict.hint.as_deref().unwrap_or_default();
            assert_eq!(hint.is_empty(), advice.is_none(), "{verdict:?}");
            assert!(hint.contains(advice.unwrap_or_default()), "{verdict:?}");
            for foreign in ["s3", "bucket", "lifecycle", "access key"] {
                assert!(!hint.contains(foreign), "{foreign}: {hint}");
            }
        }
        // A refusal without a body has its code in a header.
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(403));
        *answer.code.borrow_mut() = Some("AuthenticationFailed".into());
        let about = RetryContext { service: Service::Azure, ..OLD };
        let hint = judge(&generic("x"), &answer, &Policy::default(), about).hint.unwrap();
        assert!(hint.contains("of a SAS"), "{hint}");
    }

    #[test]
    fn a_full_store_is_one_kind_of_error() {
        let denied =
            |text: &str| Error::PermissionDenied { path: String::new(), source: text.into() };
        for (error, status) in [
            (generic("no room"), 507),
            (generic("<Code>XMinioStorageFull</Code>"), 507),
            (generic("<Code>XMinioAdminBucketQuotaExceeded</Code>"), 400),
            (denied("<Code>QuotaExceeded</Code>"), 403),
        ] {
            let verdict = verdict(error, Some(status), None);
            assert!(!verdict.again && verdict.kind == StoreErrorKind::Full, "{verdict:?}");
        }
        for number in [28, 122] {
            let (kind, hint) = judge_local(&format!("no room (os error {number})"));
            assert_eq!((kind, hint), (StoreErrorKind::Full, None));
        }
        let limited = verdict(generic("<Code>SlowDown</Code>"), Some(503), None);
        assert_eq!(limited.kind, StoreErrorKind::Unavailable);
    }

    #[test]
    fn a_wrong_address_fails_at_once_before_the_store_was_reached() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.broken.set(Some(curl::TLS));
        let tls = generic("received corrupt message of type InvalidContentType");
        let at_first = RetryContext { has_responded: false, ..OLD };
        let first = judge(&tls, &answer, &Policy::default(), at_first);
        assert!(!first.again && first.hint.unwrap().contains("http://"));
        assert!(judge(&tls, &answer, &Policy::default(), OLD).again);
        answer.broken.set(Some(curl::CONNECT));
        let refused = judge(&generic("refused"), &answer, &Policy::default(), at_first);
        assert!(refused.again && refused.hint.unwrap().contains("--reach-timeout"));
    }

    #[test]
    fn one_late_request_is_no_wrong_clock() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(403));
        let source = "<Code>RequestTimeTooSkewed</Code>";
        let late = Error::PermissionDenied { path: String::new(), source: source.into() };
        for authenticated in [true, false] {
            let about = RetryContext { authenticated, ..OLD };
            let verdict = judge(&late, &answer, &Policy::default(), about);
            assert_eq!((verdict.again, verdict.once_more), (authenticated, !authenticated));
            assert!(verdict.hint.unwrap().contains("clock"));
        }
    }

    #[test]
    fn one_refusal_of_the_first_request_is_asked_for_again_unless_it_names_the_keys() {
        let first = RetryContext { authenticated: false, ..OLD };
        let once_more = |body: &str, header: Option<&str>| {
            let answer = AttemptNotes::default();
            answer.asked.set(true);
            answer.status.set(Some(403));
            *answer.code.borrow_mut() = header.map(str::to_owned);
            let source = body.to_owned().into();
            let error = Error::PermissionDenied { path: String::new(), source };
            let verdict = judge(&error, &answer, &Policy::default(), first);
            assert!(!verdict.again && verdict.kind == StoreErrorKind::Denied, "{verdict:?}");
            verdict.once_more
        };
        for of_a_proxy in ["<Code>AccessDenied</Code>", "<html>Forbidden</html>", ""] {
            assert!(once_more(of_a_proxy, None), "{of_a_proxy}");
        }
        for of_keys in ["SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthenticationFailed"] {
            assert!(!once_more(&format!("<Code>{of_keys}</Code>"), None), "{of_keys}");
            assert!(!once_more("", Some(of_keys)), "{of_keys}");
        }
    }

    #[test]
    fn one_400_is_asked_for_again_unless_it_says_why() {
        let once_more = |text: &str| {
            let verdict = verdict(generic(text), Some(400), None);
            assert!(!verdict.again, "{verdict:?}");
            verdict.once_more
        };
        for of_a_proxy in ["", "<html>Bad Request</html>", "<Code>BadRequest</Code>"] {
            assert!(once_more(of_a_proxy), "{of_a_proxy}");
        }
        for final_one in ["ExpiredToken", "InvalidBucketName", "AuthorizationHeaderMalformed"] {
            assert!(!once_more(&format!("<Code>{final_one}</Code>")), "{final_one}");
        }
    }

    /// `rclone serve s3` says so of a made-up token; a session token that is refused in the middle of a run has expired.
    #[test]
    fn a_token_that_a_listing_does_not_know_is_no_expired_one() {
        let hint = |operation, authenticated, refreshable| {
            let answer = AttemptNotes::default();
            answer.asked.set(true);
            answer.status.set(Some(400));
            let about = RetryContext { operation, authenticated, refreshable, ..OLD };
            let error = generic("<Code>InvalidToken</Code>");
            judge(&error, &answer, &Policy::default(), about).hint.unwrap()
        };
        assert!(hint(Operation::List, true, false).contains("place in a listing"));
        for of_keys in [
            hint(Operation::List, false, false),
            hint(Operation::List, true, true),
            hint(Operation::Get, true, false),
        ] {
            assert!(of_keys.contains("expired"), "{of_keys}");
        }
    }

    #[test]
    fn an_error_within_a_success_is_final_as_its_code_says() {
        let verdict = |operation, code: &str| {
            let answer = AttemptNotes::default();
            answer.asked.set(true);
            answer.status.set(Some(200));
            let error = generic(&format!("<Error><Code>{code}</Code></Error>"));
            judge(&error, &answer, &Policy::default(), RetryContext { operation, ..OLD })
        };
        for (code, kind) in [
            ("AccessDenied", StoreErrorKind::Denied),
            ("NoSuchUpload", StoreErrorKind::NotFound),
            ("InvalidRequest", StoreErrorKind::Rejected),
        ] {
            for operation in [Operation::Copy, Operation::Complete] {
                let found = verdict(operation, code);
                assert_eq!(
                    (found.kind, found.again, found.once_more),
                    (kind, false, true),
                    "{code}"
                );
            }
            assert!(verdict(Operation::Get, code).again, "{code}");
        }
        for code in TRANSIENT {
            assert!(verdict(Operation::Copy, code).again, "{code}");
        }
    }

    #[test]
    fn one_501_does_not_show_that_a_store_has_no_conditional_writes() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(501));
        for operation in [Operation::Create, Operation::Put] {
            let (creates, about) =
                (operation == Operation::Create, RetryContext { operation, ..OLD });
            let verdict = judge(&generic("x"), &answer, &Policy::default(), about);
            assert_eq!((verdict.again, verdict.once_more), (false, creates));
            assert_eq!(verdict.kind, StoreErrorKind::Rejected);
        }
    }

    #[test]
    fn a_certificate_that_does_not_check_has_the_fitting_advice() {
        for (text, advice) in [
            (
                "invalid peer certificate: certificate expired: verification time 5 (UNIX), but certificate is not valid after 4",
                "renew it",
            ),
            ("invalid peer certificate: Expired", "renew it"),
            ("invalid peer certificate: NotValidYet", "clock"),
            (
                "certificate not valid for name \"a\"; certificate is only valid for b",
                "--s3-bucket-lookup",
            ),
            ("invalid peer certificate: UnknownIssuer", "--cacert"),
        ] {
            let verdict = verdict(generic(text), None, Some(curl::CERTIFICATE));
            assert!(verdict.hint.unwrap().contains(advice), "{text}");
        }
    }

    #[test]
    fn an_answer_without_a_length_is_not_asked_for_for_ever() {
        let verdict = verdict(generic(NO_LENGTH), Some(200), None);
        assert!(!verdict.again && verdict.hint.unwrap().contains("proxy"));
    }

    #[test]
    fn a_wrong_clock_is_named_with_its_distance() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(403));
        let error = Error::PermissionDenied { path: String::new(), source: "x".into() };
        let about = RetryContext { clock_ahead: Some(-4000), ..OLD };
        let hint = judge(&error, &answer, &Policy::default(), about).hint.unwrap();
        assert!(hint.contains("4000 s behind"), "{hint}");
    }

    #[test]
    fn a_redirect_is_not_followed_and_names_its_target() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(307));
        *answer.redirect.borrow_mut() = Some("http://elsewhere".into());
        let refused = judge(&generic("x"), &answer, &Policy::default(), OLD);
        assert!(!refused.again && refused.hint.unwrap().contains("http://elsewhere"));
    }

    #[test]
    fn a_response_over_its_bound_is_damaged() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(200));
        let error = crate::request::bounds::BoundExceeded::Bytes(7).into();
        let excess = judge(&error, &answer, &Policy::default(), OLD);
        assert!(!excess.again && excess.kind == StoreErrorKind::Damaged, "{excess:?}");
    }

    #[test]
    fn the_operator_may_add_to_what_is_tried_again() {
        let policy =
            Policy { also_statuses: vec![403], also_transport: vec![60], ..Policy::default() };
        let about = OLD;
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(403));
        let denied = Error::PermissionDenied { path: String::new(), source: "x".into() };
        assert!(judge(&denied, &answer, &policy, about).again);
        answer.status.set(None);
        answer.broken.set(Some(60));
        assert!(judge(&generic("x"), &answer, &policy, about).again);
    }

    #[test]
    fn fresh_credentials_are_waited_for_where_there_can_be_any() {
        let answer = AttemptNotes::default();
        answer.asked.set(true);
        answer.status.set(Some(400));
        let error = generic("<Code>ExpiredToken</Code>");
        let about = RetryContext { refreshable: true, ..OLD };
        assert!(judge(&error, &answer, &Policy::default(), about).again);
        // The machine's own credentials service: missing at the start, failing later.
        answer.metadata.set(true);
        answer.status.set(None);
        for authenticated in [false, true] {
            let about = RetryContext { refreshable: true, authenticated, ..OLD };
            assert_eq!(
                judge(&generic("x"), &answer, &Policy::default(), about).again,
                authenticated
            );
        }
    }
}
