//! The pages of the restored data, before a server starts on it: CHECK TABLE of InnoDB reads the pages of indexes only, and
//! none of LONGTEXT, of a FULLTEXT index, of undo logs, or of what a tablespace keeps about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xb_files::is_lost_and_found;
use xb_pages::Fault;
use xb_pipeline::{BadPageOf, RecoveredFiles};
use xb_reader::{Printable, RelPath};
use xb_repo::verification::{Level, PageReport, Problem};

use crate::error::BackupError;
use crate::session::Session;
use crate::table_id::{TableId, decoded};

/// To what a tablespace file belongs.
enum FileOwner {
    Table(TableId),
    /// A FULLTEXT index of a table in this schema.
    FullText(String),
    /// The server itself, or several tables.
    Server,
    /// No table: a server does not open it, or removes it.
    Unknown,
}

/// The tables of a data directory that have a definition.
struct DefinedTables {
    tables: BTreeSet<TableId>,
    /// The server keeps all definitions in a dictionary, as MySQL does from 8.0 on.
    has_dictionary: bool,
}

impl DefinedTables {
    fn read(data: &Path) -> std::io::Result<Self> {
        let mut tables = BTreeSet::new();
        for entry in std::fs::read_dir(data)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() || is_lost_and_found(&entry) {
                continue;
            }
            let schema = entry.file_name().to_string_lossy().into_owned();
            for file in std::fs::read_dir(entry.path())? {
                let file = file?.file_name().to_string_lossy().into_owned();
                let table = file.strip_suffix(".frm").map(|table| TableId::new(&schema, table));
                tables.extend(table);
            }
        }
        Ok(Self { tables, has_dictionary: data.join("mysql.ibd").exists() })
    }

    fn owner_of(&self, file: &str) -> FileOwner {
        let Some((schema, file)) = file.split_once('/') else { return FileOwner::Server };
        let table = file.rsplit_once('.').map_or(file, |(table, _)| table);
        let id = TableId::new(schema, table);
        if id.is_intermediate() {
            FileOwner::Unknown
        } else if self.tables.contains(&id) {
            FileOwner::Table(id)
        } else if id.is_fulltext() {
            FileOwner::FullText(Printable::new(decoded(schema).as_bytes()).to_string())
        } else if self.has_dictionary {
            FileOwner::Table(id)
        } else {
            FileOwner::Unknown
        }
    }
}

/// Findings about the pages of restored data.
#[derive(Debug)]
pub(crate) struct RestoredPages {
    pub(crate) report: PageReport,
    /// Each damaged page.
    pub(crate) problems: Vec<Problem>,
    /// Number of damaged pages of each file, by its name below the data directory.
    pub(crate) files: BTreeMap<RelPath, u64>,
    /// Number of further ones.
    pub(crate) more: u64,
}

impl RestoredPages {
    pub(crate) fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.more == 0
    }
}

/// Reads the tablespaces of a data directory on which recovery is over. What no server opens is left out: files of no
/// table, and left-overs of statements.
///
/// # Errors
/// [`BackupError::Restore`] if a file cannot be read; [`BackupError::Interrupted`].
pub(crate) fn restored_pages(session: &Session, data: &Path) -> Result<RestoredPages, BackupError> {
    let Session { observer, cancel, resources, .. } = session;
    let unread = |error: std::io::Error| {
        BackupError::of_target(data, format!("the pages of its files cannot be checked: {error}"))
    };
    let defined = DefinedTables::read(data).map_err(unread)?;
    let owner = |path: &RelPath| defined.owner_of(&String::from_utf8_lossy(path.as_bytes()));
    let files = RecoveredFiles::list(data, |path| matches!(owner(path), FileOwner::Unknown));
    let files = files.map_err(unread)?;
    observer.begin_phase("pages");
    observer.expect_bytes(files.bytes());
    let go_on = |bytes| {
        observer.add_bytes(bytes);
        cancel.reason().is_none()
    };
    let found = tokio::task::block_in_place(|| files.check(resources.threads, go_on));
    let Some(mut found) = found.map_err(unread)? else {
        return Err(BackupError::Interrupted(cancel.reason().unwrap_or_default()));
    };
    // No server opens a table whose first page is missing: CHECK TABLE says so, or that the table was discarded.
    let unopened: BTreeSet<RelPath> = found
        .bad
        .iter()
        .filter(|bad| matches!(owner(&bad.path), FileOwner::Table(_)) && has_no_beginning(bad))
        .map(|bad| bad.path.clone())
        .collect();
    found.bad.retain(|bad| !unopened.contains(&bad.path));
    let more = found.untold + found.doubtful;
    let mut report = PageReport::from(&found);
    (report.damaged, report.undecided) = (found.bad.len() as u64 + more, 0);
    let mut in_files = BTreeMap::new();
    found.bad.iter().for_each(|bad| *in_files.entry(bad.path.clone()).or_default() += 1);
    let problem = |BadPageOf { path, page, .. }: BadPageOf| {
        let of = match owner(&path) {
            FileOwner::Table(table) => format!("; table {table}"),
            FileOwner::FullText(schema) => format!("; a FULLTEXT index in schema {schema}"),
            FileOwner::Server | FileOwner::Unknown => String::new(),
        };
        Problem {
            level: Level::Restore,
            object: None,
            file: Some(path.to_string()),
            offset: Some(page.offset),
            what: format!("page {} of the restored file: {}{of}", page.page, page.fault),
        }
    };
    let problems = found.bad.into_iter().map(problem).collect();
    Ok(RestoredPages { report, problems, files: in_files, more })
}

fn has_no_beginning(bad: &BadPageOf) -> bool {
    bad.page.page == 0 && matches!(bad.page.fault, Fault::EmptyFixed | Fault::Blank)
}
