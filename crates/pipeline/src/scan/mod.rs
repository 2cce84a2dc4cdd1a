//! Reads an xbstream as it passes: chunk heads, order of chunks, checksums, and the end rule.

pub(crate) mod definitions;
pub(crate) mod end_rule;
pub(crate) mod on_disk;
pub(crate) mod passthrough;
pub(crate) mod producer_files;
pub(crate) mod required;
pub(crate) mod scanner;
