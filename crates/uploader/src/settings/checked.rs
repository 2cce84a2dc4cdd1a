//! Values that become part of requests: bucket names, addresses, keys and headers.
//!
//! The client panics on a value that no URL or header can hold, so all of them are checked before it
//! gets them. No error repeats a value: it may be a secret.

use std::sync::Arc;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use object_store::gcp::GcpCredential;

/// Text with a character that a request cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {problem}")]
pub(crate) struct Unusable {
    what: &'static str,
    problem: String,
}

impl Unusable {
    pub(crate) fn new(what: &'static str, problem: impl Into<String>) -> Self {
        Self { what, problem: problem.into() }
    }
}

/// Checks a value of a header or a URL: ASCII without spaces and control characters.
pub(crate) fn word(what: &'static str, value: Option<&str>) -> Result<(), Unusable> {
    checked(what, value, |c| c.is_ascii_graphic())
}

/// Checks a secret that is only used to compute a signature, or that is encoded before it is sent:
/// any text that does not begin or end with a space and has no control characters.
pub(crate) fn secret(what: &'static str, value: Option<&str>) -> Result<(), Unusable> {
    checked(what, value, |c| !c.is_control())
}

/// Checks a part of an address: a bucket, a container, an account, a tenant or a region.
pub(crate) fn name(what: &'static str, value: Option<&str>) -> Result<(), Unusable> {
    checked(what, value, |c| c.is_ascii_alphanumeric() || "-._$".contains(c))?;
    match value {
        Some("" | "." | "..") => Err(Unusable::new(what, "is empty, or consists of dots")),
        _ => Ok(()),
    }
}

fn checked(
    what: &'static str,
    value: Option<&str>,
    is_good: impl Fn(char) -> bool,
) -> Result<(), Unusable> {
    let Some(value) = value else { return Ok(()) };
    let refused = |problem| Err(Unusable::new(what, problem));
    if value.ends_with(['\n', '\r']) {
        return refused(
            "ends with a line break: remove it where the value is kept (`echo -n` and `printf %s` write none)"
                .to_owned(),
        );
    }
    if value.trim() != value {
        return refused("begins or ends with a space: remove it".to_owned());
    }
    match value.char_indices().find(|(_, c)| !is_good(*c)) {
        Some((at, c)) => {
            refused(format!("has an invalid character, U+{:04X}, at byte {at}", u32::from(c)))
        }
        None => Ok(()),
    }
}

/// Keys as they are sent to a store.
pub(crate) trait Sendable {
    /// Fails if no header can hold the keys.
    fn check(&self) -> Result<(), Unusable>;
}

impl Sendable for AwsCredential {
    fn check(&self) -> Result<(), Unusable> {
        word("access key", Some(&self.key_id))?;
        secret("secret key", Some(&self.secret_key))?;
        word("session token", self.token.as_deref())
    }
}

impl Sendable for GcpCredential {
    fn check(&self) -> Result<(), Unusable> {
        word("access token", Some(&self.bearer))
    }
}

impl Sendable for AzureCredential {
    fn check(&self) -> Result<(), Unusable> {
        match self {
            Self::BearerToken(token) => word("access token", Some(token)),
            // A signature by the key, and encoded pairs.
            Self::AccessKey(_) | Self::SASToken(_) => Ok(()),
        }
    }
}

/// Source of keys that passes on only those that can be sent.
#[derive(Debug)]
pub(crate) struct CheckedKeys<C>(pub(crate) Arc<dyn CredentialProvider<Credential = C>>);

#[async_trait::async_trait]
impl<C: Sendable + std::fmt::Debug + Send + Sync + 'static> CredentialProvider for CheckedKeys<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let keys = self.0.get_credential().await?;
        keys.check().map_err(|unusable| object_store::Error::Unauthenticated {
            path: String::new(),
            source: Box::new(unusable),
        })?;
        Ok(keys)
    }
}
