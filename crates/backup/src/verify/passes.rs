//! Passes over the stream of a packed backup: the first one, and further ones for the files for
//! which memory did not suffice because too many were open at a time.

use bytes::Bytes;
use xb_pipeline::{InspectError, InspectReport, Inspector, PagesFound, UnpackError, UnpackPlan};
use xb_reader::MAGIC;
use xb_repo::manifest::End;

use super::run::{ReadableBackup, Run};
use crate::error::BackupError;
use crate::read::ranges::TransferResults;

impl Run<'_> {
    /// Reads the stream again for the files for which memory did not suffice, until none is left.
    pub(super) async fn postponed(
        &self,
        packed: &ReadableBackup,
        plan: &UnpackPlan,
        mut found: InspectReport,
    ) -> Result<Result<InspectReport, InspectError>, BackupError> {
        while !found.postponed.is_empty() {
            self.session.observer.expect_bytes(packed.manifest.stream_bytes);
            let end = &packed.manifest.end;
            let stated = (!matches!(end, End::NativeTrailer)).then_some(end);
            let options = self.inspect(stated, self.plan()?.1)?;
            let content = Content::Xbstream(Box::new(Inspector::again(options, found)));
            let TransferResults { fetched, taken: (outcome, content), recent } = packed
                .stream(self, None)
                .unpack(self.session, *plan, |_, _| {}, |_, _| {}, content, Content::feed)
                .await?;
            if outcome.is_err()
                && let Some(error) = recent.altered(self.session.root.store()).await
            {
                // A check that could not be made is no damage.
                return Err(error.into());
            }
            match (fetched, outcome) {
                (_, Err(UnpackError::Sink(error))) => return Ok(Err(error)),
                (Err(error), _) => return Err(error.into()),
                (_, Err(error)) => {
                    let source = std::io::Error::other(error.to_string());
                    return Err(BackupError::System { what: "verify", source });
                }
                (Ok(()), Ok(_)) => {}
            }
            found = match content.finish() {
                Ok(Some(found)) => found,
                Ok(None) => return Err(BackupError::Bug("a second pass without an inspector")),
                Err(error) => return Ok(Err(error)),
            };
        }
        Ok(Ok(found))
    }
}

/// Kind of content in the stream.
pub(super) enum Content {
    Xbstream(Box<Inspector>),
    /// Stored as a native stream: the beginning shows its content, and is kept until then.
    Undecided(Box<Inspector>, Vec<u8>),
    /// Content that is not inspected.
    Unknown,
}

impl Content {
    pub(super) fn feed(&mut self, bytes: Bytes) -> Result<(), InspectError> {
        match self {
            Self::Xbstream(inspector) => inspector.feed(&bytes),
            Self::Unknown => Ok(()),
            Self::Undecided(_, begin) => {
                begin.extend_from_slice(&bytes);
                if begin.len() < MAGIC.len() {
                    return Ok(());
                }
                let Self::Undecided(mut inspector, begin) = std::mem::replace(self, Self::Unknown)
                else {
                    return Ok(());
                };
                if begin.starts_with(&MAGIC) {
                    inspector.feed(&begin.into())?;
                    *self = Self::Xbstream(inspector);
                }
                Ok(())
            }
        }
    }

    /// Results of the page checks so far.
    pub(super) fn pages(&self) -> PagesFound {
        match self {
            Self::Xbstream(inspector) => inspector.pages().clone(),
            _ => PagesFound::default(),
        }
    }

    pub(super) fn inside(&self) -> Option<String> {
        match self {
            Self::Xbstream(inspector) => inspector.inside().map(ToString::to_string),
            _ => None,
        }
    }

    pub(super) fn finish(self) -> Result<Option<InspectReport>, InspectError> {
        match self {
            Self::Xbstream(inspector) => inspector.finish().map(Some),
            _ => Ok(None),
        }
    }
}
