//! Options of the private server of a replay.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use xb_binlog::RelayEnd;

use crate::dialect::Dialect;
use crate::relay_files::{BASE, INDEX};
use crate::request::ReplayRequest;

/// Global variables of the origin that change what replayed statements do, or which words a FULLTEXT index
/// gets, and that its logs lack. A caller records their values, and gives them to [`origin_options`].
/// `sysdate_is_now` is an option only: [`SYSDATE_IS_NOW`] asks for it.
/// Plugins, and what encryption needs, come in addition.
pub const ORIGIN_SETTINGS: [&str; 76] = [
    "activate_all_roles_on_login",
    "alter_algorithm",
    "analyze_max_length",
    "analyze_sample_percentage",
    "aria_encrypt_tables",
    "aria_page_checksum",
    "automatic_sp_privileges",
    "block_encryption_mode",
    "character_set_filesystem",
    "character_set_server",
    "collation_server",
    "cte_max_recursion_depth",
    "default_regex_flags",
    "default_storage_engine",
    "default_table_encryption",
    "default_tmp_storage_engine",
    "default_week_format",
    "disabled_storage_engines",
    "div_precision_increment",
    "enforce_storage_engine",
    "explicit_defaults_for_timestamp",
    "external_table_storage_engine",
    "ft_boolean_syntax",
    "ft_max_word_len",
    "ft_min_word_len",
    "ft_query_expansion_limit",
    "ft_stopword_file",
    "group_concat_max_len",
    "histogram_size",
    "histogram_type",
    "innodb_autoinc_lock_mode",
    "innodb_compression_algorithm",
    "innodb_compression_default",
    "innodb_compression_level",
    "innodb_default_encryption_key_id",
    "innodb_default_row_format",
    "innodb_encrypt_tables",
    "innodb_file_per_table",
    "innodb_ft_enable_stopword",
    "innodb_ft_max_token_size",
    "innodb_ft_min_token_size",
    "innodb_ft_server_stopword_table",
    "innodb_ft_user_stopword_table",
    "innodb_instant_alter_column_allowed",
    "innodb_optimize_fulltext_only",
    "innodb_strict_mode",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_heap_table_size",
    "max_points_in_geometry",
    "max_recursive_iterations",
    "max_sort_length",
    "max_sp_recursion_depth",
    "mhnsw_default_distance",
    "mhnsw_default_m",
    "myisam_data_pointer_size",
    "mysql56_temporal_format",
    "ngram_token_size",
    "old_alter_table",
    "old_mode",
    "old_passwords",
    "partial_revokes",
    "regexp_stack_limit",
    "regexp_time_limit",
    "restrict_fk_on_non_standard_key",
    "sql_generate_invisible_primary_key",
    "sql_mode",
    "sql_require_primary_key",
    "standard_compliant_cte",
    "sysdate_is_now",
    "system_versioning_alter_history",
    "table_encryption_privilege_check",
    "updatable_views_with_limit",
    "use_stat_tables",
    "windowing_use_high_precision",
    "xa_detach_on_prepare",
];

/// Statement that lists the engines of a server.
pub const ENGINES: &str =
    "SELECT engine FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT') ORDER BY 1";

/// Statement with the value of `sysdate_is_now`, which no variable has.
pub const SYSDATE_IS_NOW: &str = "SELECT SLEEP(0.002), IF(SYSDATE(6) = NOW(6), 'ON', 'OFF')";

/// Variables that name a table, as `schema/table`.
const TABLES: [&str; 2] = ["innodb_ft_server_stopword_table", "innodb_ft_user_stopword_table"];
/// Values by which a server says that a variable has none.
const NO_VALUES: [&str; 3] = ["", "NULL", "(built-in)"];

/// Returns the options that give these values of the origin to a private server. Variables that are not in
/// [`ORIGIN_SETTINGS`], and values that say nothing or have other characters than such values have, are passed
/// over.
pub fn origin_options<'a>(
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = OsString> {
    // A later server may not have one of them.
    let option = |(name, value)| OsString::from(format!("--loose-{name}={value}"));
    values.into_iter().filter(has_value).filter(is_plain).map(option)
}

/// Returns the variables of [`ORIGIN_SETTINGS`] whose value no private server gets, such as a file on the origin.
pub fn lost_settings<'a>(
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = &'a str> {
    values.into_iter().filter(has_value).filter(|value| !is_plain(value)).map(|(name, _)| name)
}

/// Variables of which an empty value is one, and not the default of each server. Others without a value are NULL.
const MAY_BE_EMPTY: [&str; 4] = ["default_regex_flags", "ft_stopword_file", "old_mode", "sql_mode"];

