//! Decides whether a chain can be merged, before anything is changed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xb_pages::SpaceHead;

use crate::delta::DeltaReader;
use crate::links::{Link, is_checkpoints};
use crate::meta::{Meta, read_text};

/// Bytes of a file that hold the fields of its first page.
const FIRST: usize = 1 << 10;
/// Pages that a server makes a new table's file long, and demands: of the server's own size, also if the table's pages
/// are smaller.
const LEAST_PAGES: u64 = 4;
/// Pages that a tablespace is made with: its header, the first map of free space, and the list of its segments.
const MADE_PAGES: u32 = 3;
/// Number of InnoDB in the definition of a table.
const INNODB: u8 = 12;
/// Suffixes of files that are compressed or encrypted one by one.
const CODED: [&str; 6] = ["qp", "lz4", "zst", "gz", "xbcrypt", "snappy"];

/// Reason why a chain has to be prepared link by link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NotMergeable {
    /// The reason.
    pub what: String,
    /// File of a tablespace that no backup of the chain has, or not all of: a server has no rows of it, whoever prepares it.
    pub lost: Option<PathBuf>,
}

impl NotMergeable {
    fn of(what: String) -> Self {
        Self { what, lost: None }
    }
}

/// Plan for the merge of a chain. Nothing is changed yet.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) base: PathBuf,
    pub(crate) last: PathBuf,
    pub(crate) spaces: Vec<Space>,
    /// Files of the base that go.
    pub(crate) dropped: Vec<PathBuf>,
    /// Files of the last increment that come in their place.
    pub(crate) moved: Vec<PathBuf>,
    /// Folders of the base and of the last increment.
    pub(crate) old_folders: Vec<PathBuf>,
    pub(crate) folders: Vec<PathBuf>,
}

impl Plan {
    /// Returns whether it is one of `base`, and touches nothing outside.
    pub(crate) fn is_within(&self, base: &Path) -> bool {
        let is_name = |path: &Path| path.components().all(|c| matches!(c, Component::Normal(_)));
        let is_below = |path: &PathBuf| path.strip_prefix(base).is_ok_and(is_name);
        let names = [&self.dropped, &self.moved, &self.old_folders, &self.folders];
        let spaces = || self.spaces.iter();
        self.base == base
            && is_below(&self.last)
            && names.into_iter().flatten().all(|name| is_name(name))
            && spaces().all(|space| is_name(&space.path))
            && spaces().flat_map(|space| space.copy.iter().chain(&space.deltas)).all(is_below)
    }
}

/// A file of the result that is a tablespace, or one of the files of the system tablespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Space {
    /// Its name in the result.
    pub(crate) path: PathBuf,
    pub(crate) page_size: usize,
    /// The newest copy of all of it.
    pub(crate) copy: Option<PathBuf>,
    /// Its delta files behind that copy, the newest first.
    pub(crate) deltas: Vec<PathBuf>,
    /// Bytes that the file must have at least.
    pub(crate) len: u64,
}

