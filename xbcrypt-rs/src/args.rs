//! The command line. Stock options have their stock names and meaning.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory as _, Parser, Subcommand, ValueEnum};
use xb_cli::{
    Failure, IdentityOptions, KeyOptions, Log, NewKeyOptions, RecipientOptions, Secret, Size,
};
use xb_encryptor::xbcrypt::Algorithm;

/// Words that are commands if they come first.
pub(crate) const TOOLS: [&str; 4] = ["keygen", "rewrap", "inspect", "help"];

const EXAMPLES: &str = "\
Commands, as the first word: keygen, rewrap, inspect; each has --help.

Examples:
  xbcrypt-rs keygen -o /etc/backup.key
  xbcrypt-rs --format=native --compress=zstd -f /etc/backup.key < a.xbs > a.enc
  xbcrypt-rs --format=native --recipient=age1... -i a.xbs -o a.enc
  xbcrypt-rs -d -f /etc/backup.key -i a.enc -o a.xbs        native or xbcrypt
  xbcrypt-rs -d -a AES256 -f /etc/backup.key < t.ibd.xbcrypt > t.ibd

The native format is authenticated; the xbcrypt format of the stock tool detects only accidental damage. No file is overwritten, and a file gets its name only when complete. Called as xbcrypt, this program is a drop-in for the stock tool.

Exit status: 0 done and proven, 1 failed, 2 usage, 128+N ended by signal N.";

const KEYGEN_EXAMPLES: &str = "\
Examples:
  xbcrypt-rs keygen -o /etc/backup.key
  xbcrypt-rs keygen --identity -o /etc/age.key
  xbcrypt-rs keygen --signing -o /etc/signing.key";

const REWRAP_EXAMPLES: &str = "\
Examples:
  xbcrypt-rs rewrap a.enc --encrypt-key-file=/etc/backup.key --recipient=age1... --keep
  xbcrypt-rs rewrap a.enc --identity-file=/etc/age.key --new-key-file=/etc/new.key";

const INSPECT_EXAMPLES: &str = "\
Examples:
  xbcrypt-rs inspect a.enc
  xbcrypt-rs inspect a.enc --json";

/// Maximum number of worker threads.
const MAX_THREADS: u64 = 256;

/// Encrypt any input, or decrypt it with -d
#[derive(Debug, Parser)]
#[command(name = "xbcrypt-rs", version, after_help = EXAMPLES, disable_version_flag = true)]
#[command(long_version = xb_cli::seal_version(env!("CARGO_PKG_VERSION")))]
pub(crate) struct CommandLine {
    /// Decrypt
    #[arg(short, long)]
    pub(crate) decrypt: bool,
    /// Read FILE instead of stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Write to a new FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// xbcrypt [default] or native; -d detects it
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// NONE [default] or AES128, AES192, AES256: the key decides (xbcrypt)
    #[arg(short = 'a', long, value_name = "NAME")]
    pub(crate) encrypt_algo: Option<Algorithm>,
    /// The key itself, or in XBCRYPT_ENCRYPTION_KEY; prefer a key file
    #[arg(short = 'k', long, value_name = "KEY", conflicts_with = "encrypt_key_file")]
    pub(crate) encrypt_key: Option<Secret>,
    /// File that contains only the key: 16, 24 or 32 bytes; native needs 32
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) encrypt_key_file: Option<PathBuf>,
    /// Plain bytes per chunk (xbcrypt) [default: 64K]
    #[arg(short = 's', long, value_name = "SIZE")]
    pub(crate) encrypt_chunk_size: Option<Size>,
    /// Worker threads [default: one per core]
    #[arg(short = 't', long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1")]
    pub(crate) encrypt_threads: Option<u64>,
    /// Input per read; no chunk extends past it (xbcrypt) [default: 10M]
    #[arg(short = 'r', long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "10M")]
    pub(crate) read_buffer_size: Option<Size>,
    /// Also accept chunks of versions 1 and 2, which show no wrong key (-d)
    #[arg(long)]
    pub(crate) allow_unhashed: bool,
    /// Accept any input unchecked, even a truncated xbstream (native)
    #[arg(long)]
    pub(crate) raw: bool,
    /// none, lz4, snappy, gzip[:LEVEL] or zstd[:LEVEL] (native)
    #[arg(long, value_name = "CODEC")]
    pub(crate) compress: Option<String>,
    /// Worker threads; the larger of this and --encrypt-threads wins (native)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1")]
    pub(crate) compress_threads: Option<u64>,
    /// Print a summary at the end
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// JSON messages on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not show progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Print version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    /// File with a passphrase in its first line
    #[arg(long, value_name = "FILE", help_heading = "Keys")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Key command; `wrap` or `unwrap` is appended
    #[arg(long, value_name = "COMMAND", help_heading = "Keys")]
    pub(crate) key_command: Option<Secret>,
}