/// Returns the statement that gives a variable of [`ORIGIN_SETTINGS`] this value; `None` if it has other characters than
/// such values have.
pub(crate) fn assignment(name: &str, value: &str) -> Option<String> {
    if !ORIGIN_SETTINGS.contains(&name) {
        return None;
    }
    let value = match value {
        _ if name == STRICT => "OFF".to_owned(),
        "" if MAY_BE_EMPTY.contains(&name) => "''".to_owned(),
        _ if NO_VALUES.contains(&value) => "NULL".to_owned(),
        _ if name == PACKET && !is_plain(&(name, value)) => return None,
        number if is_number(number) => number.to_owned(),
        signs if name == OPERATORS && is_plain(&(name, signs)) => hex(signs),
        plain => is_plain(&(name, plain)).then(|| format!("'{plain}'"))?,
    };
    Some(format!("SET GLOBAL {name} = {value}"))
}

fn is_number(value: &str) -> bool {
    let is_of_one = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    value.bytes().all(is_of_one) && value.parse::<f64>().is_ok()
}

/// A text as a literal that means the same with any `sql_mode`.
pub(crate) fn hex(text: &str) -> String {
    format!("x'{}'", base16ct::lower::encode_string(text.as_bytes()))
}

/// The variable whose value is made of the signs that others lack: no shell and no option file reads them.
const OPERATORS: &str = "ft_boolean_syntax";
/// The variable that limits the texts that functions return, and the statements of clients.
const PACKET: &str = "max_allowed_packet";
/// Below this number of bytes, the statements of the replay itself might be too long for the private server.
const LEAST_PACKET: u64 = 1 << 20;

/// What [`FIXED`] sets, although it is recorded.
const STRICT: &str = "innodb_strict_mode";

fn has_value((name, value): &(&str, &str)) -> bool {
    let is_one = !NO_VALUES.contains(value) || (value.is_empty() && MAY_BE_EMPTY.contains(name));
    is_one && *name != STRICT && ORIGIN_SETTINGS.contains(name)
}

fn is_plain((name, value): &(&str, &str)) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_,-.".contains(&byte);
    match *name {
        OPERATORS => value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()),
        PACKET => value.parse().is_ok_and(|bytes: u64| bytes >= LEAST_PACKET),
        _ => value.bytes().all(|byte| plain(byte) || (byte == b'/' && TABLES.contains(name))),
    }
}

/// Options of MariaDB.
const OF_MARIADB: [&str; 6] = [
    "--slave-parallel-mode=optimistic",
    // A table that exists already, or is not there, is an error here, and not a retry.
    "--slave-ddl-exec-mode=STRICT",
    "--slave-max-allowed-packet=1G",
    "--gtid-strict-mode=OFF",
    "--performance-schema=OFF",
    // Of an origin whose limit is not known: no table is full that was not full there. With more, the server would allocate
    // gigabytes for the first row of each.
    "--max-heap-table-size=4294966272",
];
/// Options of MySQL. Its errors are in its performance schema.
const OF_MYSQL: [&str; 11] = [
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--replica-preserve-commit-order=ON",
    "--replica-exec-mode=STRICT",
    "--replica-max-allowed-packet=1G",
    // With OFF, the server reads the relay logs as after a crash, takes the second use of an XA name for
    // damage, and cuts them off there. With ON it leaves them alone: it recovers only where it starts with some.
    "--relay-log-recovery=ON",
    "--super-read-only=OFF",
    // As above; MySQL allocates less.
    "--max-heap-table-size=1099511627776",
    // It leaves nothing of its own.
    "--loose-auto-generate-certs=OFF",
    "--loose-sha256-password-auto-generate-rsa-keys=OFF",
    "--loose-caching-sha2-password-auto-generate-rsa-keys=OFF",
];
/// Least memory of the server, in bytes.
const MIN_MEMORY: u64 = 128 << 20;

/// Options with which the server passes over what it cannot apply, or does more than the logs say, and the value without effect.
const LENIENT: [(&str, &str); 11] = [
    ("slave_skip_errors", "OFF"),
    ("replica_skip_errors", "OFF"),
    ("slave_exec_mode", "STRICT"),
    ("slave_ddl_exec_mode", "STRICT"),
    ("replica_exec_mode", "STRICT"),
    ("slave_type_conversions", ""),
    ("replica_type_conversions", ""),
    ("init_slave", ""),
    ("init_replica", ""),
    ("sql_slave_skip_counter", "0"),
    // The logs have the rows that triggers have changed.
    ("slave_run_triggers_for_rbr", "NO"),
];
/// A shorter name may be one of many options.
const SHORTEST: usize = "init_s".len();

