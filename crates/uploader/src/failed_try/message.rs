//! One line about a failed request, without the markup of the store's response.

use std::borrow::Cow;

use crate::request::answer::AttemptNotes;
use crate::request::listing::element;

/// Maximum length of a quoted response, in characters.
const MAX_QUOTED: usize = 200;

/// Describes a failed try. `raw` is the innermost error, which contains the body of an error
/// response.
pub(crate) fn describe(raw: &str, answer: &AttemptNotes) -> String {
    let (origin, secrets) = (answer.origin.borrow(), answer.secrets.borrow());
    let raw = &*secrets.hide(raw);
    let text = match answer.status.get() {
        Some(status) if !(200..300).contains(&status) || element(raw, "Code").is_some() => {
            refusal(raw, status, answer)
        }
        _ => shortened(raw),
    };
    // Markup may have hidden one until now.
    let text = secrets.hide(&text).into_owned();
    match origin.as_str() {
        // No request was sent, or the error names the place already.
        "" => text,
        origin if text.contains(origin) => text,
        origin => format!("{origin}: {text}"),
    }
}

/// Status, error code, message and request ID of an error response.
fn refusal(raw: &str, status: u16, answer: &AttemptNotes) -> String {
    let code = element(raw, "Code").or_else(|| answer.code.borrow().clone().map(Cow::Owned));
    let mut text = format!("status {status}");
    let named = http::StatusCode::from_u16(status).ok();
    let named = named.and_then(|status| status.canonical_reason()).map(Cow::Borrowed);
    if let Some(name) = code.or(named) {
        text = format!("{text} {name}");
    }
    let message = element(raw, "Message").or_else(|| plain_body(raw));
    if let Some(message) = message.map(|message| shortened(&message)).filter(|m| !m.is_empty()) {
        text = format!("{text}: {message}");
    }
    if let Some(bucket) =
        element(raw, "Code").filter(|code| code == "NoSuchBucket").and_then(|_| named_bucket(raw))
    {
        text = format!("{text}: {bucket}");
    }
    let id =
        element(raw, "RequestId").or_else(|| answer.request_id.borrow().clone().map(Cow::Owned));
    match id {
        Some(id) => format!("{text} (request {})", shortened(&id)),
        None => text,
    }
}

/// The bucket that an error response names.
fn named_bucket(raw: &str) -> Option<String> {
    let bucket = element(raw, "BucketName").or_else(|| element(raw, "Resource"))?;
    let bucket = bucket.trim_start_matches('/').split('/').next().unwrap_or_default();
    Some(shortened(bucket)).filter(|bucket| !bucket.is_empty())
}

/// Body of a response that is no S3 error: JSON, plain text, or a page of a proxy without its tags.
fn plain_body(raw: &str) -> Option<Cow<'_, str>> {
    // The client's own words about the status come first: "...: 403 Forbidden: BODY".
    let body = raw.splitn(3, ": ").nth(2)?;
    let mut text = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => {
                inside = false;
                text.push(' ');
            }
            c if !inside => text.push(c),
            _ => {}
        }
    }
    Some(Cow::Owned(text))
}

/// One line of at most [`MAX_QUOTED`] characters.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> AttemptNotes {
        let answer = AttemptNotes::default();
        answer.status.set(Some(status));
        *answer.origin.borrow_mut() = "https://h".into();
        answer
    }

    #[test]
    fn an_error_shows_code_message_and_request_id_and_no_markup() {
        let raw = r#"Server returned non-2xx status code: 403 Forbidden: <?xml version="1.0"?> <Error><Code>AccessDenied</Code><Message>Access &lt;Denied&gt;</Message><RequestId>4442</RequestId><HostId>x=</HostId></Error>"#;
        assert_eq!(
            describe(raw, &answer(403)),
            "https://h: status 403 AccessDenied: Access <Denied> (request 4442)"
        );
        let raw_api = "status 403: <Error><Code>AccessDenied</Code></Error>";
        assert_eq!(describe(raw_api, &answer(403)), "https://h: status 403 AccessDenied");
        // An error within a success.
        let late = "Server returned error response: <Error><Code>InternalError</Code><Message>x</Message></Error>";
        assert_eq!(describe(late, &answer(200)), "https://h: status 200 InternalError: x");
    }

    #[test]
    fn headers_name_what_no_body_does() {
        let azure = answer(403);
        *azure.code.borrow_mut() = Some("AuthorizationFailure".into());
        *azure.request_id.borrow_mut() = Some("77-1".into());
        assert_eq!(
            describe("Server returned non-2xx status code: 403 Forbidden: ", &azure),
            "https://h: status 403 AuthorizationFailure (request 77-1)"
        );
    }

    #[test]
    fn pages_of_others_lose_their_tags_and_their_length() {
        let page = "Server returned non-2xx status code: 502 Bad Gateway: <html> <body><h1>Bad: gateway</h1></body></html>";
        assert_eq!(describe(page, &answer(502)), "https://h: status 502 Bad Gateway: Bad: gateway");
        let long =
            format!("Server returned non-2xx status code: 400 Bad Request: {}", "é ".repeat(9000));
        assert!(describe(&long, &answer(400)).chars().count() < 260);
    }

    #[test]
    fn a_place_is_named_once() {
        let refused = answer(200);
        refused.status.set(None);
        let text = "cannot connect to https://h: Connection refused";
        assert_eq!(describe(text, &refused), text);
        assert_eq!(describe("x", &AttemptNotes::default()), "x");
    }
}
