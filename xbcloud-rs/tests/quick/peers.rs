//! The calls of a peer that the benches name and that cannot be installed here. A script plays it.

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::tools::workspace;

/// Stores and passes on what the commands in its settings give and take, as the documents of wal-g 3.0 say.
const WAL_G: &str = r#"#!/bin/sh -eu
place=$WALG_FILE_FOR_TEST.$WALG_COMPRESSION_METHOD
[ "$WALG_S3_PREFIX $AWS_ENDPOINT $AWS_S3_FORCE_PATH_STYLE $WALG_S3_CA_CERT_FILE" = "s3://b/x https://h:1 true /ca" ]
case "$*" in
backup-push) "$SHELL" -c "$WALG_STREAM_CREATE_COMMAND" >"$place" ;;
"backup-fetch LATEST") "$SHELL" -c "$WALG_STREAM_RESTORE_COMMAND" <"$place" ;;
*) exit 2 ;;
esac
"#;

/// Runs what the benches would.
const CALLS: &str = r#"
import subprocess, sys
sys.path.insert(0, "benches")
from lib.objects import WAL_G_CODECS, WalG
program, stream, out = sys.argv[1:]
for codec in WAL_G_CODECS:
    wal_g = WalG(program, "s3://b/x", codec, "https://h:1", "/ca")
    for call in (wal_g.push(stream), wal_g.fetch("dd", f"of={out}.{codec}", "status=none")):
        subprocess.run([str(word) for word in call], check=True)
"#;

#[test]
fn wal_g_gets_the_stream_and_gives_it_back() {
    let scratch = Scratch::new();
    let (program, stream) = (scratch.join("wal-g"), scratch.join("a stream"));
    std::fs::write(&program, WAL_G).unwrap();
    let _ = Cmd::new("chmod").arg("755").arg(&program).run().expect(0);
    std::fs::write(&stream, b"bytes of a stream").unwrap();
    let calls = Cmd::new("python3").args(["-B", "-c", CALLS]).cwd(workspace());
    let calls = calls.arg(&program).arg(&stream).arg(scratch.join("out"));
    let _ = calls.env("WALG_FILE_FOR_TEST", scratch.join("stored")).run().expect(0);
    for codec in ["lz4", "zstd"] {
        let came = std::fs::read(scratch.join(format!("out.{codec}"))).unwrap();
        assert_eq!(came, b"bytes of a stream", "{codec}");
    }
}
