//! Cleans the option file of a backup before a program acts on it.
//!
//! The file comes from outside, and mariadb-backup (10.11, observed) takes any of its own options from there. With
//! `plugin_load` and `plugin_dir` it loads a library, which may lie in the backup itself; it writes to files that
//! `innodb_data_file_path` names anywhere; it includes other files; and with `help` it ends with success and has
//! prepared nothing. So only lines that backup programs write stay, with values that name nothing elsewhere.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use xb_files::replace_file;

use crate::origin::{FILE, MAX};

/// Longest line in bytes that every parser in the programs reads as one: mariadb-backup looks for `plugin_load` at the
/// beginning of every 511 bytes of a line.
const MAX_LINE: usize = 510;
/// Longest list of data files in bytes: the programs take what is behind 4094 bytes of a line, such as `help`, for a line.
const MAX_DATA_FILES: usize = 4000;
/// Most lines that are reported, and bytes of each.
const MAX_REPORTED: (usize, usize) = (5, 80);
/// Options about the files, and about the server that they are from. Their values are plain words and numbers.
const PLAIN: [&str; 22] = [
    "innodb_buffer_pool_filename",
    "innodb_checksum_algorithm",
    "innodb_compression_level",
    "innodb_encrypt_log",
    "innodb_encrypt_tables",
    "innodb_fast_checksum",
    "innodb_log_block_size",
    "innodb_log_checksum_algorithm",
    "innodb_log_checksums",
    "innodb_log_file_size",
    "innodb_log_files_in_group",
    "innodb_page_size",
    "innodb_redo_log_capacity",
    "innodb_redo_log_encrypt",
    "innodb_undo_log_encrypt",
    "innodb_undo_logs",
    "innodb_undo_tablespaces",
    "lower_case_table_names",
    "master_key_id",
    "redo_log_version",
    "server_id",
    "server_uuid",
];
/// The files of the system tablespace.
const DATA_FILES: &str = "innodb_data_file_path";
/// Options without which the program takes the backup's files for others.
const DESCRIBING: [&str; 4] =
    [DATA_FILES, "innodb_page_size", "innodb_undo_tablespaces", "innodb_checksum_algorithm"];
/// How the names of options and libraries of the plugins begin that a backup may need.
const OF_PLUGINS: [&str; 5] = [
    "file_key_management",
    "aws_key_management",
    "hashicorp_key_management",
    "keyring_",
    "provider_",
];
/// Where packages have libraries: nothing of a backup lies there.
const PACKAGED: [&str; 2] = ["/usr/lib", "/usr/lib64"];

