//! Answers of the server: the tables that it lists, and the results of CHECK TABLE.

use std::collections::BTreeMap;

use xb_reader::Printable;

/// Engines whose `CHECK TABLE` reads secondary keys only, and says OK of a table without one. Observed with MyRocks of
/// MariaDB 10.11.
const KEYS_ONLY: [&str; 1] = ["ROCKSDB"];

/// Kind of a listed table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// With rows, of any engine.
    Table,
    /// Of MariaDB; CHECK TABLE cannot check it, but it can be read.
    Sequence,
    View,
}

/// A table, view or sequence that the server lists.
#[derive(Debug, Clone)]
pub(super) struct ListedTable {
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) kind: Kind,
    /// Empty for a view, and for a table that cannot be opened.
    pub(super) engine: String,
    /// Whether it is encrypted with keys of a plugin.
    pub(super) encryption: Encryption,
}

/// Whether a table is encrypted with keys of a plugin of MariaDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    None,
    /// The server has no key for it.
    NoKey,
    /// The server has a key of this number, right or wrong.
    Key(u32),
}

impl ListedTable {
    /// The name for SQL.
    pub(super) fn quoted(&self) -> String {
        format!("`{}`.`{}`", self.schema.replace('`', "``"), self.table.replace('`', "``"))
    }

    /// Returns whether an answer of `CHECK TABLE` says nothing about the rows of this table.
    pub(super) fn are_rows_unread(&self) -> bool {
        self.kind == Kind::Table
            && KEYS_ONLY.iter().any(|engine| engine.eq_ignore_ascii_case(&self.engine))
    }

    /// The name as CHECK TABLE prints it.
    pub(super) fn printed(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// The name for people.
impl std::fmt::Display for ListedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Printable::new(self.printed().as_bytes()).fmt(f)
    }
}

/// Compression algorithms of MariaDB as its messages name them, in lower case, and their plugins.
const PROVIDERS: [(&str, &str); 5] = [
    ("bzip2", "provider_bzip2"),
    ("lz4", "provider_lz4"),
    ("lzma", "provider_lzma"),
    ("lzo", "provider_lzo"),
    ("snappy", "provider_snappy"),
];

/// The answer of CHECK TABLE for one table, from all its lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status is OK.
    ok: bool,
    /// The engine has no CHECK TABLE.
    cannot: bool,
    warnings: Vec<String>,
    errors: Vec<String>,
}

/// Meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Opened and checked; the warnings do not count against it.
    Sound(Vec<String>),
    /// Opened; the engine has no CHECK TABLE.
    Opened,
    /// A view that cannot be used, because of what it refers to.
    BrokenView,
    /// A MERGE table of which a table is missing, or is defined otherwise.
    BrokenMerge,
    /// `CHECK TABLE` refuses to check it: this version of the server wants it rebuilt or upgraded first.
    Outdated,
    /// Its tablespace was discarded by a statement: it had no rows on the source, either.
    Discarded,
    /// The server does not have its engine.
    NoEngine(String),
    /// The server lacks the key to decrypt it.
    NoKey,
    /// The server has not loaded this plugin, without which the table cannot be read.
    NoPlugin(&'static str),
    Damaged(String),
}

/// Groups the rows of CHECK TABLE (`Table Op Msg_type Msg_text`) by the names it prints.
pub(super) fn answers(rows: Vec<[String; 4]>) -> BTreeMap<String, Answer> {
    let mut found: BTreeMap<String, Answer> = BTreeMap::new();
    for [table, _, kind, text] in rows {
        found.entry(table).or_default().add(&kind, text);
    }
    found
}

impl Answer {
    fn add(&mut self, kind: &str, text: String) {
        match (kind.to_ascii_lowercase().as_str(), text.as_str()) {
            ("status", "OK" | "Table is already up to date") => self.ok = true,
            ("note", _) if text.contains("support check") => self.cannot = true,
            ("note" | "info" | "warning", _) => self.warnings.push(text),
            _ => self.errors.push(text),
        }
    }

