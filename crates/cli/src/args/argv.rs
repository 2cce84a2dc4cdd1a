//! Parser of command lines in the style of MySQL's tools, for the options that clap knows.
//!
//! Values are not judged here: the arguments are rewritten into a form that clap cannot misread
//! (`--long=value`, one option per argument), and clap does the rest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Command;

use crate::args::option_table::{Kind, Meaning, OptionTable, dashed};

/// Configures clap for the stock tools' option syntax, for the command and all its subcommands: a
/// later value overrides an earlier one, and unique prefixes of long names are accepted.
pub fn mysql_style(command: Command) -> Command {
    command.args_override_self(true).infer_long_args(true)
}

/// Meaning of a full long name and its value.
pub(crate) enum LongOption {
    Item(Item),
    /// A switch with an invalid switch value.
    BadSwitch,
    Unknown,
}

/// One parsed element of an argument.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Item {
    /// A switch, or an option without its optional value.
    On(String),
    /// A switch turned off: its earlier uses do not count.
    Off(String),
    /// An option with its value.
    Value(String, OsString),
    /// An argument that is not an option.
    Word(OsString),
    /// `--`: no options follow.
    EndOfOptions,
    /// An unknown option as written; clap reports the error.
    Unknown(OsString),
    /// An unknown option that may be ignored (`--loose-NAME`): its name.
    Loose(String),
}

/// Reads the first of `words`, and the next one if it is the value of the first.
pub(crate) fn next_items(
    words: &mut std::slice::Iter<'_, OsString>,
    table: &OptionTable,
) -> Vec<Item> {
    let Some(word) = words.next() else { return Vec::new() };
    let bytes = word.as_bytes();
    if bytes == b"--" {
        return vec![Item::EndOfOptions];
    }
    if let Some(long) = bytes.strip_prefix(b"--") {
        return long_items(word, long, words, table);
    }
    match bytes.strip_prefix(b"-") {
        Some(cluster) if !cluster.is_empty() => cluster_items(cluster, words, table),
        _ => vec![Item::Word(word.clone())],
    }
}

fn long_items(
    word: &OsString,
    long: &[u8],
    words: &mut std::slice::Iter<'_, OsString>,
    table: &OptionTable,
) -> Vec<Item> {
    let equals = long.iter().position(|byte| *byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&long[..at], Some(OsStr::from_bytes(&long[at + 1..]))),
        None => (long, None),
    };
    let Ok(name) = std::str::from_utf8(name) else { return vec![Item::Unknown(word.clone())] };
    match parse_option(name, value, table) {
        ParsedOption::Item(item) => vec![item],
        ParsedOption::WantsValue(key) => match words.next() {
            Some(value) => vec![Item::Value(key, value.clone())],
            // Clap reports the missing value.
            None => vec![Item::Unknown(word.clone())],
        },
        ParsedOption::Ambiguous(takes_next) => {
            let next = if takes_next { words.next() } else { None };
            std::iter::once(word).chain(next).cloned().map(Item::Unknown).collect()
        }
        ParsedOption::BadSwitch | ParsedOption::Unknown => vec![Item::Unknown(word.clone())],
        ParsedOption::Loose(name) => vec![Item::Loose(name)],
    }
}

/// Result of parsing a long option without its dashes, from the command line or a file.
pub(crate) enum ParsedOption {
    Item(Item),
    /// The option needs a value and has none yet.
    WantsValue(String),
    /// A prefix of several options; true if all of them take a value.
    Ambiguous(bool),
    /// A switch with an invalid switch value.
    BadSwitch,
    Unknown,
    /// Unknown, but given as `loose-NAME`.
    Loose(String),
}

/// Parses `name` and `value` as a long option.
pub(crate) fn parse_option(name: &str, value: Option<&OsStr>, table: &OptionTable) -> ParsedOption {
    match table.meaning(name) {
        Meaning::Option(key, kind) => option_of(key.to_owned(), kind, value),
        Meaning::Ambiguous(kind) => {
            ParsedOption::Ambiguous(value.is_none() && kind == Some(Kind::Value))
        }
        Meaning::Unknown => prefixed_option(&dashed(name), value, table),
    }
}