/// Returns the option with which a replay would end as [`ReplayError::Lenient`](crate::ReplayError::Lenient), as `NAME=VALUE`,
/// as far as the words tell: a server takes the beginning of a name for the whole one, and the last value of several.
#[must_use]
pub fn lenient_option<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut found = BTreeMap::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(word) = word.strip_prefix("--") else { continue };
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let name = name.replace('-', "_");
        let name = name.strip_prefix("loose_").unwrap_or(&name);
        let is_it = |(known, _): &&(&str, &str)| name.len() >= SHORTEST && known.starts_with(name);
        let Some((known, harmless)) = LENIENT.iter().find(is_it) else { continue };
        let value = value.or_else(|| words.next_if(|next| !next.starts_with('-')));
        let value = value.unwrap_or_default();
        let is_harmless = value.is_empty()
            || value.eq_ignore_ascii_case(harmless)
            || (value == "0" && known.ends_with("exec_mode"));
        found.insert(*known, (!is_harmless).then(|| format!("{known}={value}")));
    }
    found.into_values().flatten().next()
}

/// Options that do not depend on what is replayed.
const FIXED: [&str; 21] = [
    "--max-allowed-packet=1G",
    "--relay-log-purge=ON",
    "--read-only=OFF",
    // With DISABLED, no statement could create an event.
    "--event-scheduler=OFF",
    // DATA DIRECTORY could be that of a running server.
    "--loose-skip-symbolic-links",
    // Engines with tables on other servers: the origin has changed them already. The data itself may say
    // that the server is to load them.
    "--loose-federated=OFF",
    "--loose-spider=OFF",
    "--loose-connect=OFF",
    // Without that engine, MariaDB has taken its name for the beginning of this option, which is 0 then: the server would hang
    // up on whoever does not answer at once.
    "--connect-timeout=10",
    "--loose-sphinx=OFF",
    "--loose-s3=OFF",
    // A session may have made a table with OFF, which no log has. ON makes errors of warnings, and what the origin refused is in
    // no log.
    "--innodb-strict-mode=OFF",
    // The origin has judged the passwords, by rules of its own.
    "--loose-simple-password-check=OFF",
    "--loose-cracklib-password-check=OFF",
    "--loose-password-reuse-check=OFF",
    // After a crash, everything begins again.
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    // Nothing else uses the disk.
    "--innodb-io-capacity=100000",
    "--innodb-io-capacity-max=200000",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
];

/// The options of the server, the caller's before those with which the server would hide what it has left out.
pub(crate) fn options(
    request: &ReplayRequest,
    own: &Path,
    dialect: &Dialect,
    end: &RelayEnd,
) -> Vec<OsString> {
    let threads = if end.needs_order { 1 } else { request.threads };
    let memory = request.memory.max(MIN_MEMORY);
    let path = |option: &str, name: &str| {
        let mut word = OsString::from(option);
        word.push(own.join(name));
        word
    };
    let mut options = vec![
        path("--relay-log=", BASE),
        path("--relay-log-index=", INDEX),
        format!("--innodb-buffer-pool-size={}", memory / 8 * 5).into(),
        format!("--key-buffer-size={}", memory / 16).into(),
    ];
    let redo = (memory / 4).clamp(64 << 20, 1 << 30);
    match dialect.is_mysql() {
        true => {
            options.push(format!("--replica-parallel-workers={}", threads.max(1)).into());
            options.push(format!("--loose-innodb-redo-log-capacity={redo}").into());
            options.extend(OF_MYSQL.map(OsString::from));
        }
        false => options.extend(
            [
                // In the data directory they would outlive the replay.
                path("--master-info-file=", "master.info"),
                path("--relay-log-info-file=", "relay-log.info"),
                format!("--slave-parallel-threads={}", parallel(threads)).into(),
                format!("--innodb-log-file-size={redo}").into(),
                format!("--aria-pagecache-buffer-size={}", memory / 16).into(),
            ]
            .into_iter()
            .chain(OF_MARIADB.map(OsString::from)),
        ),
    }
    options.extend(FIXED.map(OsString::from));
    options.extend(request.settings.iter().cloned());
    // It leaves out what a server with its own number wrote.
    options.push(format!("--server-id={}", end.free_server_id).into());
    if dialect.is_mysql() {
        // Its filters and errors are there.
        options.push("--performance-schema=ON".into());
    }
    options
}

