//! Repositories by name: `@shop` on the command line is the group `[GROUP.shop]` of the option
//! files.

use std::ffi::OsString;

use crate::args::argv::Item;
use crate::args::option_table::OptionTable;
use crate::args::sources::given::{Origin, SourcedArg};

/// A program's use of repositories.
#[derive(Debug, Clone, Copy)]
pub struct Repositories {
    /// Option that holds the place of a repository. The environment never replaces the one of a
    /// group: a command that names a repository means its place.
    pub place: &'static str,
    /// Directory where NAME.cnf may have the group of the repository NAME, if no other option file has it.
    pub folder: &'static str,
    /// Option that holds the name of the repository, for commands that have it.
    pub name: &'static str,
    /// Command-line options that override a location that only a group of all repositories or the
    /// environment sets.
    pub rivals: &'static [&'static str],
    /// Options whose value names a place, like the first argument.
    pub options: &'static [&'static str],
    /// Options whose value names a destination.
    pub destination_options: &'static [&'static str],
    /// Subcommands whose second argument names a destination.
    pub destination_commands: &'static [&'static str],
    /// Prefix of the options that apply only to a destination.
    pub destination_prefix: &'static str,
    /// Options about what is written into a repository. In a command with a destination, they apply
    /// to the destination.
    pub written: &'static [&'static str],
}

/// Repositories that a command line names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RepositoryNames {
    pub(crate) source: Option<String>,
    pub(crate) destination: Option<String>,
}

/// Returns the repository in `@shop` or `@shop/NAME`, if `text` is one of these. `@2026-11-20`
/// names a day, so the name of a repository starts with a letter.
pub(crate) fn reference(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('@')?;
    let name = rest.split_once('/').map_or(rest, |(name, _)| name);
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    fits.then_some(name)
}

impl Repositories {
    /// Returns the repositories that `given` names. `subcommand` is the one that runs.
    pub(crate) fn named(&self, subcommand: Option<&str>, given: &[SourcedArg]) -> RepositoryNames {
        let before = given.iter().take_while(|given| given.item != Item::EndOfOptions);
        let mut words = before.filter_map(|given| match &given.item {
            Item::Word(word) => Some(word),
            _ => None,
        });
        let of = |word: Option<&OsString>| {
            word.and_then(|word| word.to_str()).and_then(reference).map(str::to_owned)
        };
        let option = |keys: &[&str]| {
            let mut values = given.iter().rev();
            of(values.find_map(|given| keys.iter().find_map(|key| given.value_of(key))))
        };
        let first = of(words.next());
        let second = subcommand
            .is_some_and(|name| self.destination_commands.contains(&name))
            .then(|| of(words.next()));
        RepositoryNames {
            source: first.or_else(|| option(self.options)),
            destination: second.flatten().or_else(|| option(self.destination_options)),
        }
    }

    /// Returns whether the group of a source sets `key` in `subcommand`.
    pub(crate) fn in_source(&self, subcommand: Option<&str>, key: &str) -> bool {
        let elsewhere = subcommand.is_some_and(|name| self.destination_commands.contains(&name));
        !(elsewhere && self.written.contains(&key))
    }

    /// Turns an option of the destination's group into one of the command, if it applies there.
    pub(crate) fn in_destination(
        &self,
        given: SourcedArg,
        scope: &OptionTable,
    ) -> Option<SourcedArg> {
        let key = given.key()?;
        let own = format!("{}{key}", self.destination_prefix);
        let key = match scope.has(&own) {
            true => own,
            false if self.written.contains(&key) && scope.has(key) => key.to_owned(),
            false => return None,
        };
        let item = match given.item {
            Item::On(_) => Item::On(key),
            Item::Off(_) => Item::Off(key),
            Item::Value(_, value) => Item::Value(key, value),
            other => other,
        };
        Some(SourcedArg { item, origin: given.origin })
    }

    /// Removes places that something more specific replaces.
    pub(crate) fn keep_places(&self, named: &RepositoryNames, given: &mut Vec<SourcedArg>) {
        let is_rival = |given: &SourcedArg| {
            let key = given.key();
            given.origin == Origin::CommandLine && key.is_some_and(|key| self.rivals.contains(&key))
        };
        let rival = named.source.is_none() && given.iter().any(is_rival);
        let to_place = format!("{}{}", self.destination_prefix, self.place);
        given.retain(|given| {
            let of_environment = matches!(given.origin, Origin::Environment(_));
            match given.key() {
                Some(key) if key == self.place => {
                    let replaced = rival || (of_environment && named.source.is_some());
                    given.origin == Origin::CommandLine || !replaced
                }
                Some(key) if key == to_place => !(of_environment && named.destination.is_some()),
                _ => true,
            }
        });
    }

    /// Removes the repository from each reference and keeps what follows it: a plain name, which the
    /// repository's place completes.
    pub(crate) fn strip(&self, subcommand: Option<&str>, given: &mut [SourcedArg]) {
        let two = subcommand.is_some_and(|name| self.destination_commands.contains(&name));
        let mut words = if two { 2 } else { 1 };
        for given in given {
            match &mut given.item {
                Item::EndOfOptions => words = 0,
                Item::Word(word) if words > 0 => {
                    words -= 1;
                    strip_reference(word);
                }
                Item::Value(key, value) => {
                    let key = key.as_str();
                    if self.options.contains(&key) || self.destination_options.contains(&key) {
                        strip_reference(value);
                    }
                }
                _ => {}
            }
        }
    }
}

fn strip_reference(word: &mut OsString) {
    let rest = word.to_str().and_then(|text| {
        let name = reference(text)?;
        text.get(1 + name.len()..)
    });
    if let Some(rest) = rest {
        *word = rest.strip_prefix('/').unwrap_or(rest).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_begins_with_a_letter_and_a_day_with_a_digit() {
        for (text, name) in [
            ("@shop", Some("shop")),
            ("@shop/monday", Some("shop")),
            ("@shop/@2026-11-20", Some("shop")),
            ("@shop.eu-1_b/", Some("shop.eu-1_b")),
            ("@2026-11-20", None),
            ("@", None),
            ("@/x", None),
            ("@a b", None),
            ("shop", None),
            ("s3://b/@shop", None),
        ] {
            assert_eq!(reference(text), name, "{text}");
        }
    }
}
