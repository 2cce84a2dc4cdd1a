//! Starts this node's own server once on the prepared data, in private and without a cluster, before the swap: data that
//! it does not accept is not swapped in. Percona's server also upgrades the data if the donor's version is lower, locks
//! the user of the donor's transfers, and removes replica channels.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xb_process::can_confine;
use xb_server::{cause_in_log, end_of_log, private_args, socket_in};

use super::destination::Destination;
use super::free_space::{TEMPORARY, free_bytes};
use crate::context::Context;
use crate::contract::args::{Args, Product};
use crate::contract::datadir::{Kind, rocksdb_dir};
use crate::contract::error_log::ErrorLog;
use crate::contract::keep_patterns::Keep;
use crate::contract::settings::Settings;
use crate::error::SstError;
use crate::run::{ChildError, Run};
use crate::server::systemd_notify::Notifier;
use crate::session::backup_program::{key_words, option, server_words};
use crate::session::temp_dir::{WorkFolder, without_path};
use crate::swap::{NEW, START, WORK_DIR, list, make_dir, may_exist, remove_tree};

/// Record of the version that the data directory is for. It stays in the data directory, unless the
/// second start writes another.
const STATE: &str = "wsrep_state.dat";
/// Entries that the server creates for itself in every data directory.
const OWN: [&str; 2] = ["auto.cnf", "#innodb_temp"];
/// The account that Percona's servers create for each transfer. It arrives with the data.
const SST_USER: &str = "'mysql.pxc.sst.user'@'localhost'";
/// Code of the log line after which the server accepts connections. It has run its statements then.
const PERCONA_READY: &str = "[MY-010931]";
/// Longest text with a version that is read, in bytes.
const MAX_VERSION: usize = 4096;

/// As [`PERCONA_READY`], of MariaDB's servers.
const MARIADB_READY: &str = "ready for connections";
/// Entries that MariaDB's servers create besides, and would create again.
const MARIADB_OWN: [&str; 5] =
    ["ibtmp1", "tc.log", "ddl_recovery.log", "multi-master.info", "#rocksdb"];
/// Part of the message with which a MariaDB server refuses data that has prepared transactions and no binary log that says what
/// becomes of them. A backup of a donor with a binary log may have some, if there was load.
const IN_DOUBT: &str = " prepared transactions! ";
/// Option of MariaDB's server to roll such transactions back.
const ROLL_BACK: &str = "--tc-heuristic-recover=ROLLBACK";
/// Size of the redo log, in bytes, that a MariaDB server may create here.
const MARIADB_REDO: u64 = 16 << 20;
/// Options of this start that both products know.
const OF_EITHER_FAMILY: [&str; 10] = [
    "--innodb-temp-data-file-path=ibtmp1:12M:autoextend",
    // With large pages, a start extends that.
    "--innodb-autoextend-increment=1",
    // A start that is interrupted is not resumed.
    "--innodb-doublewrite=OFF",
    "--innodb-fast-shutdown=1",
    "--innodb-buffer-pool-size=128M",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--general-log=OFF",
    "--slow-query-log=OFF",
    "--read-only=OFF",
];
/// Part of a directory for small files, in bytes, that must be free: these files need less.
const SMALL_FILES: usize = 1 << 20;
/// Messages by which a server says that a disk is full.
const DISK_IS_FULL: [&str; 4] = ["No space left", "error 28", "errno: 28", "error: 28"];
/// Names of MariaDB's server program.
const MARIADB_NAMES: [&str; 2] = ["mariadbd", "mysqld"];

/// Finds the program of this node's server, of the version that runs, before data arrives, and checks that small files can be
/// made where preparing and this start have theirs. Returns `None` if this join needs no second start.
///
/// # Errors
/// [`SstError::NoServer`]; [`SstError::Tmpdir`], or as [`check_tmpdir`].
pub(super) fn get_ready(context: &Context) -> Result<Option<PathBuf>, SstError> {
    let program = find(context)?;
    let work = check_tmpdir(context)?;
    if program.is_some() {
        // This start has a socket there.
        check_path(work.path())?;
    }
    Ok(program)
}