    /// Judges the answer for a table of this kind.
    pub(super) fn judge(self, kind: Kind) -> Verdict {
        if self.errors.is_empty() {
            return match self {
                Self { ok: true, warnings, .. } => Verdict::Sound(warnings),
                Self { cannot: true, .. } => Verdict::Opened,
                _ => Verdict::Damaged("CHECK TABLE returned no result".to_owned()),
            };
        }
        let says = |part: &str| self.errors.iter().any(|error| error.contains(part));
        // Before what it refers to: its text may name something else than on the source.
        if kind == Kind::View && self.warnings.iter().any(|text| text.contains("checksum failed")) {
            return Verdict::Damaged(
                "its text does not match its checksum, and refers to something that is missing: if it is so on the \
                 server, too, drop or repair it there"
                    .to_owned(),
            );
        }
        if kind == Kind::View && (says("references invalid") || says("as a definer")) {
            return Verdict::BrokenView;
        }
        // The tables themselves are checked on their own.
        if says("Unable to open underlying table which is differently defined") {
            return Verdict::BrokenMerge;
        }
        if self.errors.iter().all(|error| is_outdated(error)) {
            return Verdict::Outdated;
        }
        // MariaDB: `has been discarded for table`, MySQL: `is discarded for table`.
        if says("discarded for table") {
            return Verdict::Discarded;
        }
        // Such a table counts as corrupted, too: the warning, or the next check, says why.
        if let Some(plugin) =
            self.warnings.iter().chain(&self.errors).find_map(|text| missing_provider(text))
        {
            return Verdict::NoPlugin(plugin);
        }
        // Of Aria, and of MySQL.
        if says("Initialization of encryption failed") || says("Can't find master key from keyring")
        {
            return Verdict::NoKey;
        }
        let engine =
            |error: &String| error.strip_prefix("Unknown storage engine ").map(str::to_owned);
        if let Some(engine) = self.errors.iter().find_map(engine) {
            return Verdict::NoEngine(engine.trim_matches('\'').to_owned());
        }
        // A last line without a cause follows the one with it.
        let bare = |error: &&String| !["Corrupt", "Operation failed"].contains(&error.as_str());
        let causes: Vec<&str> = self.errors.iter().filter(bare).map(String::as_str).collect();
        let text = if causes.is_empty() { self.errors.join("; ") } else { causes.join("; ") };
        Verdict::Damaged(Printable::new(text.as_bytes()).to_string())
    }
}

/// Returns whether this message is not about the table's content, but about the version of the server that made it.
fn is_outdated(error: &str) -> bool {
    ["Table rebuild required.", "Table upgrade required.", "Upgrade required."]
        .iter()
        .any(|begin| error.starts_with(begin))
}

