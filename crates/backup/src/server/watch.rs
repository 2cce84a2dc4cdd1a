//! Collects evidence of a server's history while a producer reads it.
//!
//! A backup's stream carries none: mariadb-backup writes the head of the redo log anew. So the
//! server names its files, and their heads are read from the directories that the producer reads, too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use xb_binlog::{Fork, LogDigest};
use xb_mysql::Row;
use xb_pages::{REDO_HEAD, RedoHeader, RedoStart};
use xb_process::{DroppedTablespaces, StreamedTables, TablesBefore};
use xb_repo::manifest::Manifest;
use xb_repo::manifest::history::{FileBirth, HighestNumbers, History, RedoLog};
use xb_repo::manifest::source_info::SourceInfo;

use crate::cancel::CancelToken;
use crate::server::imports::ImportSearch;
use crate::server::login::{LoginError, fork_of, log_in};

/// Variables of the server that name its files, or the server itself.
const VARIABLES: &str = "'datadir', 'innodb_data_home_dir', 'innodb_data_file_path', \
     'innodb_log_group_home_dir', 'innodb_undo_tablespaces', 'log_bin', 'log_bin_basename', 'server_uuid'";

/// A server before its backup.
#[derive(Debug)]
pub struct ServerWatch {
    files: Result<ServerFiles, String>,
    /// Evidence before the producer starts.
    before: FileEvidence,
    producer: Producer,
    /// The numbers of the server's tables before the producer starts.
    numbers: Option<Numbers>,
}

/// How the server is asked again.
struct Producer {
    argv: Vec<OsString>,
    cancel: CancelToken,
}

/// Without the arguments, which may hold a password.
impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Producer {
    /// The server's highest numbers now, and a table that was imported since they were these. `None` for what cannot be
    /// told: then the server was asked once more, since an increment may be worth less for lack of an answer.
    async fn look(&self, since: &[HighestNumbers]) -> Option<Numbers> {
        let program = self.argv.first().and_then(|program| fork_of(program));
        program.filter(|fork| *fork == Fork::MariaDb)?;
        match self.try_look(since).await {
            Ok(found) => Some(found),
            Err(_) => self.try_look(since).await.ok(),
        }
    }

    /// The rows of questions; `None` if the server cannot be asked, which was tried twice.
    async fn answers(&self, questions: &[String]) -> Option<Vec<[String; 2]>> {
        let program = self.argv.first().and_then(|program| fork_of(program));
        program.filter(|fork| *fork == Fork::MariaDb)?;
        for _ in 0..2 {
            if let Ok(mut search) = ImportSearch::begin(&self.argv, &self.cancel).await
                && let Ok(answers) = search.answers(questions).await
            {
                return Some(answers);
            }
        }
        None
    }

    async fn try_look(&self, since: &[HighestNumbers]) -> Result<Numbers, LoginError> {
        let mut search = ImportSearch::begin(&self.argv, &self.cancel).await?;
        // First: what is discarded or imported from here on has a higher number.
        let highest = search.highest().await?;
        let discarded = search.discarded().await?;
        for then in since {
            let imported = search.imported_since(*then).await?;
            if imported.is_some() {
                return Ok(Numbers { highest, imported, discarded });
            }
        }
        Ok(Numbers { highest, imported: None, discarded })
    }
}

/// Conclusions from the numbers of a server's tables.
#[derive(Debug, Clone)]
struct Numbers {
    /// The highest ones.
    highest: HighestNumbers,
    /// A table that was imported.
    imported: Option<String>,
    /// The tables that are discarded, by the numbers of their tablespaces.
    discarded: BTreeMap<u32, String>,
}

impl Numbers {
    /// The highest numbers, if they show what is imported later: they do not, of a table that is discarded.
    fn proving(&self) -> Option<HighestNumbers> {
        self.discarded.is_empty().then_some(self.highest)
    }

