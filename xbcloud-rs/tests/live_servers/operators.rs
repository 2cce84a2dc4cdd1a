//! The whole sequences of Percona's operators for XtraDB Cluster and for MySQL, with their command
//! lines word by word: backup, clean-up, restore, point-in-time recovery and delete. The pods have
//! links of the stock names, the environment that the operators give, and nothing else.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::s3::{ACCESS_KEY, Bucket, REGION, SECRET_KEY, bucket};
use xb_testkit::stream::{StreamWriter, scan};
use xb_testkit::{azure, files::tree};

/// Position of the cluster's backup.
const GTID: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42";
/// Requirements of the operators for `NAME.md5`, in bytes: the cluster operator's script, and its
/// server beside MySQL.
const LEAST_MD5: [usize; 2] = [23_000, 3_000];

/// Plays xtrabackup: writes what it is told to write, and records every call.
const XTRABACKUP: &str = r#"#!/bin/bash
[[ $* != --version ]] || { echo 'xtrabackup version 8.4.0-7 based on MySQL server 8.4.0 Linux' >&2; exit; }
echo "$*" >>"$POD/xtrabackup.calls"
for word; do
    case $word in
    --target-dir=*) target=${word#*=} ;;
    --datadir=*) datadir=${word#*=} ;;
    esac
done
case " $* " in
*' --backup '*)
    cat "$POD/stream"
    [[ ! -e $POD/fails ]] || { echo 'xtrabackup: Error: lost connection' >&2; exit 1; }
    echo 'completed OK!' >&2
    ;;
*' --move-back '*) cp -r "$target"/. "$datadir" ;;
esac
"#;

/// A pod: its programs, its folders, and the store.
struct Pod {
    scratch: Scratch,
    bucket: Bucket,
}

impl Pod {
    fn new() -> Self {
        Self::at(bucket())
    }

    /// Another pod, on a host of its own as far as it can tell, with the same store.
    fn at(bucket: Bucket) -> Self {
        let scratch = Scratch::new();
        let bin = scratch.dir("bin");
        for name in ["xbcloud", "xbstream", "xbcrypt"] {
            let program = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
            let program = program.with_file_name(format!("{name}-rs"));
            assert!(program.exists(), "{name}-rs is not built: cargo build --workspace");
            symlink(program, bin.join(name)).unwrap();
        }
        for name in ["bash", "cat", "grep", "sed", "awk", "tee", "rm", "cp", "mktemp", "env"] {
            symlink(xb_testkit::tools::find(name), bin.join(name)).unwrap();
        }
        let stand_in = bin.join("xtrabackup");
        std::fs::write(&stand_in, XTRABACKUP).unwrap();
        std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["tmp", "datadir"] {
            let _ = scratch.dir(folder);
        }
        Self { scratch, bucket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A program of the pod with these variables and no others: no home, no user, no locale.
    fn program(&self, name: &str, env: &[(&str, &str)]) -> Cmd {
        let bin = self.path("bin");
        let pairs = env.iter().map(|(name, value)| format!("{name}={value}"));
        Cmd::new("/usr/bin/env")
            .args(["-i", &format!("PATH={}", bin.display())])
            .arg(format!("POD={}", self.scratch.path().display()))
            .args(pairs)
            .arg(bin.join(name))
            .cwd(self.path("tmp"))
    }

    /// A script with the settings that the operator's own scripts have.
    fn script(&self, env: &[(&str, &str)], text: &str) -> Ran {
        self.program("bash", env).args(["-o", "errexit", "-o", "xtrace", "-c", text]).run()
    }

    /// Variables of the cluster operator's pods.
    fn cluster<'a>(&'a self, further: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let common = [
            ("ACCESS_KEY_ID", ACCESS_KEY),
            ("SECRET_ACCESS_KEY", SECRET_KEY),
            ("DEFAULT_REGION", REGION),
            ("AWS_SHARED_CREDENTIALS_FILE", "/tmp/no-such-aws-credfile"),
            ("AWS_REGION", REGION),
            ("S3_BUCKET", self.bucket.name()),
            ("VERIFY_TLS", "false"),
        ];
        common.into_iter().chain(further.iter().copied()).collect()
    }

    /// Objects below a prefix, without those of our own catalogue.
    fn objects(&self, prefix: &str) -> Vec<String> {
        let keys = self.bucket.list(prefix).into_iter().map(|(key, _)| key);
        keys.filter(|key| !key.contains(".xb-catalog/")).collect()
    }

    fn size(&self, key: &str) -> usize {
        self.bucket.get(key).unwrap_or_default().len()
    }

    /// Name and state of each backup in a folder, by our own command.
    fn list(&self, folder: &str) -> Vec<(String, String)> {
        let own = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["list", "--json"]);
        let ran = own.args(self.bucket.options()).arg(self.bucket.url(folder)).run().expect(0);
        let rows: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (text(row, "name"), text(row, "state"))).collect()
    }

    /// The calls of xtrabackup, with the random ends of folders left out.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path("xtrabackup.calls")).unwrap_or_default();
        let here = self.scratch.path().display().to_string();
        let short = |line: &str| line.replace(&here, "");
        calls.lines().map(short).collect()
    }
}