fn option_of(key: String, kind: Kind, value: Option<&OsStr>) -> ParsedOption {
    match (kind, value) {
        (Kind::Switch | Kind::OptionalValue, None) => ParsedOption::Item(Item::On(key)),
        (Kind::Switch, Some(value)) => match switch_value(value) {
            Some(true) => ParsedOption::Item(Item::On(key)),
            Some(false) => ParsedOption::Item(Item::Off(key)),
            None => ParsedOption::BadSwitch,
        },
        (Kind::Value, None) => ParsedOption::WantsValue(key),
        (Kind::Value | Kind::OptionalValue, Some(value)) => {
            ParsedOption::Item(Item::Value(key, value.to_owned()))
        }
    }
}

/// Parses the prefix `loose-`, and for switches `skip-`, `disable-` and `enable-`.
fn prefixed_option(name: &str, value: Option<&OsStr>, table: &OptionTable) -> ParsedOption {
    if let Some(rest) = name.strip_prefix("loose-") {
        return match parse_option(rest, value, table) {
            ParsedOption::Unknown => ParsedOption::Loose(rest.to_owned()),
            known => known,
        };
    }
    let (rest, on) = if let Some(rest) = name.strip_prefix("enable-") {
        (rest, true)
    } else if let Some(rest) = name.strip_prefix("skip-").or(name.strip_prefix("disable-")) {
        (rest, false)
    } else {
        return ParsedOption::Unknown;
    };
    match (table.meaning(rest), value, on) {
        (Meaning::Option(key, Kind::Switch), None, true) => {
            ParsedOption::Item(Item::On(key.to_owned()))
        }
        (Meaning::Option(key, Kind::Switch), None, false) => {
            ParsedOption::Item(Item::Off(key.to_owned()))
        }
        (Meaning::Option(key, Kind::OptionalValue), None, on) => {
            let value = if on { "true" } else { "false" };
            ParsedOption::Item(Item::Value(key.to_owned(), value.into()))
        }
        _ => ParsedOption::Unknown,
    }
}

/// Parses a full long name with a value.
pub(crate) fn exact_option(long: &str, value: &OsStr, table: &OptionTable) -> LongOption {
    let Some((key, kind)) = table.full(long) else { return LongOption::Unknown };
    match option_of(key.to_owned(), kind, Some(value)) {
        ParsedOption::Item(item) => LongOption::Item(item),
        _ => LongOption::BadSwitch,
    }
}

fn switch_value(value: &OsStr) -> Option<bool> {
    let value = value.to_str()?.to_ascii_lowercase();
    match value.as_str() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// Parses `-xv`, `-t4`, `-xt 4`: one option per letter, up to the first that takes a value.
fn cluster_items(
    cluster: &[u8],
    words: &mut std::slice::Iter<'_, OsString>,
    table: &OptionTable,
) -> Vec<Item> {
    let mut items = Vec::new();
    for (at, byte) in cluster.iter().enumerate() {
        let rest = &cluster[at + 1..];
        if *byte == b'-' {
            // A single `-` inside a cluster would look like the start of a long option: reject the
            // whole argument.
            return vec![unknown_letters(cluster)];
        }
        // Letters outside ASCII are never options.
        let meaning =
            if byte.is_ascii() { table.short(char::from(*byte)) } else { Meaning::Unknown };
        match meaning {
            // The letter stays as it is for this switch only: clap's `-h` prints a shorter help
            // than `--help`.
            Meaning::Option("help", Kind::Switch) if *byte == b'h' => {
                items.push(Item::Unknown("-h".into()));
            }
            Meaning::Option(key, Kind::Switch) => items.push(Item::On(key.to_owned())),
            Meaning::Option(key, Kind::OptionalValue) if rest.is_empty() => {
                items.push(Item::On(key.to_owned()));
            }
            Meaning::Option(key, _) => {
                let value = if rest.is_empty() {
                    words.next().cloned()
                } else {
                    // As in clap: `-t=4` is `-t4`.
                    let glued = rest.strip_prefix(b"=").unwrap_or(rest);
                    Some(OsString::from_vec(glued.to_vec()))
                };
                items.push(match value {
                    Some(value) => Item::Value(key.to_owned(), value),
                    None => unknown_letters(&cluster[at..]),
                });
                return items;
            }
            Meaning::Ambiguous(_) | Meaning::Unknown => {
                items.push(unknown_letters(&cluster[at..]));
                return items;
            }
        }
    }
    items
}

fn unknown_letters(letters: &[u8]) -> Item {
    Item::Unknown(OsString::from_vec([b"-", letters].concat()))
}

/// Returns the arguments for clap. A switch that was turned off removes its earlier uses.
pub(crate) fn words(items: &[Item]) -> Vec<OsString> {
    let off = |at: usize, key: &String| {
        items[at..].iter().any(|later| matches!(later, Item::Off(off) if off == key))
    };
    let mut words = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match item {
            Item::On(key) if off(at, key) => {}
            Item::On(key) => words.push(option_word(key)),
            Item::Value(key, value) => {
                let mut word = option_word(key);
                // A letter also accepts its value after `=`.
                word.push("=");
                word.push(value);
                words.push(word);
            }
            Item::Word(word) | Item::Unknown(word) => words.push(word.clone()),
            Item::EndOfOptions => words.push("--".into()),
            Item::Off(_) | Item::Loose(_) => {}
        }
    }
    words
}

