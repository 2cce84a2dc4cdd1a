//! Counts the tables of a stream by their files, and finds those whose definition (`.frm`) is there, but
//! not all files with their rows and keys.
//!
//! Without a tablespace, that is legal for a table of InnoDB in the system tablespace, and for one whose
//! tablespace was discarded. A producer can also have lost the files: mariadb-backup leaves out a table of
//! Aria with INDEX DIRECTORY, and exits with 0. How many partitions a table has is in its file `.par`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use xb_reader::RelPath;

use super::producer_files::{ARIA_CONTROL, logical_name};

/// Maximum number of tables without files whose names are kept.
const KEPT: usize = 10_000;
/// Suffix in place of `.ibd` of the file with the new name of a table that was renamed during the
/// backup, after its tablespace had been read.
const RENAMED: &[u8] = b".ren";
/// The same of the empty file beside a tablespace that was read, and then dropped or discarded: it is removed before the
/// backup is used.
const REMOVED: &[u8] = b".del";
/// Maximum length of that name, in bytes: schema, table and partition, encoded.
const LONGEST: usize = 2048;
/// Bytes at the beginning of a definition that tell the engine.
const HEAD: usize = 62;
/// First bytes of a definition. A view is text.
const MAGIC: [u8; 2] = [0xfe, 1];
/// Positions of the numbers of the engine, and of the engine of a table's partitions.
const ENGINE: usize = 3;
const PART_ENGINE: usize = 61;
const PARTITIONS: u8 = 20;
/// Suffix of the file with a table's partitions, and the position of their number in it, subpartitions counted: four
/// bytes, little-endian (observed with MariaDB 10.11).
const PAR: &[u8] = b".par";
const NUMBER: usize = 8;
/// Engines by the numbers in definitions (observed with MariaDB 10.11), and their tables' files, as bits:
/// those of [`SUFFIXES`] by position, or [`TABLESPACE`].
const ENGINES: [(u8, u16); 6] = [
    (INNODB, TABLESPACE),
    (9, 0b11),
    (ARIA, 0b1100),
    (17, 0b11_0000),
    (16, 0b100_0000),
    (10, 0b1000_0000),
];
const INNODB: u8 = 12;
/// In MySQL, the first of the engines that are numbered as they are installed.
const ARIA: u8 = 42;
const SUFFIXES: [&[u8]; 8] =
    [b".MYD", b".MYI", b".MAD", b".MAI", b".CSV", b".CSM", b".ARZ", b".MRG"];
const TABLESPACE: u16 = 1 << SUFFIXES.len();
const COMPRESSED: [&[u8]; 6] =
    [b".qp", b".lz4", b".zst", b".qp.xbcrypt", b".lz4.xbcrypt", b".zst.xbcrypt"];
const TABLESPACES: [&[u8]; 4] = [b".ibd", b".ibd.delta", NEW[0], NEW[1]];
/// Suffixes of tablespaces that were created during the backup: they replace what was removed.
const NEW: [&[u8]; 2] = [b".ibd.new", b".new"];

/// Tables whose definition is in a stream, and of whose other files at least one is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablesWithoutFiles {
    /// Number of tables.
    pub tables: u64,
    /// The first of them by name, at most 10,000, as `schema/table`, encoded as in file names.
    pub first: Vec<String>,
}

/// The tables whose definition is in a stream.
#[derive(Debug, Clone, Default)]
pub struct DefinedTables {
    hasher: RandomState,
    keys: HashSet<u64>,
}

impl DefinedTables {
    /// Returns whether the stream has the definition of a table, `schema/table`, encoded as in file names.
    #[must_use]
    pub fn has(&self, table: &str) -> bool {
        split_once(table.as_bytes())
            .is_some_and(|(schema, table)| self.keys.contains(&key(&self.hasher, schema, table)))
    }
}

/// A table whose definition was seen.
#[derive(Debug)]
struct PendingTable {
    /// `None` if there were too many such tables.
    name: Option<String>,
    engine: u8,
    /// Its files that were not seen yet.
    missing: u16,
}

/// A table with partitions.
#[derive(Debug, Default)]
struct Partitioned {
    /// Number of partitions, if it was seen.
    number: u32,
    /// Its definition, with all its files, if it was seen.
    definition: Option<PendingTable>,
    /// For each kind of file, the number of partitions that have it.
    with: [u32; SUFFIXES.len() + 1],
}

