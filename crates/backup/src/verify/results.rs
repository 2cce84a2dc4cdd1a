//! Findings from reading the stream, as levels of the report.

use xb_encryptor::xbcrypt::XbcryptError;
use xb_pipeline::{FileDecodeError, InspectError, InspectReport, PagesFound};
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::verification::{Level, PageReport, Problem};

use crate::error::BackupError;
use crate::verify::run::Run;

/// Formats a number of things: `1 object`, `2 objects`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Warning of an object whose first response was damaged.
pub(super) fn altered_once(key: &str) -> String {
    format!("{key} was altered in transit; a second response is sound")
}

/// The reason why a stream could not be inspected, unless it is damage.
pub(super) fn not_damage(error: &InspectError) -> Option<BackupError> {
    let InspectError::FileDecoding { path, source, .. } = error else { return None };
    match source.as_ref() {
        // The CRC of the xbcrypt chunk matches, so its bytes are not damaged.
        FileDecodeError::NoKey | FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }) => {
            Some(BackupError::FileKey { what: format!("{path}: {source}") })
        }
        FileDecodeError::Memory { .. } | FileDecodeError::Xbcrypt(XbcryptError::NoHash { .. }) => {
            let source = std::io::Error::other(format!("{path}: {source}"));
            Some(BackupError::System { what: "verify", source })
        }
        _ => None,
    }
}

