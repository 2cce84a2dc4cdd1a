//! AWS keys from a program that the profile names (`credential_process`).
//!
//! Source of the format: "Process credential provider" of the AWS SDKs and tools: the program prints
//! one JSON object; without `Expiration` its keys never expire.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde::Deserialize;
use tokio::sync::Mutex;
use xb_process::{CaptureError, Program, capture};

use crate::settings::checked::Sendable as _;

/// Time limit for the program.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest output in bytes. Keys and token have a few KiB.
const LARGEST: usize = 64 << 10;
/// Time before the expiry from which on new keys are fetched; for keys that live less than twice as long,
/// half of their life.
const AHEAD: Duration = Duration::from_secs(300);
/// Time before the expiry up to which the old keys are used if there are no new ones.
const LAST_USE: Duration = Duration::from_secs(30);

/// Reason why there are no keys. Never repeats the program's output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("credential_process: a quote or an escape is not closed")]
    Words,
    #[error("credential_process names no program")]
    Empty,
    // Not a source, because only the innermost source of an error is shown.
    #[error("credential_process: {program} {cause}")]
    Program { program: String, cause: CaptureError },
    #[error("credential_process: {program} {what}")]
    Output { program: String, what: &'static str },
}

/// Keys from a program, fetched when they are first needed and before they expire.
#[derive(Debug)]
pub(crate) struct ProcessKeys {
    words: Vec<String>,
    last: Mutex<Option<Keys>>,
}

#[derive(Debug, Clone)]
struct Keys {
    credential: Arc<AwsCredential>,
    expires: Option<Timestamp>,
    /// Time before the expiry from which on new keys are fetched.
    ahead: Duration,
}

impl Keys {
    fn last_for(&self, time: Duration) -> bool {
        let until = Timestamp::now() + time;
        self.expires.is_none_or(|expires| expires > until)
    }
}

impl ProcessKeys {
    /// Splits the command into words, as a shell does, and looks at nothing else yet.
    pub(crate) fn new(command: &str) -> Result<Self, ProcessError> {
        let words = shlex::split(command).ok_or(ProcessError::Words)?;
        match words.is_empty() {
            true => Err(ProcessError::Empty),
            false => Ok(Self { words, last: Mutex::new(None) }),
        }
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProcessKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        // Requests that run at the same time wait for one and the same run of the program.
        let mut last = self.last.lock().await;
        if let Some(keys) = last.as_ref().filter(|keys| keys.last_for(keys.ahead)) {
            return Ok(Arc::clone(&keys.credential));
        }
        let words = self.words.clone();
        let fetched = tokio::task::spawn_blocking(move || fetch(&words)).await;
        let source: Box<dyn std::error::Error + Send + Sync> = match (fetched, last.as_ref()) {
            (Ok(Ok(keys)), _) => {
                let credential = Arc::clone(&keys.credential);
                *last = Some(keys);
                return Ok(credential);
            }
            // The next request tries again.
            (_, Some(keys)) if keys.last_for(LAST_USE) => return Ok(Arc::clone(&keys.credential)),
            (Ok(Err(error)), _) => error.into(),
            (Err(error), _) => error.into(),
        };
        Err(object_store::Error::Unauthenticated { path: String::new(), source })
    }
}

/// Runs the program and reads its keys.
fn fetch(words: &[String]) -> Result<Keys, ProcessError> {
    let (program, args) = words.split_first().ok_or(ProcessError::Empty)?;
    let failed = |cause| ProcessError::Program { program: program.clone(), cause };
    // Its messages are for the operator.
    let command = Program::new(program).args(args).stderr(Stdio::inherit());
    // At full length: growing would leave copies of a secret in memory.
    let mut output = vec![0; LARGEST];
    let len = capture(command, None, &mut output, TIMEOUT).map_err(failed)?;
    parse(output.get(..len).unwrap_or_default())
        .map_err(|what| ProcessError::Output { program: program.clone(), what })
}

/// Output of the program.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<Timestamp>,
}

