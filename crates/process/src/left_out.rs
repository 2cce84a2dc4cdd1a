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

/// A backup program has ended with success, and without a table that it could not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{program} left {file} out, because it is a symbolic link: no backup contains Aria tables with DATA DIRECTORY or INDEX DIRECTORY"
)]
pub struct LeftOut {
    /// The program.
    pub program: String,
    /// The file, as the program names it.
    pub file: String,
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
}
