//! Which backups are much smaller than those of their kind and server before them, and what was said about that.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::error::RepoError;
use crate::list::{BackupKind, Listing, State};
use crate::names::BackupName;
use crate::records::{self, OperatorWord, SizeNote};
use crate::root::Root;
use crate::shrunk::{Size, UsualSize};

/// The backups of one kind and server so far, in the order of their ends.
#[derive(Default)]
struct SoFar {
    usual: UsualSize,
    newest: usize,
    /// Those that are much smaller than usual, since the last one that is not.
    waiting: Vec<usize>,
    /// End of the last one that is not.
    usual_until: Option<Timestamp>,
    /// The last accepted size, the word for it, and the end of its backup.
    accepted: Option<(OperatorWord, Size, Option<Timestamp>)>,
}

impl SoFar {
    /// In what the next backup is much smaller than usual. What was recorded counts, unless a later word has accepted
    /// such a size: the backups that it was compared with may be gone.
    fn shrunk(&self, size: Size, note: Option<&SizeNote>) -> Option<String> {
        let is_over = |note: &&SizeNote| {
            let accepted = self.accepted.as_ref().filter(|_| note.shrunk.is_some());
            accepted.is_some_and(|(word, accepted, end)| {
                word.since > Some(note.judged)
                    && *end > note.after
                    && UsualSize::of(*accepted).shrunk(size).is_none()
            })
        };
        match note.filter(|note| !is_over(note)) {
            Some(note) => note.shrunk.clone(),
            None => self.usual.shrunk(size),
        }
    }
}

/// Finds the backups that are much smaller than those of their kind and server before them. An acceptance, which `word`
/// finds, makes a size the usual one, for those of that size just before it, too; without it, no later backup becomes usual by
/// its number.
pub(crate) async fn judge_sizes(
    listings: &mut [Listing],
    word: impl AsyncFn(&Listing) -> Result<Option<OperatorWord>, RepoError>,
) -> Result<(), RepoError> {
    let mut kinds: BTreeMap<(Option<String>, bool, bool), SoFar> = BTreeMap::new();
    let mut order: Vec<&mut Listing> =
        listings.iter_mut().filter(|line| line.state == State::Complete && !line.raw).collect();
    order.sort_by(|a, b| (a.finished, &a.name).cmp(&(b.finished, &b.name)));
    for n in 0..order.len() {
        let line = &mut *order[n];
        let incremental = line.kind == Some(BackupKind::Incremental);
        // A partial backup has fewer tables than a whole one, and is one of its own kind.
        let kind = (line.server.clone(), incremental, line.is_partial);
        let so_far = kinds.entry(kind).or_default();
        so_far.newest = n;
        let size = size(line);
        line.shrunk = so_far.shrunk(size, line.noted_size.as_ref());
        line.usual_bytes = so_far.usual.bytes();
        let noted = line.noted_size.as_ref().map(|note| note.after);
        line.usual_until = noted.unwrap_or(so_far.usual_until);
        if line.shrunk.is_none() {
            // By its note, of a size that was accepted with a backup that is gone.
            match so_far.usual.shrunk(size) {
                Some(_) => so_far.usual.restart(size),
                None => so_far.usual.add(size),
            }
            so_far.waiting.clear();
            so_far.usual_until = line.finished;
            continue;
        }
        // The word for a chain without a base may be that of another backup.
        let Some(own) = word(line).await?.filter(OperatorWord::is_for_size) else {
            so_far.waiting.push(n);
            continue;
        };
        so_far.usual.restart(size);
        accept(line, &own);
        let (usual, since, end) = (UsualSize::of(size), line.usual_until, line.finished);
        so_far.usual_until = end;
        for before in std::mem::take(&mut so_far.waiting) {
            let before = &mut *order[before];
            if before.finished > since && usual.shrunk(self::size(before)).is_none() {
                accept(before, &own);
            }
        }
        so_far.accepted = Some((own, size, end));
    }
    for so_far in kinds.values() {
        if let Some(line) = order.get_mut(so_far.newest) {
            line.in_doubt = line.unaccepted().is_some();
        }
    }
    Ok(())
}

fn accept(line: &mut Listing, word: &OperatorWord) {
    line.accepted = Some(word.clone());
    line.accepted_size = true;
}

/// After a quiet day an increment is small, but it has the files of all tables.
fn size(line: &Listing) -> Size {
    let bytes = line.stream_bytes.filter(|_| line.kind != Some(BackupKind::Incremental));
    Size { bytes, files: line.files, tables: line.tables }
}

/// Records, of the backups that stay once those `going` are removed, how their sizes were judged: of those that are much
/// smaller than usual, and of those that would be judged otherwise without the others.
///
/// # Errors
/// [`RepoError::Concurrent`]; [`RepoError::Store`].
pub async fn note_before_removal(
    root: &Root,
    lines: &[Listing],
    going: &BTreeSet<&str>,
) -> Result<(), RepoError> {
    let stays = |line: &&Listing| !going.contains(&*line.name);
    let mut left: Vec<Listing> = lines.iter().filter(stays).cloned().collect();
    // The word for another backup may go with that one.
    let of_another = |line: &&mut Listing| {
        line.accepted_size && line.accepted.as_ref().is_some_and(|word| word.name != line.name)
    };
    for line in left.iter_mut().filter(of_another) {
        (line.accepted, line.accepted_size) = (None, false);
    }
    let own = |line: &Listing| {
        let word =
            line.accepted.clone().filter(|word| line.accepted_size && word.name == line.name);
        Ok(word)
    };
    judge_sizes(&mut left, async |line: &Listing| own(line)).await?;
    for (before, after) in lines.iter().filter(stays).zip(&left) {
        let is_small = before.unaccepted().is_some();
        let is_known = before.noted_size.is_some() || !is_small;
        // One whose record cannot be read counts for no rule.
        if (is_small != after.unaccepted().is_some() || !is_known) && !before.unread_record {
            note(root, before).await?;
        }
    }
    Ok(())
}

/// Records how the size of a backup was judged.
///
/// # Errors
/// [`RepoError::Record`] if its verification record cannot be read; [`RepoError::Concurrent`]; [`RepoError::Store`].
pub async fn note(root: &Root, line: &Listing) -> Result<(), RepoError> {
    let Some(digest) = &line.digest else { return Ok(()) };
    let (judged, after) = (Timestamp::now(), line.usual_until);
    let note = SizeNote { judged, after, shrunk: line.unaccepted().cloned() };
    records::note_size(root, &BackupName::new(&line.name)?, digest, note).await
}