/// Makes the directory for small files, and checks that there is room for them, and that the server can make its temporary
/// files where it has these.
///
/// # Errors
/// [`SstError::NoServerTmpdir`]; [`SstError::NoTmpdir`].
pub(crate) fn check_tmpdir(context: &Context) -> Result<WorkFolder, SstError> {
    let of_server = context.settings.server_tmpdir.clone();
    let of_server = context.layout.datadir.join(of_server.unwrap_or_else(std::env::temp_dir));
    tempfile::tempfile_in(&of_server).map_err(|error| {
        // The path is in the message already.
        SstError::NoServerTmpdir { path: of_server, source: without_path(&error) }
    })?;
    let work = work_folder(context)?;
    let path = work.path().join("room");
    let write = || {
        let mut file = std::fs::File::create_new(&path)?;
        file.write_all(&vec![0; SMALL_FILES])?;
        // Some file systems say only then that they are full.
        file.sync_data()?;
        std::fs::remove_file(&path)
    };
    let what = "write 1 MiB in";
    write().map_err(|source| SstError::NoTmpdir { what, path: work.path().to_owned(), source })?;
    Ok(work)
}

/// Returns the size in bytes of the redo log here, if that of the node's server is `redo`.
pub(super) fn redo_of(product: Product, redo: u64) -> u64 {
    match product {
        Product::MariaDb => redo.min(MARIADB_REDO),
        Product::Percona => redo,
    }
}

fn find(context: &Context) -> Result<Option<PathBuf>, SstError> {
    let Context { args, settings, error_log, .. } = context;
    if !settings.second_start.applies(args) {
        return Ok(None);
    }
    if args.product == Product::MariaDb {
        let program = mariadb_program(args);
        if program.is_none() {
            error_log.info("the server will not be started on the data before the swap: its program cannot be found");
        }
        return Ok(program);
    }
    let running = args.server_version.as_deref().unwrap_or_default();
    let mut others = Vec::new();
    for program in candidates(args) {
        let words = vec!["--no-defaults".into(), "--version".into()];
        let run = Run {
            program: &program,
            args: words,
            env: Vec::new(),
            log: None,
            writable: Vec::new(),
        };
        let text = match run.output(&context.cancel, MAX_VERSION) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(ChildError::Stopped(why)) => return Err(why.into()),
            Err(_) => continue,
        };
        let (_, version) = text.split_once("Ver ").unwrap_or_default();
        if numbers(version).is_some() && numbers(version) == numbers(running) {
            return Ok(Some(program));
        }
        let version = version.split_whitespace().next().unwrap_or("unknown");
        others.push(format!("{} has version {version}", program.display()));
    }
    let found = match others.is_empty() {
        true => "there is no mysqld in --basedir or on PATH".to_owned(),
        false => others.join(", "),
    };
    Err(SstError::NoServer(format!("{found}; the running server has version {running}")))
}

/// Returns the program of the server that has started this process, the same file; `None` if it cannot be found. A server
/// that has changed its user does not show it, and a file that was replaced since, as by an upgrade, is another version.
fn mariadb_program(args: &Args) -> Option<PathBuf> {
    let program = std::fs::read_link(format!("/proc/{}/exe", args.parent?)).ok()?;
    // The kernel appends a word to the name of a file that is gone.
    MARIADB_NAMES
        .iter()
        .any(|name| program.file_name() == Some(OsStr::new(name)))
        .then_some(program)
}

/// Paths at which the server's program may be, the most likely one first.
fn candidates(args: &Args) -> impl Iterator<Item = PathBuf> {
    let below = |base: PathBuf| ["bin", "sbin", "libexec"].map(|dir| base.join(dir).join("mysqld"));
    let of_server = args.basedir.clone().into_iter().flat_map(below);
    of_server.chain(["mysqld".into(), "/usr/sbin/mysqld".into()])
}

