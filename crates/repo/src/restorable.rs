//! Which backups can be restored now, as far as the catalogue shows.
//!
//! This is the one notion on which `list`, `latest`, `monitor`, `prune` and `run` agree: the manifest of
//! each link of the chain can be read, is that of the run that the next one names, and fits it; no link
//! has lost its objects, or was found damaged.

use std::collections::{BTreeMap, BTreeSet};

use crate::lineage::{MAX_LINKS, find_base, misfit};
use crate::manifest::{Manifest, StoredManifest};
use crate::names::BackupName;

/// The manifests of a ROOT that can be read.
pub type ReadableManifests = BTreeMap<BackupName, StoredManifest>;

/// Fault of an incremental backup that names no base, if no other backup fits.
pub(crate) const NO_BASE: &str = "no backup here can be its base";
/// Fault of a backup whose manifest is there.
pub(crate) const UNREADABLE: &str = "its manifest cannot be read";

/// A chain that is broken: the incremental backup whose base does not fit, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenChain {
    /// The incremental backup.
    pub at: BackupName,
    /// Fault of its base.
    pub what: String,
    /// The base, if its manifest is not among the sound ones.
    pub missing: Option<BackupName>,
    /// Whether there is no base, rather than a wrong one.
    pub absent: bool,
}

impl BrokenChain {
    /// Describes the break for a message about backup `of`.
    pub fn describe(&self, of: &BackupName) -> String {
        match self.at == *of {
            true => self.what.clone(),
            false => format!("{} in its chain: {}", self.at, self.what),
        }
    }

    /// The same break where the manifests of `unread` are there and cannot be read: a base among them is not missing, and each
    /// of them may be a base that is not named.
    #[must_use]
    pub fn beside(self, unread: &BTreeSet<BackupName>) -> Self {
        let what = match &self.missing {
            Some(base) if unread.contains(base) => format!("its base {base}: {UNREADABLE}"),
            None if self.what == NO_BASE && !unread.is_empty() => {
                let unread: Vec<&str> = unread.iter().map(BackupName::as_str).collect();
                format!("{NO_BASE}; the manifests of {} cannot be read", unread.join(", "))
            }
            _ => return self,
        };
        Self { what, ..self }
    }
}

