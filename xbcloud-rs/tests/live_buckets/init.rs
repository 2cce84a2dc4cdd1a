//! `init --apply` on real buckets.

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::s3::{self, Bucket};

fn xbcloud(args: &[&str]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("--no-defaults").args(args).run()
}

/// SeaweedFS keeps lifecycle rules, and locks objects in buckets that were created for it.
#[test]
fn init_sets_up_a_real_bucket() {
    let init = |bucket: &Bucket, more: &[&str]| -> Ran {
        let url = bucket.url("shop");
        let options = bucket.options();
        let mut args = vec!["init", &url, "--apply"];
        args.extend(options.iter().map(String::as_str));
        args.extend(more);
        xbcloud(&args)
    };
    let bucket = s3::bucket();
    let added = init(&bucket, &[]).expect(0).stderr_text();
    assert!(added.contains("added a rule that aborts uploads"), "{added}");
    let again = init(&bucket, &[]).expect(0).stderr_text();
    assert!(!again.contains("added"), "{again}");
    let locked = init(&s3::locking_bucket(), &["--retain=1d"]).expect(0);
    assert!(locked.stderr_text().contains("object lock is on"), "{locked:?}");
    let refused = init(&bucket, &["--retain=1d"]).expect(1).stderr_text();
    assert!(refused.contains("object lock") && refused.contains("versions"), "{refused}");
    let refused = xbcloud(&["init", "gs://bucket/shop", "--apply"]).expect(2).stderr_text();
    assert!(refused.contains("only for S3"), "{refused}");
}
