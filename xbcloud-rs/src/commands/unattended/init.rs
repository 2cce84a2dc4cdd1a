//! `init`: creates a local directory, or prints what a bucket needs, and sets the bucket up with
//! `--apply`.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use xb_backup::{BackupError, CancelToken, OrInterrupted as _};
use xb_cli::Failure;
use xb_uploader::{AbortRule, Location, Store, StorePlace};

use crate::args::InitArgs;
use crate::commands::context::Context;
use crate::location::{locate, root_place};
use crate::report;

/// Days after which a bucket removes the parts of an upload that never ended.
const UNFINISHED_DAYS: u32 = 7;
const RULE_ID: &str = "xbcloud-unfinished-uploads";

impl Context {
    pub(crate) fn init(&self, args: &InitArgs) -> Result<(), Failure> {
        let location = locate(args.root.place.as_deref().unwrap_or_default(), &args.common.store)?;
        if location.place == StorePlace::Local {
            let folder = Path::new("/").join(&location.path);
            std::fs::create_dir_all(&folder).map_err(|error| {
                Failure::new(format!("cannot create {}: {error}", folder.display()))
                    .stage("init")
                    .hint("make its parent directory writable for this user, or choose another location")
            })?;
            self.log.info(format!("{} is ready", folder.display()));
        } else if args.apply {
            self.apply(args, &location)?;
        } else {
            let features = Features {
                lock: args.retain.retain.is_some(),
                tags: !args.common.store.tag.is_empty(),
            };
            let needs = needs(&location, features);
            report::printed(print(&needs, args.common.run.json))?;
        }
        self.offer_key(args)
    }

    /// Shows how to make a key if no option names one. Asks nothing: the private half should be kept where its
    /// owner decides.
    fn offer_key(&self, args: &InitArgs) -> Result<(), Failure> {
        if !args.keys.key_slots(&args.recipients, &self.log)?.is_empty() {
            return Ok(());
        }
        let repository = args.repository.as_deref();
        let name = repository.unwrap_or("backup");
        self.log.info("note: no key is set, so backups will not be sealed: anyone who can read the store can read them. To seal them:");
        self.log.info(format!("  xbcrypt-rs keygen --identity -o /etc/xbcloud-rs/{name}.identity    # keep a copy elsewhere"));
        self.log.info(match repository {
            Some(name) => format!("  and set `recipient = age1...`, the public key that it prints, in the group [xbcloud.{name}]"),
            None => "  and give the public key that it prints to each backup: --recipient=age1...".to_owned(),
        });
        Ok(())
    }
}

impl Context {
    /// Changes the bucket: each change is reported when it is made.
    fn apply(&self, args: &InitArgs, location: &Location) -> Result<(), Failure> {
        let StorePlace::S3 { bucket } = &location.place else {
            return Err(Failure::usage("--apply works only for S3")
                .hint("leave it out, and apply the printed settings with the store's own tools"));
        };
        let root = root_place(args.root.place.as_deref(), &args.common)?;
        let lock = args.retain.retain.is_some();
        let id = rule_id(&location.path);
        let prefix = rule_prefix(&location.path);
        let rule = AbortRule { id: &id, prefix: &prefix, days: UNFINISHED_DAYS };
        let applying = |_, cancel: CancelToken| async move {
            cancel.or(self.change(root.store(), bucket, &rule, lock)).await
        };
        self.with_progress("init", &args.common.run, None, applying).map(drop)
    }

    async fn change(
        &self,
        store: &Store,
        bucket: &str,
        rule: &AbortRule<'_>,
        lock: bool,
    ) -> Result<(), BackupError> {
        if lock {
            match store.can_lock().await {
                Ok(()) => self.log.info(format!("{bucket}: object lock is on")),
                Err(_) => {
                    store.enable_object_lock().await?;
                    self.log.info(format!("{bucket}: switched on object lock"));
                }
            }
        }
        let days = rule.days;
        self.log.info(match store.add_abort_rule(rule).await? {
            true => {
                format!("{bucket}: added a rule that aborts uploads unfinished for {days} days")
            }
            false => format!("{bucket}: a rule aborts uploads unfinished for {days} days"),
        });
        Ok(())
    }
}

