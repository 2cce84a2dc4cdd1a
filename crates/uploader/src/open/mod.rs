//! Builds a [`Store`] from a place and settings.

mod azure;
pub(crate) mod bucket;
mod client;
pub(crate) mod endpoint;
mod google;
mod local;
mod s3;
#[cfg(test)]
mod tests;

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::open::client::{ClientSettings, connector};
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::http::Traffic;
use crate::settings::StoreSettings;
use crate::settings::location::{Location, StorePlace};
use crate::store::Store;

/// Opens the store that contains `root`. Returns the store and the prefix of every key below `root`
/// (empty for a folder, `a/b/` in a bucket).
///
/// If `create` is set, a missing folder is created; its parent must exist.
///
/// # Errors
/// [`StoreError`] if the settings are invalid. No request is sent to a bucket yet.
pub fn open(
    root: &Location,
    settings: &StoreSettings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let (kind, bucket) = match &root.place {
        StorePlace::Local => return local::open(root, settings, policy, create),
        StorePlace::S3 { bucket } => ("s3", bucket),
        StorePlace::Google { bucket } => ("gs", bucket),
        StorePlace::Azure { container } => ("azure", container),
    };
    let traffic = Traffic::default();
    let opened = connector(&settings.http, &policy, &traffic).and_then(|connector| {
        let opening = ClientSettings { connector, policy, traffic, tags: settings.tags.clone() };
        match (kind, &settings.google) {
            ("s3", _) => s3::open(opening, bucket, settings.s3.clone()),
            ("gs", google) if google.access_key.is_some() => {
                s3::open(opening, bucket, google::as_s3(google))
            }
            ("gs", google) => google::open(opening, bucket, google),
            _ => azure::open(opening, bucket, &settings.azure),
        }
    });
    let store = opened.map_err(|error| {
        let place = format!("{kind}://{bucket}");
        let message = root_message(&*error);
        let hint = message.contains("No CA certificates").then(|| {
            "install the certificates of the system (ca-certificates), or name a file with --cacert"
                .into()
        });
        StoreError::new(Operation::Open, place, StoreErrorKind::Settings, message).with_hint(hint)
    })?;
    let prefix = if root.path.is_empty() { String::new() } else { format!("{}/", root.path) };
    Ok((store, prefix))
}
