//! One verification in progress.

use std::sync::Arc;

use xb_encryptor::{DataKey, MacKey};
use xb_pipeline::{CLONE_INFO, EndRule, InspectOptions, LastFile, UnpackPlan};
use xb_repo::chain::Link;
use xb_repo::history::{Verdict, judge};
use xb_repo::manifest::{End, Manifest, PackedFacts};
use xb_repo::names::RunId;
use xb_repo::verification::{Level, Problem, VerifyReport};

use crate::error::BackupError;
use crate::read::decoding::{file_cipher, plan_beside};
use crate::session::Session;
use crate::verify::request::VerifyRequest;

/// Minimum memory for inspecting files.
const LEAST_SHARE: u64 = 16 << 20;

/// One verification.
pub(super) struct Run<'a> {
    pub(super) session: &'a Session,
    pub(super) request: &'a VerifyRequest,
    pub(super) report: VerifyReport,
    /// The manifest's key, once it is known.
    pub(super) mac: Option<MacKey>,
}

/// A packed backup that can be read.
pub(super) struct ReadableBackup {
    pub(super) manifest: Manifest,
    pub(super) facts: PackedFacts,
    pub(super) run: RunId,
    pub(super) key: Option<Arc<DataKey>>,
}

impl Run<'_> {
    pub(super) fn note(&mut self, note: &str) {
        self.report.notes.push(note.to_owned());
    }

    pub(super) fn warn(&mut self, warning: &str) {
        self.report.warnings.push(warning.to_owned());
    }

    pub(super) fn found(&mut self, level: Level, object: Option<String>, what: String) {
        self.report.problem(Problem { level, object, file: None, offset: None, what });
    }

    pub(super) fn wants(&self, level: Level) -> bool {
        self.request.level >= level
    }

    /// Records that the requested levels that were not checked did not pass.
    pub(super) fn leave_out_rest(&mut self) {
        let asked = self.report.level;
        Level::ALL
            .into_iter()
            .filter(|level| *level <= asked)
            .for_each(|level| self.report.leave_out(level));
    }

    /// Divides the memory between fetching and inspecting files.
    pub(super) fn plan(&self) -> Result<(UnpackPlan, u64), BackupError> {
        let share = self.session.resources.memory / 4;
        let share = if self.wants(Level::Decrypt) { share.max(LEAST_SHARE) } else { 0 };
        Ok((plan_beside(share, self.session.resources)?, share))
    }

    /// Notes the links of a chain of which it is unknown whether they continue the history of their base.
    /// A link of another history breaks the chain.
    pub(super) fn history(&mut self, links: &[Link]) {
        for [base, link] in links.array_windows() {
            let verdict = judge(&base.stored.manifest, link.stored.manifest.history.as_ref());
            if let Verdict::Unknown(what) = verdict {
                self.note(&format!(
                    "it is unknown whether {} continues the history of its base {}: {what}",
                    link.name, base.name
                ));
            }
        }
    }

    /// Options for inspecting a stream, according to the end that the manifest states.
    pub(super) fn inspect(
        &self,
        end: Option<&End>,
        memory: u64,
    ) -> Result<InspectOptions, BackupError> {
        let cipher = file_cipher(self.request.keys.key.as_ref())?;
        let decoding = self.wants(Level::Decrypt);
        let pages = self.wants(Level::Pages);
        Ok(InspectOptions { rule: end_rule(end), decoding, cipher, pages, memory })
    }
}

/// End rule for the stream: it must end as the manifest states.
fn end_rule(end: Option<&End>) -> EndRule {
    let Some(End::LastFile { name }) = end else { return EndRule::AnyEnd };
    // The last file of a producer has several possible names, and may have suffixes; so may that of a clone.
    let known = ["xtrabackup_info", "mariadb_backup_info", "xtrabackup_tablespaces"];
    let pattern = match known.contains(&name.as_str()) {
        true if name.ends_with("_info") => "{xtrabackup_info,mariadb_backup_info}*",
        true => "xtrabackup_tablespaces*",
        false if name == CLONE_INFO => "xb_clone.json*",
        false => name,
    };
    // At any position: the classic layout delivers files in another order.
    LastFile::new(pattern).map_or(EndRule::AnyEnd, EndRule::WithFile)
}