impl Run<'_> {
    /// Records the results of a stream that was read to its end.
    pub(super) fn read(
        &mut self,
        manifest: Option<&Manifest>,
        found: &InspectReport,
    ) -> Result<(), BackupError> {
        let scanned = &found.scanned;
        self.report.stream_bytes = Some(scanned.bytes);
        self.report.files = Some(scanned.files);
        self.report.unpacked_bytes = (found.undone > 0).then_some(found.unpacked);
        if let Some(manifest) = manifest.filter(|manifest| !manifest.is_carried()) {
            let (files, bytes) = (manifest.files, manifest.stream_bytes);
            if scanned.files != files {
                let what =
                    format!("the stream has {} files, the manifest has {files}", scanned.files);
                self.found(Level::Decrypt, None, what);
            }
            // A classic backup is read in another order, and its files may be transformed.
            if manifest.layout == Layout::Packed && scanned.bytes != bytes {
                let what =
                    format!("the stream has {} bytes, the manifest has {bytes}", scanned.bytes);
                self.found(Level::Decrypt, None, what);
            }
        }
        if found.unopened > 0 && self.wants(Level::Decrypt) {
            return Err(self.no_file_key());
        }
        self.pages(&found.pages);
        let wants_pages = self.wants(Level::Pages);
        for file in scanned.lacking.iter().filter(|_| wants_pages) {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: Some(file.clone()),
                offset: None,
                what: "the file is missing, or has no usable content, so the backup cannot be prepared, or not to its end"
                    .to_owned(),
            });
        }
        // A table of which one file is there is named above.
        let is_named = |table: &str| {
            let mut named = found.pages.tables.iter();
            named.any(|half| half.path.to_string().starts_with(&format!("{table}.")))
        };
        let lost = &scanned.without_files;
        for table in lost.first.iter().filter(|table| wants_pages && !is_named(table)) {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: Some(format!("{table}.frm")),
                offset: None,
                what: "files of the table with this definition are missing".to_owned(),
            });
        }
        Ok(())
    }

    /// Error: level decrypt needs a key for single files, and none was given.
    pub(super) fn no_file_key(&self) -> BackupError {
        let name = &self.request.name;
        let what = format!(
            "files of {name} are encrypted, but no key was given; levels up to checksum need none"
        );
        BackupError::FileKey { what }
    }

    /// Records the results of the page checks.
    pub(super) fn pages(&mut self, found: &PagesFound) {
        if !self.wants(Level::Pages) {
            return;
        }
        self.report.pages = Some(PageReport::from(found));
        for bad in &found.bad {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: Some(bad.path.to_string()),
                offset: Some(bad.page.offset),
                what: format!("page {}: {}", bad.page.page, bad.page.fault),
            });
        }
        self.report.more_problems += found.untold;
        if let Some(redo) = &found.redo {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: redo.path.as_ref().map(ToString::to_string),
                offset: None,
                what: redo.fault.to_string(),
            });
        }
        for table in &found.tables {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: Some(table.path.to_string()),
                offset: None,
                what: table.fault.to_string(),
            });
        }
        for (files, what) in [
            (&found.lengths_only, "of these files, only the length was checked"),
            (&found.not_checked, "not checked below level restore"),
        ] {
            let files: Vec<_> = files
                .iter()
                .map(|(engine, n)| format!("{} of {engine}", counted(*n, "file")))
                .collect();
            if !files.is_empty() {
                self.note(&format!("{what}: {}", files.join(", ")));
            }
        }
        if found.in_use > 0 {
            self.warn(&format!(
                "{} of Aria do not match their checksum: not checkable, because the server had these tables open and may have been writing them; only level restore shows whether it can repair them",
                counted(found.in_use, "page")
            ));
        }
        if found.passed_over > found.changed_only {
            self.note(&format!(
                "tablespace files whose pages could not be checked: {}",
                found.passed_over - found.changed_only
            ));
        }
        if found.changed_only > 0 {
            self.note(&format!(
                "files with the changed pages of tablespaces: {}; these pages were checked, and level restore checks the whole tablespaces",
                found.changed_only
            ));
        }
        if found.doubtful > 0 {
            self.warn(&format!(
                "{} missing although in use: not checkable, because the server may have freed them, or created their file, during the backup; only level restore shows whether the redo log has them",
                counted(found.doubtful, "page")
            ));
        }
        if found.counts.unchecked > 0 {
            self.note(&format!(
                "pages not checked, because their checksum is encrypted or compressed, or they are in the doublewrite area: {}",
                found.counts.unchecked
            ));
        }
        if found.counts.no_checksum > 0 {
            self.note(&format!("pages without a checksum: {}", found.counts.no_checksum));
        }
    }

    /// Concludes the two levels that depend on reading the stream.
    pub(super) fn close_read(&mut self) {
        let (files, bytes) = (self.report.files, self.report.stream_bytes);
        let blamed = self.report.problems.iter().any(|problem| problem.level == Level::Decrypt);
        if bytes.is_none() && !blamed {
            return self.leave_out_rest();
        }
        self.report.close(
            Level::Decrypt,
            match (files, bytes) {
                (Some(files), Some(bytes)) => {
                    format!("all of {} in a stream of {bytes} bytes", counted(files, "file"))
                }
                (None, Some(bytes)) => format!("{bytes} bytes, content not inspected"),
                _ => "the stream cannot be read to the end".to_owned(),
            },
        );
        match &self.report.pages {
            Some(pages) if bytes.is_some() => {
                let all =
                    pages.good + pages.empty + pages.no_checksum + pages.unchecked + pages.damaged;
                let what = format!(
                    "{} in {}: {} intact, {} empty, {} damaged",
                    counted(all, "page"),
                    counted(pages.files, "file"),
                    pages.good,
                    pages.empty,
                    pages.damaged
                );
                // Raw bytes are not inspected, and an incremental backup holds only some pages of a
                // table.
                if files.is_none() || pages.passed_over > 0 || pages.undecided > 0 {
                    let (files, pages) = (pages.passed_over, pages.undecided);
                    let rest = [(files, "file"), (pages, "page")];
                    let rest = rest.into_iter().filter(|(number, _)| *number > 0);
                    let what = rest.fold(what, |what, (number, noun)| {
                        format!("{what}; {} not checkable", counted(number, noun))
                    });
                    self.report.close_unchecked(Level::Pages, what);
                } else {
                    self.report.close(Level::Pages, what);
                }
            }
            _ => self.leave_out_rest(),
        }
    }

    /// Records a fault in the stream, with its file and offset.
    pub(super) fn stream_fault(
        &mut self,
        level: Level,
        object: Option<String>,
        error: &InspectError,
    ) {
        let (_, path) = error.place();
        self.report.problem(Problem {
            level,
            object,
            file: path.map(ToString::to_string),
            offset: error.file_offset(),
            what: error.to_string(),
        });
    }
}
