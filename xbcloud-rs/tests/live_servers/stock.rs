//! The programs called by their stock names, with the command lines of Percona's operators, on a
//! real S3 server.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::files::{assert_same_tree, tree};
use xb_testkit::s3::{ACCESS_KEY, Bucket, REGION, SECRET_KEY, bucket};
use xb_testkit::stream::{StreamWriter, small_backup};

const FIRST: &str = "00000000000000000000";

/// A host with links of the stock names, an empty home, and credentials in the environment.
struct Host {
    scratch: Scratch,
    bucket: Bucket,
}

impl Host {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (bin, _) = (scratch.dir("bin"), scratch.dir("home"));
        for name in ["xbcloud", "xbstream", "xbcrypt"] {
            let program = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
            let program = program.with_file_name(format!("{name}-rs"));
            assert!(program.exists(), "{name}-rs is not built: cargo build --workspace");
            symlink(program, bin.join(name)).unwrap();
        }
        Self { scratch, bucket: bucket() }
    }

    fn tool(&self, name: &str) -> Cmd {
        Cmd::new(self.scratch.join("bin").join(name))
            .env("HOME", self.scratch.join("home"))
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_DEFAULT_REGION", REGION)
            .env("AWS_ENDPOINT", self.bucket.endpoint())
    }

    /// `xbcloud VERB` as the operators call it, with `--md5` for every verb.
    fn xbcloud(&self, verb: &str) -> Cmd {
        let bucket = format!("--s3-bucket={}", self.bucket.name());
        let options = ["--parallel=10", "--curl-retriable-errors=7", "--md5", "--storage=s3"];
        self.tool("xbcloud").arg(verb).args(options).arg(bucket)
    }

    fn put(&self, name: &str) -> Ran {
        self.xbcloud("put").arg(name).stdin_bytes(small_backup(7, 90_000)).run()
    }

    fn get(&self, name: &str) -> Ran {
        self.xbcloud("get").arg(name).run()
    }

    /// Lists the folder of `name` with our own command: name and state of each row.
    fn list(&self, folder: &str) -> Vec<(String, String)> {
        let url = self.bucket.url(folder);
        let own = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["list", "--json"]);
        let ran = own.args(self.bucket.options()).arg(url).run().expect(0);
        let rows: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (text(row, "name"), text(row, "state"))).collect()
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        self.bucket.list(prefix).into_iter().map(|(key, _)| key).collect()
    }
}

#[track_caller]
fn says(ran: &Ran, what: &str) {
    assert!(ran.stderr_text().contains(what), "{ran:?}");
}

/// Extracts a stream.
fn extract(stream: &[u8], into: &Path) {
    let target = xb_reader::TargetDir::open(into).unwrap();
    xb_pipeline::extract_from(stream, target, xb_pipeline::ExtractOptions::default()).unwrap();
}

/// The files of a stream, with their lengths and digests.
fn files(stream: &[u8]) -> BTreeMap<String, (u64, String)> {
    let scratch = Scratch::new();
    let into = scratch.dir("files");
    extract(stream, &into);
    tree(&into)
}

#[test]
fn names_as_the_operators_make_them() {
    let host = Host::new();
    for name in ["cluster1-2006-01-02-15:04:05-full", "a b", "50%&x=y+z", "Sicherung-ä"] {
        let path = format!("prefix/{name}");
        says(&host.put(&path).expect(0), "Upload completed.");
        assert!(host.bucket.get(&format!("{path}/xtrabackup_info.{FIRST}")).is_some());
        assert!(host.bucket.get(&format!("{path}.md5")).is_some());
        let got = host.get(&path).expect(0);
        assert!(files(&got.stdout) == files(&small_backup(7, 90_000)), "{name}");
        assert_eq!(host.list("prefix"), [(name.to_owned(), "complete".to_owned())]);
        let _ = host.xbcloud("delete").arg(&path).run().expect(0);
        assert!(host.keys("prefix/").iter().all(|key| key.contains("/@claims/")), "{name}");
        let again = host.xbcloud("delete").arg(&path).run().expect(1);
        says(&again, "there is no complete backup");
    }
    // A backup that the stock tool stored under such a name can be read, too.
    for (key, body) in single_objects(&small_backup(7, 90_000)) {
        host.bucket.put(&format!("stock/12:00/{key}"), &body);
    }
    assert!(files(&host.get("stock/12:00").expect(0).stdout) == files(&small_backup(7, 90_000)));
    assert_eq!(host.list("stock"), [("12:00".to_owned(), "stock, unproven".to_owned())]);
}