/// Decides whether the full backup in `base` and its `increments`, in order, can be merged.
///
/// An increment has the pages that were changed since its `from` position. The pages of the link before it were
/// copied while its server wrote: a page that was changed behind the copy is only in the redo log of that link, which
/// the merge drops. All these changes are behind the checkpoint at which that log begins. So `from` must not be
/// behind it; the position at which the link *ends* is no measure. Then every page is in the newest delta that has it,
/// or in the base, at least as new as the last redo log needs.
///
/// A backup that sees DDL on a table copies it again, whole: then that copy counts, and the deltas behind it.
///
/// Whatever is not known to be right makes it unfit: files that are not InnoDB's own or not in the data directory, parts of a
/// backup, tablespaces that became shorter, a system tablespace that got another file.
///
/// # Errors
/// [`NotMergeable`], with the reason. A directory that cannot be read is unfit, too: the program that prepares it says more.
pub fn plan(base: &Path, increments: &[PathBuf]) -> Result<Plan, NotMergeable> {
    let unfit = |what: String| Err(NotMergeable::of(what));
    let base = Link::read(base).map_err(NotMergeable::of)?;
    if base.checkpoints.kind != "full-backuped" {
        return unfit(format!("the full backup is {}", base.checkpoints.kind));
    }
    refuse_unnamed(&base)?;
    base.files.iter().try_for_each(|file| refuse_strange(file))?;
    let system = base.system_files();
    let (mut links, mut parts): (Vec<Link>, Vec<Deltas>) = (Vec::new(), Vec::new());
    let mut names = Names::new();
    // One at a time: there may be many tables, and many increments.
    for (number, dir) in increments.iter().enumerate() {
        let mut link = Link::read(dir).map_err(NotMergeable::of)?;
        follows(&link, links.last().unwrap_or(&base))?;
        refuse_unnamed(&link)?;
        link.files.iter().try_for_each(|file| refuse_strange(file))?;
        if link.system_files() != system {
            return unfit("the system tablespace has other files than before".to_owned());
        }
        parts.push(deltas(&link, &system, &mut names)?);
        if number + 1 < increments.len() {
            link.forget_described();
        }
        links.push(link);
    }
    let Some(last) = links.last() else { return unfit("there is no increment".to_owned()) };
    let copies = copies(&base, &links, &parts, &system)?;
    refuse_lost(&base, &links, &parts)?;
    let Some(newest) = parts.last() else { return unfit("there is no increment".to_owned()) };
    let has_all = (0..system.len()).all(|number| newest.contains_key(&(0, number)));
    let Some(first) = newest.get(&SYSTEM).filter(|_| has_all) else {
        return unfit("the last increment lacks a file of the system tablespace".to_owned());
    };
    let least = LEAST_PAGES * first.meta.page_size as u64;
    let (mut spaces, mut left) = (Vec::new(), 0);
    for (key, named) in newest {
        let (mut space, stated) = space_of(*key, named, copies.get(key), &links, &parts)?;
        if let (_, 0) = key {
            left = stated;
        }
        // Only the last file of a tablespace grows.
        if !newest.contains_key(&(key.0, key.1 + 1)) {
            space.len = space.len.max(left);
        }
        left = left.saturating_sub(space.len);
        if is_table(&space.path) {
            space.len = space.len.max(least);
        }
        spaces.push(space);
    }
    let used: HashSet<&Path> = spaces.iter().filter_map(|space| space.copy.as_deref()).collect();
    let is_dropped = |file: &&PathBuf| !used.contains(base.dir.join(file).as_path());
    let dropped = base.files.iter().filter(is_dropped).cloned().collect();
    let is_kept =
        |file: &&PathBuf| delta_of(file).is_some() || is_meta(file) || is_checkpoints(file);
    let moved = last.files.iter().filter(|file| !is_kept(file));
    Ok(Plan {
        moved: moved.cloned().collect(),
        dropped,
        spaces,
        base: base.dir.clone(),
        last: last.dir.clone(),
        old_folders: base.folders.clone(),
        folders: last.folders.clone(),
    })
}

/// Refuses a name that the plan, which is kept as text, cannot hold.
fn refuse_unnamed(link: &Link) -> Result<(), NotMergeable> {
    let mut paths = [&link.dir].into_iter().chain(&link.files).chain(&link.folders);
    match paths.find(|path| path.to_str().is_none()) {
        None => Ok(()),
        Some(path) => Err(NotMergeable::of(format!("the name of {} is not UTF-8", path.display()))),
    }
}

/// Fails if an increment does not begin where the redo log of the link before it begins, or earlier.
fn follows(link: &Link, before: &Link) -> Result<(), NotMergeable> {
    let (dir, checkpoints) = (link.dir.display(), &link.checkpoints);
    if checkpoints.kind != "incremental" || checkpoints.from == 0 {
        let what = format!("{dir} is {} from {}", checkpoints.kind, checkpoints.from);
        return Err(NotMergeable::of(what));
    }
    match checkpoints.from > before.redo_start {
        false => Ok(()),
        true => Err(NotMergeable::of(format!(
            "an increment begins at LSN {}, after LSN {}, where the redo log of its base begins",
            checkpoints.from, before.redo_start
        ))),
    }
}

/// The deltas of an increment, by their tablespaces.
type Deltas = BTreeMap<Key, Delta>;

/// Names of tablespaces: most are in every increment, and kept once.
type Names = HashSet<Arc<Path>>;

/// A delta file of a link: its tablespace's name, and its text.
#[derive(Debug)]
struct Delta {
    name: Arc<Path>,
    meta: Meta,
}

impl Delta {
    fn path(&self, link: &Link) -> PathBuf {
        with_suffix(&link.dir.join(&self.name), ".delta")
    }
}

/// Number of a tablespace, and of the file within it. Only the system tablespace has several.
type Key = (u32, usize);
/// The first file of the system tablespace.
const SYSTEM: Key = (0, 0);

/// The file that a name means, of a tablespace of this number.
fn key_of(space: u32, name: &Path, system: &[PathBuf]) -> Key {
    let number = system.iter().position(|file| space == 0 && file == name);
    (space, number.unwrap_or(0))
}