#[track_caller]
fn says(ran: &Ran, what: &str) {
    assert!(ran.stderr_text().contains(what) || ran.stdout_text().contains(what), "{ran:?}");
}

/// A file as `zstd` could have made it, with one block that is not compressed.
fn zstd(content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap();
    let mut file = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    file.extend(len.to_le_bytes());
    file.extend(&(len << 3 | 1).to_le_bytes()[..3]);
    file.extend(content);
    file
}

/// A backup as xtrabackup 8.4 writes it: many tables, then the files that describe it.
fn backup(seed: u8, compressed: bool, command: &str) -> Vec<u8> {
    let incremental = command.contains("incremental");
    let info = format!(
        "uuid = 5\nname = \ntool_name = xtrabackup\ntool_command = {command}\ntool_version = 8.4.0-7\n\
         binlog_pos = filename 'binlog.000003', position '198', GTID of the last change '{GTID}'\n\
         incremental = {}\n",
        if incremental { 'Y' } else { 'N' }
    );
    let kind = if incremental { "incremental" } else { "full-backuped" };
    let checkpoints =
        format!("backup_type = {kind}\nfrom_lsn = 0\nto_lsn = {seed}\nlast_lsn = 1\n");
    let mut out = StreamWriter::new(Vec::new());
    let mut file = |name: &str, content: &[u8]| match compressed && name != "xtrabackup_checkpoints"
    {
        true => drop(out.file(&format!("{name}.zst"), &zstd(content), 1 << 20)),
        false => drop(out.file(name, content, 1 << 20)),
    };
    let mut tablespace = |name: &str, content: &[u8]| match incremental {
        true => {
            file(&format!("{name}.delta"), content);
            file(&format!("{name}.meta"), b"page_size = 16384\n");
        }
        false => file(name, content),
    };
    tablespace("ibdata1", &[seed; 90_000]);
    for name in ["mysql.ibd", "undo_001", "undo_002"] {
        tablespace(name, &[seed; 40_000]);
    }
    for n in 0..150 {
        tablespace(&format!("shop/orders_of_the_year_{n:04}.ibd"), &[n; 20_000]);
    }
    file("xtrabackup_binlog_info", b"binlog.000003\t198\n");
    file("xtrabackup_logfile", &[seed; 4_096]);
    file("xtrabackup_checkpoints", checkpoints.as_bytes());
    file("backup-my.cnf", b"[mysqld]\ninnodb_page_size=16384\n");
    file("xtrabackup_info", info.as_bytes());
    file("xtrabackup_tablespaces", b"{}");
    out.finish()
}

