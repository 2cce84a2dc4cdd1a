//! A plain xbstream into files.

pub(crate) mod decode;
pub(crate) mod extractor;
pub(crate) mod report;
mod settle;
#[cfg(test)]
mod tests;
pub(crate) mod work;
