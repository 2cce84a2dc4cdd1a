//! The stock list of MD5 sums: `HEX  PATH.NNNN` a line, one for each object.

use md5::{Digest, Md5};
use std::fmt::Write as _;
use xb_pipeline::Part;

use crate::manifest::hex;

/// Collects sums of objects as they go by, in stream order.
#[derive(Debug)]
pub(crate) struct Md5List {
    text: String,
    object: Md5,
}

impl Md5List {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), object: Md5::new() }
    }

    /// Takes the next part. In the classic cut an object's parts follow one another.
    pub(crate) fn part(&mut self, part: &Part) {
        part.payload.iter().for_each(|bytes| self.object.update(bytes));
        if part.end {
            let sum = std::mem::take(&mut self.object).finalize();
            let _ = writeln!(self.text, "{}  {}", hex(&sum), part.object);
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}
