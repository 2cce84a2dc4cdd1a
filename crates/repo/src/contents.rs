//! Sorts the objects below a NAME by owner, judged by the shape of each key.
//!
//! Packed runs and the stock layout have distinct key shapes. A catalogue, a packed run or a stock
//! backup in a folder below NAME shows that NAME is the ROOT of other backups. Every other object
//! belongs to another program, and none of our commands may remove it.

use std::collections::BTreeSet;

use xb_pipeline::logical_name;
use xb_uploader::ListedObject;

use crate::archive::names::ARCHIVES;
use crate::error::RepoError;
use crate::manifest::{Layout, Manifest};
use crate::names::{
    BackupName, CATALOG, RunId, in_packed_run, is_data_object, of_packed_run, parse_classic_key,
};
use crate::root::Root;

/// Files that stock tools store at the top of a backup and never in one of its folders. No table's
/// file can have one of these names.
const TOP_FILES: [&str; 17] = [
    "xtrabackup_info",
    "xtrabackup_checkpoints",
    "xtrabackup_logfile",
    "xtrabackup_tablespaces",
    "xtrabackup_binlog_info",
    "xtrabackup_slave_info",
    "xtrabackup_galera_info",
    "mariadb_backup_info",
    "mariadb_backup_checkpoints",
    "mariadb_backup_binlog_info",
    "mariadb_backup_slave_info",
    "mariadb_backup_galera_info",
    "backup-my.cnf",
    "ibdata1",
    "ib_logfile0",
    "aria_log_control",
    // Percona's operator stores these beside each backup, in the same layout.
    "sst_info",
];
/// Limit of keys or names in a message.
const MAX_NAMED: usize = 5;

/// The objects below a NAME, from one listing. Keys are relative to NAME.
#[derive(Debug, Default)]
pub struct Contents {
    /// Objects of packed runs of NAME.
    pub packed: Vec<ListedObject>,
    /// Objects in the stock layout, including those of stock backups in folders below NAME.
    pub classic: Vec<ListedObject>,
    /// Objects that belong to no backup.
    pub foreign: Vec<ListedObject>,
    /// Backups in folders below NAME, by their paths.
    pub backups: BTreeSet<String>,
    /// Whether NAME or a folder below it holds a catalogue or an archive.
    catalogue: bool,
    /// Whether one of [`TOP_FILES`] is at the top of NAME.
    top: bool,
}

impl Contents {
    /// Lists the objects below `name`.
    pub async fn of(root: &Root, name: &BackupName) -> Result<Self, RepoError> {
        Ok(Self::sort(root.list_below(name.as_str()).await?))
    }

    /// Sorts the listing of a NAME.
    pub fn sort(listed: Vec<ListedObject>) -> Self {
        let mut found = Self::default();
        for listed in listed {
            let key = listed.key.as_str();
            if of_packed_run(key) {
                found.packed.push(listed);
            } else if key.split('/').any(|part| part == ARCHIVES) {
                // The log of a server lies beside its backups.
                found.catalogue = true;
            } else if let Some((root, rest)) = in_catalogue(key) {
                found.catalogue = true;
                if let Ok(name) = BackupName::new(rest) {
                    found.backups.insert(join(root, name.as_str()));
                }
            } else if let Some(parent) = parent_of_run(key) {
                found.backups.insert(parent.to_owned());
            } else if let Some((path, _)) = parse_classic_key(key) {
                match path.rsplit_once('/') {
                    None => found.top |= is_top_file(path),
                    Some((folder, file)) if is_top_file(file) => {
                        found.backups.insert(folder.to_owned());
                    }
                    Some(_) => {}
                }
                found.classic.push(listed);
            } else {
                found.foreign.push(listed);
            }
        }
        let Self { foreign, backups, .. } = &mut found;
        foreign.retain(|listed| !belongs_to(backups, &listed.key));
        found
    }

