//! Settings of an S3 bucket that backups need: the rule that aborts unfinished uploads
//! ("PutBucketLifecycleConfiguration"), and object lock ("PutObjectLockConfiguration").

mod lifecycle;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::raw_request::{RawApi, failed};
use crate::store::Store;
use crate::store::bucket_rules::lifecycle::{LifecycleError, Rules};

const LIFECYCLE: &str = "?lifecycle=";
/// The error code of a bucket without lifecycle rules. No other 404 shows that there are none.
const NONE_YET: &str = "<Code>NoSuchLifecycleConfiguration</Code>";
/// Setting of the whole configuration that S3 returns in a header, and resets without it.
const LEAST_SIZE: HeaderName =
    HeaderName::from_static("x-amz-transition-default-minimum-object-size");
const OBJECT_LOCK: &str = "?object-lock=";
const NO_RULES: &str = "this store does not support lifecycle rules for unfinished uploads";
const NO_RULES_HINT: &str =
    "run `gc` regularly: it aborts the unfinished uploads of dead runs, too";

/// A lifecycle rule that aborts uploads which were not completed in time.
#[derive(Debug, Clone, Copy)]
pub struct AbortRule<'a> {
    /// ID of the rule; a rule with this ID is replaced.
    pub id: &'a str,
    /// Prefix of the keys; empty: the whole bucket.
    pub prefix: &'a str,
    /// Age of an upload, in days.
    pub days: u32,
}

impl AbortRule<'_> {
    fn xml(&self) -> String {
        let (id, prefix) =
            (quick_xml::escape::escape(self.id), quick_xml::escape::escape(self.prefix));
        format!(
            "<Rule><ID>{id}</ID><Filter><Prefix>{prefix}</Prefix></Filter><Status>Enabled</Status>\
             <AbortIncompleteMultipartUpload><DaysAfterInitiation>{}</DaysAfterInitiation>\
             </AbortIncompleteMultipartUpload></Rule>",
            self.days
        )
    }

    fn is_in(&self, rules: &Rules) -> bool {
        rules.abort_after(self.id, self.prefix, self.days)
    }

    /// Hint for rules that must stay as they are.
    fn by_hand(&self) -> String {
        format!("add this rule with the store's own tools: {}", self.xml())
    }
}

/// Lifecycle rules, and the setting that the store keeps beside them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Configuration {
    rules: Rules,
    /// Value of [`LEAST_SIZE`].
    least_size: Option<HeaderValue>,
}

impl Configuration {
    /// Returns the rules that `later` no longer has, apart from the one with this ID, as they were written.
    fn lost_in(&self, later: &Self, id: &str) -> Vec<String> {
        let rules = self.rules.lost_in(&later.rules, id).into_iter().map(str::to_owned);
        let reset = self.least_size.as_ref().filter(|_| self.least_size != later.least_size);
        let setting = |value| format!("{LEAST_SIZE}: {}", String::from_utf8_lossy(value));
        rules.chain(reset.map(|value| setting(value.as_bytes()))).collect()
    }
}

impl Store {
    /// Adds a lifecycle rule to the bucket and keeps its other rules, byte for byte. Returns whether
    /// the rule is new.
    ///
    /// The rules are read twice before, because what one wrong answer leaves out would be deleted,
    /// and once after, because some stores accept a rule and forget it, or others: those are put back.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] if the store has no such rules, or has some of a form that is
    /// not known here; [`StoreErrorKind::Denied`] if the credentials may not change them;
    /// [`StoreErrorKind::Altered`] if two answers differ; [`StoreErrorKind::Damaged`] if the store
    /// has lost other rules; other kinds after all retries.
    pub async fn add_abort_rule(&self, rule: &AbortRule<'_>) -> Result<bool, StoreError> {
        let raw_api = &self.traits.raw_api;
        let no = |_| unsupported(Operation::LifecycleRule, NO_RULES, NO_RULES_HINT);
        if !matches!(raw_api, RawApi::S3 { .. }) {
            return Err(no(()));
        }
        let before = self.lifecycle(rule).await?;
        if rule.is_in(&before.rules) {
            return Ok(false);
        }
        if self.lifecycle(rule).await? != before {
            let kind = StoreErrorKind::Altered;
            let what = "two answers about the bucket's lifecycle rules differ; nothing was changed";
            return Err(StoreError::new(Operation::LifecycleRule, "", kind, what));
        }
        match self.put_lifecycle(before.rules.with(rule.id, &rule.xml()), &before).await {
            Err(error) if error.kind == StoreErrorKind::Rejected => {
                return Err(error.with_hint(Some(NO_RULES_HINT.into())));
            }
            done => done?,
        }
        let after = self.lifecycle(rule).await?;
        let lost = before.lost_in(&after, rule.id);
        if !lost.is_empty() {
            let is_ours = !after.rules.has_more_than(&before.rules, rule.id);
            let (what, hint) = match is_ours && self.put_back(rule, &before).await {
                true => (
                    "the store changed other lifecycle rules of the bucket when ours was added, so they were put back as they were, without ours",
                    format!("{NO_RULES_HINT}; or {}", rule.by_hand()),
                ),
                false => (
                    "the store has changed other lifecycle rules of the bucket than ours",
                    format!("add them again with the store's own tools: {}", lost.concat()),
                ),
            };
            let error =
                StoreError::new(Operation::LifecycleRule, "", StoreErrorKind::Damaged, what);
            return Err(error.with_hint(Some(hint.into())));
        }
        match rule.is_in(&after.rules) {
            true => Ok(true),
            false => Err(no(())),
        }
    }