/// The three numbers at the beginning of a version.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

fn work_folder(context: &Context) -> Result<WorkFolder, SstError> {
    let tmpdir = context.settings.tmpdir.as_deref();
    WorkFolder::make(context.args.role, tmpdir, &context.layout.datadir)
}

fn check_path(work: &Path) -> Result<(), SstError> {
    let is_quotable = work.to_str().is_some_and(|path| !path.contains(['\'', '\\', '\n']));
    match socket_in(work).is_some() && is_quotable {
        true => Ok(()),
        false => Err(SstError::Tmpdir { path: work.to_owned() }),
    }
}

/// Starts `program` on the received data, and waits until it has shut down. Returns whether it was started.
///
/// # Errors
/// [`SstError::SecondStart`], or that of a system call. The server has ended; what was received is
/// of no more use.
pub(super) fn run(
    context: &Context,
    program: &Path,
    destination: &Destination,
) -> Result<bool, SstError> {
    if context.args.product == Product::MariaDb
        && let Some(why) = mariadb_obstacle(&context.settings, destination)?
    {
        context
            .error_log
            .info(format_args!("the server is not started on the data before the swap: {why}"));
        return Ok(false);
    }
    let new = &destination.new;
    let start = context.layout.datadir.join(WORK_DIR).join(START);
    let data = start.join("data");
    remove_tree(&start)?;
    make_dir(&start).map_err(SstError::io("make", &start))?;
    std::fs::rename(new, &data).map_err(SstError::io("rename", new))?;
    on(context, program, destination, &data)?;
    std::fs::rename(&data, new).map_err(SstError::io("rename", &data))?;
    std::fs::remove_dir(&start).map_err(SstError::io("remove", &start))?;
    Ok(true)
}

/// Returns why a MariaDB server cannot be started on the received data before it is swapped.
///
/// # Errors
/// If the data cannot be listed.
fn mariadb_obstacle(
    settings: &Settings,
    destination: &Destination,
) -> Result<Option<&'static str>, SstError> {
    let is_outside = destination.dirs_of(|kind| matches!(kind, Kind::Data(_))).next().is_some();
    if is_outside && settings.second_start.data_files.is_some() {
        return Ok(Some("innodb_data_file_path names directories outside the data directory"));
    }
    let new = &destination.new;
    for (schema, _) in list(new)?.into_iter().filter(|(_, facts)| facts.is_dir()) {
        let mut files = list(&new.join(schema))?.into_iter();
        if files.any(|(name, _)| Path::new(&name).extension() == Some(OsStr::new("isl"))) {
            // The server would open the files of the present data there.
            return Ok(Some("it has tables with a DATA DIRECTORY"));
        }
    }
    Ok(None)
}

