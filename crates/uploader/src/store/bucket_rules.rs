//! Settings of an S3 bucket that backups need: the rule that aborts unfinished uploads
//! ("PutBucketLifecycleConfiguration"), and object lock ("PutObjectLockConfiguration").

use bytes::Bytes;
use http::Method;

use crate::error::{StoreError, StoreErrorKind};
use crate::request::raw_request::Direct;
use crate::store::Store;

const LIFECYCLE: &str = "?lifecycle=";
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
        let prefix = quick_xml::escape::escape(self.prefix);
        format!(
            "<Rule><ID>{}</ID><Filter><Prefix>{prefix}</Prefix></Filter><Status>Enabled</Status>\
             <AbortIncompleteMultipartUpload><DaysAfterInitiation>{}</DaysAfterInitiation>\
             </AbortIncompleteMultipartUpload></Rule>",
            self.id, self.days
        )
    }

    /// Whether these lifecycle rules hold this one.
    fn is_in(&self, rules: &str) -> bool {
        let days = format!("<DaysAfterInitiation>{}<", self.days);
        let id = format!("<ID>{}<", self.id);
        rules_of(rules).any(|rule| {
            let rule: String = rule.split_whitespace().collect();
            rule.contains(&id) && rule.contains(&days) && rule.contains("<Status>Enabled<")
        })
    }

    /// The rules with this one, in place of an older one with its ID.
    fn added_to(&self, rules: &str) -> String {
        let id = format!("<ID>{}<", self.id);
        let kept: String = rules_of(rules).filter(|rule| !rule.contains(&id)).collect();
        format!(
            r#"<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{kept}{}</LifecycleConfiguration>"#,
            self.xml()
        )
    }
}

/// The elements `Rule`, as they are written.
fn rules_of(rules: &str) -> impl Iterator<Item = &str> {
    let mut rest = rules;
    std::iter::from_fn(move || {
        let start = rest.find("<Rule>")?;
        let end = rest[start..].find("</Rule>")? + start + "</Rule>".len();
        let (rule, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        Some(rule)
    })
}

impl Store {
    /// Adds a lifecycle rule to the bucket and keeps its other rules. Returns whether the rule is
    /// new. The rules are read back, because some stores accept a rule and forget it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] if the store has no such rules; [`StoreErrorKind::Denied`] if
    /// the credentials may not change them; other kinds after all retries.
    pub async fn add_abort_rule(&self, rule: &AbortRule<'_>) -> Result<bool, StoreError> {
        let direct = &self.nature.direct;
        let no = |_| unsupported("lifecycle rule", NO_RULES, NO_RULES_HINT);
        if !matches!(direct, Direct::S3 { .. }) {
            return Err(no(()));
        }
        let before = self.lifecycle_rules().await?;
        if rule.is_in(&before) {
            return Ok(false);
        }
        let body = Bytes::from(rule.added_to(&before));
        let put = || direct.call(Method::PUT, LIFECYCLE, body.clone());
        match self.retrying("lifecycle rule", "", put).await {
            Err(error) if error.kind == StoreErrorKind::Rejected => {
                return Err(error.with_hint(Some(NO_RULES_HINT.into())));
            }
            done => done?,
        };
        match rule.is_in(&self.lifecycle_rules().await?) {
            true => Ok(true),
            false => Err(no(())),
        }
    }

    /// The lifecycle configuration of the bucket; empty if there is none.
    async fn lifecycle_rules(&self) -> Result<String, StoreError> {
        let direct = &self.nature.direct;
        let get = || direct.call(Method::GET, LIFECYCLE, Bytes::new());
        match self.retrying("lifecycle rule", "", get).await {
            Ok(rules) => Ok(String::from_utf8_lossy(&rules).into_owned()),
            // NoSuchLifecycleConfiguration; a missing bucket has a kind of its own.
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Switches on object lock for an existing bucket. Stores require that the bucket keeps
    /// versions.
    ///
    /// # Errors
    /// As [`Store::can_lock`] if objects cannot be locked afterwards.
    pub async fn enable_object_lock(&self) -> Result<(), StoreError> {
        let direct = &self.nature.direct;
        if !matches!(direct, Direct::S3 { .. }) {
            return self.can_lock().await;
        }
        let body = Bytes::from_static(
            br#"<ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"#,
        );
        let put = || direct.call(Method::PUT, OBJECT_LOCK, body.clone());
        match self.retrying("object lock", "", put).await {
            Ok(_) => self.can_lock().await,
            Err(error) if error.kind == StoreErrorKind::Rejected => Err(error.with_hint(Some(
                "switch on versions for the bucket, or create a bucket with object lock".into(),
            ))),
            Err(error) => Err(error),
        }
    }
}

fn unsupported(operation: &'static str, message: &str, hint: &'static str) -> StoreError {
    StoreError::new(operation, "", StoreErrorKind::Rejected, message).with_hint(Some(hint.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: AbortRule<'_> = AbortRule { id: "ours", prefix: "a&b", days: 7 };

    #[test]
    fn other_rules_stay_and_an_old_one_of_ours_is_replaced() {
        let other = "<Rule><ID>other</ID><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule>";
        let first =
            RULE.added_to(&format!("<LifecycleConfiguration>{other}</LifecycleConfiguration>"));
        assert!(first.contains(other) && first.contains("<Prefix>a&amp;b</Prefix>"), "{first}");
        assert!(RULE.is_in(&first));
        let longer = AbortRule { days: 9, ..RULE };
        assert!(!longer.is_in(&first));
        let second = longer.added_to(&first);
        assert!(
            longer.is_in(&second) && !RULE.is_in(&second) && second.contains(other),
            "{second}"
        );
        assert_eq!(rules_of(&second).count(), 2);
    }

    #[test]
    fn a_listing_holds_no_rules() {
        for text in ["", "<ListBucketResult/>", "<Rule>", "<Rule><ID>ours</ID></Rule>"] {
            assert!(!RULE.is_in(text), "{text}");
        }
    }
}
