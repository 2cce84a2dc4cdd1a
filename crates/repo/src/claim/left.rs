//! Objects that a run left without a manifest, as the stock tool does when a stream is incomplete.
//!
//! Its claim records them, so that they can later be told from what a late request of another run
//! added or replaced.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use xb_uploader::ListedObject;

use crate::hex::hex;

/// Number of objects, and a digest of their listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingObjects {
    objects: u64,
    digest: String,
}

impl RemainingObjects {
    /// Describes the objects of a listing: their keys, their sizes, and their entity tags or, in a
    /// store without tags, the times of their last writes.
    pub fn of(listed: &[ListedObject]) -> Self {
        let mut lines: Vec<String> = listed
            .iter()
            .map(|ListedObject { key, size, modified, tag }| match tag {
                Some(tag) => format!("{}:{key} {size} {tag}\n", key.len()),
                None => format!("{}:{key} {size} @{modified}\n", key.len()),
            })
            .collect();
        lines.sort_unstable();
        let mut digest = Sha256::new();
        lines.iter().for_each(|line| digest.update(line));
        let digest = hex(&<[u8; 32]>::from(digest.finalize()));
        Self { objects: listed.len() as u64, digest }
    }

    /// The form in a claim.
    pub fn encode(&self) -> Value {
        json!({ "objects": self.objects, "digest": self.digest })
    }

    /// Reads the form in a claim; `None` if it is not of that form.
    pub fn read(value: &Value) -> Option<Self> {
        let digest = value.get("digest")?.as_str()?.to_owned();
        Some(Self { objects: value.get("objects")?.as_u64()?, digest })
    }
}
