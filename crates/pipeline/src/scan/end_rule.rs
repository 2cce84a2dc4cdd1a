//! Decides whether a stream from outside is complete.
//!
//! An xbstream has no end mark: if it is cut between two files, it still looks complete. All that
//! can be checked is that every file has its end and that the file which the producer writes last
//! is present.

use globset::{Glob, GlobMatcher};

use super::producer_files::{
    DICTIONARY, INFO, Texts, is_redo_log, is_unprepared, logical_name, version_of_xtrabackup,
};
use super::required::Required;

/// Rule by which a stream counts as complete.
#[derive(Debug, Clone)]
pub enum EndRule {
    /// The file that xtrabackup or mariadb-backup writes last must be the last one; of a clone, the file
    /// that says what the others are.
    KnownProducer,
    /// A file that matches this pattern must be the last one.
    LastFile(LastFile),
    /// A file that matches this pattern must be present, at any position: for streams that were
    /// reassembled from files.
    WithFile(LastFile),
    /// Like [`EndRule::KnownProducer`], but a stream whose files are whole and whose last file is
    /// missing is no error: [`EndProof::Missing`].
    KnownProducerOrPart,
    /// Every file must have its end. The operator vouches that no file is missing.
    AnyEnd,
}

/// Pattern for file names in [`EndRule::LastFile`] and [`EndRule::WithFile`]; `*` also matches
/// slashes.
#[derive(Debug, Clone)]
pub struct LastFile {
    pattern: String,
    matcher: GlobMatcher,
}

impl LastFile {
    /// Compiles a shell pattern.
    ///
    /// # Errors
    /// A pattern that is not valid.
    pub fn new(pattern: &str) -> Result<Self, globset::Error> {
        Ok(Self { pattern: pattern.to_owned(), matcher: Glob::new(pattern)?.compile_matcher() })
    }
}

/// File that later xtrabackup 8.0 writes last, possibly except other files that describe the
/// backup.
const TABLESPACES: &str = "xtrabackup_tablespaces";
/// File that xtrabackup writes if the backup is made with a transition key. Without it, encrypted
/// tables cannot be prepared.
const KEYS: &str = "xtrabackup_keys";
/// Prefix of the files that describe the backup.
const DESCRIBES: &str = "xtrabackup_";
/// Maximum number of missing files that are named.
const NAMED: usize = 10;
/// File that a clone of MySQL ends with (`docs/spec/clone.md`): it is written when everything came.
pub const CLONE_INFO: &str = "xb_clone.json";
/// Changed pages and redo log of a clone, in front of [`CLONE_INFO`].
const CLONE_PATCHES: &str = "xb_clone.patches";
/// Prefix of the files that only a clone has.
const CLONE: &str = "xb_clone.";

/// Returns a rank above 0 for a file that producers write last; of two such files, the one with the
/// higher rank comes later.
pub(crate) fn last_file_rank(path: &[u8]) -> u8 {
    let name = logical_name(path);
    let is_info = INFO.iter().chain([&CLONE_INFO]).any(|info| info.as_bytes() == name);
    if name == TABLESPACES.as_bytes() { 2 } else { u8::from(is_info) }
}

/// Tracks which of the relevant files have been seen to their end.
#[derive(Debug, Clone)]
pub struct EndWatch {
    rule: EndRule,
    info: LastFileTracker,
    tablespaces: LastFileTracker,
    clone: CloneSeen,
    keys: bool,
    matched: LastFileTracker,
    dictionary: bool,
    redo: bool,
    required: Required,
    /// The file that ended last.
    last: Vec<u8>,
}

/// Tracks the files of a clone.
#[derive(Debug, Clone, Copy, Default)]
struct CloneSeen {
    any: bool,
    patches: bool,
    info: LastFileTracker,
}

/// Tracks a file that may be the last one.
#[derive(Debug, Clone, Copy, Default)]
struct LastFileTracker {
    there: bool,
    /// Whether no other file came after it.
    last: bool,
}

impl LastFileTracker {
    /// Notes the end of the next file: whether it is the tracked file, and if not, whether it may
    /// follow that file.
    fn next(&mut self, is_it: bool, may_follow: bool) {
        self.there |= is_it;
        self.last = is_it || (self.last && may_follow);
    }
}