/// The deltas of an increment, by their tablespaces.
fn deltas(link: &Link, system: &[PathBuf], names: &mut Names) -> Result<Deltas, NotMergeable> {
    let mut found = BTreeMap::new();
    for file in &link.files {
        let Some(name) = delta_of(file) else {
            match is_table(file) {
                true => {
                    return Err(NotMergeable::of(format!(
                        "{} is whole in an increment",
                        file.display()
                    )));
                }
                false => continue,
            }
        };
        let path = link.dir.join(file);
        let meta = read_text(&with_suffix(&link.dir.join(&name), ".meta"));
        let Some(meta) = meta.as_deref().and_then(Meta::parse) else {
            return Err(NotMergeable::of(format!(
                "{} has no .meta file that is known",
                path.display()
            )));
        };
        if !is_tablespace(&name) {
            return Err(NotMergeable::of(format!("{} is of an unknown kind", path.display())));
        }
        let key = key_of(meta.space, &name, system);
        let kept = names.get(name.as_path()).cloned().unwrap_or_else(|| Arc::from(name.as_path()));
        names.insert(Arc::clone(&kept));
        if let Some(other) = found.insert(key, Delta { name: kept, meta }) {
            let (other, shown) = (other.name.display(), name.display());
            return Err(NotMergeable::of(format!(
                "{other} and {shown} both belong to tablespace {}",
                meta.space
            )));
        }
    }
    Ok(found)
}

/// Refuses a chain whose last increment has the definition of an InnoDB table and nothing of its tablespace, although the
/// full backup has it: it was imported or discarded in between, or the table was moved into the system tablespace, whose
/// pages tell which only once they are prepared.
fn refuse_lost(base: &Link, links: &[Link], parts: &[Deltas]) -> Result<(), NotMergeable> {
    let (Some(last), Some(newest)) = (links.last(), parts.last()) else { return Ok(()) };
    let mut there: HashSet<&Path> = newest.values().map(|delta| &*delta.name).collect();
    // The program that prepares the result gives them their new names.
    let is_there = |file: &&PathBuf| there.contains(file.with_extension("ibd").as_path());
    let renamed = last.files.iter().filter(is_there).filter_map(|file| new_name(last, file));
    let renamed: Vec<PathBuf> = renamed.collect();
    let is_space = |file: &&PathBuf| is_table(file);
    let before: HashSet<&Path> = base.files.iter().filter(is_space).map(PathBuf::as_path).collect();
    let again: Vec<PathBuf> = last
        .files
        .iter()
        .filter(|file| is_again(file))
        .map(|file| file.with_extension("ibd"))
        .collect();
    there.extend(again.iter().map(PathBuf::as_path));
    there.extend(renamed.iter().map(PathBuf::as_path));
    let definitions = last.files.iter().filter(|file| file.extension().is_some_and(|e| e == "frm"));
    for definition in definitions {
        let space = definition.with_extension("ibd");
        let is_lost = before.contains(space.as_path()) && !there.contains(space.as_path());
        if is_lost && may_be_of_innodb(&last.dir.join(definition)) {
            return Err(NotMergeable {
                what: format!(
                    "the last increment has the definition of {}, and nothing of its tablespace: it was imported or discarded since the full backup, or ALTER TABLE moved the table into the system tablespace; a new full backup ends the doubt",
                    space.display()
                ),
                lost: Some(space),
            });
        }
    }
    Ok(())
}

/// The name that a tablespace got while the backup ran, if that is what `file` says.
fn new_name(link: &Link, file: &Path) -> Option<PathBuf> {
    let text = file.extension().filter(|end| *end == "ren").map(|_| link.dir.join(file));
    let name = PathBuf::from(read_text(&text?)?);
    Some(name.strip_prefix(".").unwrap_or(&name).with_extension("ibd"))
}

/// Returns whether the definition of a table names InnoDB as its engine, or may: it cannot be read.
fn may_be_of_innodb(definition: &Path) -> bool {
    let mut head = [0; 4];
    let read = File::open(definition).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Ok(()) => head[..2] == [0xfe, 1] && head[3] == INNODB,
        Err(error) => error.kind() != ErrorKind::UnexpectedEof,
    }
}

/// A copy of a whole file of a tablespace.
#[derive(Debug)]
struct Copy {
    path: PathBuf,
    /// The head of the tablespace, in its first file.
    first: Option<SpaceHead>,
    /// The increments that came before it or have it.
    links: usize,
}

