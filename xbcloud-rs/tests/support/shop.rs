//! A bucket with backups of one server, whose producer is a script.

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::Proxy;
use xb_testkit::s3::{Bucket, bucket, options_for};
use xb_testkit::stream::StreamWriter;

/// Bucket with backups of one server, behind a proxy.
pub(crate) struct Shop {
    pub(crate) bucket: Bucket,
    pub(crate) proxy: Proxy,
    pub(crate) scratch: Scratch,
    /// Layout of new backups.
    pub(crate) layout: &'static str,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let bucket = bucket();
        let proxy = Proxy::start(bucket.address(), Vec::new());
        Self { bucket, proxy, scratch: Scratch::new(), layout: "packed" }
    }

    /// `xbcloud-rs ARGS` with ROOT, or with a `/NAME` below it.
    pub(crate) fn xbcloud(&self, args: &[&str], name: &str) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .args(["--max-retries=2", "--retry-timeout=0", "--max-backoff=20"])
            .args(options_for(&self.proxy.endpoint()))
            .arg(self.bucket.url(&format!("shop{name}")))
    }

    /// A backup that ends at `to`; an incremental one has a base, which ended at `from`.
    pub(crate) fn backup(&self, name: &str, (from, to): (u64, u64), base: Option<&str>) -> Cmd {
        assert_eq!(base.is_some(), from > 0, "only a full backup begins at 0");
        let mut out = StreamWriter::new(Vec::new());
        let _ = out.file("db/t.CSV", &xb_testkit::data::noise(to, 300_000), 1 << 20);
        let _ = out.positions(from, to).info();
        let stream = self.scratch.join(name);
        std::fs::write(&stream, out.finish()).unwrap();
        let layout = format!("--layout={}", self.layout);
        self.xbcloud(&["backup", "--chunk-size=64K", &layout], &format!("/{name}"))
            .args([format!("--state-dir={}", self.scratch.join("state").display())])
            .args(base.map(|base| format!("--incremental-from={base}")))
            // The producer is a script, so nothing is known about its server.
            .args(base.map(|_| "--accept-history"))
            .args(["--", "sh", "-c"])
            .arg(format!("cat {}", stream.display()))
            .arg("mariadb-backup")
    }
}
