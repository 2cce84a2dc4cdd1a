//! The producer of a backup: its command line and its messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xb_backup::ProducerLog;
use xb_cli::{Failure, Level, Log, OrFail as _, env_first};

use crate::args::{BackupOptions, ProducerOptions};
use crate::commands::context::Context;

impl Context {
    /// The file for the producer's messages, unless they are passed on.
    pub(crate) fn producer_log(
        &self,
        args: &ProducerOptions,
        name: &str,
    ) -> Result<Option<ProducerLog>, Failure> {
        if let Some(path) = &args.producer_log {
            return match path.as_os_str() == "-" {
                true => Ok(None),
                false => ProducerLog::create(path)
                    .map(Some)
                    .stage("settings")
                    .hint(&format!("set --producer-log to another file than {}", path.display())),
            };
        }
        let Some(folder) = state_dir(args.state_dir.as_deref()) else { return Ok(None) };
        let folder = folder.join("producer-logs");
        let created = ProducerLog::create_in(&folder, name).inspect_err(|error| {
            let folder = folder.display();
            self.log.warn(format!(
                "the producer's messages follow, because no file can be created in {folder}: {error}"
            ));
        });
        Ok(created.ok())
    }

    /// Shows the last messages of a producer after a failure, and where all of them are.
    pub(crate) fn show_tail(&self, messages: &ProducerLog, failed: bool) {
        let path = messages.path();
        let path = path.display();
        if let Some(error) = messages.error() {
            self.log.warn(format!("messages of the producer are missing in {path}: {error}"));
        }
        if !failed {
            return self.log.verbose(format!("messages of the producer: {path}"));
        }
        let tail = messages.tail();
        // With --verbose they have been shown.
        if self.log.level() != Level::Verbose {
            tail.iter().for_each(|line| self.log.pass_on(line));
        }
        if !tail.is_empty() {
            self.log.warn(format!("all messages of the producer are in {path}"));
        }
    }
}

/// Receiver of the producer's messages: writes them to their file, or shows them.
pub(crate) fn talk(log: &Log, messages: Option<ProducerLog>) -> impl FnMut(&[u8]) + Send + 'static {
    let log = log.clone();
    let passes_on = messages.is_none() || log.level() == Level::Verbose;
    move |line: &[u8]| {
        if let Some(messages) = &messages {
            messages.line(line);
        }
        if passes_on {
            log.pass_on(&String::from_utf8_lossy(line));
        }
    }
}

/// The producer and its arguments: of the command line, else of `--producer`.
pub(crate) fn producer_command(args: &BackupOptions) -> Result<Vec<OsString>, Failure> {
    if !args.producer.is_empty() {
        return Ok(args.producer.clone());
    }
    let text = args.producer_options.producer_command.as_deref().unwrap_or_default();
    let words = shlex::split(text).ok_or_else(|| {
        Failure::usage("--producer: a quote or an escape is not closed")
            .hint("quote words with spaces as in a shell; the producer is one line")
    })?;
    match words.is_empty() {
        true => Err(Failure::usage("no producer is named").hint(
            "add it after --, as in `-- mariadb-backup --backup --stream=xbstream`, or set `producer` in an option file; to clone a MySQL server, set `from`",
        )),
        false => Ok(words.into_iter().map(Into::into).collect()),
    }
}

/// Directory for this host's records of its own backups.
pub(crate) fn state_dir(dir: Option<&Path>) -> Option<PathBuf> {
    // A systemd unit names its folder, or several with colons between them.
    let of_unit =
        env_first(&["STATE_DIRECTORY"]).and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
    let usual = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib/xbcloud-rs")),
        false => {
            let state = env_first(&["XDG_STATE_HOME"]).map(PathBuf::from);
            let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".local/state"));
            Some(state.or_else(home)?.join("xbcloud-rs"))
        }
    };
    dir.map(Path::to_owned).or(of_unit).or_else(usual)
}
