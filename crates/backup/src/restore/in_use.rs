//! Tables that were in use while they were copied: nothing shows it any more once a server has opened them.

use std::path::Path;

/// A remark on the restored tables that no recovery repairs, if there are some. A directory that cannot be read has none:
/// what comes next fails on it.
pub(super) fn in_use(target: &Path) -> Option<String> {
    let tables = xb_replay::tables_in_use(target).unwrap_or_default();
    (!tables.is_empty()).then(|| {
        format!(
            "tables were in use while the backup copied them, and may be damaged or lack their last rows: {}; once a server runs on the files, run REPAIR TABLE and CHECK TABLE on each, before anything changes it",
            tables.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_not_closed_is_named_with_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shop")).unwrap();
        let index = dir.path().join("shop/t.MYI");
        let mut head = vec![0; 1024];
        head[..4].copy_from_slice(&[0xfe, 0xfe, 7, 1]);
        std::fs::write(&index, &head).unwrap();
        assert_eq!(in_use(dir.path()), None);
        // The number of times that it is open.
        head[25] = 1;
        std::fs::write(&index, &head).unwrap();
        let told = in_use(dir.path()).unwrap();
        assert!(told.contains("shop/t.MYI") && told.contains("REPAIR TABLE"), "{told}");
    }
}
