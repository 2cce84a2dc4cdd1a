//! Real server of Azure's Blob interface over HTTP: Azurite, one for the whole test process.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
const START_LIMIT: Duration = Duration::from_secs(300);

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
    let key = STANDARD.decode(KEY).expect("a key in base64");
    let signature = STANDARD.encode(hmac(&key, to_sign.as_bytes()));
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

fn start() -> Server {
    let scratch = Scratch::new();
    let args = [
        "--disableTelemetry",
        "--silent",
        "--skipApiVersionCheck",
        "--inMemoryPersistence",
        "--blobHost",
        "127.0.0.1",
        // It chooses a free one and reports it: one that was free a moment ago may be taken by now.
        "--blobPort",
        "0",
    ];
    let daemon =
        Daemon::start(&tools::find("azurite-blob"), &args.map(str::to_owned), &scratch.join("log"));
    let mut address = String::new();
    daemon.wait_ready("azurite", START_LIMIT, || {
        let log = daemon.log();
        let told = log.split_once("listens on http://").and_then(|(_, rest)| rest.split_once('\n'));
        address = told.map_or_else(String::new, |(address, _)| address.trim().to_owned());
        !address.is_empty()
    });
    Server { address, _daemon: daemon, _scratch: scratch }
}
