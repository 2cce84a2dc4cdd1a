//! The classic layout in a store: files as series of numbered objects.

use std::collections::BTreeMap;

use xb_pipeline::logical_name;
use xb_reader::{ChunkHead, RelPath};
use xb_repo::contents::Contents;
use xb_repo::manifest::Manifest;
use xb_repo::names::{BackupName, classic_key, parse_classic_key};
use xb_repo::root::Root;
use xb_uploader::ListedObject;

use crate::error::BackupError;
use crate::objects::checksums::KnownChecksums;
use crate::objects::classic_names::{self, FileNames};
use crate::objects::remove::remove_objects;
use crate::selection::{Checkpoint, Chosen, MatchedNames, Resumable, ResumePoint, Selection};

/// Files of which every backup of a producer has some, but for suffixes of compression and encryption.
const DESCRIBING: [&str; 5] = [
    "xtrabackup_info",
    "mariadb_backup_info",
    "xtrabackup_checkpoints",
    "mariadb_backup_checkpoints",
    "backup-my.cnf",
];

/// The files of a classic backup, from a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClassicFiles {
    /// Path to object number to object size.
    files: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Position at which a resumed restore continues in each file: the bytes to skip at the front
    /// of its objects, and the file offset after them. `None` unless an earlier run is resumed.
    begun: Option<BTreeMap<String, ResumePoint>>,
    /// Objects of an earlier run that count.
    resumable: Resumable,
    /// The known checksums of the objects.
    known: KnownChecksums,
}

/// Lists the objects of `name`. Ignores keys that no chunk can have, as stock readers do.
pub(crate) async fn list_classic(
    root: &Root,
    name: &BackupName,
) -> Result<ClassicFiles, BackupError> {
    Ok(ClassicFiles::of(&Contents::of(root, name).await?.classic))
}

/// Like [`list_classic`], for a stock backup, which has no manifest to tell its objects from
/// others.
///
/// # Errors
/// [`RepoError::Folder`] if `name` is a folder of backups.
pub(crate) async fn list_stock(
    root: &Root,
    name: &BackupName,
) -> Result<ClassicFiles, BackupError> {
    let found = Contents::of(root, name).await?;
    found.refuse_folder(name)?;
    Ok(ClassicFiles::of(&found.classic))
}

/// Removes the classic objects of `name`, but not packed runs or objects of other programs.
///
/// # Errors
/// [`RepoError::Folder`] if the objects may belong to other backups.
pub(crate) async fn remove_classic_objects(
    root: &Root,
    name: &BackupName,
) -> Result<u64, BackupError> {
    let found = Contents::of(root, name).await?;
    found.refuse_folder(name)?;
    let run_keys = root.classic_keys(name);
    let keys: Vec<String> = found.classic.iter().map(|l| run_keys.at(&l.key)).collect();
    let count = keys.len() as u64;
    remove_objects(root, name.as_str(), keys).await?;
    Ok(count)
}

/// Sort key that puts the files that a producer writes last at the end, where stream readers expect
/// them.
fn rank(path: &str) -> u8 {
    match logical_name(path.as_bytes()) {
        b"xtrabackup_info" | b"mariadb_backup_info" => 1,
        b"xtrabackup_tablespaces" => 2,
        _ => 0,
    }
}

impl ClassicFiles {
    /// Builds the files from a listing with keys relative to the backup's folder.
    pub(crate) fn of(listed: &[ListedObject]) -> Self {
        let mut files = Self::default();
        for listed in listed {
            if let Some((path, number)) = parse_classic_key(&listed.key) {
                files.files.entry(path.to_owned()).or_default().insert(number, listed.size);
            }
        }
        files
    }

    /// Adds the known checksums.
    pub(crate) fn set_known(&mut self, known: KnownChecksums) {
        self.known = known;
    }

    /// The known checksums of the objects.
    pub(crate) fn known(&self) -> &KnownChecksums {
        &self.known
    }

    /// The checksum of an object, by its key below the backup's folder.
    pub(crate) fn sum_of(&self, key: &str) -> Option<u64> {
        let KnownChecksums::Each(sums) = &self.known else { return None };
        let (path, number) = parse_classic_key(key)?;
        sums.get(path)?.get(usize::try_from(number).ok()?).copied()
    }