/// The newest copy of each file of a tablespace: a file of the full backup, or one of an increment whose backup saw
/// DDL on the table and copied it again. Those of the last increment are for the program that prepares.
fn copies(
    base: &Link,
    links: &[Link],
    parts: &[Deltas],
    system: &[PathBuf],
) -> Result<BTreeMap<Key, Copy>, NotMergeable> {
    let named: HashSet<&Path> =
        parts.iter().flat_map(BTreeMap::values).map(|delta| &*delta.name).collect();
    let mut found: BTreeMap<Key, Copy> = BTreeMap::new();
    let before_last = links.len().saturating_sub(1);
    for (count, link) in std::iter::once(base).chain(links.iter().take(before_last)).enumerate() {
        // Files that were copied again are newer.
        let (again, first): (Vec<_>, Vec<_>) = link.files.iter().partition(|file| is_again(file));
        let is_space = |file: &&&PathBuf| is_table(file) || named.contains(file.as_path());
        let mut in_link = BTreeSet::new();
        for file in first.iter().filter(is_space).chain(&again) {
            let path = link.dir.join(file);
            // The other files of the system tablespace have no head.
            let key = key_of(0, file, system);
            if key != SYSTEM {
                found.insert(key, Copy { path, first: None, links: count });
                continue;
            }
            let mut head = Vec::with_capacity(FIRST);
            let read = File::open(&path).and_then(|f| f.take(FIRST as u64).read_to_end(&mut head));
            // One that was being made. Recovery makes it, and the next delta has all of it.
            if read.is_ok() && !head.is_empty() && head.iter().all(|byte| *byte == 0) {
                continue;
            }
            let Some(first) = read.ok().and_then(|_| SpaceHead::of_head(&head)) else {
                let shown = file.display();
                return Err(NotMergeable::of(format!(
                    "the first page of {shown} is of an unknown kind"
                )));
            };
            if !in_link.insert((first.space, is_again(file))) {
                let (shown, space) = (file.display(), first.space);
                return Err(NotMergeable::of(format!(
                    "{shown} is a second file of tablespace {space}"
                )));
            }
            found.insert((first.space, 0), Copy { path, first: Some(first), links: count });
        }
    }
    Ok(found)
}

/// A file of the result, out of all that the chain has of it: at least as long as on disk. Also the bytes of its
/// tablespace, if the file is the first.
fn space_of(
    key: Key,
    named: &Delta,
    copy: Option<&Copy>,
    links: &[Link],
    parts: &[Deltas],
) -> Result<(Space, u64), NotMergeable> {
    let (number, has_head) = (key.0, key.1 == 0);
    let shown = named.name.display();
    let page_size = named.meta.page_size;
    let mut newest: Option<u64> = None;
    let mut grown = |first: &SpaceHead| {
        if first.space != number || first.page_size != page_size {
            return Err(NotMergeable::of(format!(
                "the first page of {shown} belongs to another tablespace"
            )));
        }
        if newest.is_some_and(|pages| pages > first.pages) {
            return Err(NotMergeable::of(format!("{shown} became shorter within the chain")));
        }
        newest = Some(first.pages);
        Ok(())
    };
    if let Some(first) = copy.and_then(|copy| copy.first.as_ref()) {
        grown(first)?;
    }
    // A link that lacks the tablespace breaks the row of its pages, unless it is older than the tablespace.
    let behind = links.iter().zip(parts).skip(copy.map_or(0, |copy| copy.links));
    let mut behind =
        behind.map(|(link, part)| part.get(&key).map(|delta| (link, delta))).peekable();
    if copy.is_none() {
        while behind.next_if(Option::is_none).is_some() {}
    }
    let mut deltas = Vec::new();
    let mut is_new = copy.is_some();
    for delta in behind {
        let Some((link, delta)) = delta else {
            return Err(NotMergeable::of(format!(
                "an increment lacks {shown}, although it is older"
            )));
        };
        if delta.meta.page_size != page_size {
            return Err(NotMergeable::of(format!("{shown} has pages of two sizes")));
        }
        let path = delta.path(link);
        if has_head {
            let first = first_pages(&path, page_size)?;
            is_new |= first.are_made;
            first.head.as_ref().map_or(Ok(()), &mut grown)?;
            // Of most tables, in most increments.
            if first.is_empty {
                continue;
            }
        }
        deltas.push(path);
    }
    let Some(pages) = newest.or((!has_head).then_some(0)).filter(|_| is_new) else {
        return Err(NotMergeable {
            what: format!("no backup of the chain has the first pages of {shown}"),
            lost: Some(named.name.to_path_buf()),
        });
    };
    deltas.reverse();
    let path = named.name.to_path_buf();
    // The length on disk counts: a server extends a file before it says so in its first page.
    let len = copy.map(|copy| std::fs::metadata(&copy.path).map(|meta| meta.len())).transpose();
    let len = len.map_err(|error| NotMergeable::of(format!("{shown}: {error}")))?.unwrap_or(0);
    let space = Space { path, page_size, copy: copy.map(|copy| copy.path.clone()), deltas, len };
    Ok((space, pages.saturating_mul(page_size as u64)))
}

