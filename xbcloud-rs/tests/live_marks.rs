//! Removals whose requests the store refuses, or carries out late: what others rely on meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3::{Bucket, bucket, options_for};
use xb_testkit::stream::StreamWriter;

/// Bucket with the full backup n0, behind a proxy.
struct Shop {
    bucket: Bucket,
    proxy: Proxy,
    scratch: Scratch,
}

impl Shop {
    fn new() -> Self {
        let bucket = bucket();
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let shop = Self { bucket, proxy, scratch: Scratch::new() };
        let _ = shop.back_up("n0", (0, 100), None).run().expect(0);
        shop
    }

    fn xbcloud(&self, args: &[&str], name: &str) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .args(["--max-retries=0", "--retry-timeout=0", "--max-backoff=20"])
            .args(options_for(&self.proxy.endpoint()))
            .arg(self.bucket.url(&format!("shop/{name}")))
    }

    /// A backup that ends at `to`; an incremental one has a base, which ended at `from`.
    fn back_up(&self, name: &str, (from, to): (u64, u64), base: Option<&str>) -> Cmd {
        let kind = if base.is_some() { "incremental" } else { "full-backuped" };
        let checkpoints = format!("backup_type = {kind}\nfrom_lsn = {from}\nto_lsn = {to}\n");
        let mut out = StreamWriter::new(Vec::new());
        let _ = out.file("db/t.MYD", &[7; 9000], 1 << 20);
        let _ = out.file("xtrabackup_checkpoints", checkpoints.as_bytes(), 1 << 20);
        let _ = out.info();
        let stream = self.scratch.join(name);
        std::fs::write(&stream, out.finish()).unwrap();
        self.xbcloud(&["backup"], name)
            .args([format!("--state-dir={}", self.scratch.join("state").display())])
            .args(base.map(|base| format!("--incremental-from={base}")))
            // The producer is a script, so nothing is known about its server.
            .args(base.map(|_| "--accept-history"))
            .args(["--", "sh", "-c"])
            .arg(format!("cat {}", stream.display()))
            .arg("mariadb-backup")
    }

    fn manifests(&self) -> Vec<String> {
        let all = self.bucket.list("shop/.xb-catalog/").into_iter();
        let names = all.filter_map(|(key, _)| Some(key.rsplit_once(".xb-catalog/")?.1.to_owned()));
        names.filter(|name| !name.contains('/')).collect()
    }

    /// Refuses the first removal, which is that of the manifest.
    fn refusing(&self, status: u16, code: &'static str) {
        let refuse = Action::Refuse { status, code };
        self.proxy.set_rules(vec![Rule::new("POST", "delete", refuse).times(1)]);
    }
}

/// The store answers with an error, and may carry the request out later. The process that sent it is
/// gone.
#[test]
fn an_increment_does_not_rely_on_a_base_that_a_late_request_may_remove() {
    let shop = Shop::new();
    shop.refusing(503, "SlowDown");
    let _ = shop.xbcloud(&["delete", "--yes"], "n0").run().expect_failure();
    shop.proxy.set_rules(Vec::new());
    let looks = || shop.proxy.count("GET", "%40claims%2Fn0");
    let before = looks();
    let mut running = shop.back_up("i1", (100, 200), Some("n0")).spawn();
    running.until("the run waits", || looks() >= before + 2);
    assert!(!running.has_ended());
    running.kill_9();
    let said = running.wait().stderr_text();
    assert!(said.contains("waiting for the end of a removal of n0"), "{said}");
    assert!(shop.manifests().contains(&"n0".to_owned()));
    // Another removal need not wait.
    let _ = shop.xbcloud(&["delete", "--yes", "--force"], "n0").run().expect(0);
    assert!(!shop.manifests().contains(&"n0".to_owned()));
}

#[test]
fn a_removal_that_is_refused_for_certain_holds_up_nobody() {
    let shop = Shop::new();
    shop.refusing(403, "AccessDenied");
    let _ = shop.xbcloud(&["delete", "--yes"], "n0").run().expect_failure();
    shop.proxy.set_rules(Vec::new());
    assert_eq!(shop.bucket.list("shop/.xb-catalog/@claims/"), []);
    let _ = shop.back_up("i1", (100, 200), Some("n0")).run().expect(0);
    assert_eq!(shop.manifests(), ["i1", "n0"]);
}
