//! Whether a producer is asked for only some of the databases or tables.

use std::ffi::OsString;

use xb_option_files::{OptionFilePaths, load};

use crate::server::login::{GROUPS, about_files, fork_of};

/// The options of mariadb-backup and xtrabackup by which a backup is partial.
const OPTIONS: [&str; 6] =
    ["databases", "databases-exclude", "databases-file", "tables", "tables-exclude", "tables-file"];

/// Returns whether the options of a producer choose databases or tables, those in its option files, too. `None` if only the
/// info file in its stream can tell: a script may add options, and option files may not be readable here.
#[must_use]
pub fn chooses_tables(producer: &[OsString]) -> Option<bool> {
    chooses(producer, &OptionFilePaths::usual())
}

fn chooses(producer: &[OsString], places: &OptionFilePaths) -> Option<bool> {
    let given = producer.get(1..).unwrap_or_default();
    let in_words = given.iter().any(|word| {
        let word = word.to_string_lossy();
        word.strip_prefix("--")
            .is_some_and(|word| is_choice(word.split('=').next().unwrap_or(word)))
    });
    if in_words {
        return Some(true);
    }
    let _known = producer.first().and_then(|program| fork_of(program))?;
    let found = load(places, &about_files(given), &GROUPS).ok()?;
    Some(found.options.iter().any(|option| is_choice(&option.key)))
}

/// An option may be shortened, and have `_` for `-`.
fn is_choice(name: &str) -> bool {
    let name = name.replace('_', "-");
    let name = name.strip_prefix("loose-").unwrap_or(&name);
    let is_long = name.starts_with("databases") || name.starts_with("tables");
    is_long && OPTIONS.iter().any(|option| option.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_seen_in_words_and_in_option_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my.cnf");
        std::fs::write(&file, "[mariadb-backup]\ndatabases_exclude=u\n[mysqld]\ntables=1\n")
            .unwrap();
        let at = |words: &[&str]| {
            let mut argv = vec![OsString::from("mariadb-backup"), "--backup".into()];
            argv.extend(words.iter().map(OsString::from));
            chooses(&argv, &OptionFilePaths::none())
        };
        for word in [
            "--databases=a b",
            "--databases",
            "--databases_exclude=u",
            "--databases-file=/f",
            "--tables=^a[.]",
            "--tables-e=x",
            "--loose-tables-file=/f",
        ] {
            assert_eq!(at(&[word]), Some(true), "{word}");
        }
        for word in
            ["--user=tables", "databases", "--tables-compatibility-check", "--table-cache=5"]
        {
            assert_eq!(at(&[word]), Some(false), "{word}");
        }
        let defaults = format!("--defaults-file={}", file.display());
        assert_eq!(at(&[&defaults]), Some(true));
        std::fs::write(&file, "[mysqld]\ntables=1\n").unwrap();
        assert_eq!(at(&[&defaults]), Some(false));
        // What a script asks for is not known.
        assert_eq!(chooses(&["backup.sh".into()], &OptionFilePaths::none()), None);
    }
}