fn on(
    context: &Context,
    program: &Path,
    destination: &Destination,
    data: &Path,
) -> Result<(), SstError> {
    let Context { args, settings, layout, error_log, .. } = context;
    let work = work_folder(context)?;
    let is_mariadb = args.product == Product::MariaDb;
    let sql = Statements::write(work.path(), args, settings.second_start.reset_replica)?;
    let before = names(data)?;
    lend(&layout.datadir, data)?;
    let log = layout.datadir.join("xbrs.mysqld.log");
    let _ = std::fs::remove_file(&log);
    error_log.info(format_args!(
        "starting {} once on the received data, without a cluster; its log is {}",
        program.display(),
        log.display()
    ));
    let mut words = args.defaults.words();
    words.extend(private_args(work.path()));
    words.extend(match is_mariadb {
        true => mariadb_args(args, settings, destination, &layout.datadir, work.path(), data),
        false => {
            let data_files = settings.second_start.data_files.as_deref();
            percona_args(args, data_files, work.path(), data)
        }
    });
    words.push(option("--log-error", &log));
    words.push(option("--init-file", &sql.file));
    let mut notifier = Notifier::new(context.notify_socket.as_deref());
    let ready = if is_mariadb { MARIADB_READY } else { PERCONA_READY };
    let begin = Instant::now();
    let mut fault = || {
        notifier.alive("the server starts once on the received data");
        match settings.second_start.limit {
            Some(limit) if begin.elapsed() > limit => Some(too_long(limit)),
            _ if end_of_log(&log).contains(ready)
                && matches!(sql.result.try_exists(), Ok(false)) =>
            {
                Some("could not run its statements".to_owned())
            }
            _ => None,
        }
    };
    let failed = |what| SstError::SecondStart {
        program: program.into(),
        what,
        log: log.clone(),
        full: None,
    };
    let writable = match is_mariadb {
        true => {
            if let Err(why) = can_confine() {
                error_log
                    .info(format_args!("the server is not confined to the received data: {why}"));
            }
            let placed = destination.dirs_of(|_| true);
            placed.chain([data.to_owned(), work.path().to_owned(), log.clone()]).collect()
        }
        // Its keyring may write beside its own file.
        false => Vec::new(),
    };
    let mut run = Run { program, args: words, env: Vec::new(), log: None, writable };
    let mut start = |run: &Run<'_>| {
        if is_mariadb {
            std::fs::File::create(&log).map_err(SstError::io("make", &log))?;
        }
        Ok::<_, SstError>(run.to_end_unless(&context.cancel, &mut fault))
    };
    let mut outcome = start(&run)?;
    if is_mariadb && outcome.is_err() && end_of_log(&log).contains(IN_DOUBT) {
        error_log.info("transactions that the donor's server was about to commit are rolled back: their write sets come after the position of the data, and this node receives them");
        let plain = run.args.clone();
        run.args.push(ROLL_BACK.into());
        // The server ends with an error once it has rolled them back.
        let _ = start(&run)?;
        run.args = plain;
        outcome = start(&run)?;
    }
    outcome.map_err(|error| match error {
        ChildError::Failed { how, words, .. } => {
            // It writes to the log only once it has read its options.
            let text = end_of_log(&log);
            let text = if text.is_empty() { words.join("\n") } else { text };
            SstError::SecondStart {
                program: program.into(),
                what: format!("{how}: {}", cause_in_log(&text)),
                log: log.clone(),
                full: full_disk(&text, data, destination),
            }
        }
        error => error.into(),
    })?;
    match is_mariadb {
        true => {
            if !sql.result.try_exists().map_err(SstError::io("look at", &sql.result))? {
                return Err(failed("ended before it had run its statements".to_owned()));
            }
        }
        false => sql.check(error_log).map_err(failed)?,
    }
    take_back(&layout.datadir, &settings.keep, data, &before)
}

/// Returns the directory whose file system is full, by what a server says that has failed or by what is free: not every
/// message of a server that finds no room says so.
fn full_disk(text: &str, data: &Path, destination: &Destination) -> Option<PathBuf> {
    let dirs = || std::iter::once(data.to_owned()).chain(destination.dirs_of(|_| true));
    let free = |dir: &PathBuf| free_bytes(dir).unwrap_or(u64::MAX);
    let says_so = DISK_IS_FULL.iter().any(|words| text.contains(words));
    let fullest = dirs().min_by_key(free)?;
    (says_so || free(&fullest) < TEMPORARY).then_some(fullest)
}

fn too_long(limit: Duration) -> String {
    format!("was ended, because it took longer than {} s", limit.as_secs())
}

/// Returns whether an option turns the binary log on, or says where it is.
fn names_binlog(word: &OsStr) -> bool {
    let word = word.as_bytes();
    [&b"--log-bin"[..], b"--log-basename"].iter().any(|option| word.starts_with(option))
}

