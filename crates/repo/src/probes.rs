//! Objects that a measurement of the link to a store writes, and removes at its end.

use xb_uploader::ListedObject;

use crate::names::{CATALOG, RunId};
use crate::root::Root;

/// Folder of all measurements in the catalogue.
pub const PROBES: &str = "@tune";

/// Full key of the folder of all measurements.
#[must_use]
pub fn folder(root: &Root) -> String {
    root.key(&format!("{CATALOG}/{PROBES}"))
}

/// Full keys of the objects of measurements that are older than `before`, in seconds since 1970, among
/// `listed` objects, whose keys are relative to the folder of all measurements.
#[must_use]
pub fn dead_probes(root: &Root, listed: &[ListedObject], before: i64) -> Vec<String> {
    let old = listed.iter().filter(|object| object.modified < before && is_probe(&object.key));
    old.map(|object| format!("{}/{}", folder(root), object.key)).collect()
}

/// Returns whether a key below the folder of all measurements is an object of one: `RUN/NUMBER`.
fn is_probe(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(run, number)| RunId::parse(run).is_some() && number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_measurements_are_removed() {
        let run = "0be3c127b562c689b4984278b99fc896";
        assert!(is_probe(&format!("{run}/0")) && is_probe(&format!("{run}/4711")));
        for foreign in ["", "mine", "mine/0", "/x/0", run, &format!("{run}/0.txt")] {
            assert!(!is_probe(foreign), "{foreign}");
        }
    }
}