/// A stream as the stock tool stores it: one object for each chunk.
fn single_objects(stream: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut numbers = BTreeMap::<String, u64>::new();
    let mut objects = Vec::new();
    for chunk in xb_testkit::stream::scan(stream) {
        let number = numbers.entry(chunk.path.clone()).or_default();
        let bytes = stream[chunk.start..chunk.stop].to_vec();
        objects.push((format!("{}.{number:020}", chunk.path), bytes));
        *number += 1;
    }
    objects
}

#[test]
fn a_single_file_is_stored_although_the_put_fails() {
    let host = Host::new();
    let dir = host.scratch.dir("tmp");
    std::fs::write(dir.join("sst_info"), b"[sst]\ngalera-gtid=aa:1\n").unwrap();
    let made = host.tool("xbstream").arg("-C").arg(&dir).args(["-c", "sst_info"]).run().expect(0);
    let name = "cluster1-2026-11-22-xtrabackup.stream.sst_info";
    let put = host.xbcloud("put").arg(name).stdin_bytes(made.stdout.clone()).run().expect(1);
    says(&put, "Upload failed: backup is incomplete");
    let objects = host.keys(&format!("{name}/"));
    assert_eq!(objects.len(), 2, "{objects:?}");
    assert_eq!(objects[0], format!("{name}/sst_info.{FIRST}"));
    assert!(host.bucket.get(&format!("{name}.md5")).is_some());
    assert!(host.bucket.get(&format!(".xb-catalog/{name}")).is_none(), "no manifest");
    assert_eq!(host.list(""), [(name.to_owned(), "stock, unproven".to_owned())]);
    let into = host.scratch.dir("restored");
    let got = host.get(name).expect(0);
    let extract = host.tool("xbstream").args(["-x", "-C"]).arg(&into);
    let _ = extract.stdin_bytes(got.stdout).run().expect(0);
    assert_eq!(std::fs::read(into.join("sst_info")).unwrap(), b"[sst]\ngalera-gtid=aa:1\n");
    let _ = host.xbcloud("delete").arg(name).run().expect(0);
    assert!(host.keys(&format!("{name}/")).is_empty());
    // No layout keeps a stream that is cut inside a file.
    let cut = made.stdout[..made.stdout.len() - 3].to_vec();
    let _ = host.xbcloud("put").arg(name).stdin_bytes(cut).run().expect(1);
    assert!(host.keys(&format!("{name}/")).is_empty());
}

/// Point-in-time recovery reads the first object of a small file from the bucket, and gives up if the
/// status is not 0 or anything is printed.
#[test]
fn one_object_alone_gives_its_file() {
    let host = Host::new();
    let put = host.xbcloud("put").args(["--compress=zstd", "n"]);
    let _ = put.stdin_bytes(small_backup(7, 90_000)).run().expect(0);
    let object = host.bucket.get(&format!("n/xtrabackup_info.zst.{FIRST}")).unwrap();
    let into = host.scratch.dir("pitr");
    let xbstream = || host.tool("xbstream").args(["-x", "--decompress"]).cwd(&into);
    let ran = xbstream().stdin_bytes(object.clone()).run().expect(0);
    assert_eq!((ran.stdout_text(), ran.stderr_text()), (String::new(), String::new()));
    let info = std::fs::read_to_string(into.join("xtrabackup_info")).unwrap();
    assert!(info.contains("tool_name"), "{info}");
    // Only under the stock name, and only what fits into one chunk.
    let own = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")).with_file_name("xbstream-rs");
    let own = Cmd::new(own).arg("-x").cwd(host.scratch.dir("own"));
    let _ = own.stdin_bytes(object).run().expect(1);
    for (name, len) in [("t.ibd", 9), ("xtrabackup_info", 2_000_000), ("xtrabackup_logfile", 9)] {
        let mut one = StreamWriter::new(Vec::new());
        one.payload(name, 0, &vec![7; len]);
        let _ = std::fs::remove_file(into.join(name));
        let ran = xbstream().stdin_bytes(one.finish()).run().expect(1);
        says(&ran, &format!("{name}: the stream has only its beginning"));
        assert_eq!(std::fs::metadata(into.join(name)).unwrap().len(), len as u64);
    }
    // Two files, of which the second lacks its end: only the first is made.
    let mut two = StreamWriter::new(Vec::new());
    two.file("whole", b"1", 9).payload("half", 0, b"2");
    let _ = xbstream().stdin_bytes(two.finish()).run().expect(1);
    assert!(into.join("whole").exists() && !into.join("half").exists());
}