/// The first pages of a delta.
#[derive(Default)]
struct FirstPages {
    /// The first page of the tablespace, if the delta has it.
    head: Option<SpaceHead>,
    /// Whether it has all pages that are made with the tablespace. They come first.
    are_made: bool,
    /// Whether it has no page at all.
    is_empty: bool,
}

fn first_pages(path: &Path, page_size: usize) -> Result<FirstPages, NotMergeable> {
    let shown = path.display();
    let unreadable = |error: &dyn std::fmt::Display| NotMergeable::of(format!("{shown}: {error}"));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let mut reader = DeltaReader::new(BufReader::new(file), page_size);
    let mut first = FirstPages::default();
    for expected in 0..MADE_PAGES {
        match reader.next_page().map_err(|error| unreadable(&error))? {
            Some((0, page)) => {
                let of_head = SpaceHead::of_head(page);
                let of_head =
                    of_head.ok_or_else(|| unreadable(&"its first page is of an unknown kind"));
                first.head = Some(of_head?);
            }
            Some((number, _)) if number == expected => {}
            other => return Ok(FirstPages { is_empty: expected == 0 && other.is_none(), ..first }),
        }
    }
    Ok(FirstPages { are_made: true, ..first })
}

/// Refuses files that the merge does not know how to treat.
fn refuse_strange(file: &Path) -> Result<(), NotMergeable> {
    let end = file.extension().unwrap_or_default();
    let why = match end.to_str() {
        Some("isl") => "a tablespace outside the data directory",
        Some(end) if CODED.contains(&end) => "compressed or encrypted",
        _ if file.starts_with("#rocksdb") => "of another engine",
        _ => return Ok(()),
    };
    Err(NotMergeable::of(format!("{} is {why}", file.display())))
}

/// Returns whether a name is that of a tablespace of a known kind: of a table, of the system, of undo logs.
fn is_tablespace(name: &Path) -> bool {
    let is_root = name.parent().is_some_and(|parent| parent.as_os_str().is_empty());
    let text = name.to_string_lossy();
    is_table(name) || is_root && (text.starts_with("ibdata") || text.starts_with("undo"))
}

fn is_table(name: &Path) -> bool {
    name.extension().is_some_and(|end| end == "ibd")
}

/// Returns whether a file is a tablespace that was copied again, under the name that it had then.
fn is_again(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "new")
}

/// The tablespace of a delta file.
fn delta_of(file: &Path) -> Option<PathBuf> {
    file.extension().is_some_and(|end| end == "delta").then(|| file.with_extension(""))
}

fn is_meta(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "meta")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Checkpoints;

    /// With 200,000 tables and 60 increments there are twelve million deltas.
    #[test]
    fn the_name_of_a_tablespace_is_kept_once_for_all_increments() {
        let dir = tempfile::tempdir().unwrap();
        let link = |number: u32| {
            let dir = dir.path().join(number.to_string());
            std::fs::create_dir_all(dir.join("shop")).unwrap();
            std::fs::write(dir.join("shop/t.ibd.meta"), "page_size = 16384\nspace_id = 7\n")
                .unwrap();
            let checkpoints = Checkpoints { kind: "incremental".to_owned(), from: 1, to: 2 };
            let files = vec![PathBuf::from("shop/t.ibd.delta")];
            Link { dir, checkpoints, redo_start: 1, files, folders: Vec::new() }
        };
        let mut names = Names::new();
        let parts = [1, 2].map(|number| deltas(&link(number), &[], &mut names).unwrap());
        let [first, second] = parts.each_ref().map(|part| &part[&(7, 0)].name);
        assert!(Arc::ptr_eq(first, second) && names.len() == 1);
    }

    #[test]
    fn a_definition_that_cannot_be_read_may_be_of_innodb() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.frm");
        for (definition, expected) in
            [(&[0xfe, 1, 10, INNODB][..], true), (&[0xfe, 1, 10, 9], false), (b"", false)]
        {
            std::fs::write(&file, definition).unwrap();
            assert_eq!(may_be_of_innodb(&file), expected);
        }
        assert!(may_be_of_innodb(dir.path()), "a directory cannot be read");
    }
}
