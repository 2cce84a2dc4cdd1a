//! A request to a service that raises an alarm when it hears nothing.

use std::time::Duration;

/// Time limit of one try.
const LIMIT: Duration = Duration::from_secs(10);
/// Tries in all.
const TRIES: u32 = 3;

/// Error of a heartbeat. It never shows the URL, which usually holds a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeartbeatError {
    /// The service refused the request.
    #[error("the service at {host} answered {status}")]
    Status {
        /// Host of the URL.
        host: String,
        /// HTTP status.
        status: u16,
    },
    /// The service could not be reached.
    #[error("cannot reach {host}: {what}")]
    Unreachable {
        /// Host of the URL.
        host: String,
        /// Error of the transport.
        what: String,
    },
    /// The text is not a URL with the scheme http or https.
    #[error("it is not an http:// or https:// address")]
    NotAUrl,
}

/// Posts `document` (JSON) to `url`, at most three times within half a minute.
///
/// # Errors
/// [`HeartbeatError`] of the last try.
pub(crate) async fn send_heartbeat(url: &str, document: &str) -> Result<(), HeartbeatError> {
    let url = reqwest::Url::parse(url).map_err(|_| HeartbeatError::NotAUrl)?;
    let host = match (url.scheme(), url.host_str()) {
        ("http" | "https", Some(host)) => host.to_owned(),
        _ => return Err(HeartbeatError::NotAUrl),
    };
    let unreachable = |error: reqwest::Error| HeartbeatError::Unreachable {
        host: host.clone(),
        what: innermost(&error.without_url()),
    };
    // A redirect would give the document, and the token in the referrer, to another address.
    let client = reqwest::Client::builder()
        .timeout(LIMIT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .build()
        .map_err(unreachable)?;
    let mut tries = 0;
    loop {
        let request = client
            .post(url.clone())
            .header("content-type", "application/json")
            .body(document.to_owned());
        let outcome = match request.send().await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => {
                Err(HeartbeatError::Status { host: host.clone(), status: answer.status().as_u16() })
            }
            Err(error) => Err(unreachable(error)),
        };
        tries += 1;
        if tries == TRIES {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The last text of the chain: `Connection refused`, not `error sending request`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn send(url: &str) -> Result<(), HeartbeatError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(send_heartbeat(url, "{}"))
    }

    /// Serves one answer a connection and returns the requests.
    fn server(answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ping/topsecret", listener.local_addr().unwrap());
        let serve = move || {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut peer, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"{}") {
                    let mut bytes = [0; 1024];
                    let read = peer.read(&mut bytes).unwrap();
                    assert!(read > 0);
                    request.extend_from_slice(&bytes[..read]);
                }
                write!(peer, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .unwrap();
                requests.push(String::from_utf8(request).unwrap());
            }
            requests
        };
        (url, std::thread::spawn(serve))
    }

    #[test]
    fn the_document_is_posted_and_a_failure_is_tried_again() {
        let (url, server) = server(&["503 Busy", "200 OK"]);
        send(&url).unwrap();
        let requests = server.join().unwrap();
        assert!(requests[1].starts_with("POST /ping/topsecret HTTP/1.1\r\n"));
    }

    #[test]
    fn a_redirect_is_not_followed() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = elsewhere.local_addr().unwrap();
        let answer: &'static str = format!("307 Moved\r\nlocation: http://{address}/x").leak();
        let (url, server) = server(vec![answer; 3].leak());
        let error = send(&url).unwrap_err().to_string();
        assert_eq!(error, "the service at 127.0.0.1 answered 307");
        drop(server.join());
        elsewhere.set_nonblocking(true).unwrap();
        assert!(elsewhere.accept().is_err(), "somebody called");
    }

    #[test]
    fn errors_name_the_host_and_not_the_token() {
        let (url, server) = server(&["404 Gone", "404 Gone", "404 Gone"]);
        let error = send(&url).unwrap_err().to_string();
        assert_eq!(error, "the service at 127.0.0.1 answered 404");
        drop(server.join());
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = send(&format!("http://{closed}/topsecret")).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot reach 127.0.0.1: ") && !error.contains("topsecret"),
            "{error}"
        );
        for bad in ["", "ftp://x/y", "host/path"] {
            assert!(matches!(send(bad), Err(HeartbeatError::NotAUrl)), "{bad}");
        }
    }
}