/// ID of the rule for a ROOT, at most 255 characters: each ROOT of a bucket has its own. The end of a long path differs
/// more often than its beginning.
fn rule_id(path: &str) -> String {
    let separator = if path.is_empty() { "" } else { "-" };
    let plain: Vec<String> = path
        .chars()
        .map(|c| match c {
            '&' | '<' | '>' | '"' | '\'' | '%' => format!("%{:02X}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    let room = 255 - RULE_ID.len() - separator.len();
    let mut length = 0;
    let fits = |c: &&String| {
        length += c.chars().count();
        length <= room
    };
    let mut end: Vec<&str> = plain.iter().rev().take_while(fits).map(String::as_str).collect();
    end.reverse();
    format!("{RULE_ID}{separator}{}", end.concat())
}

/// Prefix of the keys below a ROOT.
fn rule_prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}/") }
}

/// One document that the operator applies, and how.
struct Need {
    what: &'static str,
    how: String,
    document: Value,
}

/// Features of S3 that backups use, and that need permissions of their own.
#[derive(Clone, Copy)]
struct Features {
    lock: bool,
    tags: bool,
}

fn needs(location: &Location, features: Features) -> Vec<Need> {
    let lock = features.lock;
    let below = |bucket: &str| match location.path.as_str() {
        "" => format!("{bucket}/*"),
        path => format!("{bucket}/{path}/*"),
    };
    match &location.place {
        StorePlace::S3 { bucket } => {
            let mut needs = vec![
                Need {
                    what: "policy of the user or role that backs up",
                    how: "aws iam put-user-policy --user-name USER --policy-name xbcloud --policy-document file://policy.json".to_owned(),
                    document: s3_policy(bucket, &below(bucket), features),
                },
                Need {
                    what: "lifecycle rule for unfinished uploads; add it to the rules of the bucket",
                    how: format!("aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration file://lifecycle.json"),
                    document: json!({ "Rules": [{
                        "ID": rule_id(&location.path), "Status": "Enabled",
                        "Filter": { "Prefix": rule_prefix(&location.path) },
                        "AbortIncompleteMultipartUpload": { "DaysAfterInitiation": UNFINISHED_DAYS },
                    }] }),
                },
            ];
            if lock {
                needs.push(Need {
                    what: "object lock; a bucket gets it when it is created",
                    how: format!(
                        "aws s3api create-bucket --bucket {bucket} --object-lock-enabled-for-bucket"
                    ),
                    document: Value::Null,
                });
            }
            needs
        }
        StorePlace::Google { bucket } => vec![
            Need {
                what: "role of the service account that backs up",
                how: format!(
                    "gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:ACCOUNT --role=roles/storage.objectAdmin"
                ),
                document: Value::Null,
            },
            Need {
                what: "lifecycle rule for unfinished uploads",
                how: format!(
                    "gcloud storage buckets update gs://{bucket} --lifecycle-file=lifecycle.json"
                ),
                document: json!({ "rule": [{
                    "action": { "type": "AbortIncompleteMultipartUpload" },
                    "condition": { "age": UNFINISHED_DAYS },
                }] }),
            },
        ],
        StorePlace::Azure { container } => vec![Need {
            what: "role of the identity that backs up",
            how: format!(
                "az role assignment create --assignee ID --role 'Storage Blob Data Contributor' --scope SCOPE-OF-CONTAINER-{container}"
            ),
            document: Value::Null,
        }],
        _ => Vec::new(),
    }
}

/// The smallest policy with which every command works.
fn s3_policy(bucket: &str, objects: &str, features: Features) -> Value {
    let mut of_objects = vec![
        "s3:PutObject",
        "s3:GetObject",
        "s3:DeleteObject",
        "s3:AbortMultipartUpload",
        "s3:ListMultipartUploadParts",
    ];
    let mut of_bucket = vec!["s3:ListBucket", "s3:ListBucketMultipartUploads"];
    if features.tags {
        of_objects.push("s3:PutObjectTagging");
    }
    if features.lock {
        of_objects.extend(["s3:PutObjectRetention", "s3:GetObjectRetention"]);
        of_bucket.push("s3:GetBucketObjectLockConfiguration");
    }
    json!({ "Version": "2012-10-17", "Statement": [
        { "Effect": "Allow", "Action": of_objects, "Resource": format!("arn:aws:s3:::{objects}") },
        { "Effect": "Allow", "Action": of_bucket, "Resource": format!("arn:aws:s3:::{bucket}") },
    ] })
}

fn print(needs: &[Need], as_json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let needs: Vec<Value> = needs
            .iter()
            .map(|need| json!({ "what": need.what, "how": need.how, "document": need.document }))
            .collect();
        serde_json::to_writer_pretty(&mut out, &needs)?;
        return writeln!(out);
    }
    for need in needs {
        writeln!(out, "# {}:\n#   {}", need.what, need.how)?;
        if !need.document.is_null() {
            serde_json::to_writer_pretty(&mut out, &need.document)?;
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