    /// Keys below the backup's folder with their sizes, ordered by path and number.
    pub(crate) fn by_key(&self) -> impl Iterator<Item = (String, u64)> {
        self.files.iter().flat_map(|(path, objects)| {
            objects.iter().map(move |(number, size)| (classic_key(path, *number), *size))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The object, below the backup's folder, that holds the byte at `position` in the stream of
    /// [`ClassicFiles::in_order`].
    pub(crate) fn object_at(&self, position: u64) -> Option<String> {
        let mut end = 0_u64;
        self.in_order().find_map(|(key, from, size)| {
            end += size - from;
            (position < end).then_some(key)
        })
    }

    /// The files by name, each with its number of objects and their total bytes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let count = |objects: &BTreeMap<u64, u64>| (objects.len() as u64, objects.values().sum());
        self.files.iter().map(move |(path, objects)| {
            let (number, bytes) = count(objects);
            (path.as_str(), number, bytes)
        })
    }

    /// The names of the files, and their numbers of objects, as they are stored.
    pub(crate) fn encoded_names(&self) -> Vec<u8> {
        classic_names::encode(self.sizes().map(|(path, objects, _)| (path, objects)))
    }

    /// Number of objects.
    pub(crate) fn objects(&self) -> u64 {
        self.files.values().map(|objects| objects.len() as u64).sum()
    }

    /// Bytes in all objects that are still to be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(path, objects)| self.wanted(path, objects)).sum()
    }

    /// Excludes what an earlier run has completed and checked.
    pub(crate) fn leave_out(&mut self, proven: &Checkpoint) {
        let mut resumable = Resumable::default();
        self.files.keys().for_each(|path| resumable.meet(path.as_bytes(), proven));
        let is_whole = |path: &str| proven.whole.contains(path.as_bytes());
        let left_out = self.files.extract_if(.., |path, _| is_whole(path));
        resumable.kept.extend(left_out.map(|(path, _)| path.into_bytes()));
        let come = |path: &String| Some((path.clone(), *proven.begun.get(path.as_bytes())?));
        let begun: BTreeMap<_, _> = self.files.keys().filter_map(come).collect();
        resumable.kept.extend(begun.keys().map(|path| path.clone().into_bytes()));
        (self.begun, self.resumable) = (Some(begun), resumable);
    }

    /// Objects that [`ClassicFiles::leave_out`] has left out.
    pub(crate) fn resumable(&self) -> &Resumable {
        &self.resumable
    }

    /// The files that an earlier run began, with their completed lengths; `None` if there was no
    /// earlier run.
    pub(crate) fn begun(&self) -> Option<Vec<(RelPath, u64)>> {
        let files = self.begun.as_ref()?.iter();
        Some(
            files
                .filter_map(|(path, come)| Some((RelPath::new(path.as_bytes()).ok()?, come.upto)))
                .collect(),
        )
    }

    fn taken(&self, path: &str) -> u64 {
        self.begun.as_ref().and_then(|begun| begun.get(path)).map_or(0, |come| come.taken)
    }

    /// Bytes of a file's objects that are still to be read.
    fn wanted(&self, path: &str, objects: &BTreeMap<u64, u64>) -> u64 {
        objects.values().sum::<u64>().saturating_sub(self.taken(path))
    }

    /// Returns whether any file is encrypted, judged by its name.
    pub(crate) fn any_encrypted(&self) -> bool {
        self.files.keys().any(|path| path.ends_with(".xbcrypt"))
    }

    /// Number of files.
    pub(crate) fn count(&self) -> u64 {
        self.files.len() as u64
    }

    /// Compares the listing with the manifest.
    pub(crate) fn agree_with(
        &self,
        name: &BackupName,
        manifest: &Manifest,
    ) -> Result<(), BackupError> {
        let listed = (self.count(), self.objects(), self.bytes());
        let stated = (manifest.files, manifest.objects, manifest.stored_bytes);
        if listed == stated {
            return Ok(());
        }
        let what = format!(
            "the store lists {} files in {} objects with {} bytes, the manifest {} in {} with {}",
            listed.0, listed.1, listed.2, stated.0, stated.1, stated.2
        );
        Err(BackupError::Damaged { name: name.to_string(), what })
    }

    /// Keeps only the selected files.
    pub(crate) fn select(&mut self, wanted: &Selection) -> Result<Chosen, BackupError> {
        let (mut matched, mut chosen) = (MatchedNames::default(), Chosen::default());
        self.files.retain(|path, objects| {
            let why = wanted.judge(path.as_bytes(), &mut matched);
            let bytes = objects.values().sum();
            why.inspect(|why| chosen.add(*why, 1, bytes)).is_some()
        });
        wanted.check(&matched)?;
        Ok(chosen)
    }

    /// Checks that the objects of each file are numbered from 0 without a gap. Only reading shows
    /// whether the last object holds the end chunk.
    pub(crate) fn check_runs(&self, name: &BackupName) -> Result<(), BackupError> {
        for (path, objects) in &self.files {
            if let Some(missing) =
                (0..objects.len() as u64).find(|number| !objects.contains_key(number))
            {
                let what = format!("object {} is missing", classic_key(path, missing));
                return Err(BackupError::Damaged { name: name.to_string(), what });
            }
        }
        Ok(())
    }

    /// Keys, below the backup's folder, of at most `most` objects that a listing may leave out, as far as it shows that:
    /// first numbers between others, then the one after the last of each file.
    fn unlisted(&self, most: usize) -> impl Iterator<Item = String> {
        let between = self.files.iter().flat_map(|(path, objects)| {
            let last = objects.keys().next_back().copied().unwrap_or_default();
            let missing = (0..last).filter(|number| !objects.contains_key(number));
            missing.map(move |number| classic_key(path, number))
        });
        let after = self.files.iter().filter_map(|(path, objects)| {
            let (last, _) = objects.last_key_value()?;
            Some(classic_key(path, last.checked_add(1)?))
        });
        between.chain(after).take(most)
    }

    /// Keys, below the backup's folder, of objects that have a name, and that the listing does not show.
    fn absent(&self, names: &FileNames) -> impl Iterator<Item = String> {
        let shows = |path: &str, number| {
            self.files.get(path).is_some_and(|objects| objects.contains_key(&number))
        };
        let all = names.iter().flat_map(|(path, objects)| (0..*objects).map(move |n| (path, n)));
        all.filter(move |(path, number)| !shows(path, *number))
            .map(|(path, number)| classic_key(path, number))
    }

    /// Keys of objects that a listing may deny, or give a wrong size, and the sizes that it gives: at most `most`, and those
    /// of [`hidden`](Self::hidden). `expected` are the numbers of objects and files of the manifest, `names` those of its
    /// files, if they are known.
    pub(crate) fn doubtful(
        &self,
        expected: Option<(u64, u64)>,
        names: Option<&FileNames>,
        most: usize,
    ) -> Vec<(String, Option<u64>)> {
        let is_as_many = expected.is_some_and(|(objects, _)| self.objects() == objects);
        let listed = self.by_key().filter(|_| is_as_many).map(|(key, size)| (key, Some(size)));
        match names {
            Some(names) => {
                self.absent(names).map(|key| (key, None)).chain(listed).take(most).collect()
            }
            None if is_as_many => listed.take(most).collect(),
            None => {
                // The hidden ones are few. They take no place from objects that the listing denies.
                let lacks_files = expected.is_some_and(|(_, files)| self.count() < files);
                let hidden = self.hidden().filter(|_| lacks_files);
                self.unlisted(most).chain(hidden).map(|key| (key, None)).collect()
            }
        }
    }

    /// Keys, below the backup's folder, of files that every backup of a producer has one of, and of which a listing shows
    /// nothing.
    fn hidden(&self) -> impl Iterator<Item = String> {
        let codecs = ["", ".qp", ".lz4", ".zst"];
        let forms = codecs.into_iter().flat_map(|codec| [(codec, ""), (codec, ".xbcrypt")]);
        let names =
            forms.flat_map(|(codec, seal)| DESCRIBING.map(|name| format!("{name}{codec}{seal}")));
        names.filter(|name| !self.files.contains_key(name)).map(|name| classic_key(&name, 0))
    }

    fn ordered(&self) -> Vec<(&String, &BTreeMap<u64, u64>)> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(path, _)| rank(path));
        files
    }

    /// Keys below the backup's folder, the first byte to read, and sizes, file by file, in chunk
    /// order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (String, u64, u64)> {
        self.ordered().into_iter().flat_map(|(path, objects)| {
            let mut taken = self.taken(path);
            objects.iter().map(move |(number, size)| {
                let from = taken.min(*size);
                taken -= from;
                (classic_key(path, *number), from, *size)
            })
        })
    }

    /// Offset of each file in the stream of [`ClassicFiles::in_order`].
    pub(crate) fn borders(&self) -> FileBoundaryCheck {
        let mut end = 0;
        let files = self.ordered().into_iter().map(|(path, objects)| {
            end += self.wanted(path, objects);
            (end, path.clone())
        });
        FileBoundaryCheck { files: files.collect::<Vec<_>>().into_iter().peekable() }
    }
}