/// Arguments of MariaDB's server beside those of a private server and of the node's option files.
fn mariadb_args(
    args: &Args,
    settings: &Settings,
    destination: &Destination,
    datadir: &Path,
    work: &Path,
    data: &Path,
) -> Vec<OsString> {
    let mut words = server_words(args);
    // The binary log is the present node's, and stays off: the last word would count.
    words.retain(|word| !names_binlog(word));
    words.extend(settings.key_options.files());
    words.extend(key_words(args, datadir));
    // InnoDB allows no `;` in these, which the path of the data directory may have.
    let place = |wanted: fn(&Kind) -> bool, default: &Path| {
        destination.dirs_of(wanted).next().unwrap_or_else(|| default.to_owned())
    };
    let own = Path::new("./");
    words.extend([
        option("--datadir", data),
        option("--innodb-data-home-dir", place(|kind| matches!(kind, Kind::Data(_)), own)),
        option("--innodb-undo-directory", place(|kind| *kind == Kind::Undo, own)),
        option("--aria-log-dir-path", place(|kind| *kind == Kind::Aria, data)),
        option("--innodb-log-group-home-dir", own),
        option("--innodb-tmpdir", work.join("tmp")),
        option("--relay-log", work.join("relay")),
        option("--relay-log-index", work.join("relay.index")),
        // Of the present data, where an option names them. Servers before 10.6 do not know the first.
        option("--loose-log-ddl-recovery", work.join("ddl_recovery.log")),
        option("--log-tc", work.join("tc.log")),
        option("--master-info-file", work.join("master.info")),
        option("--relay-log-info-file", work.join("relay-log.info")),
        // MyRocks would write to the present data, where an option names it.
        option("--loose-rocksdb-datadir", data.join(rocksdb_dir(args.product))),
        option("--loose-rocksdb-wal-dir", data.join(rocksdb_dir(args.product))),
    ]);
    let data_files = settings.second_start.data_files.as_deref();
    words.extend(data_files.map(|files| option("--innodb-data-file-path", files)));
    // The server makes its log as large as it is set. This start needs no more room than that one.
    let log = redo_of(args.product, settings.redo_log.bytes(args.product, None));
    words.push(format!("--innodb-log-file-size={log}").into());
    let fixed = [
        // The server's command line may have it where an option file turns it off.
        "--innodb=FORCE",
        "--loose-innodb-encryption-threads=0",
        "--key-buffer-size=8M",
        "--performance-schema=OFF",
        "--skip-ssl",
    ];
    words.extend(OF_EITHER_FAMILY.into_iter().chain(fixed).map(OsString::from));
    words
}

/// The same of Percona's server. The node's option files count, but every file has its
/// place in `data` or `work`: the places that the option files name hold the node's present data.
fn percona_args(
    args: &Args,
    data_files: Option<&OsStr>,
    work: &Path,
    data: &Path,
) -> Vec<OsString> {
    let tmp = work.join("tmp");
    let mut words = vec![
        option("--datadir", data),
        option("--innodb-tmpdir", &tmp),
        option("--loose-innodb-temp-tablespaces-dir", &tmp),
        option("--relay-log", work.join("relay")),
        option("--relay-log-index", work.join("relay.index")),
    ];
    let dirs = [("--basedir", &args.basedir), ("--plugin-dir", &args.plugindir)];
    words.extend(dirs.iter().filter_map(|(name, dir)| Some(option(name, dir.as_ref()?))));
    words.extend(data_files.map(|files| option("--innodb-data-file-path", files)));
    let fixed = [
        "--innodb-data-home-dir=./",
        "--innodb-log-group-home-dir=./",
        "--innodb-undo-directory=./",
        "--innodb-directories=",
        "--loose-rocksdb-datadir=./.rocksdb",
        "--loose-rocksdb-wal-dir=./.rocksdb",
        "--log-error-services=log_filter_internal; log_sink_internal",
        "--log-error-verbosity=2",
        "--lc-messages=en_US",
        "--super-read-only=OFF",
        "--loose-daemonize=OFF",
        "--loose-wsrep-cluster-address=",
        "--loose-pxc-encrypt-cluster-traffic=OFF",
        // The node's certificates are elsewhere, and new ones are not needed.
        "--loose-auto-generate-certs=OFF",
        "--loose-sha256-password-auto-generate-rsa-keys=OFF",
        "--loose-caching-sha2-password-auto-generate-rsa-keys=OFF",
        "--ssl-ca=",
        "--ssl-cert=",
        "--ssl-key=",
    ];
    let all = OF_EITHER_FAMILY.into_iter().chain(fixed);
    words.extend(all.map(OsString::from));
    words
}