#[test]
fn a_prefix_that_another_program_removed_is_free() {
    let host = Host::new();
    let _ = host.put("p/n").expect(0);
    says(&host.put("p/n").expect(1), "already exists");
    for key in host.keys("p/n") {
        host.bucket.delete(&key);
    }
    assert_eq!(host.list("p"), [("n".to_owned(), "missing".to_owned())]);
    let _ = host.get("p/n").expect(1);
    let _ = host.put("p/n").expect(0);
    assert_eq!(host.list("p"), [("n".to_owned(), "complete".to_owned())]);
    let _ = host.get("p/n").expect(0);
}

/// Leaves the claim and one object of a run on a host that this one knows nothing about.
fn killed_elsewhere(host: &Host, name: &str) {
    let claim = serde_json::json!({
        "run": "11".repeat(16), "holder": "22".repeat(16), "state": "holding", "host": "pod-1",
        "pid": 7, "process_started": "another-boot 1", "pid_namespace": "pid:[1]",
    });
    let claim = claim.to_string();
    host.bucket.put(&format!(".xb-catalog/@claims/{name}/000001"), claim.as_bytes());
    let (key, body) = single_objects(&small_backup(7, 90_000)).swap_remove(0);
    host.bucket.put(&format!("{name}/{key}"), &body);
}

#[test]
fn the_name_of_a_killed_pod_is_free_at_once() {
    let host = Host::new();
    killed_elsewhere(&host, "n");
    // By our own name, the claim holds for an hour.
    let own = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["put", "--layout=classic"]);
    let own = own.args(host.bucket.options()).arg(host.bucket.url("n"));
    says(&own.stdin_bytes(small_backup(7, 90_000)).run().expect(1), "another run of n");
    let put = host.put("n").expect(0);
    says(&put, "host pod-1");
    assert!(files(&host.get("n").expect(0).stdout) == files(&small_backup(7, 90_000)));
    killed_elsewhere(&host, "m");
    let _ = host.xbcloud("delete").arg("m").run().expect(0);
    assert!(host.keys("m/").is_empty());
    // A run on this host that is known to be alive keeps its name.
    let stream = small_backup(7, 90_000);
    let mut run = host.xbcloud("put").arg("alive").stdin_held().spawn();
    let mut stdin = run.stdin().unwrap();
    std::io::Write::write_all(&mut stdin, &stream[..50_000]).unwrap();
    run.until("its claim", || !host.keys(".xb-catalog/@claims/alive/").is_empty());
    says(&host.put("alive").expect(1), "another run of alive");
    run.kill_9();
    drop((stdin, run.wait()));
    let _ = host.put("alive").expect(0);
}

#[test]
fn single_files_are_read_and_removed() {
    let host = Host::new();
    let _ = host.put("n").expect(0);
    let got = host.xbcloud("get").args(["n", "xtrabackup_info"]).run().expect(0);
    assert_eq!(files(&got.stdout).len(), 1);
    let missing = host.xbcloud("delete").args(["n", "db/table.ibd", "no/such"]).run().expect(1);
    says(&missing, "no file no/such");
    assert_eq!(host.list(""), [("n".to_owned(), "complete".to_owned())]);
    let _ = host.xbcloud("delete").args(["n", "db/table.ibd"]).run().expect(0);
    let keys = host.keys("n/");
    assert!(!keys.is_empty() && keys.iter().all(|key| !key.contains("table.ibd")), "{keys:?}");
    assert_eq!(host.list(""), [("n".to_owned(), "stock, unproven".to_owned())]);
}

