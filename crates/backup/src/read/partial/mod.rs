//! Finds the parts of a stream that must be read for a selection, from the index.

mod changes;
mod chooser;
mod frames;
mod picker;
mod plan;
#[cfg(test)]
mod tests;

use xb_frame::Record;

use self::changes::LaterChanges;
use self::chooser::ChunkSelector;
use self::frames::FrameFinder;
pub(crate) use self::picker::Picker;
pub(crate) use self::plan::Parts;
use crate::error::BackupError;
use crate::read::packed_index::Index;
use crate::selection::{Checkpoint, Selection};

/// Finds the parts of the stream for the selected files.
pub(crate) async fn parts(
    index: &Index<'_>,
    selection: &Selection,
    proven: &Checkpoint,
) -> Result<Parts, BackupError> {
    let mut changes = LaterChanges::default();
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            changes.take(&record.map_err(|error| index.bad_record(error))?);
        }
    }
    let mut chooser = ChunkSelector::new(selection, proven, changes);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            let record = record.map_err(|error| index.bad_record(error))?;
            chooser.take(&record).map_err(|refused| refused.of(index))?;
        }
    }
    let mut parts = chooser.finish().map_err(|refused| refused.of(index))?;
    let mut frames = FrameFinder::new(&parts.picks);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            if let Record::Frames(run) = record.map_err(|error| index.bad_record(error))? {
                frames.take(&run);
            }
        }
    }
    parts.runs = frames.finish().map_err(|refused| refused.of(index))?;
    Ok(parts)
}