/// Reason why a stream counts as complete; recorded in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndProof {
    /// The producer's last file was seen.
    LastFile(String),
    /// The producer's last file is missing ([`EndRule::KnownProducerOrPart`]).
    Missing(NotWhole),
    /// The rule required no particular file.
    Unproven,
    /// The content was not inspected; the input ended.
    InputEnd,
    /// The input was a native stream with its trailer.
    Trailer,
}

/// All files of the stream are complete, but the file that proves its end is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWhole {
    /// The last file of neither xtrabackup nor mariadb-backup was present, nor that of a clone.
    #[error(
        "the stream ends without the file that xtrabackup, mariadb-backup and a clone write last (xtrabackup_info, mariadb_backup_info, xtrabackup_tablespaces or xb_clone.json): it was cut between two files, or made by another program"
    )]
    UnknownEnd,
    /// This version of xtrabackup writes another file after its info file.
    #[error(
        "the stream ends after xtrabackup_info, but xtrabackup {version} writes xtrabackup_tablespaces after it: it was cut between two files"
    )]
    Tablespaces {
        /// Version stated in the info file.
        version: String,
    },
    /// The backup was made with a transition key, and lacks the file that the key opens.
    #[error(
        "xtrabackup_info names a transition key, but the stream ends without xtrabackup_keys: it was cut between two files"
    )]
    Keys,
    /// The backup has no redo log, without which it cannot be prepared.
    #[error(
        "the stream has no redo log (ib_logfile0 or xtrabackup_logfile), or an empty one, so the backup cannot be prepared: a file was left out or emptied after the backup was made"
    )]
    Redo,
    /// Files that every backup of this kind has are missing, or without usable content.
    #[error(
        "the stream lacks {}, or has no usable content for it, so the backup cannot be prepared, or not to its end: a file was left out or emptied after the backup was made",
        named(.files)
    )]
    Lacks {
        /// Their names, without suffixes of compression and encryption.
        files: Vec<String>,
    },
    /// A clone lacks a file that every clone has.
    #[error(
        "the stream is a clone of MySQL, and has no {name}: it ended before the server had sent everything, or a file was left out"
    )]
    Clone {
        /// Name of the missing file.
        name: &'static str,
    },
    /// The file is present, but another one came after it.
    #[error(
        "{then} follows {name}, which should be the last file of the stream: the files are in a different order, so a truncated stream cannot be detected"
    )]
    NotLast {
        /// Name or pattern of the expected last file.
        name: String,
        /// Name of the actual last file.
        then: String,
    },
    /// No file matched the given pattern.
    #[error("the stream ends without a file matching `{pattern}`")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
}

impl EndWatch {
    /// Creates a watch for what `rule` requires.
    #[must_use]
    pub fn new(rule: EndRule) -> Self {
        Self {
            rule,
            info: LastFileTracker::default(),
            tablespaces: LastFileTracker::default(),
            clone: CloneSeen::default(),
            keys: false,
            matched: LastFileTracker::default(),
            dictionary: false,
            redo: false,
            required: Required::default(),
            last: Vec::new(),
        }
    }

    /// Notes that the file `path` is complete, with `size` bytes in the stream.
    pub fn ended(&mut self, path: &[u8], size: u64) {
        let name = logical_name(path);
        let is = |known: &[&str]| known.iter().any(|known| known.as_bytes() == name);
        self.info.next(is(&INFO), false);
        self.tablespaces.next(is(&[TABLESPACES]), name.starts_with(DESCRIBES.as_bytes()));
        self.clone.any |= name.starts_with(CLONE.as_bytes());
        self.clone.patches |= is(&[CLONE_PATCHES]);
        self.clone.info.next(is(&[CLONE_INFO]), false);
        self.keys |= is(&[KEYS]);
        self.dictionary |= is(&DICTIONARY);
        self.redo |= is_redo_log(name) && size > 0;
        self.required.ended(name, size, name == path);
        if let EndRule::LastFile(last) | EndRule::WithFile(last) = &self.rule {
            let matches = std::str::from_utf8(path).is_ok_and(|p| last.matcher.is_match(p));
            self.matched.next(matches, false);
        }
        self.last.clear();
        self.last.extend_from_slice(path);
    }

    /// Returns whether a file that some producer writes last was present, at any position.
    #[must_use]
    pub fn has_last_file(&self) -> bool {
        self.info.there || self.tablespaces.there || self.clone.info.there
    }

