//! Counts the tables of a stream by their files, and finds those of InnoDB whose definition (`.frm`)
//! is there, but whose tablespace is not.
//!
//! That is legal for a table in the system tablespace, and for one whose tablespace was discarded. A
//! producer can also have lost the tablespace.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use xb_reader::RelPath;

use super::producer_files::logical_name;

/// Maximum number of tables that are named.
const NAMED: usize = 10;
/// Maximum number of tables without a tablespace whose names are kept until the end.
const KEPT: usize = 10_000;
/// Suffix in place of `.ibd` of the file with the new name of a table that was renamed during the
/// backup, after its tablespace had been read.
const RENAMED: &[u8] = b".ren";
/// Maximum length of that name, in bytes: schema, table and partition, encoded.
const LONGEST: usize = 2048;
/// Bytes at the beginning of a definition that tell the engine.
const HEAD: usize = 62;
/// First bytes of a definition. A view is text.
const MAGIC: [u8; 2] = [0xfe, 1];
/// Positions of the numbers of the engine, and of the engine of a table's partitions.
const ENGINE: usize = 3;
const PART_ENGINE: usize = 61;
const INNODB: u8 = 12;
const PARTITIONS: u8 = 20;
const COMPRESSED: [&[u8]; 6] =
    [b".qp", b".lz4", b".zst", b".qp.xbcrypt", b".lz4.xbcrypt", b".zst.xbcrypt"];
/// Of these, the last two are of tables that were created during the backup.
const TABLESPACES: [&[u8]; 4] = [b".ibd", b".ibd.delta", b".ibd.new", b".new"];

/// Tables of InnoDB whose definition is in a stream, and whose tablespace is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutTablespace {
    /// Number of tables.
    pub tables: u64,
    /// The first of them by name, as `schema/table`, encoded as in file names.
    pub first: Vec<String>,
}

/// Collects what the files of a stream show.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    frm: u64,
    ibd: u64,
    compressed: u64,
    hasher: RandomState,
    /// Hashes of the tables whose tablespace was seen, and no definition yet.
    tablespaces: HashSet<u64>,
    /// Tables whose definition was seen, and no tablespace yet.
    lone: BTreeMap<u64, String>,
    /// As `lone`, without names.
    more: HashSet<u64>,
    /// The definition of which the beginning is being read.
    current: Option<(RelPath, Vec<u8>)>,
    /// The new name of a table that is being read.
    new_name: Option<Vec<u8>>,
}

impl Definitions {
    /// Takes the beginning of a file.
    pub(super) fn file(&mut self, path: &RelPath) {
        let is_compressed = |suffix: &&[u8]| path.as_bytes().ends_with(suffix);
        self.compressed += u64::from(COMPRESSED.iter().any(is_compressed));
        let Some((schema, file)) = split_once(logical_name(path.as_bytes())) else { return };
        let is_frm = file.ends_with(b".frm");
        let tablespace = TABLESPACES.iter().find_map(|suffix| file.strip_suffix(*suffix));
        if is_frm && path.as_bytes().ends_with(b".frm") {
            self.current = Some((path.clone(), Vec::with_capacity(HEAD)));
        }
        self.new_name = path.as_bytes().ends_with(RENAMED).then(Vec::new);
        if let Some(table) = tablespace {
            self.tablespace(schema, table);
        }
        // A system schema has the same tables every night.
        if ![&b"mysql"[..], b"sys", b"performance_schema"].contains(&schema) {
            self.frm += u64::from(is_frm);
            self.ibd += u64::from(file.ends_with(b".ibd") || file.ends_with(b".ibd.delta"));
        }
    }

    fn tablespace(&mut self, schema: &[u8], table: &[u8]) {
        let key = self.key(schema, table);
        if self.lone.remove(&key).is_none() && !self.more.remove(&key) {
            self.tablespaces.insert(key);
        }
    }

    /// Takes bytes of the chunk that is being read.
    pub(super) fn bytes(&mut self, piece: &[u8]) {
        if let Some(name) = self.new_name.as_mut().filter(|name| name.len() < LONGEST) {
            name.extend_from_slice(piece.get(..LONGEST - name.len()).unwrap_or(piece));
        }
        let Some((_, head)) = &mut self.current else { return };
        let room = HEAD.saturating_sub(head.len()).min(piece.len());
        head.extend_from_slice(piece.get(..room).unwrap_or_default());
        if head.len() == HEAD {
            self.defined();
        }
    }

    /// Takes the head of the next chunk, or the end: the beginning of a definition is in one chunk, and
    /// so is a table's new name.
    pub(super) fn next_chunk(&mut self) {
        self.current = None;
        let Some(name) = self.new_name.take() else { return };
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        if let Some((schema, table)) = split_once(name.strip_suffix(b".ibd").unwrap_or(name)) {
            self.tablespace(schema, table);
        }
    }

