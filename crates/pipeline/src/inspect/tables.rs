//! Tables of MyISAM and Aria: compares their two files with what the head of the index file states.
//!
//! The files come in any order, so the findings for the first of them wait for the other one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use xb_pages::{
    AriaPages, HeadFault, PageCounts, TableEngine, TableFileChecked, TableFileName, TableHead,
    TablePart,
};
use xb_reader::RelPath;

use super::bad_page::BadPageOf;
use crate::scan::producer_files::logical_name;

/// A file of a table that no server can use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadTable {
    /// The file's name in the stream. For [`TableFault::Missing`], that of the table's other file.
    pub path: RelPath,
    /// Its defect.
    pub fault: TableFault,
}

/// Defect of a file of a MyISAM or Aria table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableFault {
    /// The table's other file is not in the stream. Its suffix.
    Missing(&'static str),
    /// The index file does not begin as one of this engine.
    NotAnIndex(TableEngine),
    /// The index file ends within its head.
    HeadCut,
    /// The file is shorter than the head of the table's index file states.
    Short {
        /// Length in bytes.
        len: u64,
        /// Length in bytes as stated.
        stated: u64,
    },
}

impl fmt::Display for TableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(suffix) => write!(f, "the table's {suffix} file is missing"),
            Self::NotAnIndex(engine) => {
                write!(f, "the file does not begin as an index file of {}", engine.as_str())
            }
            Self::HeadCut => f.write_str("the file ends within its head"),
            Self::Short { len, stated } => {
                write!(f, "the file has {len} bytes, but the table's index file states {stated}")
            }
        }
    }
}

/// Result of reading a file.
#[derive(Debug, Clone)]
pub(super) enum TableCheck {
    /// It stays encrypted or compressed, or is out of order.
    Unread,
    Read(Box<TableFileChecked>),
}

#[derive(Debug, Clone)]
struct File {
    path: RelPath,
    part: TablePart,
    found: TableCheck,
}

/// Tables of which one file was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    halves: HashMap<(TableEngine, Vec<u8>), File>,
}

/// Findings to add to those of the stream.
#[derive(Debug, Default)]
pub(super) struct TableFindings {
    pub(super) files: u64,
    pub(super) counts: PageCounts,
    pub(super) bad: Vec<BadPageOf>,
    pub(super) more_bad: u64,
    pub(super) in_use: u64,
    pub(super) tables: Vec<BadTable>,
    pub(super) lengths_only: BTreeMap<&'static str, u64>,
    pub(super) not_checked: BTreeMap<&'static str, u64>,
}

impl Tables {
    /// Takes a file that has ended. Returns findings once both files of its table have.
    pub(super) fn file(&mut self, path: &RelPath, found: TableCheck) -> TableFindings {
        let mut concluded = TableFindings::default();
        let Some(name) = TableFileName::of(logical_name(path.as_bytes())) else { return concluded };
        let (engine, part) = (name.engine, name.part);
        let file = File { path: path.clone(), part, found };
        let key = (engine, name.stem.to_vec());
        match self.halves.remove(&key) {
            Some(other) if other.part != part => {
                let (index, data) = match part {
                    TablePart::Index => (file, other),
                    TablePart::Data => (other, file),
                };
                concluded.table(engine, index, data);
            }
            _ => drop(self.halves.insert(key, file)),
        }
        concluded
    }

    /// Tables of which one file is missing. Left-overs of statements that rebuild a table are none.
    pub(super) fn halves(&self) -> TableFindings {
        let mut concluded = TableFindings::default();
        let mut halves: Vec<_> = self.halves.iter().collect();
        halves.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        for ((engine, stem), file) in halves {
            concluded.not_checked(*engine, 1);
            let name = stem.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if !name.starts_with(b"#sql") {
                let fault = TableFault::Missing(other_suffix(*engine, file.part));
                concluded.tables.push(BadTable { path: file.path.clone(), fault });
            }
        }
        concluded
    }
}