/// What becomes of a line.
enum Verdict {
    Stays,
    /// It says nothing that a program needs.
    Goes,
    /// It goes, and the reason is worth a remark.
    Suspect(&'static str),
    /// Without it, the program would prepare other files than those of the backup.
    Refused(&'static str),
}

/// Removes from the option file of the backup in `data`, if there is one, every line that is not known to be harmless to
/// `program`, which will read it. Returns a remark on each that may be missed, or is forged.
///
/// # Errors
/// If the file is larger than a backup program writes it, is no regular file, cannot be read or replaced, or describes the
/// backup's files with other values than such a program writes.
pub fn clean_option_file(data: &Path, program: &Path) -> io::Result<Vec<String>> {
    let path = data.join(FILE);
    let Some(text) = read(&path)? else { return Ok(Vec::new()) };
    let (mut kept, mut remarks, mut more) = (Vec::new(), Vec::new(), 0_u32);
    let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n');
    for (number, line) in lines.enumerate() {
        match judge(line, program) {
            Verdict::Stays => {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
            Verdict::Goes => {}
            Verdict::Suspect(_) if remarks.len() == MAX_REPORTED.0 => more += 1,
            Verdict::Suspect(why) => {
                let line = line[..line.len().min(MAX_REPORTED.1)].escape_ascii();
                remarks.push(format!("{FILE}, line {}: `{line}` is left out: {why}", number + 1));
            }
            Verdict::Refused(why) => {
                return Err(io::Error::other(format!("line {}: {why}", number + 1)));
            }
        }
    }
    if more > 0 {
        remarks.push(format!("{FILE}: {more} more lines are left out"));
    }
    if kept.len() < text.len() {
        replace_file(&path, &kept)?;
    }
    Ok(remarks)
}

/// Content of the file; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // A pipe would be waited for.
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, how, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > MAX {
        return Err(io::Error::other("it is not a file as backup programs write it"));
    }
    let mut text = Vec::new();
    file.take(MAX).read_to_end(&mut text)?;
    Ok(Some(text))
}

fn judge(line: &[u8], program: &Path) -> Verdict {
    // Names of key files may have any bytes.
    let line = String::from_utf8_lossy(line.trim_ascii_end());
    if line.chars().any(|char| char.is_control() && char != '\t') {
        return Verdict::Suspect("it has a control character");
    }
    let is_long = line.len() > MAX_LINE;
    let no_such = Verdict::Suspect("backup programs do not write such lines");
    if line.is_empty() || line.starts_with('#') || line == "[mysqld]" {
        return if is_long { no_such } else { Verdict::Stays };
    }
    let Some((name, value)) = line.split_once('=') else { return no_such };
    let (name, value) = (name.trim().replace('-', "_"), unquoted(value.trim()));
    // `!include x=1` and `help # x=1` have no name.
    if name.is_empty() || !is_made_of(&name, "_") {
        return no_such;
    }
    if is_long && name != DATA_FILES {
        return Verdict::Suspect("it is longer than backup programs write lines");
    }
    if line.len() > MAX_DATA_FILES {
        return Verdict::Refused("it is longer than backup programs read lines");
    }
    let stays_if = |is_harmless: bool, why| match is_harmless {
        true => Verdict::Stays,
        false if DESCRIBING.contains(&name.as_str()) => Verdict::Refused(why),
        false => Verdict::Suspect(why),
    };
    match name.as_str() {
        DATA_FILES => {
            let are_here =
                value.split(';').all(|file| is_here(file.split(':').next().unwrap_or_default()));
            // Without a `=`, no part of it is `plugin_load`.
            stays_if(
                are_here && is_made_of(value, ":;._-/"),
                "the files of a backup are in its own directory",
            )
        }
        // That of the server; the backup has the files in its own.
        "innodb_undo_directory" if value != "./" => Verdict::Goes,
        "innodb_undo_directory" => Verdict::Stays,
        // Of no use to a backup program, and on some servers a path.
        "innodb_buffer_pool_filename" if !is_made_of(value, "._-") => Verdict::Goes,
        "plugin_load" => stays_if(
            value.split(';').all(is_library) && is_made_of(value, ";=._-"),
            "only plugins that hold keys or compress are loaded for a backup",
        ),
        "plugin_dir" => stays_if(
            is_made_of(value, "/._-+@~,") && is_installed(Path::new(value), program),
            "plugins are loaded from below /usr/lib, and from where the program is installed; if this directory is right, name it with the option --plugin-dir of the program",
        ),
        name if PLAIN.contains(&name) => {
            stays_if(is_made_of(value, ":._-"), "its value is not plain")
        }
        name if is_of_plugin(name) => Verdict::Stays,
        _ => Verdict::Suspect("backup programs do not write this option"),
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Whether a value has only letters, digits, and these.
fn is_made_of(value: &str, others: &str) -> bool {
    value.chars().all(|char| char.is_ascii_alphanumeric() || others.contains(char))
}

/// Whether a path leads to a file below the directory of the backup.
fn is_here(path: &str) -> bool {
    Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Whether an option or a library belongs to a plugin that holds keys, or to one of MariaDB's that compress.
fn is_of_plugin(name: &str) -> bool {
    let name = name.strip_prefix("loose_").unwrap_or(name);
    OF_PLUGINS.iter().any(|plugin| name.starts_with(plugin))
}

/// Whether an entry of a list such as `NAME=LIBRARY;LIBRARY` is harmless; an empty one is.
fn is_library(entry: &str) -> bool {
    entry.is_empty() || entry.split('=').all(is_of_plugin)
}

/// Whether a directory lies where libraries are installed: by packages, or together with the program.
fn is_installed(dir: &Path, program: &Path) -> bool {
    let is_direct = dir.is_absolute() && !dir.components().any(|part| part == Component::ParentDir);
    let Some(dir) = dir.canonicalize().ok().filter(|dir| is_direct && dir.is_dir()) else {
        return false;
    };
    let program = located(program).and_then(|program| program.canonicalize().ok());
    let own = program.as_deref().and_then(|program| program.parent()?.parent());
    let own = own.into_iter().flat_map(|place| ["lib", "lib64"].map(|lib| place.join(lib)));
    PACKAGED.iter().map(PathBuf::from).chain(own).any(|place| dir.starts_with(place))
}

/// The file of a program that is named by its path, or by a name to look up on PATH.
fn located(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &[u8]) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        let remarks = clean_option_file(dir.path(), Path::new("mariadb-backup")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        (std::fs::read_to_string(path).unwrap(), remarks)
    }

    /// As mariadb-backup (10.11) and xtrabackup write it.
    #[test]
    fn what_backup_programs_write_stays() {
        for text in [
            "# This options file was generated by innobackupex.\n\n# The server\n[mysqld]\ninnodb_checksum_algorithm=crc32\ninnodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend:max:1G\ninnodb_log_file_size=100663296\ninnodb_page_size=16384\ninnodb_undo_directory=./\ninnodb_undo_tablespaces=3\ninnodb_compression_level=6\n\nplugin_dir=\"/usr/lib/\"\nplugin_load=file_key_management=file_key_management;provider_lz4=provider_lz4.so\nfile_key_management_encryption_algorithm=aes_cbc\nfile_key_management_filekey=\nfile_key_management_filename=/etc/mysql/k e#y\ninnodb_encrypt_log=0\ninnodb_encrypt_tables=OFF\n\n",
            "[mysqld]\ninnodb_checksum_algorithm=strict_crc32\ninnodb_data_file_path=ibdata1:10M:autoextend\ninnodb_fast_checksum=false\nserver_id=0\nserver_uuid=e5b5f5ad-1111-11ee-9999-0242ac110002\nmaster_key_id=0\nredo_log_version=1\nplugin_load=keyring_file.so\n",
        ] {
            assert_eq!(cleaned(text.as_bytes()), (text.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn what_leads_elsewhere_goes() {
        let long = format!("#{}plugin_load=keyring_x", "a".repeat(510));
        let key = format!("keyring_x={}plugin_load=evil", "a".repeat(501));
        for (line, why) in [
            ("plugin_load=evil", "only plugins"),
            ("plugin_load=keyring_file=../keyring_file", "only plugins"),
            ("plugin_load=keyring_file=evil", "only plugins"),
            ("plugin_dir=.", "plugins are loaded"),
            ("plugin_dir=/tmp", "plugins are loaded"),
            ("plugin_dir=/usr/lib/../../tmp", "plugins are loaded"),
            ("plugin-dir = \"/tmp\"", "plugins are loaded"),
            ("plugin_load_add=file_key_management", "backup programs do not write this"),
            ("loose-plugin_load=file_key_management", "backup programs do not write this"),
            ("innodb_log_file_size=/x", "not plain"),
            ("evil_key_management=1", "backup programs do not write this"),
            ("!include /x/key_management=1.cnf", "such lines"),
            ("!includedir x/file_key_management=1", "such lines"),
            ("help # file_key_management=1", "such lines"),
            ("plugin_load evil=keyring_x", "such lines"),
            ("=keyring_x", "such lines"),
            ("innodb_force_recovery=6", "backup programs do not write this"),
            ("general_log_file=/x", "backup programs do not write this"),
            ("help", "such lines"),
            ("!include /x", "such lines"),
            ("!includedir /x", "such lines"),
            ("[mariadb]", "such lines"),
            ("server_id=1\rplugin_load=evil", "control character"),
            (&long, "such lines"),
            (&key, "longer"),
        ] {
            let (text, remarks) = cleaned(format!("[mysqld]\n{line}\nserver_id=1\n").as_bytes());
            assert_eq!(text, "[mysqld]\nserver_id=1\n", "{line}");
            assert_eq!(remarks.len(), 1, "{line}");
            assert!(remarks[0].contains("line 2: ") && remarks[0].contains(why), "{remarks:?}");
        }
        let (text, remarks) = cleaned(
            b"[mysqld]\nserver_id=\xff\ninnodb_undo_directory=/x\ninnodb_buffer_pool_filename=/x\nserver_id=1",
        );
        assert_eq!((text.as_str(), remarks.len()), ("[mysqld]\nserver_id=1\n", 1));
        let (text, remarks) = cleaned("help\n".repeat(1000).as_bytes());
        assert_eq!(text, "");
        assert_eq!(remarks.last().unwrap(), "backup-my.cnf: 995 more lines are left out");
    }

    #[test]
    fn what_describes_the_files_stays_or_is_an_error() {
        let many = format!("innodb_data_file_path=ibdata1:12M{}\n", ";d/ibdata2:12M".repeat(42));
        assert_eq!(cleaned(many.as_bytes()), (many, Vec::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for line in [
            "innodb_data_file_path=/x/ibdata1:12M",
            "innodb_data_file_path=ibdata1:12M;../x:12M",
            "innodb-data-file-path=ibdata1:12M plugin_load=x",
            "innodb_page_size=/x",
            &format!("innodb_data_file_path=ibdata1:12M;{};help", "x".repeat(4094 - 34)),
        ] {
            std::fs::write(&path, format!("[mysqld]\n{line}\n")).unwrap();
            let error = clean_option_file(dir.path(), Path::new("mariadb-backup")).unwrap_err();
            assert!(error.to_string().contains("line 2: "), "{error}");
        }
        let of_key = b"file_key_management_filename=/etc/cl\xe9\n";
        std::fs::write(&path, of_key).unwrap();
        assert!(clean_option_file(dir.path(), Path::new("x")).unwrap().is_empty());
        assert_eq!(std::fs::read(&path).unwrap(), of_key);
    }

    #[test]
    fn plugins_beside_the_program_are_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (program, plugins) = (dir.join("bin/mariadb-backup"), dir.join("lib/plugin"));
        for folder in [&dir.join("bin"), &plugins, &dir.join("data/lib")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(&program, "").unwrap();
        assert!(is_installed(&plugins, &program));
        assert!(!is_installed(&dir.join("data/lib"), &program));
        assert!(!is_installed(&dir.join("lib/none"), &program));
        assert!(!is_installed(&plugins, Path::new("mariadb-backup")));
        std::os::unix::fs::symlink(dir.join("data"), dir.join("lib/data")).unwrap();
        assert!(!is_installed(&dir.join("lib/data"), &program));
    }

    #[test]
    fn a_strange_file_is_an_error_and_none_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let clean = || clean_option_file(dir.path(), Path::new("mariadb-backup"));
        assert!(clean().unwrap().is_empty());
        let path = dir.path().join(FILE);
        std::fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(clean().is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(clean().is_err());
    }
}
