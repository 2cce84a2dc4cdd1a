//! The command line. Stock options have their stock names and meaning.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use xb_cli::{Failure, KeyOptions, Log, Secret, Size};
use xb_pipeline::{Durability, Fifos, FileDecoding};
use xb_reader::Dialect;

use crate::keys;

const EXAMPLES: &str = "\
Examples:
  xbstream-rs -x -C /restore < backup.xbs      extract, with all checks
  xbstream-rs -t --json < backup.xbs           list, one JSON object per line
  xbstream-rs -c *.ibd | ssh host xbstream-rs -x -C /restore
  xbstream-rs -x --decompress --decrypt=AES256 -f KEY -C /restore < b.xbs

No file is overwritten, and a file gets its name only when complete. Called as xbstream or mbstream, this program is a drop-in for the stock tool. Exit status: 0 done and proven, 1 failed, 2 usage, 128+N ended by signal N.";

/// Maximum number of worker threads.
const MAX_PARALLEL: u64 = 256;
/// Default number of worker threads, unless called as a stock tool: more would only wait for the
/// disk.
const DEFAULT_PARALLEL: usize = 4;

/// Create, list and extract streams of MySQL and MariaDB backups
#[derive(Debug, Parser)]
#[command(name = "xbstream-rs", version, after_help = EXAMPLES, disable_version_flag = true)]
#[command(long_version = xb_cli::seal_version(env!("CARGO_PKG_VERSION")))]
pub(crate) struct CommandLine {
    /// Write a stream of FILES to stdout
    #[arg(short = 'c', long)]
    pub(crate) create: bool,
    /// Extract the stream on stdin
    #[arg(short = 'x', long)]
    pub(crate) extract: bool,
    /// List the files of the stream on stdin
    #[arg(short = 't', long)]
    pub(crate) list: bool,
    /// Files to put into the stream (-c)
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) files: Vec<OsString>,
    /// Work in directory DIR
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Worker threads for -x [default: one per core, at most 4]
    #[arg(short, long, value_name = "N")]
    pub(crate) parallel: Option<u64>,
    /// Print each file name to stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Write JSON: the list to stdout, messages to stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Meaning of chunk type S: auto, percona or mariadb
    #[arg(long, value_enum, default_value = "auto", value_name = "WHOSE", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) dialect: Dialect,
    /// With -x: decompress .qp, .lz4 and .zst files
    #[arg(long)]
    pub(crate) decompress: bool,
    /// With -x: decrypt .xbcrypt files; AES128, AES192 or AES256
    #[arg(short = 'd', long, value_name = "CIPHER")]
    pub(crate) decrypt: Option<String>,
    /// File with the key: 16, 24 or 32 bytes
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) encrypt_key_file: Option<PathBuf>,
    /// The key itself; prefer --encrypt-key-file
    #[arg(short = 'k', long, value_name = "KEY")]
    pub(crate) encrypt_key: Option<Secret>,
    /// Threads for decoding [default: same as --parallel]
    #[arg(long, value_name = "N")]
    pub(crate) decompress_threads: Option<u64>,
    #[arg(long, hide = true)]
    pub(crate) encrypt_threads: Option<u64>,
    /// Memory for decoding; the rest is spilled to disk [default: 256M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Keep the complete files of a truncated stream, and exit 0
    #[arg(long)]
    pub(crate) allow_truncated: bool,
    /// With -c: store names as given, even with a leading / or ..
    #[arg(short = 'P', long)]
    pub(crate) absolute_names: bool,
    /// When to sync: file (each one), end (all) or none
    #[arg(long, value_enum, default_value = "end", value_name = "WHEN", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) sync: Durability,
    /// Do not show progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Print version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// With -x: number of streams, each in a FIFO [default: 1, stdin]
    #[arg(long, value_name = "N")]
    fifo_streams: Option<u64>,
    /// Directory of the FIFOs, thread_0 to thread_N-1
    #[arg(long, value_name = "DIR")]
    fifo_dir: Option<PathBuf>,
    /// Seconds to wait for the writers of the FIFOs [default: 60]
    #[arg(long, value_name = "S")]
    fifo_timeout: Option<u64>,
}

