//! Real server of Azure's Blob interface over HTTP: Azurite, one for the whole test process.

use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::http::Head;
use crate::process::daemon::{Daemon, Scratch};
use crate::process::tools;
use crate::stores::s3::sign::{hmac, now};

/// Account name of every emulator.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Key of the account, from Azure's documentation.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Time limit of the server's start.
const START_LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug)]
struct Server {
    address: String,
    _daemon: Daemon,
    _scratch: Scratch,
}

/// Container of a running server.
#[derive(Debug, Clone)]
pub struct Container {
    address: String,
    name: String,
}

impl Container {
    /// Returns the name of the container.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns host and port of the server.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the account, `http://127.0.0.1:PORT/devstoreaccount1`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.address)
    }
}

/// Creates a new, empty container on the server of this process. The first call starts the server.
///
/// # Panics
/// The server cannot be started or creates no container.
#[must_use]
pub fn container() -> Container {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(start);
    let name = format!("container-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let status = create(&server.address, &name);
    assert!(matches!(status, Ok(201)), "container {name}: {status:?}");
    Container { address: server.address.clone(), name }
}

/// Sends a request, signed as in "Authorize with Shared Key".
fn create(address: &str, name: &str) -> io::Result<u16> {
    let date = now();
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06");
    // The emulator has the account twice: in the path, and as the account.
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container");
    let to_sign = format!("PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}\n{resource}");
    let signature = base64(&hmac(&from_base64(KEY), to_sign.as_bytes()));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "PUT /{ACCOUNT}/{name}?restype=container HTTP/1.1\r\nhost: {address}\r\nx-ms-date: {date}\r\n\
         x-ms-version: 2021-08-06\r\nauthorization: SharedKey {ACCOUNT}:{signature}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    )?;
    let answer = Head::read(&mut BufReader::new(stream))?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(answer.status())
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let digits = |group: &[u8]| {
        let bits = (0..3).fold(0_u32, |bits, n| bits << 8 | u32::from(*group.get(n).unwrap_or(&0)));
        let digit = |n: usize| match n <= group.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

fn from_base64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for digit in text.bytes().filter_map(|b| DIGITS.iter().position(|d| *d == b)) {
        bits = bits << 6 | u32::try_from(digit).expect("a digit");
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 255).expect("a byte"));
        }
    }
    out
}

fn start() -> Server {
    let scratch = Scratch::new();
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let address = format!("127.0.0.1:{port}");
    let args = [
        "--disableTelemetry",
        "--silent",
        "--skipApiVersionCheck",
        "--inMemoryPersistence",
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        &port.to_string(),
    ];
    let daemon =
        Daemon::start(&tools::find("azurite-blob"), &args.map(str::to_owned), &scratch.join("log"));
    daemon.wait_ready("azurite", START_LIMIT, || TcpStream::connect(&address).is_ok());
    Server { address, _daemon: daemon, _scratch: scratch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_there_and_back() {
        assert_eq!(base64(&from_base64(KEY)), KEY);
        assert_eq!(base64(b"fo"), "Zm8=");
    }
}
