//! Checks what was received, and finds its position in the cluster's history.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use xb_files::or_none;

use super::donor_files;
use crate::contract::args::Product;
use crate::contract::datadir::{Layout, rocksdb_dir};
use crate::contract::position::Position;
use crate::error::SstError;
use crate::swap::list;

/// Files with the position, the preferred one first.
const POSITIONS: [&str; 3] =
    ["donor_galera_info", "xtrabackup_galera_info", "mariadb_backup_galera_info"];
const CHECKPOINTS: [&str; 2] = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
/// Keys of encrypted tables that only a transition key opens.
const KEYS: &str = "xtrabackup_keys";

/// Text of the first of these files that there is.
fn first(new: &Path, names: &[&str]) -> Result<Option<String>, SstError> {
    for path in names.iter().map(|name| new.join(name)) {
        let Some(mut file) = donor_files::open(&path)? else { continue };
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(SstError::io("read", &path))?;
        return Ok(Some(text));
    }
    Ok(None)
}

/// Checks the received files before they are confirmed. Returns their position; `None` if only
/// preparing shows it: xtrabackup writes it then if it took the backup with backup locks.
/// `lower_case_names`: this node's server knows names in lower case only.
pub(super) fn check(
    new: &Path,
    product: Product,
    lower_case_names: bool,
    offered: Option<&Position>,
) -> Result<Option<Position>, SstError> {
    if lower_case_names {
        refuse_capitals(new)?;
    }
    let missing = |what: &str| SstError::Content(format!("it has no {what}"));
    let checkpoints = first(new, &CHECKPOINTS)?;
    if checkpoints.ok_or_else(|| missing("checkpoints file"))?.trim().is_empty() {
        return Err(SstError::Content("the checkpoints file is empty".into()));
    }
    if donor_files::open(&new.join(KEYS))?.is_some() {
        return Err(SstError::TransitionKey);
    }
    match (stated(new, offered)?, product) {
        (None, Product::MariaDb) => {
            Err(missing("xtrabackup_galera_info: is the donor a Galera node?"))
        }
        (position, _) => Ok(position),
    }
}

/// Refuses data of MyRocks that this node's server would not find: it would go on with what it has elsewhere. `has` returns whether
/// the donor's data has this directory.
///
/// # Errors
/// [`SstError::RocksDb`]; the error of `has`.
pub(super) fn refuse_rocksdb(
    layout: &Layout,
    product: Product,
    has: impl FnOnce(&str) -> Result<bool, SstError>,
) -> Result<(), SstError> {
    let Some((option, dir)) = layout.rocksdb.first().cloned() else { return Ok(()) };
    let name = rocksdb_dir(product);
    if !has(name)? {
        return Ok(());
    }
    let new = layout.datadir.join(name);
    Err(SstError::RocksDb { option, dir, new })
}

/// Returns whether a received directory has data of MyRocks: the backup program sends any directory of the donor's, with an empty
/// file in it.
///
/// # Errors
/// If it cannot be listed.
pub(super) fn has_rocksdb(dir: &Path) -> Result<bool, SstError> {
    let is_dir = or_none(dir.symlink_metadata()).map_err(SstError::io("look at", dir))?;
    Ok(is_dir.is_some_and(|facts| facts.is_dir()) && !donor_files::is_empty(dir)?)
}

/// Refuses names of schemas and tables that a server with `lower_case_table_names=1` does not find: it asks for them in lower case.
fn refuse_capitals(new: &Path) -> Result<(), SstError> {
    let refuse = |name: &Path| match has_capital(name) {
        true => Err(SstError::Capitals { name: name.display().to_string() }),
        false => Ok(()),
    };
    for (schema, _) in list(new)?.into_iter().filter(|(_, facts)| facts.is_dir()) {
        let folder = new.join(&schema);
        // Not `#innodb_redo` and the like; nor a directory of the donor's that is no schema.
        if schema.as_bytes().starts_with(b"#") || donor_files::is_empty(&folder)? {
            continue;
        }
        refuse(schema.as_ref())?;
        for (name, _) in list(&folder)? {
            let name = Path::new(&schema).join(name);
            if name.extension().is_some_and(|end| end == "frm") {
                refuse(&name)?;
            }
        }
    }
    Ok(())
}

/// Returns whether a path has a capital letter. Other letters are `@` and two characters or four, of which any may be capital.
fn has_capital(name: &Path) -> bool {
    let mut bytes = name.as_os_str().as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'@' => drop(bytes.nth(1)),
            _ if byte.is_ascii_uppercase() => return true,
            _ => {}
        }
    }
    false
}

/// Returns the position of the prepared files: `before` if it was known before, else what preparing
/// wrote, else what the donor offered. The server reads it from the data itself.
pub(super) fn position(
    new: &Path,
    before: Option<Position>,
    offered: Option<&Position>,
) -> Result<Position, SstError> {
    let missing = || SstError::Content("neither it nor the donor states a Galera position".into());
    match before {
        Some(position) => Ok(position),
        None => stated(new, offered)?.or_else(|| offered.cloned()).ok_or_else(missing),
    }
}

/// Returns the position that the prepared data itself has, if it is before `position`. A server does not record every write
/// set in its data, and is sent those behind the recorded position once more.
pub(super) fn recorded_before(new: &Path, position: &Position) -> Option<Position> {
    // The donor's own file states where the backup was taken. Preparing writes the others.
    let [_, prepared @ ..] = POSITIONS;
    let recorded: Position = first(new, &prepared).ok()??.parse().ok()?;
    let (data, backup) = (&recorded.state, &position.state);
    let is_before = data.uuid() == backup.uuid() && data.seqno() < backup.seqno();
    (is_before && data.seqno() >= 0).then_some(recorded)
}