fn parse(output: &[u8]) -> Result<Keys, &'static str> {
    // The error of the parser could quote a secret.
    let printed: Printed = serde_json::from_slice(output)
        .map_err(|_| "did not print a JSON object with Version, AccessKeyId and SecretAccessKey")?;
    if printed.version != 1 {
        return Err("printed credentials of another version than 1");
    }
    if printed.access_key_id.is_empty() || printed.secret_access_key.is_empty() {
        return Err("printed empty keys");
    }
    let life = printed.expiration.map(|expires| expires.duration_since(Timestamp::now()));
    let life = life.and_then(|life| Duration::try_from(life).ok());
    let keys = Keys {
        ahead: life.map_or(AHEAD, |life| AHEAD.min(life / 2)),
        credential: Arc::new(AwsCredential {
            key_id: printed.access_key_id,
            secret_key: printed.secret_access_key,
            token: printed.session_token.filter(|token| !token.is_empty()),
        }),
        expires: printed.expiration,
    };
    if keys.credential.check().is_err() {
        return Err("printed keys with a character that no request can hold, such as a line break");
    }
    match keys.last_for(Duration::ZERO) {
        true => Ok(keys),
        false => Err("printed credentials that have expired"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of a program that counts its runs in a file and prints `template` with the count for N.
    fn counting(folder: &std::path::Path, template: &str) -> ProcessKeys {
        let count = folder.join("count");
        let script = format!(
            "n=$(cat {0} 2>/dev/null || echo 0); n=$((n + 1)); echo $n >{0}; echo '{template}' | sed s/N/$n/",
            count.display()
        );
        ProcessKeys::new(&shlex::try_join(["sh", "-c", &script]).unwrap()).unwrap()
    }

    async fn key(keys: &ProcessKeys) -> String {
        keys.get_credential().await.unwrap().key_id.clone()
    }

    fn printed(expiration: &str) -> String {
        format!(
            r#"{{"Version": 1, "AccessKeyId": "idN", "SecretAccessKey": "s", "SessionToken": "t"{expiration}}}"#
        )
    }

    #[tokio::test]
    async fn keys_are_fetched_once_and_again_before_they_expire() {
        let folder = tempfile::tempdir().unwrap();
        let keys = counting(folder.path(), &printed(""));
        assert_eq!((key(&keys).await, key(&keys).await), ("id1".into(), "id1".into()));
        let folder = tempfile::tempdir().unwrap();
        let in_hours = Timestamp::now() + Duration::from_secs(7200);
        let keys = counting(folder.path(), &printed(&format!(r#", "Expiration": "{in_hours}""#)));
        assert_eq!((key(&keys).await, key(&keys).await), ("id1".into(), "id1".into()));
        let folder = tempfile::tempdir().unwrap();
        let soon = Timestamp::now() + Duration::from_secs(200);
        let keys = counting(folder.path(), &printed(&format!(r#", "Expiration": "{soon}""#)));
        assert_eq!((key(&keys).await, key(&keys).await), ("id1".into(), "id1".into()));
        grow_old(&keys).await;
        assert_eq!((key(&keys).await, key(&keys).await), ("id2".into(), "id2".into()));
    }

    /// Makes keys as old as if it were time for new ones.
    async fn grow_old(keys: &ProcessKeys) {
        keys.last.lock().await.as_mut().unwrap().ahead = Duration::from_secs(3600);
    }

    #[tokio::test]
    async fn valid_keys_are_used_while_there_are_no_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let soon = Timestamp::now() + Duration::from_secs(200);
        let once = folder.path().join("once");
        let script = format!(
            "test ! -e {0} || exit 9; touch {0}; echo '{1}'",
            once.display(),
            printed(&format!(r#", "Expiration": "{soon}""#))
        );
        let keys = ProcessKeys::new(&shlex::try_join(["sh", "-c", &script]).unwrap()).unwrap();
        assert_eq!(key(&keys).await, "idN");
        grow_old(&keys).await;
        assert_eq!(key(&keys).await, "idN");
    }

    #[tokio::test]
    async fn errors_omit_the_output() {
        for (command, expected) in [
            ("sh -c 'echo secret; exit 3'", "failed with exit status 3"),
            ("echo secret", "did not print a JSON object"),
            (
                "echo '{\"Version\": 2, \"AccessKeyId\": \"secret\", \"SecretAccessKey\": \"s\"}'",
                "another version",
            ),
            (
                "echo '{\"Version\": 1, \"AccessKeyId\": \"secret\", \"SecretAccessKey\": \"s\", \"Expiration\": \"2020-01-01T00:00:00Z\"}'",
                "expired",
            ),
            ("/no/such/program", "cannot be started"),
        ] {
            let keys = ProcessKeys::new(command).unwrap();
            let error = keys.get_credential().await.unwrap_err();
            let text = crate::error::root_message(&error);
            assert!(text.contains(expected) && !text.contains("secret"), "{text}");
        }
        assert!(matches!(ProcessKeys::new("a 'b"), Err(ProcessError::Words)));
        assert!(matches!(ProcessKeys::new(" "), Err(ProcessError::Empty)));
    }
}