/// Number of workers of the server; 0 applies without any.
fn parallel(threads: u32) -> u32 {
    if threads > 1 { threads } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_missing_changes_no_other_option() {
        let server = xb_testkit::tools::find("mariadbd");
        let ran = xb_testkit::command::Cmd::new(server)
            .arg("--no-defaults")
            .args(FIXED)
            .args(["--verbose", "--help"])
            .run();
        let (shown, said) = (ran.stdout_text(), ran.stderr_text());
        let mut others = said.lines().filter(|line| line.contains("option prefix"));
        assert_eq!(others.find(|line| !line.contains("'connect'")), None, "{said}");
        let timeout = shown.lines().find(|line| line.starts_with("connect-timeout "));
        assert!(timeout.is_some_and(|line| line.ends_with(" 10")), "{timeout:?}");
    }

    #[test]
    fn options_that_pass_over_errors_are_known_by_their_words() {
        for (words, expected) in [
            (&["--slave-skip-errors=all"][..], Some("slave_skip_errors=all")),
            (&["--slave_skip-err", "1032"], Some("slave_skip_errors=1032")),
            (&["--loose-replica-exec-mode=idempotent"], Some("replica_exec_mode=idempotent")),
            (&["--init-slave=DELETE FROM x.t"], Some("init_slave=DELETE FROM x.t")),
            (&["--slave-type-conversions=ALL_LOSSY"], Some("slave_type_conversions=ALL_LOSSY")),
            (&["--slave-run-triggers-for-rbr=YES"], Some("slave_run_triggers_for_rbr=YES")),
            (&["--slave-exec-mode=IDEMPOTENT", "--slave-exec-mode=strict"], None),
            (&["--slave-skip-errors=OFF", "--init-slave=", "--slave-type-conversions"], None),
            (
                &["--init-connect=SET NAMES utf8", "--init-file=x", "--slave-parallel-threads=4"],
                None,
            ),
            (&["--plugin-load-add=file_key_management", "slave-skip-errors=all", "--"], None),
        ] {
            assert_eq!(lenient_option(words.iter().copied()).as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn a_setting_gets_its_value_as_the_server_states_it() {
        for (name, value, expected) in [
            ("sql_mode", "", Some("sql_mode = ''")),
            ("sql_mode", "ANSI_QUOTES,NO_ZERO_DATE", Some("sql_mode = 'ANSI_QUOTES,NO_ZERO_DATE'")),
            ("enforce_storage_engine", "NULL", Some("enforce_storage_engine = NULL")),
            ("innodb_ft_user_stopword_table", "", Some("innodb_ft_user_stopword_table = NULL")),
            ("innodb_ft_user_stopword_table", "a/b", Some("innodb_ft_user_stopword_table = 'a/b'")),
            ("max_heap_table_size", "16384", Some("max_heap_table_size = 16384")),
            ("max_sp_recursion_depth", "5", Some("max_sp_recursion_depth = 5")),
            ("standard_compliant_cte", "OFF", Some("standard_compliant_cte = 'OFF'")),
            ("old_passwords", "ON", Some("old_passwords = 'ON'")),
            (
                "analyze_sample_percentage",
                "100.000000",
                Some("analyze_sample_percentage = 100.000000"),
            ),
            ("innodb_strict_mode", "ON", Some("innodb_strict_mode = OFF")),
            ("old_mode", "x' --", None),
            ("ft_boolean_syntax", "+ -'", Some("ft_boolean_syntax = x'2b202d27'")),
            ("ft_boolean_syntax", "a\n", None),
            ("max_allowed_packet", "1048576", Some("max_allowed_packet = 1048576")),
            ("max_allowed_packet", "1024", None),
            ("init_connect", "x", None),
        ] {
            let expected = expected.map(|rest| format!("SET GLOBAL {rest}"));
            assert_eq!(assignment(name, value), expected, "{name}={value}");
        }
    }

    #[test]
    fn only_known_settings_with_plain_values_become_options() {
        let values = [
            ("sql_mode", "STRICT_TRANS_TABLES,ANSI_QUOTES"),
            ("old_mode", ""),
            ("enforce_storage_engine", "NULL"),
            ("init_file", "x"),
            ("collation_server", "utf8mb4_bin --init-file=x"),
            // Always off.
            ("innodb_strict_mode", "ON"),
            ("innodb_ft_server_stopword_table", "shop/words"),
            ("ft_stopword_file", "/etc/mysql/words"),
            ("tmpdir", "/tmp"),
            ("ft_boolean_syntax", "+ -><()~*:\"\"&|"),
            ("max_allowed_packet", "1024"),
            ("disabled_storage_engines", "MyISAM,MEMORY"),
        ];
        let options: Vec<OsString> = origin_options(values).collect();
        let expected = [
            "--loose-sql_mode=STRICT_TRANS_TABLES,ANSI_QUOTES",
            "--loose-old_mode=",
            "--loose-innodb_ft_server_stopword_table=shop/words",
            "--loose-ft_boolean_syntax=+ -><()~*:\"\"&|",
            "--loose-disabled_storage_engines=MyISAM,MEMORY",
        ];
        assert_eq!(options, expected);
        let lost: Vec<&str> = lost_settings(values).collect();
        assert_eq!(lost, ["collation_server", "ft_stopword_file", "max_allowed_packet"]);
        assert_eq!(lost_settings([("ft_stopword_file", "(built-in)")]).count(), 0);
    }
}