/// Collects what the files of a stream show.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    frm: u64,
    ibd: u64,
    compressed: u64,
    hasher: RandomState,
    /// Files of tables whose definition was not seen yet.
    files: HashMap<u64, u16>,
    /// Tables whose definition was seen, and not all of their files yet.
    lone: BTreeMap<u64, PendingTable>,
    partitioned: HashMap<u64, Partitioned>,
    /// Tables with any definition.
    defined: HashSet<u64>,
    /// Tables of InnoDB without partitions.
    innodb: HashSet<u64>,
    /// Schema and table, with its partition, of the first tablespaces that were removed.
    removed: Vec<(Vec<u8>, Vec<u8>)>,
    /// Tables, with their partitions, that got another tablespace during the backup.
    renewed: HashSet<u64>,
    /// Files of partitions that were counted.
    of_partitions: HashSet<u64>,
    /// Whether the server has Aria.
    aria: bool,
    /// The definition or list of partitions of which the beginning is being read, and how many bytes of it are wanted.
    current: Option<(RelPath, Vec<u8>, usize)>,
    /// The new name of a table that is being read.
    new_name: Option<Vec<u8>>,
}

impl Definitions {
    /// Takes the beginning of a file.
    pub(super) fn file(&mut self, path: &RelPath) {
        let is_compressed = |suffix: &&[u8]| path.as_bytes().ends_with(suffix);
        self.compressed += u64::from(COMPRESSED.iter().any(is_compressed));
        let name = logical_name(path.as_bytes());
        self.aria |= name == ARIA_CONTROL.as_bytes();
        let Some((schema, file)) = split_once(name) else { return };
        let is_frm = file.ends_with(b".frm");
        if let Some(table) = file.strip_suffix(b".frm") {
            let key = self.key(schema, table);
            self.defined.insert(key);
        }
        if let Some(table) = file.strip_suffix(REMOVED).filter(|_| self.removed.len() < KEPT) {
            self.removed.push((schema.to_vec(), table.to_vec()));
        }
        if let Some(table) = NEW.iter().find_map(|suffix| file.strip_suffix(*suffix)) {
            self.renewed.insert(self.hasher.hash_one((schema, table)));
        }
        for (suffix, wanted) in [(&b".frm"[..], HEAD), (PAR, NUMBER + 4)] {
            if path.as_bytes().ends_with(suffix) {
                self.current = Some((path.clone(), Vec::with_capacity(wanted), wanted));
            }
        }
        self.new_name = path.as_bytes().ends_with(RENAMED).then(Vec::new);
        if let Some(table) = TABLESPACES.iter().find_map(|suffix| file.strip_suffix(*suffix)) {
            self.file_of(schema, table, TABLESPACE);
        }
        for (bit, suffix) in SUFFIXES.iter().enumerate() {
            if let Some(table) = file.strip_suffix(*suffix) {
                self.file_of(schema, table, 1 << bit);
            }
        }
        // A system schema has the same tables every night.
        if ![&b"mysql"[..], b"sys", b"performance_schema"].contains(&schema) {
            self.frm += u64::from(is_frm);
            self.ibd += u64::from(file.ends_with(b".ibd") || file.ends_with(b".ibd.delta"));
        }
    }

    fn file_of(&mut self, schema: &[u8], table: &[u8], file: u16) {
        let key = self.key(schema, table);
        if partition(table).is_some() {
            let of_partition = self.hasher.hash_one((schema, table, file));
            let table = self.partitioned.entry(key).or_default();
            if let Some(with) = table.with.get_mut(file.trailing_zeros() as usize)
                && self.of_partitions.insert(of_partition)
            {
                *with += 1;
            }
        }
        let Some(lone) = self.lone.get_mut(&key) else {
            *self.files.entry(key).or_default() |= file;
            return;
        };
        lone.missing &= !file;
        if lone.missing == 0 {
            self.lone.remove(&key);
        }
    }

    /// Takes bytes of the chunk that is being read.
    pub(super) fn bytes(&mut self, piece: &[u8]) {
        if let Some(name) = self.new_name.as_mut().filter(|name| name.len() < LONGEST) {
            name.extend_from_slice(piece.get(..LONGEST - name.len()).unwrap_or(piece));
        }
        let Some((_, head, wanted)) = &mut self.current else { return };
        let room = wanted.saturating_sub(head.len()).min(piece.len());
        head.extend_from_slice(piece.get(..room).unwrap_or_default());
        if head.len() == *wanted {
            self.begun();
        }
    }