/// The plugin that is missing according to this message.
fn missing_provider(text: &str) -> Option<&'static str> {
    let algorithm = match text.rsplit_once(" is compressed with ") {
        Some((_, algorithm)) => algorithm.split_once(", which is not currently loaded")?.0,
        None => text.split_once(" compression, but its provider plugin is not loaded")?.0,
    };
    let algorithm = algorithm.to_ascii_lowercase();
    let known = PROVIDERS.iter().find(|(word, _)| algorithm.ends_with(word));
    known.map(|(_, plugin)| *plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: Kind, lines: &[&str]) -> Verdict {
        let row = |line: &&str| {
            let (kind, text) = line.split_once('\t').unwrap();
            ["a.b", "check", kind, text].map(str::to_owned)
        };
        let rows = lines.iter().map(row).collect();
        answers(rows).remove("a.b").unwrap_or_default().judge(kind)
    }

    #[test]
    fn only_a_last_status_ok_without_an_error_is_sound() {
        use Kind::Table;
        assert_eq!(verdict(Table, &["status\tOK"]), Verdict::Sound(vec![]));
        let open = "1 client is using or hasn't closed the table properly";
        assert_eq!(
            verdict(Table, &[&format!("warning\t{open}"), "status\tOK"]),
            Verdict::Sound(vec![open.to_owned()])
        );
        for lines in [&[][..], &["warning\tx"], &["note\tx"], &["info\tOK"]] {
            assert!(matches!(verdict(Table, lines), Verdict::Damaged(_)), "{lines:?}");
        }
        assert_eq!(
            verdict(Table, &["Error\tIncorrect information", "error\tCorrupt"]),
            Verdict::Damaged("Incorrect information".to_owned())
        );
        assert_eq!(verdict(Table, &["error\tCorrupt"]), Verdict::Damaged("Corrupt".to_owned()));
        assert!(matches!(verdict(Table, &["Error\tx", "status\tOK"]), Verdict::Damaged(_)));
        assert!(matches!(verdict(Table, &["status\tOperation failed"]), Verdict::Damaged(_)));
    }

    #[test]
    fn of_a_table_of_rocksdb_the_rows_are_yet_to_be_read() {
        let of = |engine: &str, kind| {
            let (schema, table, engine) = ("x".to_owned(), "a".to_owned(), engine.to_owned());
            ListedTable { schema, table, kind, engine, encryption: Encryption::None }
                .are_rows_unread()
        };
        assert!(of("ROCKSDB", Kind::Table) && of("RocksDB", Kind::Table));
        assert!(
            !of("InnoDB", Kind::Table) && !of("", Kind::View) && !of("ROCKSDB", Kind::Sequence)
        );
    }

    #[test]
    fn a_table_without_damage_has_a_reason_of_its_own() {
        use Kind::{Table, View};
        let cannot = "note\tThe storage engine for the table doesn't support check";
        assert_eq!(verdict(Table, &[cannot]), Verdict::Opened);
        for said in [
            "Error\tTablespace has been discarded for table `disc`",
            "Error\tTablespace is discarded for table, 'disc'",
        ] {
            assert_eq!(verdict(Table, &[said, "error\tCorrupt"]), Verdict::Discarded);
        }
        let missing = "Error\tTablespace is missing for table 'x/a'";
        assert!(matches!(verdict(Table, &[missing]), Verdict::Damaged(_)));
        let engine = "Error\tUnknown storage engine 'ARCHIVE'";
        assert_eq!(
            verdict(Table, &[engine, "error\tCorrupt"]),
            Verdict::NoEngine("ARCHIVE".to_owned())
        );
        // As MariaDB 10.11 answers.
        let lz4 = [
            "Warning\tMariaDB tried to use the LZ4 compression, but its provider plugin is not loaded",
            "Error\tTable `x`.`c` is corrupted. Please drop the table and recreate.",
            "error\tCorrupt",
        ];
        assert_eq!(verdict(Table, &lz4), Verdict::NoPlugin("provider_lz4"));
        assert!(matches!(verdict(Table, &lz4[1..]), Verdict::Damaged(_)));
        // The same when it is checked again, whatever the table is called.
        for (algorithm, plugin) in PROVIDERS {
            let again = format!(
                "Error\tTable `x`.`lz4 is compressed with lzma#P#p0` is compressed with {algorithm}, which is not currently loaded. Please load the {algorithm} provider plugin to open the table"
            );
            assert_eq!(verdict(Table, &[&again, "error\tCorrupt"]), Verdict::NoPlugin(plugin));
        }
        for said in [
            "Error\tInitialization of encryption failed for ./e/a.MAD",
            "Error\tCan't find master key from keyring, please check in the server log if a keyring is loaded and initialized successfully.",
        ] {
            assert_eq!(verdict(Table, &[said, "error\tCorrupt"]), Verdict::NoKey);
        }
        let refers = [
            "Error\tTable 'x.m' doesn't exist",
            "Error\tView 'x.v' references invalid table(s) or column(s) or function(s)",
            "error\tCorrupt",
        ];
        assert_eq!(verdict(View, &refers), Verdict::BrokenView);
        assert!(matches!(verdict(Table, &refers), Verdict::Damaged(_)));
        // As MariaDB 10.11 answers.
        let merge = [
            "Error\tTable 'x.gone' is differently defined or of non-MyISAM type or doesn't exist",
            "Error\tUnable to open underlying table which is differently defined or of non-MyISAM type or doesn't exist",
            "error\tCorrupt",
        ];
        assert_eq!(verdict(Table, &merge), Verdict::BrokenMerge);
        for said in [
            "error\tTable rebuild required. Please do \"ALTER TABLE `hb` FORCE\" or dump/reload to fix it!",
            "error\tTable upgrade required. Please do \"REPAIR TABLE `a`\" or dump/reload to fix it!",
            "error\tUpgrade required. Please do \"REPAIR TABLE `a`\" or dump/reload to fix it!",
        ] {
            assert_eq!(verdict(Table, &[said]), Verdict::Outdated);
            let damaged = verdict(Table, &[said, "Error\tIncorrect key file for table 'a'"]);
            assert!(matches!(damaged, Verdict::Damaged(_)));
        }
        let altered = [&refers[..], &["Warning\tView text checksum failed"]].concat();
        assert!(matches!(verdict(View, &altered), Verdict::Damaged(_)));
        let broken = "Error\tIncorrect information in file: './x/v.frm'";
        assert!(matches!(verdict(View, &[broken]), Verdict::Damaged(_)));
    }
}