/// Returns the whole command line, for man pages and completions: the filter, and the commands
/// beside it.
pub(crate) fn filter_and_tools() -> Command {
    CommandLine::command().subcommands(ToolLine::command().get_subcommands().cloned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Xbcrypt,
    Native,
}

impl CommandLine {
    /// Collects the key options.
    pub(crate) fn keys(&self) -> KeyOptions {
        KeyOptions {
            encrypt_key_file: self.encrypt_key_file.clone(),
            encrypt_key: self.encrypt_key.clone(),
            passphrase_file: self.passphrase_file.clone(),
            key_command: self.key_command.clone(),
        }
    }

    /// The option in use, if any, that applies only to native files.
    pub(crate) fn native_only(&self) -> Option<&'static str> {
        let table = [
            (!self.recipients.recipient.is_empty(), "--recipient"),
            (self.recipients.recipients_file.is_some(), "--recipients-file"),
            (self.identities.identity_file.is_some(), "--identity-file"),
            (self.passphrase_file.is_some(), "--passphrase-file"),
            (self.key_command.is_some(), "--key-command"),
            (self.compress.is_some(), "--compress"),
            (self.raw, "--raw"),
        ];
        table.into_iter().find_map(|(used, name)| used.then_some(name))
    }

    /// Number of worker threads. Values out of range are moved to the nearest limit, as stock does.
    pub(crate) fn threads(&self, stock: bool, log: &Log) -> usize {
        let Some(wanted) = self.encrypt_threads.into_iter().chain(self.compress_threads).max()
        else {
            return if stock {
                1
            } else {
                std::thread::available_parallelism().map_or(1, usize::from)
            };
        };
        let threads = wanted.clamp(1, MAX_THREADS);
        if threads != wanted {
            log.warn(format_args!("{wanted} threads are out of range, using {threads}"));
        }
        usize::try_from(threads).unwrap_or(1)
    }

    /// Checks what clap cannot.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let misplaced = |what: &str, why: &str| {
            Err(Failure::usage(format!("{what} cannot be used with {why}")))
        };
        if self.decrypt {
            if self.compress.is_some() {
                return misplaced("--compress", "-d; the file records its own compression");
            }
            if let Some(what) = self.recipient_option() {
                return misplaced(what, "-d; give the private key with --identity-file");
            }
            return Ok(());
        }
        if self.identities.identity_file.is_some() {
            return misplaced(
                "--identity-file",
                "encryption; give the public key with --recipient",
            );
        }
        match (self.format, self.native_only(), self.encrypt_algo) {
            (Some(Format::Native), _, None | Some(Algorithm::Aes256)) => Ok(()),
            (Some(Format::Native), _, Some(_)) => {
                misplaced("--encrypt-algo", "--format=native, which always uses AES-256-GCM")
            }
            (_, Some(what), _) => misplaced(what, "the xbcrypt format; add --format=native"),
            _ => Ok(()),
        }
    }

    fn recipient_option(&self) -> Option<&'static str> {
        self.native_only().filter(|name| name.starts_with("--recipient"))
    }
}

/// Create keys, change who can open a file, or describe a file
#[derive(Debug, Parser)]
#[command(name = "xbcrypt-rs", version)]
pub(crate) struct ToolLine {
    #[command(subcommand)]
    pub(crate) tool: Tool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Create a key of 32 random bytes, an age identity, or a signing key
    #[command(after_help = KEYGEN_EXAMPLES)]
    Keygen(KeygenArgs),
    /// Change who can open a native file; its data does not change
    #[command(after_help = REWRAP_EXAMPLES)]
    Rewrap(Box<RewrapArgs>),
    /// Describe a native or xbcrypt file, or name the key in a key file; needs no key
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// Write to a new FILE with mode 0600 instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Create an age identity and print its recipient to stderr
    #[arg(long)]
    pub(crate) identity: bool,
    /// Create a key that signs backups and print its public key to stderr
    #[arg(long, conflicts_with = "identity")]
    pub(crate) signing: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RewrapArgs {
    /// The native file
    pub(crate) file: PathBuf,
    /// Write to a new FILE and keep the old one [default: replace the old file once the new one is
    /// complete]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) new: NewKeyOptions,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The file to describe
    pub(crate) file: PathBuf,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> CommandLine {
        CommandLine::try_parse_from([&["x"], words].concat()).unwrap()
    }

    #[test]
    fn the_definitions_are_sound() {
        CommandLine::command().debug_assert();
        ToolLine::command().debug_assert();
        filter_and_tools().debug_assert();
    }

    #[test]
    fn threads_are_kept_in_range() {
        let log = Log::to("x", Default::default(), std::io::sink());
        assert_eq!(line(&[]).threads(true, &log), 1);
        assert!(line(&[]).threads(false, &log) >= 1);
        assert_eq!(line(&["--encrypt-threads=7"]).threads(true, &log), 7);
        assert_eq!(line(&["--encrypt-threads"]).threads(false, &log), 1);
        assert_eq!(line(&["-t=2", "--compress-threads=3"]).threads(false, &log), 3);
        assert_eq!(line(&["-t=0"]).threads(false, &log), 1);
        assert_eq!(line(&["-t=9999"]).threads(false, &log), 256);
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        for words in [
            &["--compress=zstd"][..],
            &["--recipient=age1x"],
            &["--format=xbcrypt", "--passphrase-file=f"],
            &["--format=native", "-a", "AES128"],
            &["--format=native", "-a", "NONE"],
            &["--format=native", "--identity-file=f"],
            &["-d", "--compress=zstd"],
            &["-d", "--recipient=age1x"],
        ] {
            assert_eq!(line(words).check().unwrap_err().exit(), xb_cli::Exit::Usage, "{words:?}");
        }
        for words in [
            &["--format=native", "-a", "AES256", "--compress=zstd", "--recipient=age1x"][..],
            &["-d", "--identity-file=f", "--passphrase-file=f"],
            &["-a", "AES128"],
        ] {
            line(words).check().unwrap();
        }
    }
}