/// The stream that a donor sends before the backup itself.
fn sst_info() -> Vec<u8> {
    let text = format!("[sst]\nmysql-version=8.4.0\ngalera-gtid={GTID}\nbinlog-name=binlog\n");
    let mut out = StreamWriter::new(Vec::new());
    let _ = out.file("sst_info", text.as_bytes(), 1 << 20);
    out.finish()
}

/// The part of a backup that stays until its restore: everything.
fn restored(pod: &Pod, stream: &[u8], decompressed: bool) {
    let mut expected: Vec<String> = scan(stream).into_iter().map(|chunk| chunk.path).collect();
    expected.dedup();
    if decompressed {
        expected.iter_mut().for_each(|name| *name = name.trim_end_matches(".zst").to_owned());
    }
    expected.sort();
    let found = tree(&pod.path("datadir"));
    let names: Vec<String> = found.keys().filter(|name| *name != "sst_info").cloned().collect();
    assert_eq!(names, expected);
}

/// The cluster operator's clean-up before a backup, by the pod of each attempt.
const CLEAN_UP: &str = r#"
XBCLOUD_ARGS="--insecure --curl-retriable-errors=7 $XBCLOUD_EXTRA_ARGS"
xbcloud delete ${XBCLOUD_ARGS} --storage=s3 --s3-bucket="$S3_BUCKET" "$S3_BUCKET_PATH"
xbcloud delete ${XBCLOUD_ARGS} --storage=s3 --s3-bucket="$S3_BUCKET" "$S3_BUCKET_PATH.sst_info"
"#;

/// Its backup: the donor's first stream is one small file, its second the backup.
const RECEIVE: &str = r#"
set -o pipefail
set -m
XBCLOUD_ARGS="--insecure --curl-retriable-errors=7 $XBCLOUD_EXTRA_ARGS"
cat "$POD/first" | xbstream -x -C "$POD/tmp" $XBSTREAM_EXTRA_ARGS &
wait $!
[[ -f $POD/tmp/sst_info ]]
set +o pipefail
xbstream -C "$POD/tmp" -c sst_info $XBSTREAM_EXTRA_ARGS \
    | xbcloud put --storage=s3 --md5 --parallel="$(grep -c processor /proc/cpuinfo)" $XBCLOUD_ARGS \
        --s3-bucket="$S3_BUCKET" "$S3_BUCKET_PATH.sst_info" 2>&1 \
    | (grep -v "error: http request failed: Couldn't resolve host name" || exit 1)
set -o pipefail
cat "$POD/second" \
    | xbcloud put --storage=s3 --md5 --parallel="$(grep -c processor /proc/cpuinfo)" $XBCLOUD_ARGS \
        --s3-bucket="$S3_BUCKET" "$S3_BUCKET_PATH" 2>&1 \
    | (grep -v "error: http request failed: Couldn't resolve host name" || exit 1) \
    | tee "$POD/tmp/xbcloud-snapshot.log" &
wait $!
"#;

/// Its restore: `sst_info` first, then the backup into the same folder.
const RECOVER: &str = r#"
XBCLOUD_ARGS="--insecure --curl-retriable-errors=7 $XBCLOUD_EXTRA_ARGS"
rm -rf "$POD"/datadir/*
tmp=$(mktemp --directory "$POD/datadir/pxc_sst_XXXX")
cores=$(grep -c processor /proc/cpuinfo)
xbcloud get --parallel="$cores" ${XBCLOUD_ARGS} "s3://$S3_BUCKET_URL.sst_info" \
    | xbstream -x -C "${tmp}" --parallel="$cores" $XBSTREAM_EXTRA_ARGS
[[ $(xtrabackup --version 2>&1 | grep '^xtrabackup version' | awk '{print $3}' | sed 's/-.*//') == 8.4.0 ]]
XBSTREAM_EXTRA_ARGS="$XBSTREAM_EXTRA_ARGS --decompress"
xbcloud get --parallel="$cores" ${XBCLOUD_ARGS} "s3://$S3_BUCKET_URL" \
    | xbstream -x -C "${tmp}" --parallel="$cores" $XBSTREAM_EXTRA_ARGS
