//! Names of the files by which producers describe a backup, and what these files state.

/// Files that mariadb-backup writes last (10.11.19, observed: the first name; newer versions: the
/// second), also compressed, incremental, and on a cluster node.
pub(crate) const INFO: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];
/// The producer's copy of the server's settings.
pub(crate) const SETTINGS: &str = "backup-my.cnf";
/// Files in which the producer states the kind and the positions of the backup. It never encrypts
/// or compresses them.
pub(crate) const CHECKPOINTS: [&str; 2] = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
/// Files in which the producer repeats the position in the binary log.
pub(crate) const POSITIONS: [&str; 2] = ["xtrabackup_binlog_info", "mariadb_backup_binlog_info"];
/// Control file of Aria.
pub(crate) const ARIA_CONTROL: &str = "aria_log_control";
/// Beginnings of the names of redo logs: in a backup, and in a data directory.
const REDO: [&[u8]; 4] =
    [b"xtrabackup_logfile", b"mariadb_backup_logfile", b"ib_logfile", b"#innodb_redo/#ib_redo"];
/// Data dictionary, or its changed pages. It is in every backup of MySQL 8 and later, which only
/// xtrabackup 8 and later can make.
pub(crate) const DICTIONARY: [&str; 2] = ["mysql.ibd", "mysql.ibd.delta"];
/// Suffixes that compression or encryption in the producer adds to a name.
const SUFFIXES: [&str; 4] = [".qp", ".lz4", ".zst", ".xbcrypt"];

/// Returns a name without the suffixes of compression and encryption.
#[must_use]
pub fn logical_name(path: &[u8]) -> &[u8] {
    let mut name = path;
    while let Some(stem) = SUFFIXES.iter().find_map(|s| name.strip_suffix(s.as_bytes())) {
        name = stem;
    }
    name
}

/// Returns whether a file, without its suffixes, is a part of a redo log.
pub(crate) fn is_redo_log(name: &[u8]) -> bool {
    REDO.iter().any(|redo| name.starts_with(redo))
}

/// Returns whether a backup with this checkpoints file is yet to be prepared, which takes a redo log.
pub(crate) fn is_unprepared(checkpoints: &str) -> bool {
    let kind = field(checkpoints, "backup_type");
    kind.is_some_and(|kind| ["full-backuped", "incremental"].contains(&kind))
}

/// The value of `key = value` in a text of the producer.
pub(crate) fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The files that describe the backup, as far as they can be read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Texts<'t> {
    /// `xtrabackup_info`: program and versions.
    pub(crate) info: Option<&'t str>,
    /// `xtrabackup_checkpoints`: kind and positions.
    pub(crate) checkpoints: Option<&'t str>,
    /// `backup-my.cnf`: settings of the server.
    pub(crate) settings: Option<&'t str>,
    /// `xtrabackup_binlog_info`: the position in the binary log.
    pub(crate) position: Option<&'t str>,
    /// `aria_log_control`: where the log of Aria begins.
    pub(crate) aria: Option<&'t [u8]>,
}

/// Whether the file with the position in the binary log states the file and the offset that the info file has, if both
/// are there. mariadb-backup writes both from the same position.
pub(crate) fn is_same_position(texts: Texts<'_>) -> bool {
    let Some(info) = texts.info.filter(|info| version_of_mariadb(info).is_some()) else {
        return true;
    };
    // `filename 'b.000002', position '334', GTID of the last change '0-7-55'`
    let noted = field(info, "binlog_pos").and_then(|noted| {
        let (file, rest) = noted.strip_prefix("filename '")?.split_once("', position '")?;
        Some((file, rest.split_once('\'')?.0))
    });
    noted.zip(texts.position).is_none_or(|((file, offset), position)| {
        let mut stated = position.lines().next().unwrap_or_default().split('\t');
        stated.next() == Some(file) && stated.next() == Some(offset)
    })
}

/// The version of xtrabackup in an info file: its first number, and all of it.
pub(crate) fn version_of_xtrabackup(info: &str) -> Option<(u32, &str)> {
    let (tool, version) = (field(info, "tool_name")?, field(info, "tool_version")?);
    let major = version.split('.').next()?.parse().ok()?;
    tool.contains("xtrabackup").then_some((major, version))
}

/// The version of mariadb-backup in an info file.
pub(crate) fn version_of_mariadb(info: &str) -> Option<(u32, u32)> {
    let tool = field(info, "tool_name")?;
    let mut numbers = field(info, "tool_version")?.split(['.', '-']).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    ["mariadb", "mariabackup"].iter().any(|name| tool.contains(name)).then_some((major, minor))
}