    fn before(&self) -> TablesBefore {
        let discarded = self.discarded.keys().copied().collect();
        TablesBefore { discarded }
    }
}

/// Evidence that is in the server's files now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct FileEvidence {
    redo: Option<RedoLog>,
    start: Option<RedoStart>,
    data_file: Option<FileBirth>,
}

impl FileEvidence {
    /// The redo log, if it is known to be of the same server as `before`: the same file, or one that was created since the
    /// backup's redo log begins at `start`, beside the same data file, as by a change of its size. A server that was restored
    /// meanwhile has a log that was created earlier in its history.
    fn redo_since(&self, before: &Self, start: Option<u64>) -> Option<RedoLog> {
        let redo = self.redo.as_ref()?;
        let is_newer = redo.created_lsn.zip(start).is_some_and(|(created, start)| created >= start);
        let is_there = self.data_file.is_some() && self.data_file == before.data_file;
        let is_its = before.redo.as_ref() == Some(redo) || (is_newer && is_there);
        is_its.then(|| redo.clone())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerFiles {
    /// Directory of the redo log.
    redo: PathBuf,
    /// First file of the system tablespace.
    data_file: PathBuf,
    /// Directory of the binary log, if the server writes one.
    binlogs: Option<PathBuf>,
    server_uuid: Option<String>,
    undo_tablespaces: Option<u32>,
}

impl ServerWatch {
    /// Asks the server of the producer `argv` for its files, and looks at them. A server that cannot
    /// be asked is no error: then nothing is known about its history.
    pub async fn begin(argv: &[OsString], cancel: &CancelToken) -> Self {
        let files = ServerFiles::of(argv, cancel).await;
        let before = files.as_ref().map(ServerFiles::look).unwrap_or_default();
        let producer = Producer { argv: argv.to_vec(), cancel: cancel.clone() };
        let numbers = match &files {
            Ok(_) => producer.look(&[]).await,
            Err(_) => None,
        };
        Self { files, before, producer, numbers }
    }

    /// A table that had no tablespace before the producer starts because it was discarded, as `schema/table`, encoded as in
    /// file names.
    #[must_use]
    pub fn discarded(&self) -> Option<&str> {
        self.numbers.as_ref()?.discarded.values().next().map(String::as_str)
    }

    /// Asks the server after the end of its producer, which has said what is `dropped`, for tables whose rows the `stream` may
    /// not have although the server has them. `None` if it cannot be asked, or is not the one that the producer has read.
    pub(crate) async fn imported(
        &self,
        dropped: &DroppedTablespaces,
        stream: StreamedTables<'_>,
        redo_start_lsn: Option<u64>,
    ) -> Option<Vec<[String; 2]>> {
        if let Ok(files) = &self.files
            && !is_between(self.before.start, redo_start_lsn, files.look().start)
        {
            return None;
        }
        let before = self.numbers.as_ref().map(Numbers::before).unwrap_or_default();
        self.producer.answers(&dropped.questions(&before, stream)).await
    }

    /// Explains why the evidence is incomplete; `None` if the redo log, and the binary log if there
    /// is one, can be compared.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        match &self.files {
            Err(why) => Some(why.clone()),
            Ok(files) if self.before.redo.is_none() => Some(format!(
                "the head or the birth time of the redo log in {} cannot be read",
                files.redo.display()
            )),
            Ok(ServerFiles { binlogs: Some(dir), .. }) if std::fs::read_dir(dir).is_err() => {
                Some(format!("the directory {} of the binary log cannot be read", dir.display()))
            }
            Ok(_) => None,
        }
    }

    /// Evidence before the producer starts, for an increment on `base`. `None` if there is none.
    pub async fn before(&self, base: &Manifest) -> Option<History> {
        let files = self.files.as_ref().ok()?;
        let found = match highest_of(base) {
            Some(then) => self.producer.look(&[then]).await,
            None => self.numbers.clone(),
        };
        let (highest, imported) = found.map_or((None, None), |it| (it.proving(), it.imported));
        let history = files.history(&self.before, None, Some(base));
        Some(History { highest, imported, ..history })
    }

