//! The stock list of MD5 digests: one line `HEX  PATH.NNNN` for each object.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use md5::{Digest, Md5};
use xb_pipeline::Part;
use xb_repo::hex::hex;

/// Computes the MD5 digests of objects from their parts, in stream order.
#[derive(Debug)]
pub(crate) struct Md5List {
    text: String,
    /// Objects of which some parts have arrived, but not the last.
    open: HashMap<Arc<str>, Md5>,
}

impl Md5List {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), open: HashMap::new() }
    }

    /// Adds the next part of any object.
    pub(crate) fn part(&mut self, part: &Part) {
        let mut sum = self.open.remove(&part.object).unwrap_or_default();
        part.payload.iter().for_each(|bytes| sum.update(bytes));
        if part.end {
            let _ = writeln!(self.text, "{}  {}", hex(&sum.finalize()), part.object);
        } else {
            self.open.insert(Arc::clone(&part.object), sum);
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}
