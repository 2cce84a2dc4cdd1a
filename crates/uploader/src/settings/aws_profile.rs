//! Keys from the shared files of the AWS tools (`~/.aws/credentials`, `~/.aws/config`).
//!
//! Source of the format: "Configuration and credential file settings in the AWS CLI". Only
//! supported settings are read: static and temporary keys, web identities, programs that print keys,
//! region and endpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use xb_files::or_none;

use crate::settings::{AwsProfile, WebIdentity};

/// Size limit of a profile file, in bytes. A larger file is rejected.
const LARGEST: u64 = 1 << 20;

/// Settings found in a profile.
#[derive(Debug, Default)]
pub(crate) struct ProfileSettings {
    pub(crate) keys: Option<Arc<AwsCredential>>,
    pub(crate) web_identity: Option<WebIdentity>,
    /// Command line of a program that prints keys.
    pub(crate) process: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// Reason why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is too large for a profile file", path = path.display())]
    TooLarge { path: PathBuf },
    #[error("profile `{name}` is neither in {credentials} nor in {config}", credentials = credentials.display(), config = config.display())]
    Missing { name: String, credentials: PathBuf, config: PathBuf },
    #[error(
        "profile `{name}` uses `{setting}`, which is not supported; name another profile, with `credential_process = aws configure export-credentials --profile {name}` in it"
    )]
    Unsupported { name: String, setting: &'static str },
    #[error("profile `{name}` has only half of a key pair; set both access key and secret key")]
    Half { name: String },
}

/// Reads a profile. A missing profile is an error only if [`AwsProfile::required`] is set.
pub(crate) fn read(profile: &AwsProfile) -> Result<ProfileSettings, ProfileError> {
    let mut says = BTreeMap::new();
    let mut there = false;
    // If both files have a setting, the credentials file takes precedence.
    for (path, prefix) in [(&profile.config, "profile "), (&profile.credentials, "")] {
        if let Some(section) = section(&text(path)?, &profile.name, prefix) {
            there = true;
            says.extend(section);
        }
    }
    if !there && profile.required {
        return Err(ProfileError::Missing {
            name: profile.name.clone(),
            credentials: profile.credentials.clone(),
            config: profile.config.clone(),
        });
    }
    found(says, &profile.name)
}

fn found(mut says: BTreeMap<String, String>, name: &str) -> Result<ProfileSettings, ProfileError> {
    let mut take = |setting: &str| says.remove(setting).filter(|value| !value.is_empty());
    let keys = match (take("aws_access_key_id"), take("aws_secret_access_key")) {
        (Some(key_id), Some(secret_key)) => {
            Some(Arc::new(AwsCredential { key_id, secret_key, token: take("aws_session_token") }))
        }
        (None, None) => None,
        _ => return Err(ProfileError::Half { name: name.to_owned() }),
    };
    let session_name = take("role_session_name");
    let web_identity = match (take("web_identity_token_file"), take("role_arn")) {
        (Some(file), Some(role_arn)) => {
            Some(WebIdentity { token_file: file.into(), role_arn, session_name })
        }
        _ => None,
    };
    let (region, endpoint) = (take("region"), take("endpoint_url"));
    let process = take("credential_process");
    if keys.is_none() && web_identity.is_none() && process.is_none() {
        for setting in ["sso_session", "sso_start_url", "source_profile", "credential_source"] {
            if take(setting).is_some() {
                return Err(ProfileError::Unsupported { name: name.to_owned(), setting });
            }
        }
    }
    Ok(ProfileSettings { keys, web_identity, process, region, endpoint })
}

fn text(path: &Path) -> Result<String, ProfileError> {
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    match or_none(std::fs::metadata(path)).map_err(failed)? {
        None => Ok(String::new()),
        Some(facts) if facts.len() > LARGEST => {
            Err(ProfileError::TooLarge { path: path.to_owned() })
        }
        Some(_) => std::fs::read_to_string(path).map_err(failed),
    }
}

