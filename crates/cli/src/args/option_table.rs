//! The options of a command by name, with their kinds.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command};

use crate::args::secret::Secret;

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value, or a switch value after `=`.
    Switch,
    /// Required value, after `=` or as the next argument.
    Value,
    /// Optional value, only after `=`.
    OptionalValue,
}

/// Options of a command, by name. Only names and kinds are kept, not clones of `Arg`.
#[derive(Debug, Default, Clone)]
pub(crate) struct OptionTable {
    /// Kinds by long name; for an option without long name, by its letter.
    kinds: BTreeMap<String, Kind>,
    /// Key of `kinds` for each long name and alias, with `-` for `_`.
    longs: BTreeMap<String, String>,
    shorts: BTreeMap<char, String>,
    /// Keys of options whose value is a [`Secret`].
    secrets: BTreeSet<String>,
    /// Keys of options whose values add up.
    repeatable: BTreeSet<String>,
}

/// Meaning of a long name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    Option(&'a str, Kind),
    /// A prefix of several options; the kind, if all have the same.
    Ambiguous(Option<Kind>),
    Unknown,
}

impl OptionTable {
    /// Adds the options of one command, without those of its subcommands. If two commands use one
    /// name for different kinds, the first is kept.
    pub(crate) fn add_command(&mut self, command: &Command) {
        for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
            self.add_arg(arg);
        }
    }

    /// Returns the table with further options, as [`add_command`](Self::add_command) adds them.
    pub(crate) fn with(mut self, args: &[Arg]) -> Self {
        args.iter().for_each(|arg| self.add_arg(arg));
        self
    }

    pub(crate) fn add_arg(&mut self, arg: &Arg) {
        let Some(key) = arg.get_long().map(str::to_owned).or(arg.get_short().map(String::from))
        else {
            return;
        };
        let kind = match arg.get_action() {
            ArgAction::Set | ArgAction::Append => {
                match arg.get_num_args().map(|range| range.min_values()) {
                    Some(0) => Kind::OptionalValue,
                    _ => Kind::Value,
                }
            }
            _ => Kind::Switch,
        };
        let longs = arg.get_long().into_iter().chain(arg.get_all_aliases().into_iter().flatten());
        for long in longs {
            self.longs.entry(dashed(long)).or_insert_with(|| key.clone());
        }
        let shorts = arg.get_short().into_iter();
        for short in shorts.chain(arg.get_all_short_aliases().into_iter().flatten()) {
            self.shorts.entry(short).or_insert_with(|| key.clone());
        }
        if arg.get_value_parser().type_id() == TypeId::of::<Secret>() {
            self.secrets.insert(key.clone());
        }
        if matches!(arg.get_action(), ArgAction::Append) {
            self.repeatable.insert(key.clone());
        }
        self.kinds.entry(key).or_insert(kind);
    }

    /// Returns the meaning of a long name or its prefix; `_` equals `-`.
    pub(crate) fn meaning(&self, name: &str) -> Meaning<'_> {
        let name = dashed(name);
        if let Some(key) = self.longs.get(&name) {
            return self.option(key);
        }
        if name.is_empty() {
            return Meaning::Unknown;
        }
        let keys: BTreeSet<&String> = self
            .longs
            .range(name.clone()..)
            .take_while(|(long, _)| long.starts_with(&name))
            .map(|(_, key)| key)
            .collect();
        let mut kinds = keys.iter().filter_map(|key| self.kinds.get(*key));
        match (keys.first(), kinds.next(), keys.len()) {
            (Some(key), _, 1) => self.option(key),
            (_, Some(first), _) => {
                Meaning::Ambiguous(kinds.all(|kind| kind == first).then_some(*first))
            }
            _ => Meaning::Unknown,
        }
    }

    /// Returns the long names that begin with `name`; `_` equals `-`.
    pub(crate) fn beginning_with(&self, name: &str) -> Vec<String> {
        let name = dashed(name);
        let from = self.longs.range(name.clone()..);
        from.map(|(long, _)| long).take_while(|long| long.starts_with(&name)).cloned().collect()
    }

    /// Returns whether an option has this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.kinds.contains_key(key)
    }

    /// Returns whether the value of the option with this key is secret.
    pub(crate) fn is_secret(&self, key: &str) -> bool {
        self.secrets.contains(key)
    }

    /// Returns whether the values of the option with this key add up.
    pub(crate) fn is_repeatable(&self, key: &str) -> bool {
        self.repeatable.contains(key)
    }

    /// Returns whether an option has this long name.
    pub(crate) fn has_long(&self, long: &str) -> bool {
        self.longs.contains_key(long)
    }

    pub(crate) fn short(&self, letter: char) -> Meaning<'_> {
        match (self.shorts.get(&letter), letter) {
            (Some(key), _) => self.option(key),
            // `-?` means help in the stock tools.
            (None, '?') => self.meaning("help"),
            (None, _) => Meaning::Unknown,
        }
    }

    /// Returns key and kind of the option with this full long name.
    pub(crate) fn full(&self, long: &str) -> Option<(&str, Kind)> {
        let key = self.longs.get(long)?;
        Some((key, *self.kinds.get(key)?))
    }

    fn option<'a>(&'a self, key: &'a str) -> Meaning<'a> {
        self.kinds.get(key).map_or(Meaning::Unknown, |kind| Meaning::Option(key, *kind))
    }
}

/// Replaces `_` by `-` in an option name.
pub(crate) fn dashed(name: &str) -> String {
    name.replace('_', "-")
}
