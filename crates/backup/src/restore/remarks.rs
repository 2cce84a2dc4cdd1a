//! Remarks on restored files, which say what to do before or after a server starts on them.

use std::path::Path;

use crate::small_file::read_small;

/// Most tablespaces that are named.
const MAX_NAMED: usize = 20;

/// Remarks on the restored tablespaces that were outside the data directory, one for each.
pub(super) fn outside(target: &Path) -> Vec<String> {
    let schemas = std::fs::read_dir(target).into_iter().flatten().flatten();
    let schemas = schemas.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let files = schemas.flat_map(|schema| std::fs::read_dir(schema.path())).flatten().flatten();
    let links =
        files.map(|file| file.path()).filter(|path| path.extension() == Some("isl".as_ref()));
    let mut links: Vec<_> = links.collect();
    links.sort();
    let more = links.len().saturating_sub(MAX_NAMED);
    let told = links.iter().take(MAX_NAMED).map(|link| {
        let origin = read_small(link).unwrap_or_default();
        format!(
            "{}: was at {} on its server, and is restored here; a server that finds a file there, too, opens neither: before it starts, remove that one, or move this one there in its place",
            link.with_extension("ibd").display(),
            origin.trim()
        )
    });
    let mut told: Vec<String> = told.collect();
    if more > 0 {
        told.push(format!(
            "{more} more tablespaces were outside the data directory, too: see the .isl files"
        ));
    }
    told
}

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
    fn every_link_is_named_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shop")).unwrap();
        assert!(outside(dir.path()).is_empty());
        std::fs::write(dir.path().join("shop/far.isl"), "/ext/shop/far.ibd\n").unwrap();
        std::fs::write(dir.path().join("shop/far.ibd"), "").unwrap();
        let told = outside(dir.path());
        assert_eq!(told.len(), 1);
        assert!(
            told[0].contains("shop/far.ibd: was at /ext/shop/far.ibd on its server"),
            "{told:?}"
        );
        for number in 0..30 {
            std::fs::write(dir.path().join(format!("shop/{number}.isl")), "").unwrap();
        }
        assert_eq!(outside(dir.path()).len(), MAX_NAMED + 1);
    }

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