/// The statements that the server runs before a client can connect, and the files that they write.
/// After an error, the server runs on without the rest of them, and without the result.
struct Statements {
    file: PathBuf,
    /// Number of the donor's replica channels.
    channels: PathBuf,
    /// Numbers of accounts left unlocked, and of replica channels.
    result: PathBuf,
    /// Whether the donor's replica channels are removed.
    reset: bool,
}

impl Statements {
    fn write(work: &Path, args: &Args, reset: bool) -> Result<Self, SstError> {
        check_path(work)?;
        let tmp = work.join("tmp");
        std::fs::create_dir(&tmp).map_err(SstError::io("make", &tmp))?;
        let file = work.join("init.sql");
        let this = Self { file, channels: tmp.join("channels"), result: tmp.join("result"), reset };
        let options = &mut std::fs::OpenOptions::new();
        let open = options.write(true).create_new(true).mode(0o600).open(&this.file);
        let version = args.server_version.as_deref().and_then(numbers);
        let text = match args.product {
            Product::MariaDb => {
                format!("SELECT 1 INTO OUTFILE '{}';\nSHUTDOWN;\n", this.result.display())
            }
            Product::Percona => this.text(version),
        };
        let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(SstError::io("write", &this.file))?;
        Ok(this)
    }

    fn text(&self, version: Option<[u32; 3]>) -> String {
        let (channels, result) = (self.channels.display(), self.result.display());
        // The word changed in 8.0.22; 8.4 does not know the old one.
        let word = if version < Some([8, 0, 22]) { "SLAVE" } else { "REPLICA" };
        let reset = match self.reset {
            true => format!("RESET {word} ALL;\n"),
            false => String::new(),
        };
        format!(
            "SET SESSION sql_mode = '';\n\
             SELECT COUNT(*) FROM mysql.slave_master_info WHERE Host <> '' INTO OUTFILE '{channels}';\n\
             ALTER USER IF EXISTS {SST_USER} ACCOUNT LOCK;\n\
             {reset}\
             SELECT (SELECT COUNT(*) FROM mysql.user WHERE CONCAT(QUOTE(User), '@', QUOTE(Host)) = \"{SST_USER}\" AND account_locked <> 'Y'), \
             (SELECT COUNT(*) FROM mysql.slave_master_info WHERE Host <> '') INTO OUTFILE '{result}';\n\
             SHUTDOWN;\n"
        )
    }

    /// Checks what the server left.
    fn check(&self, error_log: &ErrorLog) -> Result<(), String> {
        let numbers = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()
        };
        let (before, left) =
            match (numbers(&self.channels).as_deref(), numbers(&self.result).as_deref()) {
                (Ok([before]), Ok([0, left])) if *left == 0 || !self.reset => (*before, *left),
                (_, Ok([0, left])) => return Err(format!("{left} replica channels remain")),
                (_, Ok([_, _])) => return Err(format!("{SST_USER} is not locked")),
                _ => return Err("ended before it had run its statements".to_owned()),
            };
        if left > 0 {
            error_log.warn(format_args!("the donor is a replica, and so is this node: reset-replica=no keeps {left} replica channels"));
        } else if before > 0 {
            error_log.info(format_args!("the donor is a replica: its {before} replica channels were removed from the received data"));
        }
        Ok(())
    }
}

