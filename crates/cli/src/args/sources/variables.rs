//! Options from environment variables: `XBCLOUD_CHUNK_SIZE` is `--chunk-size`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::args::argv::{LongOption, exact_option};
use crate::args::scope::Scope;
use crate::args::sources::given::{Origin, SourcedArg};

/// Options that make no sense for every run of a program.
const NEVER: [&str; 3] = ["help", "version", "print-defaults"];

/// Options set by the environment.
#[derive(Default)]
pub(crate) struct FromEnvironment {
    pub(crate) given: Vec<SourcedArg>,
    pub(crate) warnings: Vec<String>,
    /// Name of a variable for a switch that is neither on nor off.
    pub(crate) bad_switch: Option<String>,
}

/// Returns the options of the subcommand that variables with this prefix set. An empty variable counts as
/// not set; a repeatable option takes one value of each line. Variables with the prefix that are options of no
/// subcommand cause a warning.
pub(crate) fn read(
    prefix: &str,
    variables: impl Iterator<Item = (OsString, OsString)>,
    all: &Scope<'_>,
) -> FromEnvironment {
    let mut own: Vec<(String, OsString)> = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, value)| name.starts_with(prefix) && !value.is_empty())
        .collect();
    own.sort();
    let mut found = FromEnvironment::default();
    for (name, value) in own {
        let option = name[prefix.len()..].to_ascii_lowercase().replace('_', "-");
        if NEVER.contains(&option.as_str()) || !all.options_for(&option).has_long(&option) {
            found.warnings.push(format!("environment variable {name} is ignored: unknown option"));
            continue;
        }
        let values: Vec<&OsStr> = match all.scope.is_repeatable(&option) {
            true => value
                .as_bytes()
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(OsStr::from_bytes)
                .collect(),
            false => vec![&value],
        };
        for value in values {
            match exact_option(&option, value, &all.scope) {
                LongOption::Item(item) => {
                    found.given.push(SourcedArg { item, origin: Origin::Environment(name.clone()) })
                }
                LongOption::BadSwitch => found.bad_switch = Some(name.clone()),
                // An option of another subcommand.
                LongOption::Unknown => {}
            }
        }
    }
    found
}