    /// Takes the beginning of a definition.
    fn defined(&mut self) {
        let Some((path, head)) = self.current.take() else { return };
        let engine = match head.get(ENGINE) {
            Some(&PARTITIONS) => head.get(PART_ENGINE),
            engine => engine,
        };
        if !head.starts_with(&MAGIC) || engine != Some(&INNODB) {
            return;
        }
        let Some((schema, file)) = split_once(path.as_bytes()) else { return };
        let table = file.strip_suffix(b".frm").unwrap_or(file);
        // A left-over of a statement that rebuilds or drops a table.
        if table.starts_with(b"#sql") {
            return;
        }
        let key = self.key(schema, table);
        if self.tablespaces.remove(&key) {
            return;
        }
        if self.lone.len() < KEPT {
            let name = [schema, table].map(String::from_utf8_lossy).join("/");
            self.lone.insert(key, name);
        } else {
            self.more.insert(key);
        }
    }

    /// Number of user tables.
    pub(super) fn count(&self) -> u64 {
        if self.frm > 0 { self.frm } else { self.ibd }
    }

    /// Number of files that the producer has compressed.
    pub(super) fn compressed(&self) -> u64 {
        self.compressed
    }

    /// The tables without a tablespace, at the end of the stream.
    pub(super) fn without_tablespace(mut self) -> WithoutTablespace {
        self.next_chunk();
        let tables = (self.lone.len() + self.more.len()) as u64;
        let mut first: Vec<_> = self.lone.into_values().collect();
        first.sort_unstable();
        first.truncate(NAMED);
        WithoutTablespace { tables, first }
    }

    /// A number for a table, the same for all its partitions.
    fn key(&self, schema: &[u8], table: &[u8]) -> u64 {
        let table = table
            .windows(3)
            .position(|at| at.eq_ignore_ascii_case(b"#p#"))
            .map_or(table, |end| table.get(..end).unwrap_or(table));
        self.hasher.hash_one((schema, table))
    }
}

/// Schema and file of `schema/file`; `None` for any other path.
fn split_once(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = path.split(|byte| *byte == b'/');
    Some((parts.next()?, parts.next()?)).filter(|_| parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files in the order of a stream: those with an engine are definitions.
    fn found(files: &[(&str, Option<[u8; 2]>)]) -> WithoutTablespace {
        let mut definitions = Definitions::default();
        for (path, engine) in files {
            definitions.next_chunk();
            definitions.file(&RelPath::new(path.as_bytes()).unwrap());
            if let Some([engine, part]) = engine {
                let mut head = [0; 100];
                head[..4].copy_from_slice(&[0xfe, 1, 10, *engine]);
                head[61] = *part;
                head.chunks(7).for_each(|piece| definitions.bytes(piece));
            }
        }
        definitions.without_tablespace()
    }

    #[test]
    fn a_table_that_was_renamed_during_the_backup_has_its_tablespace_under_the_old_name() {
        let mut definitions = Definitions::default();
        let mut file = |path: &str, content: &[u8]| {
            definitions.next_chunk();
            definitions.file(&RelPath::new(path.as_bytes()).unwrap());
            content.chunks(3).for_each(|piece| definitions.bytes(piece));
            definitions.next_chunk();
        };
        let mut frm = [0; 100];
        frm[..4].copy_from_slice(&[0xfe, 1, 10, INNODB]);
        for path in ["x/old.ibd", "x/p#P#p0.ibd", "x/q.ibd"] {
            file(path, b"pages");
        }
        for path in ["x/renamed.frm", "y/moved.frm", "y/q.frm", "x/none.frm"] {
            file(path, &frm);
        }
        file("x/old.ren", b"x/renamed");
        file("x/p#P#p0.ren", b"y/moved#P#p0");
        file("x/q.ren", b"./y/q.ibd");
        let found = definitions.without_tablespace();
        assert_eq!(found.first, ["x/none"]);
    }

    #[test]
    fn only_tables_of_innodb_need_a_tablespace() {
        let innodb = Some([12, 0]);
        for order in [[0, 1], [1, 0]] {
            let files = [("x/a.ibd", None), ("x/a.frm", innodb)];
            assert_eq!(found(&order.map(|n| files[n])), WithoutTablespace::default());
            let files = [("x/p#P#p0.ibd", None), ("x/p.frm", Some([20, 12]))];
            assert_eq!(found(&order.map(|n| files[n])).tables, 0);
        }
        // MyISAM, partitions of it, a left-over, a wrapped definition, and one that is no table.
        let others = [
            ("x/m.frm", Some([9, 0])),
            ("x/q.frm", Some([20, 9])),
            ("x/#sql-1.frm", innodb),
            ("x/z.frm.qp", innodb),
            ("t.frm", innodb),
            ("x/v.frm", None),
        ];
        assert_eq!(found(&others), WithoutTablespace::default());
        let lone = [
            ("y/b.frm", innodb),
            ("x/a.ibd", None),
            ("x/p.frm", Some([20, 12])),
            ("y/a.frm", innodb),
            ("mysql/t.frm", innodb),
            ("y/new.ibd.new", None),
            ("y/new.frm", innodb),
            ("y/fresh.new", None),
            ("y/fresh.frm", innodb),
            ("y/split#P#p0.new", None),
            ("y/split.frm", Some([20, 12])),
            ("y/zip.ibd.qp", None),
            ("y/zip.frm", innodb),
        ];
        let found = found(&lone);
        assert_eq!((found.tables, found.first.len()), (4, 4));
        assert_eq!(found.first, ["mysql/t", "x/p", "y/a", "y/b"]);
    }
}