    /// Files that every backup of this kind has, and the stream lacks, or has without usable content.
    pub(crate) fn lacking(&self, texts: Texts<'_>) -> Vec<String> {
        self.required.lacking(texts)
    }

    /// Whether the stream has changed pages of a tablespace.
    pub(crate) fn has_changed_pages(&self) -> bool {
        self.required.changed_pages
    }

    /// Decides at the end of input.
    ///
    /// # Errors
    /// [`NotWhole`] if the rule is not met.
    pub(crate) fn verdict(&self, texts: Texts<'_>) -> Result<EndProof, NotWhole> {
        let Texts { info, checkpoints, .. } = texts;
        match &self.rule {
            EndRule::AnyEnd => Ok(EndProof::Unproven),
            EndRule::KnownProducerOrPart => {
                let strict = Self { rule: EndRule::KnownProducer, ..self.clone() };
                Ok(strict.verdict(texts).unwrap_or_else(EndProof::Missing))
            }
            EndRule::LastFile(last) if self.matched.there => {
                self.is_last(self.matched, &last.pattern)
            }
            EndRule::WithFile(file) if self.matched.there => {
                Ok(EndProof::LastFile(file.pattern.clone()))
            }
            EndRule::LastFile(last) | EndRule::WithFile(last) => {
                Err(NotWhole::NoMatch { pattern: last.pattern.clone() })
            }
            // Its redo log is in the patches.
            EndRule::KnownProducer if self.clone.any => match self.clone {
                CloneSeen { info: LastFileTracker { there: false, .. }, .. } => {
                    Err(NotWhole::Clone { name: CLONE_INFO })
                }
                CloneSeen { patches: false, .. } => Err(NotWhole::Clone { name: CLONE_PATCHES }),
                CloneSeen { info, .. } => self.is_last(info, CLONE_INFO),
            },
            EndRule::KnownProducer if !self.redo && checkpoints.is_some_and(is_unprepared) => {
                Err(NotWhole::Redo)
            }
            EndRule::KnownProducer if !self.keys && info.is_some_and(has_transition_key) => {
                Err(NotWhole::Keys)
            }
            EndRule::KnownProducer => {
                let proof = self.known_end(info)?;
                match self.lacking(texts) {
                    files if files.is_empty() => Ok(proof),
                    files => Err(NotWhole::Lacks { files }),
                }
            }
        }
    }

    /// Decides by the file that the producer writes last.
    fn known_end(&self, info: Option<&str>) -> Result<EndProof, NotWhole> {
        if self.tablespaces.there {
            return self.is_last(self.tablespaces, TABLESPACES);
        }
        if !self.info.there {
            return Err(NotWhole::UnknownEnd);
        }
        let version = match info {
            Some(info) => writes_tablespaces(info),
            // The info file is encrypted or damaged.
            None => self.dictionary.then(|| "8".to_owned()),
        };
        match version {
            Some(version) => Err(NotWhole::Tablespaces { version }),
            None => self.is_last(self.info, INFO[0]),
        }
    }

    fn is_last(&self, seen: LastFileTracker, name: &str) -> Result<EndProof, NotWhole> {
        if seen.last {
            return Ok(EndProof::LastFile(name.to_owned()));
        }
        let then = xb_reader::Printable::new(&self.last).to_string();
        Err(NotWhole::NotLast { name: name.to_owned(), then })
    }
}

/// Returns the version of an xtrabackup that writes `xtrabackup_tablespaces` after its info file.
///
/// The first such 8.0 release is not known, so this assumes all versions from 8 on: the operator
/// can overrule a wrong refusal, but a wrong "complete" cannot be repaired.
fn writes_tablespaces(info: &str) -> Option<String> {
    let (major, version) = version_of_xtrabackup(info)?;
    (major >= 8).then(|| version.to_owned())
}

/// Returns whether the info file's command line has an option for a transition key.
fn has_transition_key(info: &str) -> bool {
    let command = info.lines().find_map(|line| line.trim().strip_prefix("tool_command"));
    command.is_some_and(|command| {
        command.split_whitespace().any(|word| {
            let name = word.split('=').next().unwrap_or_default().replace('_', "-");
            name == "--transition-key" || name == "--generate-transition-key"
        })
    })
}

