//! Error responses of a store.

pub(super) fn error_answer(status: u16, retry_after: Option<u32>) -> Vec<u8> {
    let code = match status {
        429 | 503 => "SlowDown",
        409 => "ConditionalRequestConflict",
        403 => "AccessDenied",
        404 => "NoSuchKey",
        _ => "InternalError",
    };
    coded_answer(status, code, retry_after)
}

pub(super) fn coded_answer(status: u16, code: &str, retry_after: Option<u32>) -> Vec<u8> {
    let body = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>told to</Message></Error>"#
    );
    let wait = retry_after.map_or_else(String::new, |s| format!("Retry-After: {s}\r\n"));
    with_body(status, &wait, &body)
}

/// Answer to a removal of many objects that removes none: `code` is that of each object; without one, it is named as removed.
pub(super) fn kept_answer(request: &[u8], code: Option<&str>) -> Vec<u8> {
    let request = String::from_utf8_lossy(request);
    let keys = request.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
    let outcome = |key: &str| match code {
        None => format!("<Deleted><Key>{key}</Key></Deleted>"),
        Some(code) => {
            format!("<Error><Key>{key}</Key><Code>{code}</Code><Message>told to</Message></Error>")
        }
    };
    let outcomes: String = keys.map(outcome).collect();
    with_body(200, "", &format!("<DeleteResult>{outcomes}</DeleteResult>"))
}

fn with_body(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}