    /// Evidence after the producer's end, with that at the end of the backup, and of its base.
    /// `None` if there is none, or if the stream is not from this server.
    pub async fn after(&self, source: &SourceInfo, base: Option<&Manifest>) -> Option<History> {
        let files = self.files.as_ref().ok()?;
        let mut seen = files.look();
        if !is_between(self.before.start, source.redo_start_lsn, seen.start) {
            return None;
        }
        seen.redo = seen.redo_since(&self.before, source.redo_start_lsn);
        let history = files.history(&seen, Some(source), base);
        let of_base = base.and_then(highest_of);
        let highest = self.numbers.as_ref().and_then(Numbers::proving);
        let since: Vec<_> = of_base.into_iter().chain(highest).collect();
        let found = match highest {
            Some(_) => self.producer.look(&since).await,
            None => None,
        };
        let (highest, imported) = found.map_or((None, None), |it| (it.proving(), it.imported));
        // Of a full backup that saw an import, it is not known whether it has the pages: an increment on it is on its own.
        let highest = highest.filter(|_| imported.is_none());
        Some(History { highest, imported: imported.filter(|_| base.is_some()), ..history })
    }
}

fn highest_of(base: &Manifest) -> Option<HighestNumbers> {
    base.history.as_ref()?.highest
}

/// Returns whether a backup's redo log can begin where it does: at a checkpoint of its server while the
/// producer ran. The login might be to another server than the producer's.
fn is_between(before: Option<RedoStart>, at: Option<u64>, after: Option<RedoStart>) -> bool {
    let (Some(before), Some(at), Some(after)) = (before, at, after) else { return true };
    (before.checkpoint..=after.checkpoint).contains(&at)
}

impl ServerFiles {
    async fn of(argv: &[OsString], cancel: &CancelToken) -> Result<Self, String> {
        let program = argv.first().cloned().unwrap_or_default();
        let fork = fork_of(&program).ok_or_else(|| {
            format!("{} is not a known backup program", program.to_string_lossy())
        })?;
        let variables = variables(fork, argv, cancel).await.map_err(|error| {
            format!("cannot query the server with the producer's login: {error}")
        })?;
        Self::of_variables(&variables)
            .ok_or_else(|| "the server does not name its files".to_owned())
    }

    fn of_variables(variables: &BTreeMap<String, String>) -> Option<Self> {
        let of = |name: &str| variables.get(name).map(String::as_str).filter(|v| !v.is_empty());
        let datadir = Path::new(of("datadir")?);
        // Relative to the data directory, or absolute.
        let within = |name: &str| datadir.join(of(name).unwrap_or_default());
        let first = of("innodb_data_file_path").unwrap_or("ibdata1").split(':').next()?;
        let writes = of("log_bin").is_some_and(|value| value.eq_ignore_ascii_case("ON"));
        let binlogs = of("log_bin_basename").filter(|_| writes);
        Some(Self {
            redo: within("innodb_log_group_home_dir"),
            data_file: within("innodb_data_home_dir").join(first),
            binlogs: binlogs.and_then(|base| Some(datadir.join(base).parent()?.to_owned())),
            server_uuid: of("server_uuid").map(str::to_owned),
            undo_tablespaces: of("innodb_undo_tablespaces").and_then(|number| number.parse().ok()),
        })
    }

    fn look(&self) -> FileEvidence {
        let path = self.redo.join("ib_logfile0");
        let (redo, start) = match head_of(&path) {
            Some((head, birth)) => (
                RedoHeader::of_head(&head).and_then(|header| {
                    let file = Some(birth?);
                    Some(RedoLog { file, created_lsn: header.created, number: header.number })
                }),
                // Only of servers whose backups begin at a checkpoint of this file.
                RedoStart::of_head(&head).filter(|start| start.skips_freed),
            ),
            None => (self.numbered_log(), None),
        };
        FileEvidence { redo, start, data_file: birth_of(&self.data_file) }
    }