/// Names the first files of a list.
fn named(files: &[String]) -> String {
    let first = files.get(..NAMED).unwrap_or(files).join(", ");
    match files.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rule: EndRule, names: &[&str], info: Option<&str>) -> Result<EndProof, NotWhole> {
        let mut watch = EndWatch::new(rule);
        names.iter().for_each(|name| watch.ended(name.as_bytes(), 1 << 20));
        watch.verdict(Texts { info, ..Texts::default() })
    }

    #[test]
    fn the_last_file_of_each_producer_counts_with_any_suffix() {
        for name in [
            "xtrabackup_info",
            "mariadb_backup_info",
            "xtrabackup_info.qp",
            "xtrabackup_info.zst.xbcrypt",
            "xtrabackup_tablespaces.lz4",
        ] {
            assert!(
                matches!(
                    seen(EndRule::KnownProducer, &["a/b.ibd", name], None),
                    Ok(EndProof::LastFile(_))
                ),
                "{name}"
            );
        }
        for name in [
            "db/xtrabackup_info",
            "xtrabackup_info_old",
            "xtrabackup_checkpoints",
            "xtrabackup_info.txt",
        ] {
            assert_eq!(
                seen(EndRule::KnownProducer, &[name], None),
                Err(NotWhole::UnknownEnd),
                "{name}"
            );
        }
    }

    #[test]
    fn a_later_xtrabackup_must_bring_its_tablespaces_file() {
        let newer = "uuid = 1\ntool_name = xtrabackup\ntool_version = 8.0.35-31\n";
        assert_eq!(
            seen(EndRule::KnownProducer, &["xtrabackup_info"], Some(newer)),
            Err(NotWhole::Tablespaces { version: "8.0.35-31".into() })
        );
        assert!(
            seen(
                EndRule::KnownProducer,
                &["xtrabackup_info", "xtrabackup_tablespaces"],
                Some(newer)
            )
            .is_ok()
        );
        for info in [
            "tool_name = xtrabackup\ntool_version = 2.4.8\n",
            "tool_name = mariadb-backup\ntool_version = 10.11.19-MariaDB\n",
            "tool_name = another\n",
        ] {
            assert!(
                seen(EndRule::KnownProducer, &["xtrabackup_info"], Some(info)).is_ok(),
                "{info}"
            );
        }
    }

    #[test]
    fn a_backup_that_is_not_prepared_must_bring_its_redo_log() {
        let verdict = |kind: &str, names: &[&str]| {
            let mut watch = EndWatch::new(EndRule::KnownProducer);
            names.iter().for_each(|name| watch.ended(name.as_bytes(), 1 << 20));
            let checkpoints = format!("backup_type = {kind}\nfrom_lsn = 0\nto_lsn = 9\n");
            watch.verdict(Texts { checkpoints: Some(&checkpoints), ..Texts::default() })
        };
        for log in ["ib_logfile0", "ib_logfile0.qp", "xtrabackup_logfile.zst.xbcrypt"] {
            assert!(
                verdict("full-backuped", &["backup-my.cnf", log, "xtrabackup_info"]).is_ok(),
                "{log}"
            );
        }
        let lacks = NotWhole::Lacks { files: vec!["backup-my.cnf".to_owned()] };
        assert_eq!(verdict("full-backuped", &["ib_logfile0", "xtrabackup_info"]), Err(lacks));
        let none = ["backup-my.cnf", "shop/ib_logfile0", "xtrabackup_info"];
        for kind in ["full-backuped", "incremental"] {
            assert_eq!(verdict(kind, &none), Err(NotWhole::Redo), "{kind}");
        }
        assert!(verdict("full-prepared", &none).is_ok());
    }

    #[test]
    fn the_last_file_comes_last() {
        let then = |names: &[&str]| match seen(EndRule::KnownProducer, names, None) {
            Err(NotWhole::NotLast { then, .. }) => Some(then),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        };
        assert_eq!(then(&["a/b.ibd", "xtrabackup_info"]), None);
        assert_eq!(then(&["xtrabackup_info", "a/b.ibd"]), Some("a/b.ibd".into()));
        assert_eq!(
            then(&["mariadb_backup_info.qp", "ib_logfile0.qp"]),
            Some("ib_logfile0.qp".into())
        );
        assert_eq!(then(&["xtrabackup_info", "xtrabackup_tablespaces", "xtrabackup_x"]), None);
        let late = ["xtrabackup_info", "xtrabackup_tablespaces.lz4", "undo_001", "xtrabackup_x"];
        assert_eq!(then(&late), Some("xtrabackup_x".into()));
        let rule = |file: fn(LastFile) -> EndRule| file(LastFile::new("zz*").unwrap());
        assert!(seen(rule(EndRule::LastFile), &["zz", "a"], None).is_err());
        assert!(seen(rule(EndRule::LastFile), &["a", "zz"], None).is_ok());
        assert!(seen(rule(EndRule::WithFile), &["zz", "a"], None).is_ok());
        assert!(seen(rule(EndRule::WithFile), &["a"], None).is_err());
    }

    #[test]
    fn a_clone_ends_with_the_file_that_says_what_it_is() {
        let whole =
            ["xb_clone.README", "ibdata1", "mysql.ibd", "xb_clone.patches", "xb_clone.json"];
        let verdict = |names: &[&str]| seen(EndRule::KnownProducer, names, None);
        assert_eq!(verdict(&whole), Ok(EndProof::LastFile("xb_clone.json".into())));
        for (names, missing) in [
            (&whole[..4], "xb_clone.json"),
            (&whole[..1], "xb_clone.json"),
            (&["ibdata1", "xb_clone.json"], "xb_clone.patches"),
            // Another producer's last file proves nothing about a clone.
            (&["xb_clone.patches", "xtrabackup_info"], "xb_clone.json"),
        ] {
            assert_eq!(verdict(names), Err(NotWhole::Clone { name: missing }), "{names:?}");
        }
        for late in ["ibdata2", "xtrabackup_info", "xb_clone.patches"] {
            let names = [&whole[..], &[late]].concat();
            assert!(matches!(verdict(&names), Err(NotWhole::NotLast { .. })), "{late}");
        }
        assert_eq!(verdict(&["ibdata1"]), Err(NotWhole::UnknownEnd), "a clone without a mark");
    }

    #[test]
    fn an_encrypted_backup_of_mysql_8_must_bring_its_tablespaces_file() {
        for dictionary in ["mysql.ibd.xbcrypt", "mysql.ibd.zst.xbcrypt", "mysql.ibd.delta.xbcrypt"]
        {
            let names = [dictionary, "xtrabackup_info.xbcrypt", "xtrabackup_tablespaces.xbcrypt"];
            assert!(seen(EndRule::KnownProducer, &names, None).is_ok());
            assert_eq!(
                seen(EndRule::KnownProducer, &names[..2], None),
                Err(NotWhole::Tablespaces { version: "8".into() })
            );
        }
    }

    #[test]
    fn a_partial_backup_is_distinguished_from_a_whole_one() {
        let verdict = |names: &[&str]| seen(EndRule::KnownProducerOrPart, names, None);
        assert_eq!(verdict(&["sst_info"]), Ok(EndProof::Missing(NotWhole::UnknownEnd)));
        let whole = verdict(&["ibdata1", "xtrabackup_info"]);
        assert_eq!(whole, Ok(EndProof::LastFile("xtrabackup_info".into())));
    }

    #[test]
    fn a_transition_key_needs_its_file() {
        let info = |option: &str| {
            format!(
                "tool_name = xtrabackup\ntool_command = --backup {option} --stream=xbstream\ntool_version = 8.4.0-7\n"
            )
        };
        let names = ["mysql.ibd", "xtrabackup_info.zst", "xtrabackup_tablespaces.zst"];
        let keyed = [&names[..], &["xtrabackup_keys"]].concat();
        for option in ["--transition-key=...", "--transition_key", "--generate-transition-key"] {
            let info = info(option);
            assert_eq!(seen(EndRule::KnownProducer, &names, Some(&info)), Err(NotWhole::Keys));
            assert!(seen(EndRule::KnownProducer, &keyed, Some(&info)).is_ok());
        }
        assert!(seen(EndRule::KnownProducer, &names, Some(&info("--compress"))).is_ok());
    }

    #[test]
    fn a_pattern_of_ones_own() {
        let rule = || EndRule::LastFile(LastFile::new("dump/zz-*").unwrap());
        assert!(seen(rule(), &["dump/zz-end"], None).is_ok());
        assert_eq!(
            seen(rule(), &["xtrabackup_info"], None),
            Err(NotWhole::NoMatch { pattern: "dump/zz-*".into() })
        );
        assert_eq!(seen(EndRule::AnyEnd, &["x"], None), Ok(EndProof::Unproven));
    }
}