/// The mode of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Extract,
    List,
}

impl CommandLine {
    /// Checks what clap cannot, and returns the mode.
    pub(crate) fn check(&self, stock: bool, log: &Log) -> Result<Mode, Failure> {
        let mode = match (self.create, self.extract, self.list) {
            (true, false, false) => Mode::Create,
            (false, true, false) => Mode::Extract,
            (false, false, true) => Mode::List,
            (false, false, false) => {
                return Err(Failure::usage("nothing to do").hint("give -x, -c or -t; see --help"));
            }
            _ => return Err(Failure::usage("-c, -x and -t cannot be combined")),
        };
        let has_fifos = self.fifo_streams.is_some_and(|streams| streams > 1);
        if mode != Mode::Extract && (has_fifos || self.fifo_dir.is_some()) {
            return Err(Failure::usage("--fifo-streams and --fifo-dir work only with -x")
                .hint("write or list a single stream"));
        }
        if mode != Mode::Extract && !stock && (self.decompress || self.decrypt.is_some()) {
            return Err(Failure::usage("--decompress and --decrypt work only with -x"));
        }
        match mode {
            Mode::Create if self.files.is_empty() => Err(Failure::usage("no files are given")
                .hint("give the files: xbstream-rs -c FILE ...")),
            Mode::Extract if stock && !self.files.is_empty() => {
                // The stock tools do not warn, but extract everything, too.
                log.warn("ignored the file names; extracting everything");
                Ok(mode)
            }
            Mode::Extract | Mode::List if !self.files.is_empty() => {
                let name = self.files[0].to_string_lossy().into_owned();
                Err(Failure::usage(format!("file name {name} cannot be used with -x or -t"))
                    .hint("redirect the stream to stdin: < FILE; all of it is read"))
            }
            _ => Ok(mode),
        }
    }

    /// The FIFOs to read; `None`: standard input.
    pub(crate) fn fifos(&self) -> Result<Option<Fifos>, Failure> {
        let (dir, dialect) = (self.fifo_dir.clone(), self.dialect);
        Fifos::new(self.fifo_streams, dir, self.fifo_timeout, dialect)
            .map_err(|error| Failure::usage(error.to_string()))
    }

    /// Number of worker threads. Values out of range are moved to the nearest limit, as stock does.
    pub(crate) fn threads(&self, stock: bool, log: &Log) -> usize {
        let Some(wanted) = self.parallel else {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            return if stock { 1 } else { cores.min(DEFAULT_PARALLEL) };
        };
        let threads = wanted.clamp(1, MAX_PARALLEL);
        if threads != wanted {
            log.warn(format_args!("--parallel={wanted} is out of range, using {threads}"));
        }
        usize::try_from(threads).unwrap_or(1)
    }

    /// The layers to undo: decompression and decryption.
    pub(crate) fn decoding(&self, threads: usize, log: &Log) -> Result<FileDecoding, Failure> {
        let asked = self.decompress_threads.max(self.encrypt_threads);
        let asked = asked.map(|asked| asked.clamp(1, MAX_PARALLEL));
        let options = KeyOptions {
            encrypt_key_file: self.encrypt_key_file.clone(),
            encrypt_key: self.encrypt_key.clone(),
            ..KeyOptions::default()
        };
        Ok(FileDecoding {
            decompress: self.decompress,
            decrypt: keys::decrypt(self.decrypt.as_deref(), &options, log)?,
            threads: asked.and_then(|asked| usize::try_from(asked).ok()).unwrap_or(threads),
            memory: self.memory.map_or(FileDecoding::default().memory, |size| size.bytes()),
        })
    }

