//! Check of answers that a store begins with success, before it has done what was asked.
//!
//! So an error may be in the body ("CopyObject", "CompleteMultipartUpload"). The client reads only the status of the first,
//! and would take an error, the page of a proxy or an empty answer for a copy.

use http::{HeaderMap, Method, Uri};
use serde::Deserialize;

use crate::request::listing::root_of;

/// Maximum length of a body that is quoted, in characters.
const QUOTED: usize = 2000;

/// A response that does not show that the request was carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoResult {
    /// The store's error, as it is.
    #[error("{0}")]
    Error(String),
    #[error("the store's answer is not the result of a copy: {0}")]
    Other(String),
}

/// A request whose answer may be a late error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateRequest {
    Copy,
    /// The client reads the tag of the object in its result.
    Completion,
}

#[derive(Debug, Deserialize)]
enum Copied {
    CopyObjectResult {},
}

impl LateRequest {
    /// Returns the request, if it is one of these.
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let copies = ["x-amz-copy-source", "x-goog-copy-source"];
        let mut fields = uri.query().unwrap_or_default().split('&');
        if method == Method::PUT && copies.iter().any(|name| headers.contains_key(*name)) {
            return Some(Self::Copy);
        }
        (method == Method::POST && fields.any(|field| field.starts_with("uploadId=")))
            .then_some(Self::Completion)
    }

    /// Checks the body of a successful response.
    ///
    /// # Errors
    /// [`NoResult`]; it names the store's code, if there is one.
    pub(crate) fn check(self, body: &[u8]) -> Result<(), NoResult> {
        // Stores send spaces while they work.
        let body = body.trim_ascii();
        let text = String::from_utf8_lossy(body);
        let root = root_of(&text);
        if root.as_deref() == Some("Error") {
            return Err(NoResult::Error(text.chars().take(QUOTED).collect()));
        }
        if self == Self::Completion {
            return Ok(());
        }
        let error = match quick_xml::de::from_reader(body) {
            Ok(Copied::CopyObjectResult {}) => return Ok(()),
            Err(error) => error,
        };
        Err(NoResult::Other(match root {
            _ if text.is_empty() => "it is empty".to_owned(),
            None => "it is not XML".to_owned(),
            Some(root) if root == "CopyObjectResult" => error.to_string(),
            Some(root) => format!("its root element is {root}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"<?xml version="1.0" encoding="UTF-8"?><CopyObjectResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LastModified>2026-11-30T00:00:00Z</LastModified><ETag>&quot;1&quot;</ETag></CopyObjectResult>"#;

    #[test]
    fn copies_and_completions_are_checked_and_nothing_else_is() {
        let of = |method, uri: &str, header: Option<&'static str>| {
            let headers = header.map(|name| (name.parse().unwrap(), "b/k".parse().unwrap()));
            LateRequest::of(&method, &uri.parse().unwrap(), &HeaderMap::from_iter(headers))
        };
        let copy = Some(LateRequest::Copy);
        for header in ["x-amz-copy-source", "x-goog-copy-source"] {
            assert_eq!(of(Method::PUT, "http://h/b/k", Some(header)), copy);
        }
        let completion = Some(LateRequest::Completion);
        assert_eq!(of(Method::POST, "http://h/b/k?uploadId=1", None), completion);
        for (method, uri) in [
            (Method::PUT, "http://h/b/k"),
            (Method::PUT, "http://h/b/k?partNumber=1&uploadId=1"),
            (Method::POST, "http://h/b/k?uploads"),
            (Method::POST, "http://h/b?delete="),
        ] {
            assert_eq!(of(method, uri, None), None, "{uri}");
        }
    }

    #[test]
    fn only_the_result_of_a_copy_shows_that_it_was_made() {
        let check = |body: &str| LateRequest::Copy.check(body.as_bytes());
        let spaces = format!(" \n  {RESULT}\n");
        for result in [RESULT, &spaces, "<CopyObjectResult/>"] {
            assert_eq!(check(result), Ok(()), "{result}");
        }
        for (body, why) in [
            ("", "empty"),
            (" \n", "empty"),
            ("<html><body>x</body></html>", "root element is html"),
            ("{}", "not XML"),
            ("<CopyPartResult/>", "root element is CopyPartResult"),
            (&RESULT[..RESULT.len() - 1], ""),
            (&RESULT[..RESULT.len() - 30], ""),
        ] {
            let error = check(body).unwrap_err().to_string();
            assert!(error.contains("not the result of a copy") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_error_within_a_success_is_that_error() {
        let error = "<?xml version=\"1.0\"?>\n   <Error><Code>SlowDown</Code></Error>";
        for request in [LateRequest::Copy, LateRequest::Completion] {
            assert_eq!(request.check(error.as_bytes()), Err(NoResult::Error(error.to_owned())));
        }
        assert_eq!(LateRequest::Completion.check(b"<html/>"), Ok(()), "the client finds no tag");
    }
}
