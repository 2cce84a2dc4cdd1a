//! Content of a restored backup: the files of tables, and the entries of InnoDB's dictionary. Both
//! are compared with the tables that the server lists.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use xb_pages::{TABLE_HEAD, TableEngine, TableHead};

use crate::fulltext::is_fulltext_part;
use crate::small_file::read_small;
use crate::table_id::TableId;

/// Schema of the server's own tables.
pub(super) const SYSTEM: &str = "mysql";
/// Extensions of files with rows or keys that a server with `.frm` files opens only through one.
const DATA: [&str; 10] = ["MYD", "MYI", "MAD", "MAI", "CSV", "CSM", "ARZ", "ARM", "MRG", "par"];
/// Names under which a producer states whether its backup is partial.
const INFO: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];

/// Files and entries of a table.
#[derive(Debug, Default)]
struct TableFiles {
    frm: bool,
    ibd: bool,
    /// Name of another file with its rows or keys.
    data: Option<String>,
    /// In InnoDB's dictionary; `Some(true)`: with a file of its own.
    dictionary: Option<bool>,
}

/// Everything that a backup holds.
#[derive(Debug, Default)]
pub(super) struct BackupContents {
    tables: BTreeMap<TableId, TableFiles>,
    schemas: BTreeSet<String>,
    /// Triggers of MariaDB: each has a file with its name, and is in the file of its table's triggers.
    pub(super) triggers: BTreeSet<TableId>,
    /// Tables of Aria that are encrypted.
    pub(super) encrypted: BTreeSet<TableId>,
    /// What the producer states: whether the backup has some tables only. `None` if it states nothing.
    partial: Option<bool>,
    /// Whether the server keeps all tables in a dictionary in InnoDB, as MySQL does from 8.0 on, and
    /// has no `.frm` files.
    pub(super) data_dictionary: bool,
    /// Undo tablespaces.
    pub(super) undo: u64,
    /// Files for temporary tables.
    pub(super) temporary: u64,
}

impl BackupContents {
    /// Reads the names of a prepared data directory.
    pub(super) fn read(data: &Path) -> std::io::Result<Self> {
        let mut holdings = Self { partial: stated_partial(data), ..Self::default() };
        for entry in std::fs::read_dir(data)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !entry.file_type()?.is_dir() {
                holdings.data_dictionary |= name == "mysql.ibd";
                holdings.undo += u64::from(is_undo(&name));
                holdings.temporary += u64::from(name.starts_with("ibtmp"));
            } else if !name.starts_with(['#', '.']) {
                holdings.schema(&name, &entry.path())?;
            }
        }
        Ok(holdings)
    }

    fn schema(&mut self, schema: &str, folder: &Path) -> std::io::Result<()> {
        self.schemas.insert(schema.to_owned());
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some((table, extension)) = file.rsplit_once('.') else { continue };
            // A partial backup has those of other tables, too.
            if extension == "TRN" && !self.is_partial() {
                self.triggers.insert(TableId::new(schema, table));
            }
            if extension != "frm" && extension != "ibd" && !DATA.contains(&extension) {
                continue;
            }
            if extension == "MAI" && is_encrypted(&entry.path()) {
                self.encrypted.insert(TableId::new(schema, table));
            }
            let held = self.tables.entry(TableId::new(schema, table)).or_default();
            match extension {
                "frm" => held.frm = true,
                "ibd" => held.ibd = true,
                _ => held.data = Some(format!("{schema}/{file}")),
            }
        }
        Ok(())
    }

    /// Returns whether InnoDB's dictionary names tables that are not in the backup.
    fn is_partial(&self) -> bool {
        self.partial == Some(true)
    }

    /// Returns whether tables of the server itself are encrypted.
    pub(super) fn has_encrypted_system(&self) -> bool {
        self.encrypted.iter().any(|table| table.schema == SYSTEM)
    }

    /// Returns whether the producer states that it was to copy every table.
    pub(super) fn is_whole(&self) -> bool {
        self.partial == Some(false)
    }

    /// Returns whether the backup has a file of this table, or InnoDB's dictionary an entry.
    pub(super) fn holds(&self, table: &TableId) -> bool {
        self.tables.contains_key(table)
    }

    /// Adds an entry of InnoDB's dictionary. Its own tables have no schema and are not counted.
    pub(super) fn in_dictionary(&mut self, name: &str, own_file: bool) {
        if let Some((schema, table)) = name.split_once('/') {
            self.tables.entry(TableId::new(schema, table)).or_default().dictionary = Some(own_file);
        }
    }

    /// Sorts out everything that is in none of the `listed` tables. With a data dictionary, only files
    /// can be unlisted.
    pub(super) fn unlisted(&self, listed: &BTreeSet<TableId>) -> UnlistedFiles {
        let mut found = UnlistedFiles::default();
        for (place, held) in &self.tables {
            let known = match self.data_dictionary {
                true => held.dictionary.is_some() || !held.ibd,
                false => listed.contains(place),
            };
            if place.is_intermediate() {
                found.intermediate.push(place.to_string());
            } else if is_fulltext_part(&place.table) && !held.frm && held.data.is_none() {
                found.fulltext += 1;
                // MySQL checks such a table without a word, and ends when its index is used.
                if !self.is_partial() && held.dictionary == Some(true) && !held.ibd {
                    let what = "the file of this part of a FULLTEXT index is missing";
                    found.lost.push(format!("table {place}: {what}"));
                }
            } else if !known {
                self.unknown(place, held, &mut found);
            }
        }
        found
    }

    fn unknown(&self, place: &TableId, held: &TableFiles, found: &mut UnlistedFiles) {
        let what = match held {
            TableFiles { frm: true, .. } => "the server does not list it".to_owned(),
            TableFiles { data: Some(file), .. } if file.ends_with(".ARZ") => {
                found.archive.push(place.to_string());
                return;
            }
            TableFiles { data: Some(file), .. } => {
                format!("its .frm file is missing, and {file} cannot be opened without it")
            }
            TableFiles { dictionary: Some(_), ibd: false, .. } if self.is_partial() => {
                found.left_out += 1;
                return;
            }
            TableFiles { dictionary: Some(_), .. } if !self.schemas.contains(&place.schema) => {
                "it is in InnoDB's dictionary, but the directory of its schema is missing"
                    .to_owned()
            }
            TableFiles { dictionary: Some(_), .. } => {
                "it is in InnoDB's dictionary, but its .frm file is missing".to_owned()
            }
            _ => {
                found.unused.push(place.to_string());
                return;
            }
        };
        found.lost.push(format!("table {place}: {what}"));
    }
}