/// An operator asks for a descriptive file in plain, and if it gets nothing, in compressed form.
#[test]
fn a_file_that_is_not_there_is_no_failure_of_get() {
    let host = Host::new();
    let put = host.xbcloud("put").args(["--compress=zstd", "n"]);
    let _ = put.stdin_bytes(small_backup(7, 90_000)).run().expect(0);
    let plain = host.xbcloud("get").args(["n", "xtrabackup_info"]).run().expect(0);
    assert!(plain.stdout.is_empty());
    says(&plain, "xtrabackup_info is not in the backup");
    let both = ["n", "xtrabackup_info", "xtrabackup_info.zst"];
    let both = host.xbcloud("get").args(both).run().expect(0);
    says(&both, "xtrabackup_info is not in the backup");
    let into = host.scratch.dir("into");
    let extract = host.tool("xbstream").args(["-x", "--decompress", "-C"]).arg(&into);
    let _ = extract.stdin_bytes(both.stdout).run().expect(0);
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1);
    assert!(std::fs::read_to_string(into.join("xtrabackup_info")).unwrap().contains("tool_name"));
    // By our own name, it is a failure.
    let own = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("get").args(host.bucket.options());
    let own = own.arg(host.bucket.url("n")).arg("xtrabackup_info").run().expect_failure();
    says(&own, "xtrabackup_info is not in the backup");
}

#[test]
fn options_are_taken_wherever_stock_takes_them() {
    let host = Host::new();
    let bucket = format!("--s3-bucket={}", host.bucket.name());
    let stream = small_backup(7, 90_000);
    let put = host.tool("xbcloud").args(["--storage=S3", "put", "--fifo-streams=1", "n", &bucket]);
    let put = put.args(["--insecure", "--md5", "--fifo-timeout=60"]).stdin_bytes(stream);
    let _ = put.run().expect(0);
    let get = host.tool("xbcloud").args(["get", "n", "--storage=s3", &bucket, "--fifo-streams=1"]);
    let _ = get.run().expect(0);
    let several = host.xbcloud("get").args(["--fifo-streams=4", "--fifo-dir=/no/such", "n"]).run();
    says(&several.expect(1), "/no/such/thread_0");
    // Options of put alone in the group that all verbs read.
    let file = host.scratch.join("my.cnf");
    let group = format!(
        "[xbcloud]\nstorage=s3\ns3-bucket={}\nmd5\nchunk-size=1M\nmax-retries=3\nlast-file=xtrabackup_info\ns3-secret-key={SECRET_KEY}\n",
        host.bucket.name()
    );
    std::fs::write(&file, group).unwrap();
    let defaults = format!("--defaults-file={}", file.display());
    for words in
        [&["put", &defaults, "--print-defaults", "n"][..], &[&defaults, "--print-defaults"]]
    {
        let printed = host.tool("xbcloud").args(words).run().expect(0).stdout_text();
        assert!(printed.contains(host.bucket.name()) && !printed.contains(SECRET_KEY), "{printed}");
    }
    let _ = host.tool("xbcloud").args(["delete", &*defaults, "n"]).run().expect(0);
    let refused = host.tool("xbcloud").args(["--login-path=backup", "put", "n"]).run().expect(1);
    says(&refused, "--login-path is not supported");
}

#[test]
fn swift_is_refused_in_one_sentence() {
    let host = Host::new();
    let refused = |ran: Ran| {
        let ran = ran.expect(1);
        says(&ran, "Swift is not supported");
        assert!(!ran.stderr_text().contains("secret"), "{ran:?}");
    };
    for verb in ["put", "get", "delete"] {
        refused(host.xbcloud(verb).args(["--swift-user=u", "n", "--swift-key=secret"]).run());
        refused(host.tool("xbcloud").args(["--swift-auth-url", "u", verb, "n"]).run());
        refused(host.tool("xbcloud").args([verb, "--storage=swift", "n"]).run());
    }
    let file = host.scratch.join("my.cnf");
    std::fs::write(&file, "[xbcloud]\nswift-container=c\nswift_password=secret\n").unwrap();
    let defaults = format!("--defaults-file={}", file.display());
    refused(host.tool("xbcloud").args([&*defaults, "put", "--storage=s3", "n"]).run());
}