    /// The directory to work in.
    pub(crate) fn dir(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], stock: bool) -> Result<Mode, Failure> {
        let line = CommandLine::try_parse_from([&["x"], words].concat())?;
        line.check(stock, &Log::to("x", Default::default(), std::io::sink()))
    }

    #[test]
    fn the_definition_is_sound() {
        <CommandLine as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn there_is_exactly_one_mode() {
        assert_eq!(check(&["-x"], false).unwrap(), Mode::Extract);
        assert_eq!(check(&["--list"], false).unwrap(), Mode::List);
        assert_eq!(check(&["-c", "a"], false).unwrap(), Mode::Create);
        for words in [&["-c", "-x", "a"][..], &["-x", "-t"], &[], &["a"], &["-c"]] {
            assert_eq!(check(words, false).unwrap_err().exit(), xb_cli::Exit::Usage, "{words:?}");
        }
    }

    #[test]
    fn names_go_with_create_only_and_stock_ignores_them() {
        assert!(check(&["-x", "a"], false).is_err());
        assert!(check(&["-t", "a"], false).is_err());
        assert_eq!(check(&["-x", "a"], true).unwrap(), Mode::Extract);
    }

    #[test]
    fn options_are_refused_where_they_have_no_effect() {
        for words in [&["-t", "--fifo-streams=2"][..], &["-c", "--fifo-dir=/f", "f"]] {
            let failure = check(words, true).unwrap_err();
            assert_eq!(failure.line(), "--fifo-streams and --fifo-dir work only with -x");
        }
        // Values that request nothing are accepted.
        for words in [
            &["-x", "--decrypt=NONE"][..],
            &["-x", "--decompress-threads=4", "--encrypt-threads=4"],
            &["-x", "--fifo-streams=1", "--fifo-timeout=5"],
        ] {
            check(words, false).unwrap();
        }
        for words in [&["-t", "--decompress"][..], &["-c", "--decrypt=AES256", "f"]] {
            check(words, false).unwrap_err();
            check(words, true).unwrap();
        }
    }

    #[test]
    fn decoding_options_belong_together() {
        let log = Log::to("x", Default::default(), std::io::sink());
        let decoding = |words: &[&str]| {
            CommandLine::try_parse_from([&["x", "-x"], words].concat()).unwrap().decoding(3, &log)
        };
        let key = "--encrypt-key=0123456789abcdef";
        assert!(!decoding(&[]).unwrap().is_active());
        assert!(!decoding(&["--decrypt=none"]).unwrap().is_active());
        assert!(decoding(&["--decrypt=aes128", key]).unwrap().is_active());
        let all =
            decoding(&["--decompress", "--encrypt-threads=2", "--decompress-threads=7"]).unwrap();
        assert_eq!((all.threads, all.memory), (7, 256 << 20));
        assert_eq!(decoding(&["--decompress", "--memory=1G"]).unwrap().threads, 3);
        for words in [
            &["--decrypt=AES256"][..],
            &["--decrypt=AES512", key],
            &["--decrypt=AES256", "--encrypt-key=short"],
            &["--decrypt=AES256", key, "--encrypt-key-file=/k"],
            &["--decrypt=AES256", "--encrypt-key-file=/there/is/none"],
            &[key],
        ] {
            let failure = decoding(words).unwrap_err();
            assert_eq!(failure.exit(), xb_cli::Exit::Usage, "{words:?}");
            assert!(!failure.line().contains("0123"), "{words:?}");
        }
    }

    #[test]
    fn threads_are_kept_in_range() {
        let log = Log::to("x", Default::default(), std::io::sink());
        let threads = |words: &[&str], stock| {
            CommandLine::try_parse_from([&["x"], words].concat()).unwrap().threads(stock, &log)
        };
        assert_eq!(threads(&["-x"], true), 1);
        assert!((1..=4).contains(&threads(&["-x"], false)));
        assert_eq!(threads(&["-x", "-p", "7"], false), 7);
        assert_eq!(threads(&["-x", "-p0"], false), 1);
        assert_eq!(threads(&["-x", "--parallel=999999"], false), 256);
    }
}