/// What the producer states in its info file: whether the backup is partial.
fn stated_partial(data: &Path) -> Option<bool> {
    let partial = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "partial").then(|| value.trim().eq_ignore_ascii_case("Y"))
    };
    INFO.iter().find_map(|name| read_small(&data.join(name))?.lines().find_map(partial))
}

/// Returns whether a table of Aria is encrypted, by the head of its index file.
fn is_encrypted(index: &Path) -> bool {
    let head = || -> std::io::Result<Vec<u8>> {
        let mut head = Vec::new();
        std::fs::File::open(index)?.take(TABLE_HEAD as u64).read_to_end(&mut head)?;
        Ok(head)
    };
    let head = head().ok().and_then(|head| TableHead::of_head(TableEngine::Aria, &head).ok());
    head.is_some_and(|head| head.encrypted)
}

fn is_undo(name: &str) -> bool {
    let number = name.strip_prefix("undo").map(|rest| rest.strip_prefix('_').unwrap_or(rest));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }) || name.ends_with(".ibu")
}

/// Content of a backup besides the tables that the server lists.
#[derive(Debug, Default)]
pub(super) struct UnlistedFiles {
    /// Tables that cannot be opened, and why.
    pub(super) lost: Vec<String>,
    /// Left-overs of statements that rebuild or drop a table.
    pub(super) intermediate: Vec<String>,
    /// `.ibd` files of no table.
    pub(super) unused: Vec<String>,
    /// Tables of the engine ARCHIVE. Their files need no `.frm`, but the server lists them only if it
    /// has the engine.
    pub(super) archive: Vec<String>,
    /// Tables in which FULLTEXT indexes keep their words.
    pub(super) fulltext: u64,
    /// Tables that a partial backup leaves out.
    pub(super) left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory with these empty files.
    fn holdings(files: &[&str], info: &str) -> BackupContents {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("xtrabackup_info"), info).unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        BackupContents::read(dir.path()).unwrap()
    }

    fn listed(tables: &[(&str, &str)]) -> BTreeSet<TableId> {
        tables.iter().map(|(schema, table)| TableId::new(schema, table)).collect()
    }

    #[test]
    fn names_of_files_are_decoded_and_partitions_belong_to_their_table() {
        for (table, shown) in [
            ("odd@002ena@002fme", "x.odd.na/me"),
            ("a@000ab", "x.a\\nb"),
            ("m@0k", "x.m@0k"),
            ("@65e5@", "x.日@"),
            ("p#P#p0#SP#p0sp1", "x.p"),
            ("p#p#p@00201", "x.p"),
            ("CON@@@", "x.CON"),
        ] {
            assert_eq!(TableId::new("x", table).to_string(), shown, "{table}");
        }
        assert_eq!(TableId::new("sche@002dma", "t").to_string(), "sche-ma.t");
    }

    #[test]
    fn every_file_is_a_listed_table_or_has_its_reason() {
        let files = [
            "ibdata1",
            "undo001",
            "undo_002",
            "more.ibu",
            "undo.log",
            "ibtmp1",
            "#rocksdb/1.ibd",
            "x/a.frm",
            "x/a.ibd",
            "x/p.frm",
            "x/p.par",
            "x/p#P#p0.ibd",
            "x/db.opt",
            "x/a.TRG",
            "x/lost.frm",
            "x/lone.MYD",
            "x/ar.ARZ",
            "x/orphan.ibd",
            "x/#sql-alter-1-2.frm",
            "x/#sql-alter-1-2.ibd",
            "x/FTS_0000000000000019_CONFIG.ibd",
        ];
        let holdings = holdings(&files, "partial = N\n");
        assert_eq!((holdings.undo, holdings.temporary), (3, 1));
        let found = holdings.unlisted(&listed(&[("x", "a"), ("x", "p")]));
        assert_eq!(
            found.lost,
            [
                "table x.lone: its .frm file is missing, and x/lone.MYD cannot be opened without it",
                "table x.lost: the server does not list it",
            ]
        );
        assert_eq!(found.archive, ["x.ar"]);
        assert_eq!(
            (found.unused, found.intermediate, found.fulltext, found.left_out),
            (vec!["x.orphan".to_owned()], vec!["x.#sql-alter-1-2".to_owned()], 1, 0)
        );
    }

    #[test]
    fn a_table_only_in_the_dictionary_is_lost_unless_the_backup_is_partial() {
        let dictionary = |holdings: &mut BackupContents| {
            holdings.in_dictionary("SYS_FOREIGN", false);
            holdings.in_dictionary("x/a", true);
            holdings.in_dictionary("gone/t", true);
            holdings.in_dictionary("x/FTS_0000000000000019_CONFIG", true);
            holdings.in_dictionary("x/FTS_0000000000000020_CONFIG", false);
        };
        let mut full = holdings(&["x/a.ibd"], "partial = N\n");
        dictionary(&mut full);
        let found = full.unlisted(&listed(&[]));
        let lost: Vec<&str> = found.lost.iter().map(|line| &line[..9]).collect();
        // A table in the system tablespace has no file of its own.
        assert_eq!((lost, found.fulltext), (vec!["table gon", "table x.F", "table x.a"], 2));
        assert!(found.lost[0].ends_with("directory of its schema is missing"), "{:?}", found.lost);

        let mut partial = holdings(&["x/a.ibd"], "partial = Y\n");
        dictionary(&mut partial);
        let found = partial.unlisted(&listed(&[("x", "a")]));
        assert_eq!((found.left_out, found.lost.len()), (1, 0), "{:?}", found.lost);
        // It has the file of this one, so its .frm file belongs to it, too.
        assert_eq!(partial.unlisted(&listed(&[])).lost.len(), 1);
    }

    /// MySQL keeps its tables in the dictionary; a file that is not in it belongs to no table.
    #[test]
    fn without_frm_files_the_dictionary_decides() {
        let files = [
            "mysql.ibd",
            "x/a.ibd",
            "x/p#p#p0.ibd",
            "x/m.MYD",
            "x/old.ibd",
            "x/fts_0000000000000428_config.ibd",
        ];
        let mut holdings = holdings(&files, "");
        for (name, own_file) in [
            ("x/a", true),
            ("x/p#p#p0", true),
            ("x/general", false),
            ("x/fts_0000000000000428_config", true),
            ("x/fts_0000000000000434_config", false),
        ] {
            holdings.in_dictionary(name, own_file);
        }
        let found = holdings.unlisted(&listed(&[]));
        assert_eq!(found.lost, [""; 0]);
        assert_eq!((found.unused, found.fulltext), (vec!["x.old".to_owned()], 2));
        holdings.in_dictionary("x/fts_0000000000000428_00000000000000a1_index_1", true);
        let lost = holdings.unlisted(&listed(&[])).lost;
        assert!(lost.len() == 1 && lost[0].contains("_index_1: the file of this part"), "{lost:?}");
    }
}