grep -q "galera-gtid=" "$tmp/sst_info"
[[ -z $(awk -F "=[ ]*" "/plugin_load[ ]*=/ {print \$2}" "$tmp/backup-my.cnf") ]]
xtrabackup --use-memory=100M --prepare --rollback-prepared-trx \
    --xtrabackup-plugin-dir=/usr/lib64/xtrabackup/plugin "--target-dir=$tmp"
xtrabackup --defaults-group=mysqld --datadir="$POD/datadir" --move-back --force-non-empty-directories \
    --keyring-vault-config=/etc/mysql/vault-keyring-secret/keyring_vault.conf --early-plugin-load=keyring_vault.so \
    --xtrabackup-plugin-dir=/usr/lib64/xtrabackup/plugin "--target-dir=$tmp"
rm -rf "$tmp"
"#;

/// Reads the first object of a small file as the operator's point-in-time recovery does: the
/// program must succeed without a word.
fn read_small_file(pod: &Pod, prefix: &str, name: &str) -> String {
    let mut keys = pod.objects(&format!("{prefix}/{name}"));
    keys.sort();
    let object = pod.bucket.get(&keys[0]).unwrap();
    let into = pod.scratch.dir(&format!("pitr-{name}"));
    let xbstream = pod.program("xbstream", &[]).args(["-x", "--decompress"]).cwd(&into);
    let ran = xbstream.stdin_bytes(object).run().expect(0);
    assert_eq!((ran.stdout_text(), ran.stderr_text()), (String::new(), String::new()));
    std::fs::read_to_string(into.join(name)).unwrap()
}

/// The state transfer that serves as a backup, from the first attempt to the removal.
fn state_transfer(compressed: bool) {
    let pod = Pod::new();
    let name = "cluster1-2026-11-22-15:04:05-full";
    let url = format!("{}/{name}", pod.bucket.name());
    let endpoint = pod.bucket.endpoint();
    let variables = [
        ("ENDPOINT", &*endpoint),
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("S3_BUCKET_PATH", name),
        ("S3_BUCKET_URL", &*url),
    ];
    let env = pod.cluster(&variables);
    let stream = backup(7, compressed, "--backup --stream=xbstream");
    std::fs::write(pod.path("first"), sst_info()).unwrap();

    // The donor goes away between two files, and within one: the pod must notice either way.
    let ends = scan(&stream);
    let between = ends[ends.len() / 2].start;
    for cut in [between, between + 11, 0] {
        std::fs::write(pod.path("second"), &stream[..cut]).unwrap();
        let ran = pod.script(&env, RECEIVE).expect(1);
        says(&ran, "Upload failed: backup is incomplete");
        assert!(pod.size(&format!("{name}.md5")) < LEAST_MD5[0]);
        assert_eq!(pod.list("").iter().filter(|(_, state)| state == "complete").count(), 0);
        std::fs::remove_file(pod.path("tmp/sst_info")).unwrap();
        // The next pod removes what is there, and only asks for what is there.
        for path in [name.to_owned(), format!("{name}.sst_info")] {
            if !pod.objects(&format!("{path}/")).is_empty() {
                let next = Pod::at(pod.bucket.clone());
                let delete = next.program("xbcloud", &env).args(["delete", "--insecure"]);
                let delete = delete.args(["--curl-retriable-errors=7", "--storage=s3"]);
                let delete = delete.arg(format!("--s3-bucket={}", pod.bucket.name())).arg(&path);
                let _ = delete.run().expect(0);
            }
            assert_eq!(pod.objects(&format!("{path}/")), Vec::<String>::new());
        }
    }

    std::fs::write(pod.path("second"), &stream).unwrap();
    let ran = pod.script(&env, RECEIVE).expect(0);
    says(&ran, "Upload failed: backup is incomplete");
    says(&ran, "Upload completed.");
    let snapshot = std::fs::read_to_string(pod.path("tmp/xbcloud-snapshot.log")).unwrap();
    assert!(!snapshot.contains("Upload failed"), "{snapshot}");
    assert!(pod.size(&format!("{name}.md5")) >= LEAST_MD5[0]);
    let listed = pod.list("");
    let states = ["complete", "stock, unproven"].map(str::to_owned);
    assert_eq!(listed.into_iter().map(|(_, state)| state).collect::<Vec<_>>(), states);

    let _ = pod.script(&env, RECOVER).expect(0);
    restored(&pod, &stream, true);
    let calls = pod.calls();
    assert!(
        calls[0].starts_with("--use-memory=100M --prepare --rollback-prepared-trx"),
        "{calls:?}"
    );
    assert!(calls[1].contains("--datadir=/datadir --move-back"), "{calls:?}");

    let sst = read_small_file(&pod, &format!("{name}.sst_info"), "sst_info");
    assert!(sst.contains(&format!("galera-gtid={GTID}\n")));
    let info = read_small_file(&pod, name, "xtrabackup_info");
    assert!(info.contains(&format!("GTID of the last change '{GTID}'\n")));

    // The same name again, after the operator's clean-up.
    let _ = pod.script(&env, CLEAN_UP).expect(0);
    assert_eq!(pod.objects(name), Vec::<String>::new());
    std::fs::remove_file(pod.path("tmp/sst_info")).unwrap();
    let _ = pod.script(&env, RECEIVE).expect(0);
    // Its finalizer removes the objects through the store's own interface.
    for key in pod.objects(name) {
        pod.bucket.delete(&key);
    }
    assert_eq!(pod.list("").iter().filter(|(_, state)| state == "complete").count(), 0);
    std::fs::remove_file(pod.path("tmp/sst_info")).unwrap();
    says(&pod.script(&env, RECEIVE).expect(0), "Upload completed.");
}

