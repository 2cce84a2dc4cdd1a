//! Whether a stream from outside is the whole of what its producer had to say.
//!
//! An xbstream has no end mark: cut between two files it still looks complete. What can be
//! known is that every file saw its end, and that the file which the producer writes last is there.

use globset::{Glob, GlobMatcher};

/// By which rule a stream counts as whole.
#[derive(Debug, Clone)]
pub enum EndRule {
    /// The file that xtrabackup or mariadb-backup writes last must be there.
    KnownProducer,
    /// A file that matches this pattern must be there.
    LastFile(LastFile),
    /// Every file must have its end; that none is missing is the operator's word.
    AnyEnd,
}

/// A pattern on file names for [`EndRule::LastFile`]; `*` also matches slashes.
#[derive(Debug, Clone)]
pub struct LastFile {
    pattern: String,
    matcher: GlobMatcher,
}

impl LastFile {
    /// Compiles a shell pattern.
    ///
    /// # Errors
    /// When it is not a valid pattern.
    pub fn new(pattern: &str) -> Result<Self, globset::Error> {
        Ok(Self { pattern: pattern.to_owned(), matcher: Glob::new(pattern)?.compile_matcher() })
    }
}

/// Written last by mariadb-backup (10.11.19: seen, under the first name; newer: the second).
const INFO: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];
/// Written last by later xtrabackup 8.0.
const TABLESPACES: &str = "xtrabackup_tablespaces";
/// What a compressor or encryptor in the producer adds to a name.
const SUFFIXES: [&str; 4] = [".qp", ".lz4", ".zst", ".xbcrypt"];

/// A name without the suffixes that compression and encryption add.
#[must_use]
pub fn logical_name(path: &[u8]) -> &[u8] {
    let mut name = path;
    while let Some(stem) = SUFFIXES.iter().find_map(|s| name.strip_suffix(s.as_bytes())) {
        name = stem;
    }
    name
}

/// Which of the files that matter have been seen to their end.
#[derive(Debug, Clone)]
pub struct EndWatch {
    rule: EndRule,
    info: bool,
    tablespaces: bool,
    matched: bool,
}

/// How a stream turned out to be whole; goes into the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndProof {
    /// The producer's last file was seen.
    LastFile(String),
    /// Nothing was demanded.
    Unproven,
    /// The content was not looked into; the input was over.
    InputEnd,
    /// A native stream came with its trailer.
    Trailer,
}

/// A stream whose files are complete, but the one that shows the end is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWhole {
    /// Neither xtrabackup's nor mariadb-backup's last file was there.
    #[error(
        "the stream ends without the file that xtrabackup and mariadb-backup write last (xtrabackup_info, mariadb_backup_info or xtrabackup_tablespaces): it was cut between two files, or comes from another program"
    )]
    UnknownEnd,
    /// xtrabackup 8 writes another file after its info file.
    #[error(
        "the stream ends after xtrabackup_info, but xtrabackup {version} writes xtrabackup_tablespaces after it: it was cut between two files"
    )]
    Tablespaces {
        /// Version that the info file names.
        version: String,
    },
    /// No file matched the pattern given.
    #[error("the stream ends without a file that matches `{pattern}`")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
}

impl EndWatch {
    /// Watches for what `rule` demands.
    #[must_use]
    pub fn new(rule: EndRule) -> Self {
        Self { rule, info: false, tablespaces: false, matched: false }
    }

    /// Notes that the file `path` is complete.
    pub fn ended(&mut self, path: &[u8]) {
        let name = logical_name(path);
        self.info |= INFO.iter().any(|i| i.as_bytes() == name);
        self.tablespaces |= name == TABLESPACES.as_bytes();
        if let EndRule::LastFile(last) = &self.rule {
            self.matched |= std::str::from_utf8(path).is_ok_and(|p| last.matcher.is_match(p));
        }
    }

    /// The verdict at the end of input. `info` is the text of the info file where it was legible.
    ///
    /// # Errors
    /// [`NotWhole`] when what the rule demands was not seen.
    pub fn verdict(&self, info: Option<&str>) -> Result<EndProof, NotWhole> {
        match &self.rule {
            EndRule::AnyEnd => Ok(EndProof::Unproven),
            EndRule::LastFile(last) if self.matched => Ok(EndProof::LastFile(last.pattern.clone())),
            EndRule::LastFile(last) => Err(NotWhole::NoMatch { pattern: last.pattern.clone() }),
            EndRule::KnownProducer if self.tablespaces => {
                Ok(EndProof::LastFile(TABLESPACES.to_owned()))
            }
            EndRule::KnownProducer if self.info => match info.and_then(writes_tablespaces) {
                Some(version) => Err(NotWhole::Tablespaces { version }),
                None => Ok(EndProof::LastFile(INFO[0].to_owned())),
            },
            EndRule::KnownProducer => Err(NotWhole::UnknownEnd),
        }
    }
}

/// The version of an xtrabackup that writes `xtrabackup_tablespaces` after its info file.
///
/// Which 8.0 release was the first is not established, so all of 8 and later are taken for it:
/// a refusal can be overruled by the operator, a wrong "whole" cannot be repaired.
fn writes_tablespaces(info: &str) -> Option<String> {
    let field = |key: &str| {
        info.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let tool = field("tool_name")?;
    let version = field("tool_version")?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (tool.contains("xtrabackup") && major >= 8).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rule: EndRule, names: &[&str], info: Option<&str>) -> Result<EndProof, NotWhole> {
        let mut watch = EndWatch::new(rule);
        names.iter().for_each(|name| watch.ended(name.as_bytes()));
        watch.verdict(info)
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
            "junk",
        ] {
            assert!(
                seen(EndRule::KnownProducer, &["xtrabackup_info"], Some(info)).is_ok(),
                "{info}"
            );
        }
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
