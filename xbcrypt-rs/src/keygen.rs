//! `keygen`: generates a key of 32 random bytes, an age identity, or a key that signs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use xb_cli::{Failure, FailureContext as _, Log};
use xb_encryptor::{Identities, SigningKey};

use crate::args::KeygenArgs;
use crate::output::sync_folder;

/// Length required by the native seal; xbcrypt uses it as AES-256.
const KEY_LEN: usize = 32;

pub(crate) fn run(args: &KeygenArgs, log: &Log) -> Result<(), Failure> {
    if args.output.is_none() {
        let hint = "write the key to a file: xbcrypt-rs keygen -o KEYFILE";
        match args.identity || args.signing {
            // Text, which a terminal may show.
            true => xb_cli::refuse_closed_output(hint)?,
            false => xb_cli::refuse_terminal_output(hint)?,
        }
    }
    let mut public = None;
    let content = if args.identity {
        let (identities, secret) = Identities::generate();
        let recipients: Vec<String> =
            identities.recipients().iter().map(ToString::to_string).collect();
        let recipient = recipients.join(" ");
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        // The format of age-keygen.
        let text = format!("# created: {now}\n# public key: {recipient}\n{}\n", *secret);
        public = Some(recipient);
        text.into_bytes()
    } else if args.signing {
        let (key, secret) = SigningKey::generate()
            .map_err(|error| Failure::new(error.to_string()))
            .stage("keygen")?;
        public = Some(key.verifying_key().to_string());
        let text = format!("# public key: {}\n{}", key.verifying_key(), *secret);
        text.into_bytes()
    } else {
        let mut key = [0; KEY_LEN];
        getrandom::fill(&mut key).map_err(io::Error::other).stage("keygen")?;
        key.to_vec()
    };
    match &args.output {
        None => {
            io::stdout().write_all(&content).and_then(|()| io::stdout().flush()).stage("output")
        }
        Some(path) => create(path, &content).map_err(|error| {
            let failure = Failure::new(format!("{}: {error}", path.display())).stage("output");
            match error.kind() {
                io::ErrorKind::AlreadyExists => failure
                    .hint("choose another name; nothing is overwritten, because backups are lost with their key"),
                io::ErrorKind::NotFound => failure.hint("create the directory first"),
                _ => failure,
            }
        }),
    }?;
    // A public key is shown only once its private half is kept.
    if let Some(recipient) = public {
        log.info(format_args!("public key: {recipient}"));
    }
    Ok(())
}

/// Creates a file that only its owner can read, and syncs it before anything is encrypted with it.
fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let write = |file: &mut File| {
        file.write_all(content)?;
        file.sync_all()?;
        match path.parent() {
            Some(folder) if folder != Path::new("") => sync_folder(folder),
            _ => sync_folder(Path::new(".")),
        }
    };
    write(&mut file).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}