impl TableFindings {
    fn table(&mut self, engine: TableEngine, index: File, data: File) {
        let (TableCheck::Read(index_file), TableCheck::Read(data_file)) = (index.found, data.found)
        else {
            return self.not_checked(engine, 2);
        };
        let head = match index_file.head {
            Some(Ok(head)) => head,
            Some(Err(HeadFault::NotAnIndex)) => {
                self.not_checked(engine, 1);
                return self.bad_file(index.path, TableFault::NotAnIndex(engine));
            }
            Some(Err(HeadFault::Cut)) => {
                self.not_checked(engine, 1);
                return self.bad_file(index.path, TableFault::HeadCut);
            }
            _ => return self.not_checked(engine, 2),
        };
        if head.lengths_hold() {
            let lengths = [
                (&index.path, index_file.len, head.index_len),
                (&data.path, data_file.len, head.data_len),
            ];
            for (path, len, stated) in lengths.into_iter().filter(|(_, len, stated)| len < stated) {
                self.bad_file(path.clone(), TableFault::Short { len, stated });
            }
        }
        match head.pages {
            Some(AriaPages { rows, .. }) => {
                self.pages(&index.path, *index_file, &head);
                match rows {
                    true => self.pages(&data.path, *data_file, &head),
                    false => self.without_pages(engine, 1, &head),
                }
            }
            None => self.without_pages(engine, 2, &head),
        }
    }

    fn pages(&mut self, path: &RelPath, file: TableFileChecked, head: &TableHead) {
        let mut counts = file.counts;
        self.files += 1;
        if head.in_use {
            self.in_use += std::mem::take(&mut counts.damaged);
        } else {
            let of_path = |page| BadPageOf { path: path.clone(), page };
            self.bad.extend(file.bad.into_iter().map(of_path));
            self.more_bad += file.more_bad;
        }
        self.counts.add(&counts);
    }

    fn without_pages(&mut self, engine: TableEngine, files: u64, head: &TableHead) {
        match head.lengths_hold() {
            true => *self.lengths_only.entry(engine.as_str()).or_default() += files,
            false => self.not_checked(engine, files),
        }
    }

    fn not_checked(&mut self, engine: TableEngine, files: u64) {
        *self.not_checked.entry(engine.as_str()).or_default() += files;
    }

    fn bad_file(&mut self, path: RelPath, fault: TableFault) {
        self.tables.push(BadTable { path, fault });
    }
}

fn other_suffix(engine: TableEngine, part: TablePart) -> &'static str {
    match (engine, part) {
        (TableEngine::MyIsam, TablePart::Index) => ".MYD",
        (TableEngine::MyIsam, TablePart::Data) => ".MYI",
        (TableEngine::Aria, TablePart::Index) => ".MAD",
        (TableEngine::Aria, TablePart::Data) => ".MAI",
    }
}

/// The engine to which a file belongs that is not checked, by its name.
pub(super) fn engine_of(path: &[u8]) -> Option<&'static str> {
    const FOLDERS: [(&[u8], &str); 2] = [(b"#rocksdb/", "RocksDB"), (b".rocksdb/", "RocksDB")];
    const SUFFIXES: [(&[u8], &str); 7] = [
        (b".CSV", "CSV"),
        (b".CSM", "CSV"),
        (b".ARZ", "ARCHIVE"),
        (b".ARM", "ARCHIVE"),
        (b".MRG", "MERGE"),
        (b".tokudb", "TokuDB"),
        (b".mrn", "Mroonga"),
    ];
    let name = logical_name(path);
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let folder = FOLDERS.into_iter().find(|(folder, _)| name.starts_with(folder));
    let suffix = SUFFIXES.into_iter().find(|(suffix, _)| name.ends_with(suffix));
    let log = base.starts_with(b"aria_log").then_some("Aria (log)");
    folder.or(suffix).map(|(_, engine)| engine).or(log)
}