/// Copies files of the node that its server needs in its data directory.
fn lend(datadir: &Path, data: &Path) -> Result<(), SstError> {
    for name in names(datadir)?.iter().filter(|name| is_lent(name)) {
        let (from, to) = (datadir.join(name), data.join(name));
        let is_file = from.metadata().map_err(SstError::io("look at", &from))?.is_file();
        if is_file && !to.try_exists().map_err(SstError::io("look at", &to))? {
            std::fs::copy(&from, &to).map_err(SstError::io("copy", &from))?;
        }
    }
    Ok(())
}

fn is_lent(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    name == "mysqld.my"
        || name == STATE
        || (bytes.starts_with(b"component_") && bytes.ends_with(b".cnf"))
}

/// Removes what belongs to the node and not to the data: files that were lent, and what the server
/// created for itself.
fn take_back(
    datadir: &Path,
    keep: &Keep,
    data: &Path,
    before: &HashSet<OsString>,
) -> Result<(), SstError> {
    let read = |folder: &Path| std::fs::read(folder.join(STATE)).ok();
    let renewed = read(data) != read(datadir);
    for name in names(data)?.difference(before) {
        let path = data.join(name);
        let is_dir = path.is_dir();
        let is_own = OWN.iter().chain(&MARIADB_OWN).any(|own| name == own)
            || is_lent(name)
            || keep.keeps(name.as_bytes(), is_dir);
        if is_own && !(renewed && name == STATE) {
            let removed = match is_dir {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.map_err(SstError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Returns whether the second start left another version of an entry that otherwise stays.
pub(super) fn is_renewed(datadir: &Path, name: &OsStr) -> bool {
    name == STATE && may_exist(&datadir.join(WORK_DIR).join(NEW).join(name))
}

/// Returns the names of the entries of a directory.
fn names(folder: &Path) -> Result<HashSet<OsString>, SstError> {
    let list = || std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect();
    let list: io::Result<_> = list();
    list.map_err(SstError::io("list", folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::datadir::Layout;
    use crate::contract::option_files::OptionFiles;

    #[test]
    fn a_binary_log_on_the_servers_command_line_stays_off() {
        let folder = tempfile::tempdir().unwrap();
        let words = "--role joiner --address h --datadir /d --mysqld-args --log-bin=/elsewhere/node --log_bin --log-bin-index=/i --log-basename=b --innodb-page-size=8192";
        let words: Vec<_> = words.split(' ').map(OsString::from).collect();
        let args = Args::parse(&words).unwrap();
        let settings = Settings::read(&args, &OptionFiles::default(), None, 1).unwrap();
        let layout = Layout::of(folder.path()).unwrap();
        let destination = Destination::of(&layout, args.product);
        let words = mariadb_args(
            &args,
            &settings,
            &destination,
            folder.path(),
            folder.path(),
            folder.path(),
        );
        for name in ["data-home-dir", "undo-directory", "log-group-home-dir"] {
            assert!(words.contains(&format!("--innodb-{name}=./").into()), "{words:?}");
        }
        let of_log = |word: &&OsString| word.to_string_lossy().starts_with("--log-b");
        assert_eq!(words.iter().filter(of_log).collect::<Vec<_>>(), [] as [&OsString; 0]);
        assert!(words.contains(&"--innodb-page-size=8192".into()));
    }

    /// The private server would open what options name, and write to it.
    #[test]
    fn a_second_start_has_myrocks_in_the_received_data() {
        let folder = tempfile::tempdir().unwrap();
        let line = "--role joiner --address h --datadir /d --mysqld-args --loose-rocksdb-datadir=/ssd --rocksdb-wal-dir=/wal";
        let line: Vec<_> = line.split(' ').map(OsString::from).collect();
        let args = Args::parse(&line).unwrap();
        let settings = Settings::read(&args, &OptionFiles::default(), None, 1).unwrap();
        let layout = Layout::of(folder.path()).unwrap();
        let destination = Destination::of(&layout, args.product);
        let [data, other] = ["/new", "/other"].map(Path::new);
        let words = mariadb_args(&args, &settings, &destination, other, other, data);
        let of_rocksdb = |word: &&OsString| word.to_string_lossy().contains("rocksdb");
        let expected =
            ["--loose-rocksdb-datadir=/new/#rocksdb", "--loose-rocksdb-wal-dir=/new/#rocksdb"];
        assert_eq!(words.iter().filter(of_rocksdb).collect::<Vec<_>>(), expected);
        let words = percona_args(&args, None, other, data);
        let expected = ["--loose-rocksdb-datadir=./.rocksdb", "--loose-rocksdb-wal-dir=./.rocksdb"];
        assert_eq!(words.iter().filter(of_rocksdb).collect::<Vec<_>>(), expected);
    }

    /// It cannot notice what the present node has in files that it replaces by its own: so the swap must move them.
    #[test]
    fn what_a_second_start_has_elsewhere_is_known_to_the_swap() {
        let [folder, other] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        let line = "--role joiner --address h --datadir /d --mysqld-args";
        let line: Vec<_> = line.split(' ').map(OsString::from).collect();
        let mut args = Args::parse(&line).unwrap();
        args.datadir = Some(folder.path().to_owned());
        let settings = Settings::read(&args, &OptionFiles::default(), None, 1).unwrap();
        let with = |name: &str, value: &OsStr| {
            let own = ("mysqld".to_owned(), name.to_owned(), Some(value.to_owned()));
            let files = OptionFiles::new([own], args.product, None);
            Layout::find(&args, &files, &settings.keep).unwrap()
        };
        let plain = with("none", OsStr::new(""));
        let destination = Destination::of(&plain, args.product);
        let [work, data] = ["/work", "/new"].map(Path::new);
        let words = mariadb_args(&args, &settings, &destination, folder.path(), work, data);
        std::fs::write(folder.path().join("own.log"), "").unwrap();
        let facts = folder.path().join("own.log").metadata().unwrap();
        let mut known = 0;
        for word in &words {
            let word = word.to_str().unwrap();
            let Some((name, value)) = word.trim_start_matches("--").split_once('=') else {
                continue;
            };
            let name = name.trim_start_matches("loose-");
            let is_place = [work, data].iter().any(|dir| Path::new(value).starts_with(dir));
            // Nothing that is in these is left for another start.
            if !is_place || ["datadir", "innodb-tmpdir"].contains(&name) {
                continue;
            }
            known += 1;
            assert_ne!(with(name, other.path().join("own.log").as_os_str()), plain, "{name}");
            let is_file =
                !name.ends_with("-dir") && !name.ends_with("dir") && !name.ends_with("path");
            // By its ending, this is a log that stays. Those of a relay log have a number at their end.
            if is_file && !name.ends_with("directory") && name != "relay-log" {
                assert!(
                    with(name, OsStr::new("own.log")).is_named("own.log".as_ref(), &facts),
                    "{name}"
                );
            }
        }
        assert!(known > 8, "{words:?}");
    }

    /// A server that cannot make its temporary tablespace may say only that it was unable to.
    #[test]
    fn a_full_disk_is_found_by_what_a_server_says() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::of(folder.path()).unwrap();
        let destination = Destination::of(&layout, crate::contract::args::Product::MariaDb);
        let full = |text: &str| full_disk(text, folder.path(), &destination);
        assert_eq!(full("[ERROR] InnoDB: The innodb_system data file must be writable"), None);
        for text in [
            "preallocating 16777216 bytes failed with error 28",
            "(28 \"No space left on device\")",
        ] {
            assert_eq!(full(text).as_deref(), Some(folder.path()), "{text}");
        }
    }
}
