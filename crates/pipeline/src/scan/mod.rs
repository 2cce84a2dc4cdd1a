//! Reading an xbstream as it passes: chunk heads, order of chunks, checksums, the rule for its end.

pub(crate) mod end_rule;
pub(crate) mod passthrough;
pub(crate) mod scanner;
