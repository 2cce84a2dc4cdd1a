//! The command line. Stock options have their stock names and meaning.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use xb_cli::{Failure, Log, Secret};
use xb_pipeline::Durability;
use xb_reader::Dialect;

const EXAMPLES: &str = "\
Examples:
  xbstream-rs -x -C /restore < backup.xbstream       extract, everything checked
  xbstream-rs -t --json < backup.xbstream            what is in it, checked, one JSON object a line
  xbstream-rs -c *.ibd | ssh host xbstream-rs -x -C /restore
  mariadb-backup --backup --stream=xbstream | xbstream-rs -x -p 4 -C /copy

Nothing is overwritten. A file has its name only when it is whole. Exit codes: 0 done and proven,
1 failed, 2 usage, 128+N ended by signal N. Called as xbstream or mbstream it takes their place.";

/// Most worker threads.
const MAX_PARALLEL: u64 = 256;
/// Worker threads when nobody says and we are not called as a stock tool: more than this many
/// only wait for the disk.
const DEFAULT_PARALLEL: usize = 4;

/// Makes, lists and extracts the streams of MySQL and MariaDB backups.
#[derive(Debug, Parser)]
#[command(name = "xbstream-rs", version, after_help = EXAMPLES, disable_version_flag = true)]
pub(crate) struct Line {
    /// Write a stream of FILES to stdout
    #[arg(short = 'c', long)]
    pub(crate) create: bool,
    /// Extract the stream on stdin
    #[arg(short = 'x', long)]
    pub(crate) extract: bool,
    /// List the files of the stream on stdin
    #[arg(short = 't', long)]
    pub(crate) list: bool,
    /// Files for -c
    pub(crate) files: Vec<OsString>,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Worker threads for -x [default: a core each, up to 4]
    #[arg(short, long, value_name = "N")]
    pub(crate) parallel: Option<u64>,
    /// Name each file on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Talk in JSON: the list on stdout, messages on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Meaning of type S: auto, percona or mariadb
    #[arg(long, value_enum, default_value = "auto", value_name = "WHOSE", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) dialect: DialectArg,
    /// Keep the whole files of a stream that was cut, and exit 0
    #[arg(long)]
    pub(crate) allow_truncated: bool,
    /// With -c: store names as given, also with a leading / or ..
    #[arg(short = 'P', long)]
    pub(crate) absolute_names: bool,
    /// Make files durable: file (each), end (all) or none
    #[arg(long, value_enum, default_value = "end", value_name = "WHEN", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) sync: SyncArg,
    /// No progress bar or lines
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Print version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    // Options of the stock tool that ask for something we do not do yet. They are known so that
    // the answer is clear.
    #[arg(long, hide = true)]
    decompress: bool,
    #[arg(long, hide = true)]
    decompress_threads: Option<u64>,
    #[arg(short = 'd', long, hide = true)]
    decrypt: Option<String>,
    #[arg(short = 'k', long, hide = true)]
    encrypt_key: Option<Secret>,
    #[arg(short = 'f', long, hide = true)]
    encrypt_key_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    encrypt_threads: Option<u64>,
    #[arg(long, hide = true)]
    fifo_streams: Option<u64>,
    #[arg(long, hide = true)]
    fifo_dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    fifo_timeout: Option<u64>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Extract,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectArg {
    Auto,
    Percona,
    Mariadb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncArg {
    File,
    End,
    None,
}

impl Line {
    /// Checks what clap cannot, and tells the mode.
    pub(crate) fn check(&self, stock: bool, log: &Log) -> Result<Mode, Failure> {
        let mode = match (self.create, self.extract, self.list) {
            (true, false, false) => Mode::Create,
            (false, true, false) => Mode::Extract,
            (false, false, true) => Mode::List,
            (false, false, false) => {
                return Err(Failure::usage("nothing to do").hint("say -x, -c or -t; see --help"));
            }
            _ => return Err(Failure::usage("only one of -c, -x and -t can be done at a time")),
        };
        if let Some(what) = self.not_here() {
            return Err(Failure::usage(format!("{what} is not in this release")).hint(
                "extract without it, then decrypt and decompress the files with the stock tools",
            ));
        }
        match mode {
            Mode::Create if self.files.is_empty() => Err(Failure::usage("no files are named")
                .hint("name the files: xbstream-rs -c FILE ...")),
            Mode::Extract if stock && !self.files.is_empty() => {
                // The stock tools say nothing, either, but take everything.
                log.warn("file names are ignored: everything is extracted");
                Ok(mode)
            }
            Mode::Extract | Mode::List if !self.files.is_empty() => {
                let name = self.files[0].to_string_lossy().into_owned();
                Err(Failure::usage(format!("file name {name} does not go with -x or -t"))
                    .hint("the stream comes on stdin, and all of it is taken: < FILE"))
            }
            _ => Ok(mode),
        }
    }

    /// The stock option in use, if any, that this release does not have.
    fn not_here(&self) -> Option<&'static str> {
        let decrypt = self.decrypt.as_ref().is_some_and(|how| !how.eq_ignore_ascii_case("none"));
        let table = [
            (self.decompress, "--decompress"),
            (decrypt, "--decrypt"),
            (self.encrypt_key.is_some(), "--encrypt-key"),
            (self.encrypt_key_file.is_some(), "--encrypt-key-file"),
            (self.fifo_streams.is_some_and(|streams| streams > 1), "--fifo-streams"),
            (self.fifo_dir.is_some(), "--fifo-dir"),
        ];
        table.into_iter().find_map(|(used, name)| used.then_some(name))
    }

    /// Worker threads. Numbers out of range are moved to the nearest limit, as stock does.
    pub(crate) fn threads(&self, stock: bool, log: &Log) -> usize {
        let Some(wanted) = self.parallel else {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            return if stock { 1 } else { cores.min(DEFAULT_PARALLEL) };
        };
        let threads = wanted.clamp(1, MAX_PARALLEL);
        if threads != wanted {
            log.warn(format_args!("--parallel={wanted} is out of range, taking {threads}"));
        }
        usize::try_from(threads).unwrap_or(1)
    }

    /// Where to work.
    pub(crate) fn dir(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from("."))
    }
}

