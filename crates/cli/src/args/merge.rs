//! The values of all sources in one list, lowest precedence first.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xb_option_files::{FileOption, OptionFileArgs, OptionFilePaths, load};

use crate::args::argv::{Item, ParsedOption, parse_option};
use crate::args::option_table::OptionTable;
use crate::args::scope::Scope;
use crate::args::sources::variables::{self, FromEnvironment};
use crate::args::sources::{Origin, SourcedArg, Sources};
use crate::args::usage_error::UsageError;

/// Returns the items of all sources, lowest precedence first.
pub(crate) fn all_given(
    sources: &Sources<'_>,
    places: &OptionFilePaths,
    wanted: &OptionFileArgs,
    own: Vec<Item>,
    all: &Scope<'_>,
    variables: &[(OsString, OsString)],
    warnings: &mut Vec<String>,
) -> Result<Vec<SourcedArg>, UsageError> {
    let (given_words, told) = (own.clone(), warnings.len());
    let as_stock = wanted.as_stock || all.is_lenient;
    let loaded = load(places, &OptionFileArgs { as_stock, ..wanted.clone() }, sources.groups)?;
    let files = loaded.repositories;
    warnings.extend(loaded.warnings);
    let of_all = loaded.options;
    let general = file_items(of_all.clone(), all, warnings)?;
    let mut environment = match sources.environment {
        None => FromEnvironment::default(),
        Some(prefix) => variables::read(prefix, variables.iter().cloned(), all),
    };
    warnings.append(&mut environment.warnings);
    if let Some(name) = environment.bad_switch.filter(|_| !all.is_lenient) {
        return Err(UsageError::BadVariable { name });
    }
    let own = own.into_iter().map(|item| SourcedArg { item, origin: Origin::CommandLine });
    let mut later = environment.given;
    later.extend(own);

    let Some(repositories) = sources.repositories else {
        return Ok([general, later].concat());
    };
    let ignored: Vec<String> =
        warnings.iter().filter(|warning| warning.contains(" option file ")).cloned().collect();
    let known_names: Vec<String> = files.keys().cloned().collect();
    let group = |name: &Option<String>| {
        let Some(name) = name else { return Ok(Vec::new()) };
        let found = match files.get(name) {
            Some(found) => Some(found.clone()),
            None => of_own_file(repositories.folder, name, wanted, sources.groups)?,
        };
        found.ok_or_else(|| UsageError::NoRepository {
            group: sources.groups.first().copied().unwrap_or_default().to_owned(),
            name: name.clone(),
            file: own_file(repositories.folder, name),
            known: known_names.clone(),
            ignored: ignored.clone(),
        })
    };
    // First the source: its group may name the destination.
    let subcommand = all.subcommand.as_deref();
    let named = repositories.named(subcommand, &[general.clone(), later.clone()].concat());
    if let Some(name) = named.source.as_ref().filter(|name| !files.contains_key(*name))
        && let Some(extra) = existing_own_file(repositories.folder, name, wanted)
        && wanted.extra.is_none()
    {
        // As the units read it: whatever else is in it counts, too.
        warnings.truncate(told);
        let wanted = OptionFileArgs { extra: Some(extra), ..wanted.clone() };
        return all_given(sources, places, &wanted, given_words, all, variables, warnings);
    }
    let mut own_group = file_items(group(&named.source)?, all, warnings)?;
    own_group.retain(|own| own.key().is_none_or(|key| repositories.in_source(subcommand, key)));
    let named = repositories.named(subcommand, &[&general[..], &own_group, &later].concat());
    let mut there = Vec::new();
    if named.destination.is_some() {
        for option in [of_all, group(&named.destination)?].concat() {
            // Warnings about these options are given already, or belong to another run.
            let item = file_item(option, &all.known, &all.known, &mut Vec::new());
            if let Some(given) = or_passed_over(item, all)? {
                there.extend(repositories.in_destination(given, &all.scope));
            }
        }
    }
    let mut given = [general, own_group, there].concat();
    if let Some(name) = named.source.as_ref().filter(|_| all.scope.has(repositories.name)) {
        let item = Item::Value(repositories.name.to_owned(), name.into());
        given.push(SourcedArg { item, origin: Origin::CommandLine });
    }
    given.extend(later);
    repositories.keep_places(&named, &mut given);
    repositories.strip(subcommand, &mut given);
    Ok(given)
}

/// The file that a repository may have for itself.
fn own_file(folder: &str, name: &str) -> PathBuf {
    Path::new(folder).join(format!("{name}.cnf"))
}

