//! Paths of files while they get the names that they had at the end of the clone.

use xb_reader::{RelPath, TargetDir};

use crate::error::Error;
use crate::layout::FilePlace;

/// Says that no file has the name any more that it had first, unless that is its last one, too.
pub(crate) const MOVED: &str = "xb_clone.moved";

impl FilePlace {
    /// Present path of the file.
    pub(crate) fn now(&self, target: &TargetDir) -> Result<&RelPath, Error> {
        if !self.is_moved() {
            return Ok(&self.stored);
        }
        if target.has(&self.parked)? {
            return Ok(&self.parked);
        }
        let may_be_first = self.is_late || self.stored != self.parked;
        let is_first = may_be_first && !target.has(&own(MOVED)?)?;
        Ok(if is_first { &self.stored } else { &self.target })
    }
}

/// The path of one of a clone's own files.
pub(crate) fn own(name: &str) -> Result<RelPath, Error> {
    RelPath::new(name.as_bytes()).map_err(|error| Error::Output(std::io::Error::other(error)))
}