/// Names of the backups that a restore of `name` needs, itself first and the full one last.
///
/// # Errors
/// The first break of the chain.
pub fn links<'a, M: AsRef<Manifest>>(
    sound: &'a BTreeMap<BackupName, M>,
    name: &BackupName,
) -> Result<Vec<&'a BackupName>, BrokenChain> {
    let get = |name: &BackupName| {
        let (name, manifest) = sound.get_key_value(name)?;
        Some((name, manifest.as_ref()))
    };
    let all = || sound.iter().map(|(name, manifest)| (name, manifest.as_ref()));
    let mut links: Vec<(&BackupName, &Manifest)> = Vec::new();
    let mut next = get(name);
    let broken = |at: &BackupName, what: String, missing: Option<BackupName>| {
        let absent = missing.is_some();
        BrokenChain { at: at.clone(), what, missing, absent }
    };
    while let Some((name, manifest)) = next.take() {
        links.push((name, manifest));
        if !manifest.is_incremental() {
            break;
        }
        let base = manifest.base.clone().or_else(|| find_base(all(), manifest));
        let Some(base) = base else {
            return Err(BrokenChain { absent: true, ..broken(name, NO_BASE.to_owned(), None) });
        };
        let found = BackupName::new(&base.name).ok();
        let Some(found) = found.as_ref().and_then(get) else {
            let what = format!("its base {} is missing", base.name);
            return Err(broken(name, what, found));
        };
        if let Some(what) = misfit(manifest, &base, found.0, found.1) {
            return Err(broken(name, what, None));
        }
        let again = links.iter().any(|(_, link)| link.run == found.1.run);
        if again || links.len() >= MAX_LINKS {
            return Err(broken(name, "its chain has no full backup".to_owned(), None));
        }
        next = Some(found);
    }
    Ok(links.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::manifest::{Base, sample};

    type ReadableManifests = BTreeMap<BackupName, Manifest>;

    fn name(of: &str) -> BackupName {
        BackupName::new(of).unwrap()
    }

    fn run(n: u8) -> String {
        format!("{n:032x}")
    }

    /// A backup from one LSN to another, on the base `n` if there is one.
    fn add(sound: &mut ReadableManifests, n: u8, from: u64, to: u64, base: Option<u8>) {
        let mut manifest = sample();
        (manifest.name, manifest.run) = (format!("n{n}"), run(n));
        (manifest.source.from_lsn, manifest.source.to_lsn) = (Some(from), Some(to));
        let kind = if from > 0 { "incremental" } else { "full-backuped" };
        manifest.source.backup_type = Some(kind.to_owned());
        manifest.base = base.map(|base| Base { name: format!("n{base}"), run: run(base) });
        sound.insert(name(&format!("n{n}")), manifest);
    }

    fn chain() -> ReadableManifests {
        let mut sound = ReadableManifests::new();
        add(&mut sound, 0, 0, 10, None);
        add(&mut sound, 1, 10, 20, Some(0));
        add(&mut sound, 2, 20, 30, Some(1));
        sound
    }

    fn broken(sound: &ReadableManifests) -> String {
        links(sound, &name("n2")).unwrap_err().describe(&name("n2"))
    }

    proptest! {
        /// Whatever the manifests contain, the result is either a chain without gaps from the
        /// requested backup to a full one, or an error.
        #[test]
        fn chains_have_no_gaps_and_come_to_an_end(
            links_of in proptest::collection::vec((0_u64..4, 0_u64..4, proptest::option::of(0_u8..6)), 1..6),
            last in 0_usize..6,
        ) {
            let mut sound = ReadableManifests::new();
            for (n, (from, to, base)) in (0..).zip(&links_of) {
                add(&mut sound, n, *from, *to, *base);
            }
            let last = name(&format!("n{}", last % links_of.len()));
            if let Ok(names) = links(&sound, &last) {
                prop_assert_eq!(names[0], &last);
                prop_assert!(!sound[names[names.len() - 1]].is_incremental());
                for [link, base] in names.array_windows() {
                    let (link, base) = (&sound[*link], &sound[*base]);
                    prop_assert!(link.is_incremental());
                    prop_assert_eq!(link.source.from_lsn, base.source.to_lsn);
                }
                let once: std::collections::BTreeSet<_> = names.iter().collect();
                prop_assert_eq!(once.len(), names.len());
            }
        }
    }

    #[test]
    fn another_history_breaks_a_chain_and_an_unknown_one_does_not() {
        use crate::manifest::history::History;
        let of = |server: &str| History { server_uuid: Some(server.into()), ..History::default() };
        let mut sound = chain();
        sound.get_mut(&name("n0")).unwrap().history = Some(of("u"));
        assert!(links(&sound, &name("n2")).is_ok());
        sound.get_mut(&name("n1")).unwrap().history = Some(of("v"));
        assert!(broken(&sound).contains("another history"));
    }

    #[test]
    fn a_whole_chain_is_restorable() {
        let sound = chain();
        let names: Vec<&str> =
            links(&sound, &name("n2")).unwrap().into_iter().map(BackupName::as_str).collect();
        assert_eq!(names, ["n2", "n1", "n0"]);
        assert_eq!(links(&sound, &name("n0")).unwrap().len(), 1);
    }

    /// It may be repaired by a copy of its manifest, so it is not called missing.
    #[test]
    fn a_base_whose_manifest_cannot_be_read_is_not_missing() {
        let mut sound = chain();
        sound.remove(&name("n0"));
        let broken = |sound: &ReadableManifests, of: &str, unread: &[&str]| {
            let unread = unread.iter().map(|of| name(of)).collect();
            links(sound, &name(of)).unwrap_err().beside(&unread).describe(&name(of))
        };
        let why = "its base n0: its manifest cannot be read";
        assert_eq!(broken(&sound, "n1", &["n0"]), why);
        assert_eq!(broken(&sound, "n2", &["n0"]), format!("n1 in its chain: {why}"));
        assert_eq!(broken(&sound, "n1", &["other"]), "its base n0 is missing");
        sound.get_mut(&name("n1")).unwrap().base = None;
        assert_eq!(broken(&sound, "n1", &[]), NO_BASE);
        let named = broken(&sound, "n1", &["n0", "other"]);
        assert_eq!(named, format!("{NO_BASE}; the manifests of n0, other cannot be read"));
    }

    #[test]
    fn a_break_anywhere_is_named() {
        let mut sound = chain();
        sound.remove(&name("n1"));
        assert_eq!(broken(&sound), "its base n1 is missing");
        let mut sound = chain();
        sound.remove(&name("n0"));
        assert_eq!(broken(&sound), "n1 in its chain: its base n0 is missing");
        let mut sound = chain();
        sound.get_mut(&name("n0")).unwrap().run = run(9);
        assert!(broken(&sound).contains("replaced by another backup"));
        let mut sound = chain();
        sound.get_mut(&name("n1")).unwrap().source.to_lsn = Some(15);
        assert!(broken(&sound).contains("LSN 20"));
        let mut sound = chain();
        sound.get_mut(&name("n0")).unwrap().server = Some("a".to_owned());
        sound.get_mut(&name("n1")).unwrap().server = Some("b".to_owned());
        assert!(broken(&sound).contains("another server"));
        let mut sound = chain();
        sound.get_mut(&name("n2")).unwrap().base = None;
        assert!(links(&sound, &name("n2")).is_ok(), "its LSN identifies the base");
        sound.get_mut(&name("n2")).unwrap().source.from_lsn = Some(77);
        assert_eq!(broken(&sound), "no backup here can be its base");
        let mut sound = chain();
        sound.get_mut(&name("n1")).unwrap().source.from_lsn = Some(30);
        sound.get_mut(&name("n1")).unwrap().base = Some(Base { name: "n2".into(), run: run(2) });
        assert!(broken(&sound).contains("no full backup"));
    }
}