    /// Returns whether nothing exists below NAME.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
            && self.classic.is_empty()
            && self.foreign.is_empty()
            && !self.is_folder()
    }

    /// The objects of one packed run.
    pub fn of_run(self, run: RunId) -> Vec<ListedObject> {
        let folder = format!("{run}/");
        let mut packed = self.packed;
        packed.retain(|listed| listed.key.starts_with(&folder));
        packed
    }

    /// Returns whether other backups exist below NAME.
    pub fn is_folder(&self) -> bool {
        self.catalogue || !self.backups.is_empty()
    }

    /// Returns whether number and total size of the data objects match the manifest: of its run, or of those in the stock
    /// layout.
    pub fn agrees_with(&self, manifest: &Manifest) -> bool {
        let add = |(objects, bytes), listed: &ListedObject| (objects + 1, bytes + listed.size);
        let found = match manifest.layout {
            Layout::Packed => {
                let of_run = |listed: &&ListedObject| {
                    listed
                        .key
                        .split_once('/')
                        .is_some_and(|(run, object)| run == manifest.run && is_data_object(object))
                };
                self.packed.iter().filter(of_run).fold((0, 0), add)
            }
            Layout::Classic => self.classic.iter().fold((0, 0), add),
        };
        found == (manifest.objects, manifest.stored_bytes)
    }

    /// Returns whether the files in the stock layout include those of an incremental backup.
    pub(crate) fn has_changed_pages(&self) -> bool {
        let path =
            |listed: &ListedObject| parse_classic_key(&listed.key).map(|(path, _)| path.to_owned());
        let mut paths = self.classic.iter().filter_map(path);
        paths.any(|path| logical_name(path.as_bytes()).ends_with(b".delta"))
    }

    /// Describes the objects that belong to no backup, if there are any.
    pub fn foreign_objects(&self) -> Option<String> {
        let some = named(self.foreign.iter().map(|listed| listed.key.as_str()));
        match self.foreign.len() {
            0 => None,
            1 => Some(format!("1 object that is not part of a backup: {some}")),
            n => Some(format!("{n} objects that are not part of a backup: {some}")),
        }
    }

    /// Explains why objects in the stock layout may not be a single stock backup.
    pub(crate) fn unrecognised(&self) -> Option<String> {
        let some = named(self.classic.iter().map(|listed| listed.key.as_str()));
        (!self.classic.is_empty() && !self.top).then(|| {
            format!("objects in the stock layout ({some}), but no xtrabackup_info or other file that identifies a stock backup")
        })
    }

    /// Fails if NAME is a folder of backups.
    pub fn refuse_folder(&self, name: &BackupName) -> Result<(), RepoError> {
        if !self.is_folder() {
            return Ok(());
        }
        let some = named(self.backups.iter().map(String::as_str));
        let what = match self.backups.len() {
            0 => "backups that holds only a catalogue, or the archive of a log".to_owned(),
            1 => format!("1 backup: {some}"),
            n => format!("{n} backups: {some}"),
        };
        Err(RepoError::Folder { name: name.to_string(), what })
    }

    /// Fails if there are objects of other programs.
    pub fn refuse_foreign(&self, name: &BackupName) -> Result<(), RepoError> {
        match self.foreign_objects() {
            None => Ok(()),
            Some(what) => Err(RepoError::Foreign { name: name.to_string(), what }),
        }
    }

    /// Fails if objects in the stock layout may be a part of a backup, or several backups.
    pub fn refuse_unrecognised(&self, name: &BackupName) -> Result<(), RepoError> {
        match self.unrecognised() {
            None => Ok(()),
            Some(what) => Err(RepoError::Unrecognised { name: name.to_string(), what }),
        }
    }

    /// Fails if a new backup of this name would hide existing objects or mix with them.
    pub fn refuse_taken(&self, name: &BackupName) -> Result<(), RepoError> {
        self.refuse_folder(name)?;
        self.refuse_foreign(name)?;
        if self.classic.is_empty() {
            return Ok(());
        }
        Err(RepoError::Exists { name: name.to_string(), state: " (stock, unproven)" })
    }
}

/// Splits the key of an object in a catalogue into the catalogue's ROOT and the rest.
fn in_catalogue(key: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    for part in key.split('/') {
        if part == CATALOG {
            return Some((key.get(..at)?.trim_end_matches('/'), key.get(at + part.len() + 1..)?));
        }
        at += part.len() + 1;
    }
    None
}

/// The folder that holds the packed run of this object.
fn parent_of_run(key: &str) -> Option<&str> {
    let (folder, object) = key.rsplit_once('/')?;
    let (parent, run) = folder.rsplit_once('/')?;
    (RunId::parse(run).is_some() && in_packed_run(object)).then_some(parent)
}

fn is_top_file(path: &str) -> bool {
    TOP_FILES.iter().any(|file| logical_name(path.as_bytes()) == file.as_bytes())
}

