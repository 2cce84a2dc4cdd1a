//! Tablespaces outside the data directory: a restore brings them into it.

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
}