fn option_word(key: &str) -> OsString {
    // A key of one letter is that of an option without a long name: here, clap has no long names of
    // one letter.
    let dashes = if key.chars().count() == 1 { "-" } else { "--" };
    format!("{dashes}{key}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};
    use proptest::prelude::*;

    fn command() -> Command {
        mysql_style(
            Command::new("x")
                .arg(clap::arg!(-p --parallel <N>).alias("threads"))
                .arg(clap::arg!(-v --verbose ...))
                .arg(clap::arg!(-x - -extract))
                .arg(clap::arg!(--"dry-run"))
                .arg(clap::arg!(-z <Z>).required(false))
                .arg(clap::arg!(--insecure))
                .arg(
                    clap::arg!(-m --md5 <WHEN>)
                        .required(false)
                        .num_args(0..=1)
                        .require_equals(true)
                        .default_missing_value("true"),
                )
                .arg(clap::arg!(<NAME> ...).required(false)),
        )
    }

    fn table() -> OptionTable {
        let mut command = command();
        command.build();
        let mut table = OptionTable::default();
        table.add_command(&command);
        table
    }

    fn rewrite(line: &[&str]) -> Vec<String> {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        let table = table();
        let mut rest = line.iter();
        let mut items = Vec::new();
        while rest.len() > 0 && items.last() != Some(&Item::EndOfOptions) {
            items.extend(next_items(&mut rest, &table));
        }
        items.extend(rest.cloned().map(Item::Word));
        words(&items).into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn words_are_rewritten() {
        let table: &[(&[&str], &[&str])] = &[
            (&[], &[]),
            (&["a", "-", "b"], &["a", "-", "b"]),
            // Values.
            (&["--parallel=4"], &["--parallel=4"]),
            (&["--parallel", "4", "f"], &["--parallel=4", "f"]),
            (&["--parallel", "-v"], &["--parallel=-v"]),
            (&["--parallel="], &["--parallel="]),
            (&["--parallel"], &["--parallel"]),
            (&["-p4"], &["--parallel=4"]),
            (&["-p", "4"], &["--parallel=4"]),
            (&["-p"], &["-p"]),
            (&["-z4", "-z", "5", "-z=6"], &["-z=4", "-z=5", "-z=6"]),
            // Names.
            (&["--par", "4"], &["--parallel=4"]),
            (&["--threads", "4"], &["--parallel=4"]),
            (&["--dry_run", "a_b"], &["--dry-run", "a_b"]),
            (&["--dry_r=1", "--parallel=a_b"], &["--dry-run", "--parallel=a_b"]),
            // Clusters.
            (&["-xv"], &["--extract", "--verbose"]),
            (&["-xp4"], &["--extract", "--parallel=4"]),
            (&["-xp", "4", "f"], &["--extract", "--parallel=4", "f"]),
            (&["-xqv"], &["--extract", "-qv"]),
            (&["-?"], &["--help"]),
            (&["-?-t=", "-v-par=4"], &["-?-t=", "-v-par=4"]),
            // Optional values only after `=`.
            (&["--md5", "f"], &["--md5", "f"]),
            (&["--md5=on", "-m", "f", "-moff"], &["--md5=on", "--md5", "f", "--md5=off"]),
            (&["--skip-md5", "--enable-md5"], &["--md5=false", "--md5=true"]),
            // Switches.
            (&["--insecure=1", "--dry-run=TRUE"], &["--insecure", "--dry-run"]),
            (&["--insecure=0"], &[]),
            (&["-v", "--verbose", "--skip-verbose", "-v"], &["--verbose"]),
            (&["--insecure", "--disable-insecure"], &[]),
            (&["--insecure", "--insecure=off", "--enable-insecure"], &["--insecure"]),
            (&["--insecure", "--skip_inse", "x"], &["x"]),
            (&["--insecure=maybe"], &["--insecure=maybe"]),
            (&["--skip-parallel"], &["--skip-parallel"]),
            (&["--skip-insecure=1"], &["--skip-insecure=1"]),
            // Unknown.
            (&["--bogus=1", "--bogus", "x"], &["--bogus=1", "--bogus", "x"]),
            (&["--loose-bogus=1", "--loose_parallel=2"], &["--parallel=2"]),
            // Arguments after `--` stay unchanged.
            (&["-v", "--", "--par", "-xv"], &["--verbose", "--", "--par", "-xv"]),
        ];
        for (line, expected) in table {
            assert_eq!(rewrite(line), *expected, "{line:?}");
        }
    }

    #[test]
    fn ambiguous_prefixes_are_left_to_clap() {
        let mut table = OptionTable::default();
        for arg in [clap::arg!(--"s3-key" <K>), clap::arg!(--"s3-region" <R>), clap::arg!(--s <S>)]
        {
            table.add_arg(&arg);
        }
        table.add_arg(&Arg::new("s3-off").long("s3-off").action(ArgAction::SetTrue));
        assert_eq!(table.meaning("s3_"), Meaning::Ambiguous(None));
        assert_eq!(table.meaning("s3_k"), Meaning::Option("s3-key", Kind::Value));
        assert_eq!(table.meaning(""), Meaning::Unknown);
        assert_eq!(table.meaning("zz"), Meaning::Unknown);
        // A full name takes precedence over the prefix of another name.
        assert_eq!(table.meaning("s"), Meaning::Option("s", Kind::Value));
    }

    #[test]
    fn clap_takes_what_is_written() {
        let matches = |line: &[&str]| {
            let line = rewrite(line);
            command().try_get_matches_from(std::iter::once("x".to_owned()).chain(line)).unwrap()
        };
        let found =
            matches(&["-p4", "-vv", "--skip-verbose", "-v", "-mno", "-z", "-q", "f", "--", "-g"]);
        assert_eq!(found.get_one::<String>("parallel").unwrap(), "4");
        assert_eq!(found.get_count("verbose"), 1);
        assert_eq!(found.get_one::<String>("md5").unwrap(), "no");
        assert_eq!(found.get_one::<String>("Z").unwrap(), "-q");
        let names: Vec<_> = found.get_many::<String>("NAME").unwrap().collect();
        assert_eq!(names, ["f", "-g"]);
        assert_eq!(matches(&["--md5", "f"]).get_one::<String>("md5").unwrap(), "true");
    }

    #[test]
    fn words_that_are_not_utf8_pass() {
        let raw = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let line = [raw(b"--parallel=\xff"), raw(b"-p\xff"), raw(b"f\xff"), raw(b"--\xff=1")];
        let (table, mut rest, mut items) = (table(), line.iter(), Vec::new());
        while rest.len() > 0 {
            items.extend(next_items(&mut rest, &table));
        }
        let expected =
            [raw(b"--parallel=\xff"), raw(b"--parallel=\xff"), raw(b"f\xff"), raw(b"--\xff=1")];
        assert_eq!(words(&items), expected);
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in proptest::collection::vec("-{0,3}[a-z_=?é-]{0,9}", 0..8)) {
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let once = rewrite(&line);
            let again: Vec<&str> = once.iter().map(String::as_str).collect();
            // A second rewrite changes nothing.
            prop_assert_eq!(rewrite(&again), once.clone());
        }
    }
}