/// The file that a repository has for itself, if it exists and the command line does not say which files are read.
fn existing_own_file(folder: &str, name: &str, wanted: &OptionFileArgs) -> Option<PathBuf> {
    let file = own_file(folder, name);
    let is_read = !folder.is_empty() && !wanted.none && wanted.only.is_none();
    (is_read && !matches!(file.try_exists(), Ok(false))).then_some(file)
}

/// The group of a repository in its own file.
fn of_own_file(
    folder: &str,
    name: &str,
    wanted: &OptionFileArgs,
    groups: &[&str],
) -> Result<Option<Vec<FileOption>>, UsageError> {
    let Some(file) = existing_own_file(folder, name, wanted) else { return Ok(None) };
    let only = OptionFileArgs { only: Some(file), ..OptionFileArgs::default() };
    Ok(load(&OptionFilePaths::none(), &only, groups)?.repositories.remove(name))
}

pub(crate) fn file_items(
    options: Vec<FileOption>,
    all: &Scope<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<SourcedArg>, UsageError> {
    let items = options.into_iter().map(|option| {
        let known = all.options_for(&option.key);
        or_passed_over(file_item(option, known, &all.scope, warnings), all).transpose()
    });
    items.flatten().collect()
}

/// The item, or nothing in place of a fault that is passed over.
fn or_passed_over(
    item: Result<Option<SourcedArg>, UsageError>,
    all: &Scope<'_>,
) -> Result<Option<SourcedArg>, UsageError> {
    item.or_else(|error| if all.is_lenient { Ok(None) } else { Err(error) })
}

/// Returns whether a character ends the name of an option on a line without `=`.
fn ends_name(c: char) -> bool {
    c == ':' || c.is_whitespace()
}

/// Returns whether a regular file has a mode that lets every user read it.
fn is_readable_by_all(file: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.mode() & 0o004 != 0)
}

/// Parses an option of a file; returns nothing if it belongs only to other subcommands.
pub(crate) fn file_item(
    option: FileOption,
    known: &OptionTable,
    scope: &OptionTable,
    warnings: &mut Vec<String>,
) -> Result<Option<SourcedArg>, UsageError> {
    let parsed = parse_option(&option.key, option.value.as_deref(), known);
    let FileOption { group, key, file, line, .. } = option;
    match parsed {
        ParsedOption::Item(item) => {
            if let Item::Value(key, _) = &item
                && known.is_secret(key)
                && is_readable_by_all(&file)
            {
                let about = format!("every user can read {}, which holds ", file.display());
                // Once for each file: the cause of a failure comes below.
                if !warnings.iter().any(|warning| warning.starts_with(&about)) {
                    warnings.push(format!("{about}{key}; run chmod 600 on it"));
                }
            }
            let origin = Origin::File { group, file, line };
            let given = SourcedArg { item, origin };
            Ok(given.key().is_some_and(|key| scope.has(key)).then_some(given))
        }
        ParsedOption::Loose(name) => {
            let place = file.display();
            // Behind a blank or a colon may be a value, which may be a secret.
            let name = name.split(ends_name).next().unwrap_or_default();
            warnings.push(format!("ignored unknown option {name} in {place} line {line}"));
            Ok(None)
        }
        ParsedOption::WantsValue(_) => Err(UsageError::NoValue { key, file, line }),
        ParsedOption::BadSwitch => Err(UsageError::BadSwitch { key, file, line }),
        ParsedOption::Ambiguous(_) => {
            let candidates = known.beginning_with(&key);
            Err(UsageError::Ambiguous { key, file, line, candidates })
        }
        ParsedOption::Unknown => Err(match key.split_once(ends_name) {
            Some((key, _)) => UsageError::NoEquals { key: key.to_owned(), file, line },
            None => UsageError::UnknownOption { key, file, line },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_may_have_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[xbcloud.shop]\nroot=file:///a\n[xbcloud.other]\nroot=file:///b\n";
        std::fs::write(folder.path().join("shop.cnf"), text).unwrap();
        let path = folder.path().to_str().unwrap();
        let found = |folder: &str, name: &str, wanted: &OptionFileArgs| {
            let found = of_own_file(folder, name, wanted, &["xbcloud"]).unwrap();
            found.map(|options| options.iter().map(|option| option.value.clone()).collect())
        };
        let of_shop: Option<Vec<_>> = Some(vec![Some("file:///a".into())]);
        assert_eq!(found(path, "shop", &OptionFileArgs::default()), of_shop);
        assert_eq!(found(path, "other", &OptionFileArgs::default()), None);
        assert_eq!(found("", "shop", &OptionFileArgs::default()), None);
        let none = OptionFileArgs { none: true, ..OptionFileArgs::default() };
        let only = OptionFileArgs { only: Some("/x".into()), ..OptionFileArgs::default() };
        assert!(found(path, "shop", &none).is_none() && found(path, "shop", &only).is_none());
    }
}