    /// The redo log of MySQL 8.0.30 and later: many files that come and go, with one number.
    fn numbered_log(&self) -> Option<RedoLog> {
        let files = std::fs::read_dir(self.redo.join("#innodb_redo")).ok()?;
        let number = files.flatten().find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let digits = name.strip_prefix("#ib_redo")?;
            digits.parse::<u64>().ok()?;
            RedoHeader::of_head(&head_of(&entry.path())?.0)?.number
        })?;
        Some(RedoLog { number: Some(number), ..RedoLog::default() })
    }

    fn history(
        &self,
        seen: &FileEvidence,
        own: Option<&SourceInfo>,
        base: Option<&Manifest>,
    ) -> History {
        let digest = |source: &SourceInfo| {
            let at = source.binlog_pos.as_ref()?.position()?;
            digest(&self.binlogs.as_ref()?.join(at.log()), at.offset())
        };
        History {
            server_uuid: self.server_uuid.clone(),
            redo: seen.redo.clone(),
            data_file: seen.data_file,
            binlog: own.and_then(digest).filter(|digest| *digest != LogDigest::Shorter),
            binlog_at_base: base.and_then(|base| digest(&base.source)),
            highest: None,
            undo_tablespaces: self.undo_tablespaces,
            imported: None,
            accepted: false,
            accepted_imports: false,
        }
    }
}

/// The variables of the producer's server that say where its files are.
async fn variables(
    fork: Fork,
    argv: &[OsString],
    cancel: &CancelToken,
) -> Result<BTreeMap<String, String>, LoginError> {
    let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})");
    let rows = log_in(fork, argv, cancel).await?.rows(&query, cancel).await?;
    let pair = |row: &Row| row.texts().map(|[name, value]| (name, value));
    Ok(rows.iter().map(pair).collect::<Result<_, _>>()?)
}

/// The first [`REDO_HEAD`] bytes of a regular file, and its birth.
fn head_of(path: &Path) -> Option<(Vec<u8>, Option<FileBirth>)> {
    // Looked at before it is opened: opening a pipe would block.
    let birth = birth_of(path);
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let file = file.and_then(|_| File::open(path).ok())?;
    let mut head = Vec::new();
    file.take(REDO_HEAD as u64).read_to_end(&mut head).ok()?;
    Some((head, birth))
}

fn birth_of(path: &Path) -> Option<FileBirth> {
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let born = Timestamp::try_from(meta.created().ok()?).ok()?;
    Some(FileBirth { inode: meta.ino(), born })
}