#[test]
fn a_state_transfer_as_a_backup() {
    state_transfer(false);
}

#[test]
fn a_compressed_state_transfer_as_a_backup() {
    state_transfer(true);
}

/// `xbcloud VERB` as the operators' servers beside MySQL call it, with every value as an option.
fn beside_mysql(pod: &Pod, verb: &str, destination: &str) -> Cmd {
    let env = [("HOME", "/no/such/home")];
    let endpoint = pod.bucket.endpoint();
    pod.program("xbcloud", &env)
        .args([verb, "--parallel=10", "--curl-retriable-errors=7", "--insecure", "--md5"])
        .arg("--storage=s3")
        .arg(format!("--s3-bucket={}", pod.bucket.name()))
        .arg(format!("--s3-region={REGION}"))
        .arg(format!("--s3-access-key={ACCESS_KEY}"))
        .arg(format!("--s3-secret-key={SECRET_KEY}"))
        .arg(format!("--s3-endpoint={endpoint}"))
        .arg(destination)
}

/// Stores the output of xtrabackup.
fn take(pod: &Pod, destination: &str, stream: &[u8]) -> Ran {
    std::fs::write(pod.path("stream"), stream).unwrap();
    let xtrabackup = pod.program("xtrabackup", &[]);
    let args = ["--backup", "--stream=xbstream", "--safe-slave-backup", "--slave-info"];
    let made = xtrabackup.args(args).arg("--target-dir=/backup/").run().expect(0);
    beside_mysql(pod, "put", destination).stdin_bytes(made.stdout).run()
}

