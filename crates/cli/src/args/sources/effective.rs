//! `--print-defaults`: the value of each option, and where it comes from.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::{Arg, Command};

use crate::args::argv::Item;
use crate::args::hide::without;
use crate::args::option_table::OptionTable;
use crate::args::passwords::secrets_in;
use crate::args::sources::given::SourcedArg;

/// Name of the option that prints the values.
pub(crate) const PRINT_DEFAULTS: &str = "print-defaults";
/// Replacement for a secret.
const HIDDEN: &str = "***";

/// Value of an option, as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) option: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

/// Returns the options of `scope` that have a value, by name; secrets are masked.
pub(crate) fn effective(
    scope: &Command,
    table: &OptionTable,
    given: &[SourcedArg],
    fallbacks: &[(&str, &[&str])],
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Effective> {
    let mut options = BTreeMap::new();
    collect(scope, &mut options);
    let mut rows = Vec::new();
    for (long, arg) in options {
        let shown = |value: &OsStr| shown(&long, value, table);
        let row = |value: String, source: String| Effective { option: long.clone(), value, source };
        let own: Vec<&SourcedArg> =
            given.iter().filter(|given| given.key() == Some(long.as_str())).collect();
        let from = own.iter().rposition(|given| matches!(given.item, Item::Off(_))).unwrap_or(0);
        let from = if table.is_repeatable(&long) { from } else { own.len().saturating_sub(1) };
        for given in &own[from..] {
            let value = match &given.item {
                Item::Value(_, value) => shown(value),
                Item::Off(_) => "false".to_owned(),
                _ => "true".to_owned(),
            };
            rows.push(row(value, given.origin.to_string()));
        }
        if !own.is_empty() {
            continue;
        }
        let names = fallbacks.iter().find(|(option, _)| *option == long).map(|(_, names)| *names);
        let fallback = names.into_iter().flatten().find_map(|name| Some((name, variable(name)?)));
        if let Some((name, value)) = fallback {
            rows.push(row(shown(OsStr::new(&value)), format!("environment variable {name}")));
        } else if let [value] = arg.get_default_values()
            && arg.get_action().takes_values()
        {
            rows.push(row(shown(value), "default".to_owned()));
        }
    }
    rows
}

fn collect(command: &Command, options: &mut BTreeMap<String, Arg>) {
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        if let Some(long) = arg.get_long().filter(|long| *long != PRINT_DEFAULTS) {
            options.entry(long.to_owned()).or_insert_with(|| arg.clone());
        }
    }
    command.get_subcommands().for_each(|subcommand| collect(subcommand, options));
}

/// The value without secrets. An option of ours may hold the command line of another program.
fn shown(option: &str, value: &OsStr, table: &OptionTable) -> String {
    if table.is_secret(option) {
        return HIDDEN.to_owned();
    }
    without(value, &secrets_in([value])).to_string_lossy().into_owned()
}

/// The rows as a table.
pub(crate) fn table(rows: &[Effective]) -> String {
    let width = |text: fn(&Effective) -> &str| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0)
    };
    let (options, values) = (width(|row| &row.option), width(|row| &row.value).min(48));
    let line = |row: &Effective| {
        format!("{:options$}  {:values$}  {}\n", row.option, row.value, row.source)
    };
    rows.iter().map(line).collect()
}

/// The rows as a JSON array.
pub(crate) fn json(rows: &[Effective]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "option": row.option, "value": row.value, "source": row.source,
            })
        })
        .collect();
    format!("{:#}\n", serde_json::Value::Array(rows))
}