    /// Takes the head of the next chunk, or the end: the beginning of a definition is in one chunk, and
    /// so is a table's new name.
    pub(super) fn next_chunk(&mut self) {
        self.current = None;
        let Some(name) = self.new_name.take() else { return };
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        if let Some((schema, table)) = split_once(name.strip_suffix(b".ibd").unwrap_or(name)) {
            self.renewed.insert(self.hasher.hash_one((schema, table)));
            self.file_of(schema, table, TABLESPACE);
        }
    }

    /// Takes the beginning of a definition, or of a list of partitions.
    fn begun(&mut self) {
        let Some((path, head, _)) = self.current.take() else { return };
        let Some((schema, file)) = split_once(path.as_bytes()) else { return };
        if let Some(table) = file.strip_suffix(PAR) {
            let number = head.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            self.partitioned.entry(self.key(schema, table)).or_default().number = number;
            return;
        }
        let number = match head.get(ENGINE) {
            Some(&PARTITIONS) => head.get(PART_ENGINE),
            engine => engine,
        };
        let known = ENGINES.into_iter().find(|(engine, _)| number == Some(engine));
        let Some((engine, files)) = known.filter(|_| head.starts_with(&MAGIC)) else { return };
        let table = file.strip_suffix(b".frm").unwrap_or(file);
        // A left-over of a statement that rebuilds or drops a table.
        if table.starts_with(b"#sql") {
            return;
        }
        let key = self.key(schema, table);
        let name = || Some([schema, table].map(String::from_utf8_lossy).join("/"));
        let missing = files & !self.files.remove(&key).unwrap_or_default();
        if missing > 0 {
            let name = if self.lone.len() < KEPT { name() } else { None };
            self.lone.insert(key, PendingTable { name, engine, missing });
        }
        if head.get(ENGINE) == Some(&INNODB) {
            self.innodb.insert(key);
        }
        if head.get(ENGINE) == Some(&PARTITIONS) {
            let name = if self.partitioned.len() < KEPT { name() } else { None };
            self.partitioned.entry(key).or_default().definition =
                Some(PendingTable { name, engine, missing: files });
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

    /// The tables whose definition was seen.
    pub(super) fn defined(&mut self) -> DefinedTables {
        DefinedTables { hasher: self.hasher.clone(), keys: std::mem::take(&mut self.defined) }
    }

    /// At the end of the stream, the tables of InnoDB without a tablespace, and those of other engines
    /// without one of their files.
    pub(super) fn without_files(mut self) -> [TablesWithoutFiles; 2] {
        self.next_chunk();
        self.leave_out_removed();
        for (key, Partitioned { number, definition, with }) in self.partitioned {
            let Some(definition) = definition else { continue };
            let mut files = with.iter().enumerate();
            if files.any(|(bit, with)| definition.missing & 1 << bit != 0 && *with < number) {
                self.lone.entry(key).or_insert(definition);
            }
        }
        let mut found = [TablesWithoutFiles::default(), TablesWithoutFiles::default()];
        let [innodb, others] = &mut found;
        for PendingTable { name, engine, .. } in self.lone.into_values() {
            let found = match engine {
                INNODB => &mut *innodb,
                // Another engine of MySQL.
                ARIA if !self.aria => continue,
                _ => &mut *others,
            };
            found.tables += 1;
            found.first.extend(name);
        }
        for found in &mut found {
            found.first.sort_unstable();
        }
        found
    }

    /// Does not count the tablespaces that were removed: the stream has them as they were before.
    fn leave_out_removed(&mut self) {
        for (schema, table) in std::mem::take(&mut self.removed) {
            let (schema, table) = (&*schema, &*table);
            if self.renewed.contains(&self.hasher.hash_one((schema, table))) {
                continue;
            }
            let key = self.key(schema, table);
            let file = self.hasher.hash_one((schema, table, TABLESPACE));
            if partition(table).is_some() {
                if self.of_partitions.remove(&file)
                    && let Some(table) = self.partitioned.get_mut(&key)
                    && let Some(with) = table.with.last_mut()
                {
                    *with = with.saturating_sub(1);
                }
            } else if self.innodb.contains(&key) {
                let name = Some([schema, table].map(String::from_utf8_lossy).join("/"));
                let lone = PendingTable { name, engine: INNODB, missing: TABLESPACE };
                self.lone.entry(key).or_insert(lone);
            }
        }
    }

    fn key(&self, schema: &[u8], table: &[u8]) -> u64 {
        key(&self.hasher, schema, table)
    }
}

/// A number for a table, the same for all its partitions.
fn key(hasher: &RandomState, schema: &[u8], table: &[u8]) -> u64 {
    let table = partition(table).and_then(|end| table.get(..end)).unwrap_or(table);
    hasher.hash_one((schema, table))
}

/// Where the name of the partition begins in the name of its files.
fn partition(table: &[u8]) -> Option<usize> {
    table.windows(3).position(|at| at.eq_ignore_ascii_case(b"#p#"))
}

/// Schema and file of `schema/file`; `None` for any other path.
fn split_once(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = path.split(|byte| *byte == b'/');
    Some((parts.next()?, parts.next()?)).filter(|_| parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [TablesWithoutFiles; 2] =
        [const { TablesWithoutFiles { tables: 0, first: Vec::new() } }; 2];

    /// Files in the order of a stream: those with an engine are definitions.
    fn found(files: &[(&str, Option<[u8; 2]>)]) -> [TablesWithoutFiles; 2] {
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
        definitions.without_files()
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
        let [innodb, _] = definitions.without_files();
        assert_eq!(innodb.first, ["x/none"]);
    }

    #[test]
    fn a_table_of_innodb_needs_a_tablespace() {
        let innodb = Some([12, 0]);
        for order in [[0, 1], [1, 0]] {
            let files = [("x/a.ibd", None), ("x/a.frm", innodb)];
            assert_eq!(found(&order.map(|n| files[n])), NONE);
            let files = [("x/p#P#p0.ibd", None), ("x/p.frm", Some([20, 12]))];
            assert_eq!(found(&order.map(|n| files[n])), NONE);
        }
        // A left-over, a wrapped definition, and files that define no table of an engine with files.
        let others = [
            ("x/#sql-1.frm", innodb),
            ("x/z.frm.qp", innodb),
            ("t.frm", innodb),
            ("x/v.frm", None),
            ("x/memory.frm", Some([6, 0])),
            ("x/unknown.frm", Some([99, 0])),
        ];
        assert_eq!(found(&others), NONE);
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
        let [innodb, others] = found(&lone);
        assert_eq!((innodb.tables, others.tables), (4, 0));
        assert_eq!(innodb.first, ["mysql/t", "x/p", "y/a", "y/b"]);
    }

    /// The stream has it as it was before, and what prepares the backup removes it.
    #[test]
    fn a_tablespace_that_was_removed_does_not_count() {
        let innodb = Some([12, 0]);
        let gone = [("x/a.ibd", None), ("x/a.frm", innodb), ("x/a.del", None)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let [lone, _] = found(&order.map(|n| gone[n]));
            assert_eq!((lone.tables, &*lone.first), (1, &["x/a".to_owned()][..]));
        }
        // Dropped; of another engine since then; or with another tablespace.
        assert_eq!(found(&[gone[0], gone[2]]), NONE);
        let of_aria = [
            ("aria_log_control", None),
            ("x/a.MAI", None),
            ("x/a.MAD", None),
            ("x/a.frm", Some([42, 0])),
        ];
        assert_eq!(found(&[&gone[..1], &gone[2..], &of_aria].concat()), NONE);
        assert_eq!(found(&[&gone[..], &[("x/a.new", None)]].concat()), NONE);
        assert_eq!(found(&[&[("x/a.ibd.new", None)], &gone[..]].concat()), NONE);
    }

    #[test]
    fn a_definition_is_found_by_the_name_of_its_table() {
        let mut definitions = Definitions::default();
        for path in ["x/a.frm", "x/zip.frm.qp", "x/b.ibd"] {
            definitions.file(&RelPath::new(path.as_bytes()).unwrap());
        }
        let defined = definitions.defined();
        assert!(defined.has("x/a") && defined.has("x/a#P#p0") && defined.has("x/zip"));
        assert!(!defined.has("x/b") && !defined.has("a") && !defined.has("y/a"));
    }

    #[test]
    fn each_partition_needs_its_files() {
        const PAR: &[u8] = &[9, 0, 0, 0, 1, 2, 3, 4, 3, 0, 0, 0, 12, 12, 12];
        for (engine, suffix) in [(12, "ibd"), (9, "MYI"), (42, "MAD")] {
            let mut frm = [0; 100];
            frm[..4].copy_from_slice(&[0xfe, 1, 10, PARTITIONS]);
            frm[PART_ENGINE] = engine;
            let parts = ["#P#p0", "#p#p1", "#P#p2#SP#p2sp0"];
            let other = suffix.replace("MYI", "MYD").replace("MAD", "MAI");
            let of = |suffix: &str| parts.map(|part| (format!("x/t{part}.{suffix}"), &b""[..]));
            let mut all = [of(suffix), of(&other)].concat();
            all.push(("aria_log_control".to_owned(), b""));
            // Twice, as of a table that is created again during the backup.
            all.push((format!("x/t#P#p0.{suffix}"), b""));
            for at in [0, 4, all.len()] {
                let mut files = all.clone();
                files.insert(at, ("x/t.frm".to_owned(), &frm));
                files.insert(at, ("x/t.par".to_owned(), PAR));
                let found = |files: &[(String, &[u8])]| {
                    let mut definitions = Definitions::default();
                    for (path, content) in files {
                        definitions.next_chunk();
                        definitions.file(&RelPath::new(path.as_bytes()).unwrap());
                        content.chunks(5).for_each(|piece| definitions.bytes(piece));
                    }
                    definitions.without_files()
                };
                assert_eq!(found(&files), NONE, "{engine} {at}");
                for part in ["p0", "p1", "p2"] {
                    let mut rest = files.clone();
                    rest.retain(|(path, _)| !(path.contains(part) && path.ends_with(suffix)));
                    let [innodb, others] = found(&rest).map(|found| found.tables);
                    assert_eq!((innodb, others), if engine == 12 { (1, 0) } else { (0, 1) });
                    rest.retain(|(path, _)| path != "x/t.par");
                    assert_eq!(found(&rest), NONE, "its number of partitions is unknown");
                }
            }
        }
    }

    #[test]
    fn a_partition_that_was_removed_does_not_count() {
        let par = [9, 0, 0, 0, 1, 2, 3, 4, 2, 0, 0, 0, 12, 12];
        let mut frm = [0; 100];
        frm[..4].copy_from_slice(&[0xfe, 1, 10, PARTITIONS]);
        frm[PART_ENGINE] = INNODB;
        let found = |marks: &[&str]| {
            let mut definitions = Definitions::default();
            let mut file = |path: &str, content: &[u8]| {
                definitions.next_chunk();
                definitions.file(&RelPath::new(path.as_bytes()).unwrap());
                definitions.bytes(content);
            };
            for part in ["x/t#P#p0.ibd", "x/t#P#p1.ibd"].iter().chain(marks) {
                file(part, b"");
            }
            file("x/t.frm", &frm);
            file("x/t.par", &par);
            definitions.without_files()[0].tables
        };
        assert_eq!(found(&[]), 0);
        assert_eq!(found(&["x/t#P#p1.del"]), 1);
        assert_eq!(found(&["x/t#P#p1.new", "x/t#P#p1.del"]), 0);
        // A partition that the table no longer has.
        assert_eq!(found(&["x/t#P#p2.ibd", "x/t#P#p2.del"]), 0);
    }

    #[test]
    fn a_table_of_another_engine_needs_all_its_files() {
        let engines: [(u8, &[&str]); 5] = [
            (9, &["MYD", "MYI"]),
            (42, &["MAD", "MAI"]),
            (17, &["CSV", "CSM"]),
            (16, &["ARZ"]),
            (10, &["MRG"]),
        ];
        for (engine, suffixes) in engines {
            for (head, part) in [([engine, 0], ""), ([20, engine], "#P#p0")] {
                let mut files = vec![("aria_log_control".to_owned(), None)];
                files
                    .extend(suffixes.iter().map(|suffix| (format!("x/t{part}.{suffix}.qp"), None)));
                for at in 0..=files.len() {
                    let mut all = files.clone();
                    all.insert(at, ("x/t.frm".to_owned(), Some(head)));
                    let of = |files: &[(String, Option<[u8; 2]>)]| {
                        let files: Vec<_> = files.iter().map(|(p, h)| (&**p, *h)).collect();
                        found(&files)
                    };
                    assert_eq!(of(&all), NONE, "{engine} {at}");
                    for lost in suffixes.iter() {
                        let mut rest = all.clone();
                        rest.retain(|(path, _)| !path.ends_with(&format!(".{lost}.qp")));
                        let [innodb, others] = of(&rest);
                        assert_eq!((innodb.tables, &*others.first), (0, &["x/t".to_owned()][..]));
                    }
                }
            }
        }
        // In MySQL, the number of Aria is another engine's.
        assert_eq!(found(&[("x/t.frm", Some([42, 0]))]), NONE);
    }
}