    /// Restores the earlier rules, because the store does not keep them beside ours. Returns whether the store has them again.
    async fn put_back(&self, rule: &AbortRule<'_>, before: &Configuration) -> bool {
        let done = self.put_lifecycle(before.rules.text().to_owned(), before).await;
        done.is_ok() && self.lifecycle(rule).await.is_ok_and(|now| now == *before)
    }

    /// Writes lifecycle rules, with the setting of `before` beside them.
    async fn put_lifecycle(&self, rules: String, before: &Configuration) -> Result<(), StoreError> {
        let (raw_api, body) = (&self.traits.raw_api, Bytes::from(rules));
        let with = before.least_size.clone().map(|value| (LEAST_SIZE, value));
        let with: HeaderMap = with.into_iter().collect();
        let put = || raw_api.exchange(Method::PUT, LIFECYCLE, body.clone(), with.clone());
        self.retrying(Operation::LifecycleRule, "", put).await.map(drop)
    }

    /// Reads the lifecycle configuration of the bucket once; `rule` is for the hint.
    async fn lifecycle(&self, rule: &AbortRule<'_>) -> Result<Configuration, StoreError> {
        let raw_api = &self.traits.raw_api;
        let get = || async move {
            let (headers, body) = match raw_api
                .exchange(Method::GET, LIFECYCLE, Bytes::new(), HeaderMap::new())
                .await
            {
                Err(object_store::Error::NotFound { source, .. })
                    if source.to_string().contains(NONE_YET) =>
                {
                    return Ok(Ok(Configuration::default()));
                }
                answer => answer?,
            };
            let text = std::str::from_utf8(&body).map_err(|_| failed(LifecycleError::Other))?;
            match Rules::read(text) {
                Err(LifecycleError::Other) => Err(failed(LifecycleError::Other)),
                Err(unknown) => Ok(Err((unknown, text.to_owned()))),
                Ok(rules) => {
                    let least_size = headers.get(&LEAST_SIZE).cloned();
                    Ok(Ok(Configuration { rules, least_size }))
                }
            }
        };
        match self.retrying(Operation::LifecycleRule, "", get).await {
            Ok(Ok(configuration)) => Ok(configuration),
            Ok(Err((unknown, text))) => {
                let what = format!("{unknown}; nothing was changed: {text}");
                let error =
                    StoreError::new(Operation::LifecycleRule, "", StoreErrorKind::Rejected, what);
                Err(error.with_hint(Some(rule.by_hand().into())))
            }
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Err(error.with_hint(Some(rule.by_hand().into())))
            }
            Err(error) => Err(error),
        }
    }

    /// Switches on object lock for an existing bucket. Stores require that the bucket keeps
    /// versions.
    ///
    /// # Errors
    /// As [`Store::can_lock`] if objects cannot be locked afterwards.
    pub async fn enable_object_lock(&self) -> Result<(), StoreError> {
        let raw_api = &self.traits.raw_api;
        if !matches!(raw_api, RawApi::S3 { .. }) {
            return self.can_lock().await;
        }
        let body = Bytes::from_static(
            br#"<ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"#,
        );
        let put = || raw_api.call(Method::PUT, OBJECT_LOCK, body.clone());
        match self.retrying(Operation::ObjectLock, "", put).await {
            Ok(_) => self.can_lock().await,
            Err(error) if error.kind == StoreErrorKind::Rejected => Err(error.with_hint(Some(
                "switch on versions for the bucket, or create a bucket with object lock".into(),
            ))),
            Err(error) => Err(error),
        }
    }
}

fn unsupported(operation: Operation, message: &str, hint: &'static str) -> StoreError {
    StoreError::new(operation, "", StoreErrorKind::Rejected, message).with_hint(Some(hint.into()))
}
