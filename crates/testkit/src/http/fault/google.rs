//! Header names of Google's XML interface.

use crate::http::Head;

/// Translates Google's header names to those of S3 and drops the authorization.
pub(super) fn google_to_s3(request: &mut Head) {
    request.rewrite(|name, value| match name {
        "authorization" => None,
        "x-goog-if-generation-match" if value == "0" => Some(("If-None-Match", "*".to_owned())),
        "x-goog-if-generation-match" => Some(("If-Match", value.to_owned())),
        "x-goog-copy-source" => Some(("x-amz-copy-source", value.to_owned())),
        "x-goog-storage-class" => Some(("x-amz-storage-class", value.to_owned())),
        _ => Some((name, value.to_owned())),
    });
}

/// Translates the response: the ETag of an object serves as its generation.
pub(super) fn s3_to_google(answer: &mut Head) {
    if let Some(etag) = answer.header("etag") {
        answer.add("x-goog-generation", &etag);
    }
}