/// Digest of a binary log before `offset`. `None` if the log cannot be read.
fn digest(path: &Path, offset: u64) -> Option<LogDigest> {
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if meta.len() < offset {
        return Some(LogDigest::Shorter);
    }
    let mut file = File::open(path).ok()?;
    let [head, tail] = LogDigest::windows(offset).map(|window| {
        let mut bytes = vec![0; usize::try_from(window.end - window.start).ok()?];
        file.seek(SeekFrom::Start(window.start)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    });
    Some(LogDigest::of(head?, &tail?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_files_are_where_its_variables_say() {
        let files = |text: &str| {
            let pairs = text.lines().map(|line| line.split_once('\t').unwrap());
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            ServerFiles::of_variables(&pairs.collect())
        };
        let of = |text: &str| files(text).unwrap();
        let usual = of(
            "datadir\t/var/lib/mysql/\ninnodb_data_home_dir\t\ninnodb_data_file_path\tibdata1:12M:autoextend\n\
             innodb_log_group_home_dir\t./\ninnodb_undo_tablespaces\t3\nlog_bin\tON\nlog_bin_basename\t/var/log/mysql/bin\n",
        );
        assert_eq!(usual.redo.join("ib_logfile0"), Path::new("/var/lib/mysql/./ib_logfile0"));
        assert_eq!(usual.data_file, Path::new("/var/lib/mysql/ibdata1"));
        assert_eq!(usual.binlogs.as_deref(), Some(Path::new("/var/log/mysql")));
        assert_eq!(usual.undo_tablespaces, Some(3));
        let moved = of(
            "datadir\t/d/\ninnodb_data_home_dir\t/e\ninnodb_data_file_path\tsys1:1G;sys2:1G:autoextend\n\
             innodb_log_group_home_dir\t/f\nlog_bin\tOFF\nlog_bin_basename\t\nserver_uuid\tu\n",
        );
        assert_eq!((moved.redo, moved.data_file), ("/f".into(), "/e/sys1".into()));
        assert_eq!((moved.binlogs, moved.server_uuid.as_deref()), (None, Some("u")));
        assert_eq!(files("log_bin\tON\n"), None);
    }

    #[test]
    fn a_digest_covers_both_ends_of_a_log_and_not_the_mark_of_its_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bin.000001");
        let mut log: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let sum = |log: &[u8], offset| {
            std::fs::write(&path, log).unwrap();
            digest(&path, offset).unwrap()
        };
        for offset in [0, 4, 100, 4096, 4097, 9000, 20_000] {
            let then = sum(&log, offset);
            let ends = usize::try_from(offset).unwrap();
            for at in [0, 20, 23, 4095, ends.saturating_sub(1)] {
                let counts = at < ends;
                log[at] ^= 1;
                assert_eq!(sum(&log, offset) != then, counts, "byte {at} before {offset}");
                log[at] ^= 1;
            }
            log[21] ^= 1;
            assert_eq!(sum(&log, offset), then, "{offset}");
            log[21] ^= 1;
            // The server writes on.
            let longer = [&log[..], b"more"].concat();
            assert_eq!(sum(&longer, offset), then, "{offset}");
        }
        assert_ne!(sum(&log, 4096), sum(&log, 4097));
        assert_eq!(sum(&log, 20_001), LogDigest::Shorter);
        assert_eq!(digest(&dir.path().join("none"), 4), None);
        assert_eq!(digest(dir.path(), 4), None);
    }

    #[test]
    fn a_redo_log_that_is_new_is_of_the_same_server_if_it_was_created_meanwhile() {
        let file = |inode| FileBirth { inode, born: Timestamp::UNIX_EPOCH };
        let seen = |inode, created, data| FileEvidence {
            redo: Some(RedoLog {
                file: Some(file(inode)),
                created_lsn: Some(created),
                number: None,
            }),
            start: None,
            data_file: Some(file(data)),
        };
        let before = seen(1, 100, 9);
        let is_its = |after: &FileEvidence, start| after.redo_since(&before, start) == after.redo;
        assert!(is_its(&before, Some(500)) && is_its(&before, None));
        assert!(is_its(&seen(2, 500, 9), Some(500)));
        for (after, start) in [
            (seen(2, 499, 9), Some(500)),
            (seen(2, 500, 9), None),
            (seen(2, 500, 8), Some(500)),
            (FileEvidence { data_file: None, ..seen(2, 500, 9) }, Some(500)),
        ] {
            assert_eq!(after.redo_since(&before, start), None, "{after:?}");
        }
        assert_eq!(FileEvidence::default().redo_since(&before, Some(500)), None);
    }

    #[test]
    fn a_stream_of_another_server_is_recognised_by_its_checkpoint() {
        let start = |checkpoint| Some(RedoStart { checkpoint, skips_freed: true });
        assert!(is_between(start(5), Some(5), start(5)));
        assert!(is_between(start(5), Some(7), start(9)));
        assert!(!is_between(start(5), Some(4), start(9)));
        assert!(!is_between(start(5), Some(10), start(9)));
        assert!(is_between(None, Some(10), start(9)));
    }
}