/// Returns the settings of one section, or `None` if the section is missing. `[default]` needs no
/// prefix.
fn section(text: &str, name: &str, prefix: &str) -> Option<BTreeMap<String, String>> {
    let mut inside = false;
    let mut found: Option<BTreeMap<String, String>> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let header = header.split_whitespace().collect::<Vec<_>>().join(" ");
            let bare = prefix.is_empty() || name == "default";
            inside = header.strip_prefix(prefix) == Some(name) || bare && header == name;
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        // An indented line belongs to the setting above it (for example, `s3 =`).
        if !inside || line.starts_with([' ', '\t']) {
            continue;
        }
        if let (Some(settings), Some((key, value))) = (&mut found, trimmed.split_once('=')) {
            let value =
                value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
            settings.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

/// Keys of a profile. They are read again whenever the file has changed, so keys renewed in the
/// file by another program are used.
#[derive(Debug)]
pub(crate) struct ProfileKeys {
    profile: AwsProfile,
    last: Mutex<(Option<Stamp>, Arc<AwsCredential>)>,
}

/// Modification time and size of a file, compared to detect a change.
type Stamp = (SystemTime, u64);

impl ProfileKeys {
    pub(crate) fn new(profile: AwsProfile, keys: Arc<AwsCredential>) -> Self {
        // No stamp yet: the first use reads the file again and sees any change since.
        Self { profile, last: Mutex::new((None, keys)) }
    }

    fn stamp(&self) -> Option<Stamp> {
        let facts = std::fs::metadata(&self.profile.credentials).ok()?;
        Some((facts.modified().ok()?, facts.len()))
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProfileKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let now = self.stamp();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now != last.0 {
            // A file that is being written may be incomplete. Keep the current keys until it is
            // whole.
            if let Ok(ProfileSettings { keys: Some(keys), .. }) = read(&self.profile) {
                *last = (now, keys);
            }
        }
        Ok(Arc::clone(&last.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn profile(folder: &Path, name: &str, required: bool) -> AwsProfile {
        AwsProfile {
            name: name.into(),
            required,
            credentials: folder.join("credentials"),
            config: folder.join("config"),
        }
    }

    const CREDENTIALS: &str = "\
# comment
[default]
aws_access_key_id = ID
aws_secret_access_key=a/b+c=d
[ night ]
AWS_ACCESS_KEY_ID = N # the night's
aws_secret_access_key = S
aws_session_token = T==
[half]
aws_access_key_id = H
";
    const CONFIG: &str = "\
[default]
region = eu-west-1
s3 =
  region = wrong
  endpoint_url = http://wrong
[profile night]
region = us-west-2
endpoint_url = http://127.0.0.1:9
[profile web]
role_arn = arn:aws:iam::1:role/r
web_identity_token_file = /run/token
[profile process]
credential_process = /opt/keys --of 'the night'
[profile sso]
sso_session = x
[profile old-sso]
sso_start_url = https://x
[profile chain]
role_arn = arn:aws:iam::1:role/r
source_profile = night
[profile machine]
role_arn = arn:aws:iam::1:role/r
credential_source = Ec2InstanceMetadata
[night]
region = not-a-profile
";

    #[test]
    fn profiles_are_read_from_both_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("credentials"), CREDENTIALS).unwrap();
        std::fs::write(folder.path().join("config"), CONFIG).unwrap();
        let get = |name: &str| read(&profile(folder.path(), name, true));
        let default = get("default").unwrap();
        let keys = default.keys.unwrap();
        assert_eq!((keys.key_id.as_str(), keys.secret_key.as_str()), ("ID", "a/b+c=d"));
        assert_eq!((default.region.as_deref(), default.endpoint), (Some("eu-west-1"), None));
        let night = get("night").unwrap();
        let keys = night.keys.unwrap();
        assert_eq!((keys.key_id.as_str(), keys.token.as_deref()), ("N", Some("T==")));
        assert_eq!(night.region.as_deref(), Some("us-west-2"));
        assert_eq!(night.endpoint.as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(get("web").unwrap().web_identity.unwrap().token_file, Path::new("/run/token"));
        let process = get("process").unwrap().process;
        assert_eq!(process.as_deref(), Some("/opt/keys --of 'the night'"));
        assert!(matches!(get("half"), Err(ProfileError::Half { .. })));
        for (name, setting) in [
            ("sso", "sso_session"),
            ("old-sso", "sso_start_url"),
            ("chain", "source_profile"),
            ("machine", "credential_source"),
        ] {
            let said = get(name).unwrap_err().to_string();
            let command = format!("aws configure export-credentials --profile {name}");
            assert!(said.contains(setting) && said.contains(&command), "{said}");
        }
        assert!(matches!(get("nobody"), Err(ProfileError::Missing { .. })));
        assert!(read(&profile(folder.path(), "nobody", false)).unwrap().keys.is_none());
    }

    #[tokio::test]
    async fn keys_that_are_renewed_in_the_file_are_renewed_here() {
        let folder = tempfile::tempdir().unwrap();
        let profile = profile(folder.path(), "default", false);
        let write = |id: &str| {
            let text = format!("[default]\naws_access_key_id={id}\naws_secret_access_key=s\n");
            std::fs::write(&profile.credentials, text).unwrap();
        };
        write("first");
        let keys = ProfileKeys::new(profile.clone(), read(&profile).unwrap().keys.unwrap());
        assert_eq!(keys.get_credential().await.unwrap().key_id, "first");
        write("the-second");
        assert_eq!(keys.get_credential().await.unwrap().key_id, "the-second");
        std::fs::write(&profile.credentials, "[default]\naws_access_key_id=torn").unwrap();
        assert_eq!(keys.get_credential().await.unwrap().key_id, "the-second");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "(\\[?[a-z =#;\\]\n\t]{0,12}){0,20}", name in "[a-z]{0,4}") {
            let _ = section(&text, &name, "profile ").map(|says| found(says, &name));
        }

        #[test]
        fn a_setting_comes_back(key in "[a-z_]{1,10}", value in "[A-Za-z0-9/+=]{1,40}", name in "[a-z]{1,8}") {
            let text = format!("[other]\n{key}=no\n[{name}x]\n{key}=no\n[{name}]\n{key} = {value}\n[{name}y]\n{key}=no\n");
            let says = section(&text, &name, "").unwrap();
            prop_assert_eq!(says.get(&key).map(String::as_str), Some(value.as_str()));
        }
    }
}
