//! Recognises in a backup program's messages that it leaves a table out, although it ends with success.

/// Number of the system's error for a symbolic link where none may be (`ELOOP` on Linux).
const IS_A_LINK: &str = " (errno: 40 ";

/// Returns the file that mariadb-backup leaves out with this message, as it names the file: one of a table of Aria with DATA
/// DIRECTORY or INDEX DIRECTORY (observed with 10.11). With another error, the table was dropped meanwhile.
#[must_use]
pub fn left_out(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let (_, behind) = line.split_once("Can't find file: '")?;
    let (file, why) = behind.split_once('\'')?;
    why.starts_with(IS_A_LINK).then(|| file.to_owned())
}

/// What stands before the file, if mariadb-backup has read in the redo log that a tablespace is gone (observed with 10.11).
const IGNORED: &str = "table was dropped during xtrabackup execution and ignore the tablespace ";

/// Returns the table whose tablespace mariadb-backup leaves out with this message, as `schema/table`, encoded as in file names: it
/// takes it for dropped. So it does with one that was discarded and imported after the checkpoint at which the redo log of the
/// backup begins, which then is in no backup.
#[must_use]
pub fn taken_for_dropped(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let (_, file) = line.split_once(IGNORED)?;
    let file = file.trim_end();
    let table = file.strip_suffix(".ibd").unwrap_or(file);
    let table = table.strip_prefix("./").unwrap_or(table);
    // Its partitions have files of their own.
    let partition = table.to_ascii_lowercase().find("#p#");
    Some(table.get(..partition.unwrap_or(table.len()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_behind_a_link_is_left_out_and_a_dropped_one_is_not() {
        let says = |number: u32| {
            left_out(
                format!(
                    "mariadb-backup: Can't find file: './shop/far.MAI' (errno: {number} \"why\")"
                )
                .as_bytes(),
            )
        };
        assert_eq!(says(40).as_deref(), Some("./shop/far.MAI"));
        assert_eq!(says(2), None);
        assert_eq!(left_out(b"Can't find file: './shop/far.MAI"), None);
    }

    #[test]
    fn a_tablespace_that_is_ignored_is_named_by_its_table() {
        let says = |file: &str| {
            let line =
                format!("[00] 2026-11-30 16:10:20 Warning: We assume the  {IGNORED}{file}\n");
            taken_for_dropped(line.as_bytes())
        };
        assert_eq!(says("./shop/x.ibd").as_deref(), Some("shop/x"));
        assert_eq!(says("./shop/x#P#p0#SP#s1.ibd").as_deref(), Some("shop/x"));
        assert_eq!(taken_for_dropped(b"[00] Copying ./shop/x.ibd"), None);
    }
}