impl From<DialectArg> for Dialect {
    fn from(arg: DialectArg) -> Self {
        match arg {
            DialectArg::Auto => Self::Auto,
            DialectArg::Percona => Self::Percona,
            DialectArg::Mariadb => Self::MariaDb,
        }
    }
}

impl From<SyncArg> for Durability {
    fn from(arg: SyncArg) -> Self {
        match arg {
            SyncArg::File => Self::File,
            SyncArg::End => Self::End,
            SyncArg::None => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], stock: bool) -> Result<Mode, Failure> {
        let line = Line::try_parse_from([&["x"], words].concat())?;
        line.check(stock, &Log::to("x", Default::default(), std::io::sink()))
    }

    #[test]
    fn the_definition_is_sound() {
        <Line as clap::CommandFactory>::command().debug_assert();
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
    fn what_is_not_there_is_refused_by_name() {
        for (words, name) in [
            (&["-x", "--decompress"][..], "--decompress"),
            (&["-x", "-d", "AES256"], "--decrypt"),
            (&["-x", "--decrypt=AES256", "--encrypt-key=secret"], "--decrypt"),
            (&["-x", "-k", "secret"], "--encrypt-key"),
            (&["-x", "--encrypt-key-file=/k"], "--encrypt-key-file"),
            (&["-x", "--fifo-streams=2"], "--fifo-streams"),
            (&["-x", "--fifo-dir=/f"], "--fifo-dir"),
        ] {
            let failure = check(words, false).unwrap_err();
            assert_eq!(failure.line(), format!("{name} is not in this release"));
        }
        // What asks for nothing is taken.
        for words in [
            &["-x", "--decrypt=NONE"][..],
            &["-x", "--decompress-threads=4", "--encrypt-threads=4"],
            &["-x", "--fifo-streams=1", "--fifo-timeout=5"],
        ] {
            check(words, false).unwrap();
        }
    }

    #[test]
    fn threads_are_kept_in_range() {
        let log = Log::to("x", Default::default(), std::io::sink());
        let threads = |words: &[&str], stock| {
            Line::try_parse_from([&["x"], words].concat()).unwrap().threads(stock, &log)
        };
        assert_eq!(threads(&["-x"], true), 1);
        assert!((1..=4).contains(&threads(&["-x"], false)));
        assert_eq!(threads(&["-x", "-p", "7"], false), 7);
        assert_eq!(threads(&["-x", "-p0"], false), 1);
        assert_eq!(threads(&["-x", "--parallel=999999"], false), 256);
    }
}
