//! Real S3 server over HTTP, one for the whole test process: SeaweedFS, or what `XB_S3_SERVER` names, see
//! `scripts/other-stores`.
//!
//! ```no_run
//! let bucket = xb_testkit::s3::bucket();
//! bucket.put("a/b", b"content");
//! assert_eq!(bucket.list("a/"), [("a/b".to_owned(), 7)]);
//! ```

mod client;
mod others;
mod server;
pub(crate) mod sign;

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use client::{ACCESS_KEY, Bucket, OTHER_KEY, READ_KEY, REGION, SECRET_KEY, options_for};

use self::server::Server;
use crate::process::daemon::{Daemon, Scratch};
use crate::process::ports::free_port;
use crate::process::tools;

/// Time limit of the server's start. SeaweedFS was usable 4 to 7 s after its start; a busy machine
/// takes longer.
const START_LIMIT: Duration = Duration::from_secs(300);

/// Creates a new, empty bucket on the server of this process. The first call starts the server.
///
/// # Panics
/// The server cannot be started or creates no bucket.
#[must_use]
pub fn bucket() -> Bucket {
    new_bucket("bucket")
}

/// Creates a bucket that also accepts requests without a signature.
///
/// # Panics
/// As [`bucket`].
#[must_use]
pub fn open_bucket() -> Bucket {
    new_bucket("open")
}

/// Creates a bucket whose objects can be locked.
///
/// # Panics
/// As [`bucket`].
#[must_use]
pub fn locking_bucket() -> Bucket {
    new_bucket("locking")
}

fn new_bucket(kind: &str) -> Bucket {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(start);
    let name = format!("{kind}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let locks = kind == "locking";
    Bucket::create(server.address(), &name, locks).unwrap_or_else(|e| panic!("bucket {name}: {e}"))
}

/// Starts the server; again with other ports if another program took one of them first.
fn start() -> Server {
    let wanted = std::env::var("XB_S3_SERVER").unwrap_or_default();
    let begin = || match &*wanted {
        "" | "seaweedfs" => try_start(),
        other => others::try_start(other),
    };
    std::iter::repeat_with(begin).take(5).flatten().next().expect("free ports")
}

fn try_start() -> Option<Server> {
    let ports: [u16; 8] = std::array::from_fn(|_| free_port());
    let scratch = Scratch::with_litter(&sockets(&ports));
    let config = scratch.join("s3.json");
    let identity = format!(
        r#"{{"identities":[{{"name":"test","credentials":[{{"accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List","Tagging"]}},{{"name":"other","credentials":[{{"accessKey":"{OTHER_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List","Tagging"]}},{{"name":"reader","credentials":[{{"accessKey":"{READ_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Read","List"]}},{{"name":"anonymous","actions":["Read:open-*","Write:open-*","List:open-*"]}}]}}"#
    );
    fs::write(&config, identity).expect("s3.json");
    let address = format!("127.0.0.1:{}", ports[0]);
    let args = [
        format!("-logdir={}", scratch.dir("logs").display()),
        "server".to_owned(),
        format!("-dir={}", scratch.dir("data").display()),
        "-ip=127.0.0.1".to_owned(),
        "-ip.bind=127.0.0.1".to_owned(),
        "-s3".to_owned(),
        format!("-s3.port={}", ports[0]),
        format!("-s3.port.grpc={}", ports[1]),
        format!("-s3.config={}", config.display()),
        format!("-s3.localSocket={}", scratch.join("s3.sock").display()),
        // An unknown bucket must be an error, as it is everywhere else.
        "-s3.autoCreateBucket=false".to_owned(),
        "-s3.port.iceberg=0".to_owned(),
        "-s3.port.lance=0".to_owned(),
        format!("-master.port={}", ports[2]),
        format!("-master.port.grpc={}", ports[3]),
        // On by default, it would connect to the internet.
        "-master.telemetry=false".to_owned(),
        "-master.volumeSizeLimitMB=1024".to_owned(),
        format!("-volume.port={}", ports[4]),
        format!("-volume.port.grpc={}", ports[5]),
        // A bucket uses seven volumes at once; without a free one, it accepts nothing.
        "-volume.max=1000".to_owned(),
        format!("-filer.port={}", ports[6]),
        format!("-filer.port.grpc={}", ports[7]),
        format!("-filer.localSocket={}", scratch.join("filer.sock").display()),
    ];
    let daemon = Daemon::start(&tools::find("weed"), &args, &scratch.join("log"));
    // The port is open seconds before the server can create a bucket.
    let mut taken = false;
    daemon.wait_ready("weed server", START_LIMIT, || {
        taken = daemon.ended().is_some() && daemon.log().contains("address already in use");
        taken || Bucket::create(&address, "ready", false).is_ok()
    });
    (!taken).then_some(Server::new(address, daemon, scratch))
}

/// Sockets with fixed names that the server leaves behind, for the ports of [`try_start`].
fn sockets(ports: &[u16; 8]) -> [PathBuf; 4] {
    [("s3", ports[1]), ("master", ports[3]), ("volume", ports[5]), ("filer", ports[7])]
        .map(|(name, port)| format!("/tmp/seaweedfs-{name}-grpc-{port}.sock").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_what_is_put() {
        let bucket = bucket();
        assert_eq!(bucket.list(""), []);
        bucket.put("dir/a b$@", b"first");
        bucket.put("dir/c", b"");
        let expected = [("dir/a b$@".to_owned(), 5), ("dir/c".to_owned(), 0)];
        assert_eq!(bucket.list("dir/"), expected);
        assert_eq!(bucket.get("dir/a b$@").as_deref(), Some(&b"first"[..]));
        bucket.delete("dir/c");
        assert_eq!(bucket.get("dir/c"), None);
        assert_eq!(bucket.unfinished_uploads(""), Vec::<String>::new());
        bucket.begin_upload("dir/d");
        assert_eq!(bucket.unfinished_uploads(""), ["dir/d"]);
    }
}