/// The position in the files, if there is one, which must belong to what the donor offered.
fn stated(new: &Path, offered: Option<&Position>) -> Result<Option<Position>, SstError> {
    let Some(text) = first(new, &POSITIONS)? else { return Ok(None) };
    let unreadable = |_| SstError::Content("the Galera position in it cannot be read".into());
    of_this_history(text.parse().map_err(unreadable)?, offered).map(Some)
}

/// Checks that the backup is from the offered position's history, and not older than that position.
fn of_this_history(position: Position, offered: Option<&Position>) -> Result<Position, SstError> {
    let undefined =
        position.state.seqno() < 0 || position.state.uuid().bytes().all(|b| b"0-".contains(&b));
    if undefined {
        return Err(SstError::Content(format!("its position {position} is undefined")));
    }
    match offered.map(|offered| &offered.state) {
        Some(begun)
            if begun.seqno() >= 0
                && (begun.uuid() != position.state.uuid()
                    || begun.seqno() > position.state.seqno()) =>
        {
            Err(SstError::Content(format!(
                "it is at position {position}, but the donor offered {begun}"
            )))
        }
        _ => Ok(position),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42";

    #[test]
    fn a_backup_must_state_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let said = || {
            check(folder.path(), Product::MariaDb, false, None).map_err(|error| error.to_string())
        };
        assert!(said().unwrap_err().contains("no checkpoints"));
        put("xtrabackup_checkpoints", " ");
        assert!(said().unwrap_err().contains("empty"));
        put("xtrabackup_checkpoints", "backup_type = full-backuped");
        assert!(said().unwrap_err().contains("galera"));
        put("xtrabackup_galera_info", "nonsense");
        assert!(said().unwrap_err().contains("cannot be read"));
        put("donor_galera_info", &format!("{STATE} 3\nmore"));
        assert_eq!(said().unwrap().unwrap().to_string(), format!("{STATE} 3"));
        put("xtrabackup_keys", "");
        assert!(said().unwrap_err().contains("transition key"));
        // An error is no absence.
        std::fs::remove_file(folder.path().join("xtrabackup_keys")).unwrap();
        for name in ["xtrabackup_keys", "donor_galera_info"] {
            let path = folder.path().join(name);
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(name, &path).unwrap();
            assert!(said().unwrap_err().contains(name), "{name}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn capital_letters_are_found_only_in_names() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path();
        let put = |name: &str| {
            std::fs::create_dir_all(new.join(name).parent().unwrap()).unwrap();
            std::fs::write(new.join(name), "").unwrap();
        };
        // `@0G` and `@0K` stand for one letter each; partitions are no tables of their own.
        for name in ["shop/t.frm", "shop/t#P#a.ibd", "@0g@0K/@002d@0Gx.frm", "shop/T.TRN", "README"]
        {
            put(name);
        }
        // So the backup program sends a directory that is no schema.
        put("Logs/db.opt");
        refuse_capitals(new).unwrap();
        for name in ["shop/aB.frm", "Shop2/t.frm"] {
            put(name);
            let error = refuse_capitals(new).unwrap_err().to_string();
            assert!(
                error.contains(name.split_once("/t").map_or(name, |(schema, _)| schema)),
                "{error}"
            );
            std::fs::remove_dir_all(new.join(name).parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn xtrabackup_may_state_the_position_when_it_prepares() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("xtrabackup_checkpoints", "backup_type = full-backuped");
        let offered: Position = STATE.parse().unwrap();
        let before = check(folder.path(), Product::Percona, false, Some(&offered)).unwrap();
        assert!(before.is_none());
        let after = |offered| {
            position(folder.path(), None, offered)
                .map(|position| position.to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(after(Some(&offered)).unwrap(), STATE);
        assert!(after(None).unwrap_err().contains("states a Galera position"));
        put("xtrabackup_galera_info", &STATE.replace(":42", ":43"));
        assert_eq!(after(Some(&offered)).unwrap(), STATE.replace(":42", ":43"));
        put("xtrabackup_galera_info", &STATE.replace(":42", ":41"));
        assert!(after(Some(&offered)).unwrap_err().contains("but the donor offered"));
    }

    #[test]
    fn a_position_that_the_data_lacks_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let before = |text: &str| {
            std::fs::write(folder.path().join("xtrabackup_galera_info"), text).unwrap();
            let at = STATE.parse().unwrap();
            recorded_before(folder.path(), &at).map(|position| position.to_string())
        };
        let earlier = STATE.replace(":42", ":41");
        assert_eq!(before(&earlier), Some(earlier.clone()));
        // What the donor states is not what the data has.
        std::fs::write(folder.path().join("donor_galera_info"), &earlier).unwrap();
        let other = earlier.replace("9c9a", "9c9b");
        let unknown = STATE.replace(":42", ":-1");
        for text in [STATE, &STATE.replace(":42", ":43"), &other, &unknown, "nonsense"] {
            assert_eq!(before(text), None, "{text}");
        }
    }

    #[test]
    fn a_backup_of_another_history_or_an_older_one_is_refused() {
        let uuid = "6b1a0d2c-0000-11ef-8000-0123456789ab";
        let at = |text: &str| text.parse::<Position>().unwrap();
        let offered = at(&format!("{uuid}:40"));
        let judge = |text: &str| of_this_history(at(text), Some(&offered)).is_ok();
        assert!(judge(&format!("{uuid}:40")) && judge(&format!("{uuid}:41")));
        assert!(!judge(&format!("{uuid}:39")), "older");
        assert!(!judge("7b1a0d2c-0000-11ef-8000-0123456789ab:50"), "another");
        assert!(!judge(&format!("{uuid}:-1")), "undefined");
        assert!(of_this_history(at("00000000-0000-0000-0000-000000000000:5"), None).is_err());
    }
}