/// Returns whether an object is in the folder of one of these backups, or is the MD5 list of one.
fn belongs_to(backups: &BTreeSet<String>, key: &str) -> bool {
    let has = |path: Option<&str>| path.is_some_and(|path| backups.contains(path));
    key.match_indices('/').any(|(at, _)| has(key.get(..at))) || has(key.strip_suffix(".md5"))
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Formats the first few names.
fn named<'a>(mut all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let first: Vec<&str> = all.by_ref().take(MAX_NAMED).collect();
    match all.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RUN: &str = "00112233445566778899aabbccddeeff";
    const N: &str = "00000000000000000000";

    fn sort(keys: &[String]) -> Contents {
        let listed =
            |key: &String| ListedObject { key: key.clone(), size: 10, modified: 0, tag: None };
        Contents::sort(keys.iter().map(listed).collect())
    }

    fn keys(listed: &[ListedObject]) -> Vec<&str> {
        listed.iter().map(|listed| listed.key.as_str()).collect()
    }

    #[test]
    fn an_archive_is_no_backup() {
        let archive = [
            format!(".xb-binlog/db1/{RUN}/head"),
            format!(".xb-binlog/db1/{RUN}/000000000000"),
            format!(".xb-binlog/db1/.streams/{RUN}"),
        ];
        let found = sort(&archive);
        assert!(found.is_folder() && found.backups.is_empty() && found.foreign.is_empty());
        let with_backup = [archive.to_vec(), vec![format!("monday/{RUN}/claim")]].concat();
        let name = BackupName::new("shop").unwrap();
        let error = sort(&with_backup).refuse_folder(&name).unwrap_err().to_string();
        assert!(error.ends_with("a folder of 1 backup: monday"), "{error}");
    }

    #[test]
    fn objects_are_distinguished_by_the_shapes_of_their_keys() {
        let found = sort(&[
            format!("{RUN}/claim"),
            format!("{RUN}/keys"),
            format!("{RUN}/sums"),
            format!("{RUN}/000000012"),
            format!("{RUN}/0000000012"),
            format!("{RUN}/claim.old"),
            format!("xtrabackup_info.lz4.{N}"),
            format!("db/t.ibd.{N}"),
            format!("db/t.ibd.{N}1"),
            "notes.txt".into(),
        ]);
        assert_eq!(found.packed.len(), 4);
        assert_eq!(
            keys(&found.classic),
            [format!("xtrabackup_info.lz4.{N}"), format!("db/t.ibd.{N}")]
        );
        assert_eq!(
            keys(&found.foreign),
            [
                format!("{RUN}/0000000012"),
                format!("{RUN}/claim.old"),
                format!("db/t.ibd.{N}1"),
                "notes.txt".into()
            ]
        );
        assert!(!found.is_folder() && found.unrecognised().is_none());
    }

    #[test]
    fn backups_in_folders_are_found_by_catalogue_run_or_top_file() {
        let found = sort(&[
            ".xb-catalog/mon".into(),
            ".xb-catalog/@pins/mon".into(),
            format!("tue/{RUN}/000000000"),
            format!("wed/db/t.ibd.{N}"),
            format!("wed/mariadb_backup_checkpoints.{N}"),
            "wed.md5".into(),
            "wed/notes".into(),
            "fri/notes".into(),
            "old/shop/.xb-catalog/thu".into(),
            format!("old/more/shop/sat/{RUN}/claim"),
        ]);
        let backups: Vec<&str> = found.backups.iter().map(String::as_str).collect();
        assert_eq!(backups, ["mon", "old/more/shop/sat", "old/shop/thu", "tue", "wed"]);
        assert_eq!(keys(&found.foreign), ["fri/notes"], "the rest is in folders of backups");
    }

    /// `--history` of the stock tools creates tables with such names.
    #[test]
    fn tables_named_like_top_files_are_no_backups() {
        let mut keys: Vec<String> =
            ["PERCONA_SCHEMA/xtrabackup_history.ibd", "mysql/mariadb_backup_history.ibd"]
                .map(|path| format!("{path}.{N}"))
                .into();
        keys.push(format!("a/xtrabackup_info.ibd.{N}"));
        let found = sort(&keys);
        assert!(!found.is_folder());
        assert!(found.unrecognised().is_some(), "no file at the top");
    }

    proptest! {
        /// Every object is sorted into exactly one group, and one without a backup's key shape
        /// never counts as part of a backup.
        #[test]
        fn any_listing_is_sorted(keys in proptest::collection::vec("[a-c/.0-9]{0,40}", 0..20)) {
            let found = sort(&keys);
            prop_assert!(found.classic.len() + found.packed.len() + found.foreign.len() <= keys.len());
            prop_assert!(found.classic.iter().all(|listed| parse_classic_key(&listed.key).is_some()));
            prop_assert!(found.packed.iter().all(|listed| of_packed_run(&listed.key)));
        }
    }
}