/// Checks that each chunk belongs to the file whose objects contain it.
#[derive(Debug)]
pub(crate) struct FileBoundaryCheck {
    files: std::iter::Peekable<std::vec::IntoIter<(u64, String)>>,
}

impl FileBoundaryCheck {
    /// Checks the next chunk head; call in stream order.
    pub(crate) fn check(&mut self, head: &ChunkHead) -> Result<(), String> {
        while self.files.next_if(|(end, _)| *end <= head.position).is_some() {}
        match self.files.peek() {
            Some((end, path)) if head.path.as_bytes() == path.as_bytes() && head.end() <= *end => {
                Ok(())
            }
            Some((_, path)) => Err(format!(
                "the objects of {path} contain a chunk of {}, or end inside one",
                head.path
            )),
            None => Err(format!("a chunk of {} follows the last object", head.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &[u64])]) -> ClassicFiles {
        let files =
            entries.iter().map(|(p, n)| ((*p).to_owned(), n.iter().map(|n| (*n, 10)).collect()));
        ClassicFiles { files: files.collect(), ..ClassicFiles::default() }
    }

    #[test]
    fn gaps_are_named() {
        let name = BackupName::new("n").unwrap();
        assert!(files(&[("a", &[0, 1, 2]), ("b", &[0])]).check_runs(&name).is_ok());
        for bad in [&[0_u64, 2] as &[_], &[1]] {
            let error = files(&[("a/t.ibd", bad)]).check_runs(&name).unwrap_err().to_string();
            assert!(error.contains("a/t.ibd.0000000000000000000"), "{error}");
        }
    }

    /// Each is asked for by a request of its own.
    #[test]
    fn objects_that_may_be_unlisted_are_few_and_gaps_come_first() {
        let all = files(&[("a", &[0]), ("b", &[0, 2, 4]), ("c", &[0])]);
        let number = |key: String| {
            let (path, number) = key.rsplit_once('.').unwrap();
            (path.to_owned(), number.parse::<u64>().unwrap())
        };
        let unlisted = |most| all.unlisted(most).map(number).collect::<Vec<_>>();
        let [gap, other, after] =
            [("b", 1_u64), ("b", 3), ("a", 1)].map(|(p, n)| (p.to_owned(), n));
        assert_eq!(unlisted(3), [gap.clone(), other, after]);
        assert_eq!(unlisted(1), [gap]);
        assert_eq!(unlisted(9).len(), 5);
    }

    #[test]
    fn files_that_may_be_hidden_take_no_place_from_objects_that_are_denied() {
        let asked = files(&[("a", &[0, 9])]).doubtful(Some((20, 2)), None, 8);
        let denied = asked.iter().filter(|(key, _)| key.starts_with("a.")).count();
        assert_eq!((denied, asked.len()), (8, 8 + 8 * DESCRIBING.len()));
        let as_many = files(&[("a", &[0, 1])]).doubtful(Some((2, 1)), None, 8);
        assert_eq!(as_many.iter().filter_map(|(_, size)| *size).sum::<u64>(), 20);
    }

    #[test]
    fn a_hidden_file_whose_name_is_known_is_asked_for() {
        let names = FileNames::from([("a".into(), 2), ("b".into(), 2), ("c".into(), u64::MAX)]);
        let listed = files(&[("a", &[0, 1]), ("b", &[1]), ("x", &[0])]);
        let asked = |expected, most| {
            let keys = listed.doubtful(Some((expected, 3)), Some(&names), most).into_iter();
            keys.map(|(key, size)| (key.replace("0000", ""), size)).collect::<Vec<_>>()
        };
        let absent = ["b.", "c."].map(|key| (key.to_owned(), None));
        assert_eq!(asked(9, 2), absent);
        assert_eq!(asked(4, 2), absent);
        let none = listed.doubtful(Some((4, 3)), Some(&FileNames::new()), 9);
        assert!(none.len() == 4 && none.iter().all(|(_, size)| *size == Some(10)));
    }

    #[test]
    fn the_producers_last_file_goes_last() {
        let all = files(&[
            ("zz", &[0]),
            ("xtrabackup_tablespaces.lz4", &[0]),
            ("xtrabackup_info.lz4", &[0]),
            ("a", &[1, 0]),
        ]);
        let keys: Vec<String> =
            all.in_order().map(|(key, ..)| key.rsplit_once('.').unwrap().0.to_owned()).collect();
        assert_eq!(keys, ["a", "a", "zz", "xtrabackup_info.lz4", "xtrabackup_tablespaces.lz4"]);
    }

    #[test]
    fn selection_wants_names_that_are_there() {
        let mut all = files(&[("a", &[0]), ("b", &[0])]);
        let exact = |name: &str| Selection::exact([name.to_owned()]);
        assert!(all.clone().select(&exact("c")).is_err());
        all.select(&exact("b")).unwrap();
        assert_eq!(all, files(&[("b", &[0])]));
    }
}
