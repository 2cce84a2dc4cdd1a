//! Helpers shared by the live tests.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests fail by panic")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use xb_testkit::s3;
use xb_uploader::{
    BucketLookup, Location, PartData, PartSender, Policy, S3Settings, Store, StoreError,
    StoreSettings,
};

/// Size of parts: the minimum of a store.
pub(crate) const PART: usize = 5 << 20;

/// Returns a policy with many tries and short pauses.
pub(crate) fn quick() -> Policy {
    Policy::default()
        .with_max_retries(8)
        .with_retry_timeout(Duration::ZERO)
        .with_max_backoff(Duration::from_millis(20))
        .with_stall(Duration::from_secs(3))
}

pub(crate) fn s3_settings(endpoint: &str) -> StoreSettings {
    let mut s3 = S3Settings::default();
    s3.endpoint = Some(endpoint.to_owned());
    s3.access_key = Some(s3::ACCESS_KEY.into());
    s3.secret_key = Some(s3::SECRET_KEY.into());
    s3.lookup = BucketLookup::Path;
    let mut settings = StoreSettings::default();
    settings.s3 = s3;
    settings
}

#[track_caller]
pub(crate) fn opened(url: &str, settings: &StoreSettings, policy: Policy) -> Store {
    let location = Location::parse(url).unwrap().unwrap();
    xb_uploader::open(&location, settings, policy, true).unwrap().0
}

/// Returns part `index` of an object; full unless it is the last one.
pub(crate) fn part(key: &str, index: u32, end: bool) -> PartData {
    let size = if end { 1000 } else { PART };
    let bytes = Bytes::from(xb_testkit::data::noise(u64::from(index), size));
    // In two pieces, like the pipeline's slabs.
    let payload = vec![bytes.slice(..size / 3), bytes.slice(size / 3..)];
    PartData { key: key.into(), index, payload, end }
}

/// Sends an object of `full` full parts and a short one; with `full` 0, one plain put. Returns its
/// content.
pub(crate) async fn upload(
    sender: &mut PartSender,
    key: &str,
    full: u32,
) -> Result<Vec<u8>, StoreError> {
    let mut content = Vec::new();
    for index in 0..=full {
        let part = part(key, index, index == full);
        content.extend(part.payload.iter().flat_map(|piece| piece.to_vec()));
        sender.send(part).await?;
    }
    Ok(content)
}

/// Credentials service like a container's agent: each response has another key in turn, valid for
/// one minute.
pub(crate) struct CredentialSource {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// Heads of all requests.
    heads: Arc<Mutex<String>>,
}

impl CredentialSource {
    pub(crate) fn start(keys: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let heads = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> = lines
                    .by_ref()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                all.lock().unwrap().push_str(&head.join("\n"));
                let shows_token =
                    head.iter().any(|line| line.to_lowercase() == "authorization: pod-token");
                let n = count.fetch_add(1, Ordering::SeqCst);
                let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
                let body = format!(
                    r#"{{"AccessKeyId":"{}","SecretAccessKey":"{}","Token":"","Expiration":"{expires}"}}"#,
                    keys[n % keys.len()],
                    s3::SECRET_KEY
                );
                let status = if shows_token { "200 OK" } else { "401 Unauthorized" };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        Self { address, asked, heads }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/credentials", self.address)
    }

    /// Returns the heads of all requests so far.
    pub(crate) fn heads(&self) -> String {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}
