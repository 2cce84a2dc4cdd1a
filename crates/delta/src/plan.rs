//! Decides whether a chain can be merged, before anything is changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use xb_pages::FirstPage;

use crate::delta::DeltaReader;
use crate::links::{Link, is_checkpoints};
use crate::meta::{Meta, read_text};

/// Bytes of a file that hold the fields of its first page.
const FIRST: u64 = 1 << 10;
/// Pages that a server makes a new table's file long, and demands: of the server's own size, also if the table's pages
/// are smaller.
const LEAST_PAGES: u64 = 4;
/// Endings of files that are compressed or encrypted one by one.
const CODED: [&str; 6] = ["qp", "lz4", "zst", "gz", "xbcrypt", "snappy"];

/// Why a chain has to be prepared link by link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// How a chain is merged. Nothing is changed yet.
#[derive(Debug)]
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

/// A tablespace of the result.
#[derive(Debug)]
pub(crate) struct Space {
    /// Its name in the result.
    pub(crate) path: PathBuf,
    pub(crate) page_size: usize,
    /// Its file in the base, if it was there.
    pub(crate) base: Option<PathBuf>,
    /// Its delta files, the newest first.
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
/// What is not known to be right is unfit: files that are not InnoDB's own or not in the data directory, parts of a
/// backup, tablespaces that became shorter, more than one file of the system tablespace.
///
/// # Errors
/// [`Unfit`], with the reason. A directory that cannot be read is unfit, too: the program that prepares it says more.
pub fn plan(base: &Path, increments: &[PathBuf]) -> Result<Plan, Unfit> {
    let unfit = |what: String| Err(Unfit(what));
    let base = Link::read(base).map_err(Unfit)?;
    let links: Vec<Link> =
        increments.iter().map(|dir| Link::read(dir)).collect::<Result<_, _>>().map_err(Unfit)?;
    let Some(last) = links.last() else { return unfit("there is no increment".to_owned()) };
    if base.checkpoints.kind != "full-backuped" {
        return unfit(format!("the full backup is {}", base.checkpoints.kind));
    }
    let mut before = &base;
    for link in &links {
        let (dir, checkpoints) = (link.dir.display(), &link.checkpoints);
        if checkpoints.kind != "incremental" || checkpoints.from == 0 {
            return unfit(format!("{dir} is {} from {}", checkpoints.kind, checkpoints.from));
        }
        if checkpoints.from > before.redo_start {
            return unfit(format!(
                "an increment begins at LSN {}, behind LSN {}, where the redo log of its base begins",
                checkpoints.from, before.redo_start
            ));
        }
        before = link;
    }
    let found = links.iter().map(deltas).collect::<Result<Vec<_>, _>>()?;
    let in_base = spaces_of_base(&base, &found)?;
    let Some(newest) = found.last() else { return unfit("there is no increment".to_owned()) };
    let Some(system) = newest.get(&0) else {
        return unfit("the last increment has no system tablespace".to_owned());
    };
    let least = LEAST_PAGES * system.meta.page_size as u64;
    let mut spaces = Vec::new();
    for (number, named) in newest {
        let in_base = in_base.get(number);
        let mut space = space_of(*number, named, in_base, &base.dir, &found)?;
        if is_table(&space.path) {
            space.len = space.len.max(least);
        }
        spaces.push(space);
    }
    let used: Vec<&PathBuf> = spaces.iter().filter_map(|space| space.base.as_ref()).collect();
    let dropped = base.files.iter().filter(|file| !used.contains(file)).cloned().collect();
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

/// A delta file of a link: its tablespace's name, and its text.
#[derive(Debug)]
struct Delta {
    path: PathBuf,
    name: PathBuf,
    meta: Meta,
}

/// The deltas of an increment, by number of the tablespace.
fn deltas(link: &Link) -> Result<BTreeMap<u32, Delta>, Unfit> {
    let mut found = BTreeMap::new();
    for file in &link.files {
        refuse_strange(file)?;
        let Some(name) = delta_of(file) else { continue };
        let path = link.dir.join(file);
        let meta = read_text(&with_suffix(&link.dir.join(&name), ".meta"));
        let Some(meta) = meta.as_deref().and_then(Meta::parse) else {
            return Err(Unfit(format!("{} has no .meta file that is known", path.display())));
        };
        if !is_tablespace(&name) {
            return Err(Unfit(format!("{} is of no known kind", path.display())));
        }
        let shown = name.display().to_string();
        if let Some(other) = found.insert(meta.space, Delta { path, name, meta }) {
            let other = other.name.display();
            return Err(Unfit(format!(
                "{other} and {shown} are both of tablespace {}",
                meta.space
            )));
        }
    }
    Ok(found)
}

/// The tablespaces of the full backup, by number.
fn spaces_of_base(
    base: &Link,
    deltas: &[BTreeMap<u32, Delta>],
) -> Result<BTreeMap<u32, (PathBuf, FirstPage)>, Unfit> {
    let mut found = BTreeMap::new();
    for file in &base.files {
        refuse_strange(file)?;
        let is_named = || deltas.iter().flat_map(BTreeMap::values).any(|d| d.name == *file);
        if !is_table(file) && !is_named() {
            continue;
        }
        let mut head = Vec::new();
        let read =
            File::open(base.dir.join(file)).and_then(|f| f.take(FIRST).read_to_end(&mut head));
        let first = read.ok().and_then(|_| FirstPage::of_head(&head));
        let Some(first) = first else {
            return Err(Unfit(format!("the first page of {} is of no known kind", file.display())));
        };
        if let Some((other, _)) = found.insert(first.space, (file.clone(), first)) {
            let (one, other) = (file.display(), other.display());
            return Err(Unfit(format!("{other} and {one} are both of tablespace {}", first.space)));
        }
    }
    Ok(found)
}

/// A tablespace of the result, out of all that the chain has of it.
fn space_of(
    number: u32,
    named: &Delta,
    in_base: Option<&(PathBuf, FirstPage)>,
    base: &Path,
    links: &[BTreeMap<u32, Delta>],
) -> Result<Space, Unfit> {
    let shown = named.name.display();
    let page_size = named.meta.page_size;
    let mut newest: Option<u64> = None;
    let mut grown = |first: &FirstPage| {
        if first.space != number || first.page_size != page_size {
            return Err(Unfit(format!("the first page of {shown} is of another tablespace")));
        }
        if newest.is_some_and(|pages| pages > first.pages) {
            return Err(Unfit(format!("{shown} became shorter within the chain")));
        }
        newest = Some(first.pages);
        Ok(())
    };
    if let Some((_, first)) = in_base {
        grown(first)?;
    }
    let mut deltas = Vec::new();
    for delta in links.iter().filter_map(|link| link.get(&number)) {
        if delta.meta.page_size != page_size {
            return Err(Unfit(format!("{shown} has pages of two sizes")));
        }
        if let Some(first) = first_page(delta)? {
            grown(&first)?;
        }
        deltas.push(delta.path.clone());
    }
    let Some(pages) = newest else {
        return Err(Unfit(format!("no backup of the chain has the first page of {shown}")));
    };
    deltas.reverse();
    let path = named.name.clone();
    // The length on disk counts in the base: a server extends a file before it says so in its first page.
    let base_len =
        in_base.map(|(file, _)| std::fs::metadata(base.join(file)).map(|meta| meta.len()));
    let base_len = base_len.transpose().map_err(|error| Unfit(format!("{shown}: {error}")))?;
    let len = pages.saturating_mul(page_size as u64).max(base_len.unwrap_or(0));
    Ok(Space { path, page_size, base: in_base.map(|(file, _)| file.clone()), deltas, len })
}

/// The first page of a tablespace, if the delta has it: then it comes first.
fn first_page(delta: &Delta) -> Result<Option<FirstPage>, Unfit> {
    let shown = delta.path.display();
    let unreadable = |error: &dyn std::fmt::Display| Unfit(format!("{shown}: {error}"));
    let file = File::open(&delta.path).map_err(|error| unreadable(&error))?;
    let mut reader = DeltaReader::new(BufReader::new(file), delta.meta.page_size);
    let page = reader.next_page().map_err(|error| unreadable(&error))?;
    let Some((0, page)) = page else { return Ok(None) };
    let first = FirstPage::of_head(page);
    first.map(Some).ok_or_else(|| unreadable(&"its first page is of no known kind"))
}

/// Refuses files that the merge does not know how to treat.
fn refuse_strange(file: &Path) -> Result<(), Unfit> {
    let end = file.extension().unwrap_or_default();
    let why = match end.to_str() {
        Some("isl") => "a tablespace outside the data directory",
        Some(end) if CODED.contains(&end) => "compressed or encrypted",
        _ if file.starts_with("#rocksdb") => "of another engine",
        _ => return Ok(()),
    };
    Err(Unfit(format!("{} is {why}", file.display())))
}

/// Whether a name is that of a tablespace of a known kind: of a table, of the system, of undo logs.
fn is_tablespace(name: &Path) -> bool {
    let is_root = name.parent().is_some_and(|parent| parent.as_os_str().is_empty());
    let text = name.to_string_lossy();
    is_table(name) || is_root && (text.starts_with("ibdata") || text.starts_with("undo"))
}

fn is_table(name: &Path) -> bool {
    name.extension().is_some_and(|end| end == "ibd")
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
