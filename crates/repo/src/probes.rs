//! Objects that a measurement of the link to a store writes, and removes at its end.

use xb_uploader::{Listed, StoreError};

use crate::names::{CATALOG, RunId};
use crate::root::Root;

/// Full key of the folder of all measurements.
#[must_use]
pub fn folder(root: &Root) -> String {
    root.key(&format!("{CATALOG}/@tune"))
}

/// Lists the objects of measurements that are older than `before`, in seconds since 1970.
///
/// # Errors
/// Those of the store.
pub async fn dead_probes(root: &Root, before: i64) -> Result<Vec<Listed>, StoreError> {
    let all = folder(root);
    let mut listed = root.store().list(&all).await?;
    listed.retain(|object| {
        object.modified < before && object.key.strip_prefix(&all).is_some_and(is_probe)
    });
    Ok(listed)
}

/// Whether a key, without the folder of all measurements, is an object of one: `/RUN/NUMBER`.
fn is_probe(rest: &str) -> bool {
    let place = rest.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    place.is_some_and(|(run, number)| RunId::parse(run).is_some() && number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_measurements_are_removed() {
        let run = "0be3c127b562c689b4984278b99fc896";
        assert!(is_probe(&format!("/{run}/0")) && is_probe(&format!("/{run}/4711")));
        for foreign in ["", "/mine", "/mine/0", "x/0", &format!("/{run}"), &format!("/{run}/0.txt")]
        {
            assert!(!is_probe(foreign), "{foreign}");
        }
    }
}