#[test]
fn a_server_beside_mysql_backs_up_and_removes() {
    let pod = Pod::new();
    let stream = backup(7, false, "--backup --stream=xbstream");
    let name = "prefix/ps-cluster1-2026-11-22-15:04:05-full";
    says(&take(&pod, name, &stream).expect(0), "Upload completed.");
    assert!(pod.size(&format!("{name}.md5")) >= LEAST_MD5[1]);
    // The cluster operator writes an object of its own beside the backup.
    pod.bucket.put(&format!("{name}.meta.json"), br#"{"cluster_uuid":"1"}"#);
    let complete = [("ps-cluster1-2026-11-22-15:04:05-full".to_owned(), "complete".to_owned())];
    assert_eq!(pod.list("prefix"), complete);
    says(&take(&pod, name, &stream).expect(1), "already exists");
    let _ = beside_mysql(&pod, "delete", name).run().expect(0);
    assert_eq!(pod.objects("prefix/"), [format!("{name}.meta.json")]);

    // A URL that says what the options say, too.
    let url = format!("s3://{}/{name}", pod.bucket.name());
    let _ = take(&pod, &url, &stream).expect(0);
    // The job that removes a backup has no keys of its own when the pod has a role: the options are
    // there, and empty.
    let keys = pod.path("tmp/credentials");
    let text = format!(
        "[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    );
    std::fs::write(&keys, text).unwrap();
    let env = [("AWS_SHARED_CREDENTIALS_FILE", keys.to_str().unwrap())];
    let delete = pod.program("xbcloud", &env);
    let delete = delete
        .args(["delete", "--parallel=10", "--curl-retriable-errors=7", "--md5", "--storage=s3"])
        .arg(format!("--s3-bucket={}", pod.bucket.name()))
        .args(["--s3-region=", "--s3-access-key=", "--s3-secret-key="])
        .arg(format!("--s3-endpoint={}", pod.bucket.endpoint()));
    let _ = delete.arg(name).run().expect(0);
    assert_eq!(pod.objects("prefix/"), [format!("{name}.meta.json")]);
    // With nothing left, the stock tool fails, too.
    says(&beside_mysql(&pod, "delete", name).run().expect(1), "there is no complete backup");
}

/// When xtrabackup fails, the operator's server kills `xbcloud put`. Its next attempt removes what is
/// there, on the same host.
#[test]
fn a_killed_put_is_removed_and_repeated_at_once() {
    let pod = Pod::new();
    let stream = backup(7, false, "--backup --stream=xbstream");
    let name = "prefix/cluster1-full";
    let mut put = beside_mysql(&pod, "put", name).stdin_held().spawn();
    let mut stdin = put.stdin().unwrap();
    std::io::Write::write_all(&mut stdin, &stream[..stream.len() / 2]).unwrap();
    put.until("an object", || !pod.objects(&format!("{name}/")).is_empty());
    put.kill_9();
    drop((stdin, put.wait()));
    assert_eq!(pod.list("prefix").iter().filter(|(_, state)| state == "complete").count(), 0);
    let _ = beside_mysql(&pod, "delete", name).run().expect(0);
    assert_eq!(pod.objects("prefix/"), Vec::<String>::new());
    says(&take(&pod, name, &stream).expect(0), "Upload completed.");
}

/// The restore of the operator for MySQL: a full backup with its increments.
const RESTORE: &str = r#"
XTRABACKUP_VERSION=$(xtrabackup --version 2>&1 | awk '/^xtrabackup version/{print $3}' | awk -F'.' '{print $1"."$2}')
[[ $XTRABACKUP_VERSION == 8.4 ]]
PARALLEL=$(grep -c processor /proc/cpuinfo)
XBCLOUD_ARGS="--curl-retriable-errors=7 --parallel=${PARALLEL} ${XBCLOUD_EXTRA_ARGS} --insecure"
DATADIR=$POD/datadir
fetch() { # DESTINATION FOLDER
    xbcloud get ${XBCLOUD_ARGS} "$1" --storage=s3 --s3-bucket="${S3_BUCKET}" \
        | xbstream -xv -C "$2" --parallel="${PARALLEL}" ${XBSTREAM_EXTRA_ARGS}
    xtrabackup --decompress --remove-original --parallel="${PARALLEL}" --target-dir="$2"
}
rm -rf "${DATADIR:?}"/*
basedir=$(mktemp --directory "${DATADIR}/restore1_base_XXXX")
fetch "$BACKUP_DEST" "$basedir"
xtrabackup --prepare --apply-log-only --target-dir="${basedir}" --component-keyring-config=/tmp/component_keyring_vault.cnf
incrdir=$(mktemp --directory "${DATADIR}/restore1_incr1_XXXX")
fetch "$INCREMENT_DEST" "$incrdir"
[[ -e $incrdir/ibdata1.delta.zst && -e $incrdir/xtrabackup_checkpoints ]]
xtrabackup --prepare --target-dir="${basedir}" --incremental-dir="${incrdir}"
rm -rf "${incrdir}"
xtrabackup --datadir="${DATADIR}" --move-back --force-non-empty-directories --target-dir="${basedir}"
rm -rf "${basedir}"
"#;

#[test]
fn a_restore_of_a_full_backup_with_its_increment() {
    let pod = Pod::new();
    let full = backup(7, true, "--backup --stream=xbstream");
    let increment = backup(9, true, "--backup --stream=xbstream --incremental-lsn=7");
    let (base, next) = ("ps-2026-11-22-15:04:05-full", "ps-2026-11-23-15:04:05-incr");
    let _ = take(&pod, base, &full).expect(0);
    let _ = take(&pod, next, &increment).expect(0);
    let endpoint = pod.bucket.endpoint();
    let env = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ENDPOINT", &*endpoint),
        ("S3_BUCKET", pod.bucket.name()),
        ("BACKUP_DEST", base),
        ("INCREMENT_DEST", next),
    ];
    let ran = pod.script(&env, RESTORE).expect(0);
    // `-v` names every file.
    says(&ran, "shop/orders_of_the_year_0149.ibd.zst");
    restored(&pod, &full, false);
    let calls = pod.calls();
    let verbs = [
        "--backup",
        "--backup",
        "--decompress",
        "--apply-log-only",
        "--decompress",
        "--incremental-dir",
        "--move-back",
    ];
    assert_eq!(calls.len(), verbs.len(), "{calls:?}");
    assert!(calls.iter().zip(verbs).all(|(call, verb)| call.contains(verb)), "{calls:?}");
}

/// The script that copies a backup to an administrator's machine: no variables but the credentials.
/// A system without certificates can do it, if the store speaks plain HTTP.
#[test]
fn a_copy_for_the_administrator() {
    let pod = Pod::new();
    let endpoint = pod.bucket.endpoint();
    let credentials = [
        ("ENDPOINT", &*endpoint),
        ("ACCESS_KEY_ID", ACCESS_KEY),
        ("SECRET_ACCESS_KEY", SECRET_KEY),
        ("DEFAULT_REGION", REGION),
        ("SSL_CERT_FILE", "/dev/null"),
    ];
    for compressed in [false, true] {
        let stream = backup(7, compressed, "--backup --stream=xbstream");
        let name = format!("copied-{compressed}");
        let url = format!("s3://{}/{name}", pod.bucket.name());
        let _ = take(&pod, &name, &stream).expect(0);
        let xbcloud = || pod.program("xbcloud", &credentials).args(["get", &url]);
        let asked = xbcloud().arg("xtrabackup_info").run().expect(0);
        assert_eq!(asked.stdout.is_empty(), compressed);
        let file = pod.path("tmp/xtrabackup.stream");
        let _ = xbcloud().arg("--parallel=10").stdout_file(&file).run().expect(0);
        let into = pod.scratch.dir(&name);
        let extract = pod.program("xbstream", &[]).args(["--decompress", "-x", "-C"]).arg(&into);
        let _ = extract.stdin_file(file).run().expect(0);
        assert!(tree(&into).contains_key("shop/orders_of_the_year_0149.ibd"));
    }
}

/// The cluster operator with Azure; there, it asks for no list of checksums.
#[test]
fn a_backup_in_azure() {
    let pod = Pod::new();
    let container = azure::container();
    let (endpoint, stream) = (container.endpoint(), backup(7, false, "--backup"));
    let env = [
        ("AZURE_STORAGE_ACCOUNT", azure::ACCOUNT),
        ("AZURE_ACCESS_KEY", azure::KEY),
        ("AZURE_ENDPOINT", &*endpoint),
        ("AZURE_CONTAINER_NAME", container.name()),
    ];
    let name = "cluster1-2026-11-22-15:04:05-full";
    let common = ["--parallel=2", "--curl-retriable-errors=7"];
    let put = |name: &str, stream: Vec<u8>| {
        let put = pod.program("xbcloud", &env).args(["put", "--storage=azure"]).args(common);
        put.arg(name).stdin_bytes(stream).run()
    };
    let info = format!("{name}.sst_info");
    says(&put(&info, sst_info()).expect(1), "Upload failed: backup is incomplete");
    says(&put(name, stream.clone()).expect(0), "Upload completed.");
    for (name, files) in [(&*info, 1), (name, 160)] {
        let get = pod.program("xbcloud", &env).arg("get").args(common).arg("--storage=azure");
        let get = get.arg(format!("--azure-container-name={}", container.name())).arg(name);
        let got = get.run().expect(0);
        let into = pod.scratch.dir(name);
        let extract = pod.program("xbstream", &[]).args(["-x", "-C"]).arg(&into);
        let _ = extract.stdin_bytes(got.stdout).run().expect(0);
        assert_eq!(tree(&into).len(), files);
    }
    let delete = || {
        pod.program("xbcloud", &[])
            .args([
                "delete",
                "--parallel=10",
                "--curl-retriable-errors=7",
                "--insecure",
                "--storage=azure",
            ])
            .arg(format!("--azure-storage-account={}", azure::ACCOUNT))
            .arg(format!("--azure-container-name={}", container.name()))
            .arg(format!("--azure-access-key={}", azure::KEY))
            .arg(format!("--azure-endpoint={endpoint}"))
    };
    let _ = delete().arg(name).run().expect(0);
    let _ = delete().arg(&info).run().expect(0);
    let _ = delete().arg(name).run().expect(1);
}

/// Google with the keys for its S3 interface, as both operators give them.
#[test]
fn a_backup_in_google() {
    let pod = Pod::new();
    let google = |verb: &str| {
        pod.program("xbcloud", &[])
            .args([verb, "--parallel=10", "--curl-retriable-errors=7", "--insecure", "--md5"])
            .arg("--storage=google")
            .arg(format!("--google-bucket={}", pod.bucket.name()))
            .arg(format!("--google-access-key={ACCESS_KEY}"))
            .arg(format!("--google-secret-key={SECRET_KEY}"))
            .arg(format!("--google-endpoint={}", pod.bucket.endpoint()))
            .arg("prefix/cluster1-15:04:05-full")
    };
    let stream = backup(7, false, "--backup");
    says(&google("put").stdin_bytes(stream).run().expect(0), "Upload completed.");
    assert!(pod.size("prefix/cluster1-15:04:05-full.md5") >= LEAST_MD5[1]);
    // The restore has the keys in its environment.
    let endpoint = pod.bucket.endpoint();
    let env = [
        ("ACCESS_KEY_ID", ACCESS_KEY),
        ("SECRET_ACCESS_KEY", SECRET_KEY),
        ("ENDPOINT", &*endpoint),
        ("DEFAULT_REGION", REGION),
    ];
    let get = pod.program("xbcloud", &env).args(["get", "--curl-retriable-errors=7"]);
    let get = get.args(["--parallel=2", "prefix/cluster1-15:04:05-full", "--storage=google"]);
    let got = get.arg(format!("--google-bucket={}", pod.bucket.name())).run().expect(0);
    assert!(scan(&got.stdout).len() > 300);
    let _ = google("delete").run().expect(0);
    assert_eq!(pod.objects("prefix/"), Vec::<String>::new());
}
