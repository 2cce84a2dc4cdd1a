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
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n{wait}\r\n{body}"
    )
    .into_bytes()
}