#[test]
fn a_missing_bucket_is_created_by_put_alone() {
    let host = Host::new();
    let name = format!("{}-new", host.bucket.name());
    let place = format!("s3://{name}/n");
    let missing = host.tool("xbcloud").args(["get", &place]).run().expect(1);
    says(&missing, "bucket");
    let own = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("put").args(host.bucket.options());
    let own = own.arg(&place).stdin_bytes(small_backup(7, 90_000)).run().expect_failure();
    says(&own, "bucket");
    let put = || host.tool("xbcloud").args(["put", "--md5"]).stdin_bytes(small_backup(7, 90_000));
    says(&put().arg(&place).run().expect(0), "was created");
    let _ = host.tool("xbcloud").args(["get", &place]).run().expect(0);
    let second = put().arg(format!("s3://{name}/m")).run().expect(0);
    assert!(!second.stderr_text().contains("was created"), "{second:?}");
}

/// Commands that a Kubernetes operator runs for one backup.
const OPERATOR: &str = r#"
set -o errexit -o pipefail
ARGS="--curl-retriable-errors=7 --md5 --storage=s3 --s3-bucket=$BUCKET"
cores=$(grep -c processor /proc/cpuinfo)
# Remains of an earlier pod.
xbcloud delete $ARGS "$NAME" || true
xbcloud delete $ARGS "$NAME.sst_info" || true
# The state transfer's own file: the put fails, and its objects count.
set +o pipefail
xbstream -C "$TMP" -c sst_info | xbcloud put --parallel=$cores $ARGS "$NAME.sst_info" 2>&1 \
    | grep -q "backup is incomplete"
set -o pipefail
xbcloud put --parallel=$cores $ARGS "$NAME" < "$TMP/stream" 2>&1 | grep -q "Upload completed"
# Restore.
mkdir "$TMP/data" "$TMP/pitr"
xbcloud get --parallel=$cores $ARGS "$NAME.sst_info" | xbstream -x -C "$TMP/data" --parallel=$cores
xbcloud get --parallel=$cores $ARGS "$NAME" | xbstream -xv -C "$TMP/data" --parallel=$cores --decompress
grep -q galera-gtid "$TMP/data/sst_info"
# Point-in-time recovery asks for one small file.
xbcloud get $ARGS "$NAME" xtrabackup_info | xbstream -x --decompress -C "$TMP/pitr"
grep -q tool_name "$TMP/pitr/xtrabackup_info"
xbcloud delete --parallel=10 $ARGS "$NAME"
xbcloud delete --parallel=10 $ARGS "$NAME.sst_info"
"#;

#[test]
fn an_operators_script_from_backup_to_delete() {
    let host = Host::new();
    let tmp = host.scratch.dir("tmp");
    std::fs::write(tmp.join("sst_info"), b"[sst]\ngalera-gtid=aa:1\n").unwrap();
    let stream = small_backup(9, 5_000_000);
    std::fs::write(tmp.join("stream"), &stream).unwrap();
    let path = format!("{}:/usr/bin:/bin", host.scratch.join("bin").display());
    let script = Cmd::new("/bin/bash")
        .args(["-x", "-c", OPERATOR])
        .env("PATH", path)
        .env("HOME", host.scratch.join("home"))
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("DEFAULT_REGION", REGION)
        .env("ENDPOINT", host.bucket.endpoint())
        .env("BUCKET", host.bucket.name())
        .env("NAME", "cluster1/cluster1-2026-11-22-15:04:05-full")
        .env("TMP", &tmp);
    let _ = script.run().expect(0);
    let reference = host.scratch.dir("reference");
    extract(&stream, &reference);
    std::fs::remove_file(tmp.join("data/sst_info")).unwrap();
    assert_same_tree(&tmp.join("data"), &reference);
    let left = host.keys("");
    assert!(left.iter().all(|key| key.contains("/.xb-catalog/@claims/")), "{left:?}");
}
