//! Options about option files: MySQL's tools accept them only before all others.

use std::ffi::OsString;
use std::slice::Iter;

use clap::{Arg, ArgAction};

use xb_option_files::OptionFileArgs;

use crate::args::argv::{Item, next_items};
use crate::args::option_table::OptionTable;

const DEFAULTS_FILE: &str = "defaults-file";
const DEFAULTS_EXTRA_FILE: &str = "defaults-extra-file";
const DEFAULTS_GROUP_SUFFIX: &str = "defaults-group-suffix";
const NO_DEFAULTS: &str = "no-defaults";
pub(crate) const LOGIN_PATH: &str = "login-path";
const NO_LOGIN_PATHS: &str = "no-login-paths";

/// Returns the options about option files, for clap's help; [`expand`] removes them from the
/// arguments. `short` is the letter of `--defaults-file`, which stock `xbcloud` calls `-c`.
pub(crate) fn defaults_args(short: Option<char>) -> Vec<Arg> {
    let with_value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let mut file = with_value(DEFAULTS_FILE, "FILE", "Read options only from this file");
    if let Some(short) = short {
        file = file.short(short);
    }
    vec![
        file,
        with_value(DEFAULTS_EXTRA_FILE, "FILE", "Also read this option file"),
        with_value(DEFAULTS_GROUP_SUFFIX, "SUFFIX", "Also read groups with this suffix"),
        Arg::new(NO_DEFAULTS)
            .long(NO_DEFAULTS)
            .action(ArgAction::SetTrue)
            .help("Read no option files"),
        with_value(LOGIN_PATH, "NAME", "Not supported"),
        Arg::new(NO_LOGIN_PATHS)
            .long(NO_LOGIN_PATHS)
            .action(ArgAction::SetTrue)
            .help("No effect: login paths are not read"),
    ]
}

pub(crate) fn is_default(key: &str, defaults: &[Arg]) -> bool {
    defaults.iter().any(|arg| arg.get_id() == key)
}

/// Removes the options about option files from the front.
pub(crate) fn leading_defaults(
    rest: &mut Iter<'_, OsString>,
    table: &OptionTable,
) -> OptionFileArgs {
    let mut wanted = OptionFileArgs::default();
    loop {
        let mut ahead = rest.clone();
        match next_items(&mut ahead, table).as_slice() {
            [Item::On(key)] if key == NO_DEFAULTS => wanted.none = true,
            [Item::On(key)] if key == NO_LOGIN_PATHS => {}
            [Item::Value(key, value)] => match key.as_str() {
                DEFAULTS_FILE => wanted.only = Some(value.into()),
                DEFAULTS_EXTRA_FILE => wanted.extra = Some(value.into()),
                DEFAULTS_GROUP_SUFFIX => {
                    wanted.group_suffix = Some(value.to_string_lossy().into_owned());
                }
                _ => return wanted,
            },
            _ => return wanted,
        }
        *rest = ahead;
    }
}
