//! What a replay needs to know of a server, and its log lacks.

use std::collections::{BTreeMap, BTreeSet};

use xb_mysql::{Client, Row};
use xb_replay::{ENGINES, ORIGIN_SETTINGS};

use crate::archive_error::ArchiveError;

/// The variables that change what replayed statements do. A server lacks some of them.
pub(crate) fn settings(
    client: &mut Client,
    is_mysql: bool,
) -> Result<BTreeMap<String, String>, ArchiveError> {
    let names = ORIGIN_SETTINGS.join("', '");
    let schema = if is_mysql { "performance_schema" } else { "information_schema" };
    let rows = client.rows(format!(
        "SELECT LOWER(variable_name), COALESCE(variable_value, '') FROM {schema}.global_variables \
         WHERE variable_name IN ('{names}')"
    ))?;
    let texts = rows.iter().map(Row::texts).map(|row| row.map(|[name, value]| (name, value)));
    Ok(texts.collect::<Result<_, _>>()?)
}

/// The variables that both times have, with other values, as `NAME from VALUE to VALUE`.
pub(crate) fn changes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let changed = |(name, old): (&String, &String)| {
        let new = after.get(name).filter(|new| *new != old)?;
        Some(format!("{name} from \"{old}\" to \"{new}\""))
    };
    before.iter().filter_map(changed).collect()
}

/// The engines that it has.
pub(crate) fn engines(client: &mut Client) -> Result<Vec<String>, ArchiveError> {
    let rows = client.rows(ENGINES)?;
    let names = rows.iter().map(|row| row.texts().map(|[name]| name));
    Ok(names.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_has_changed() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let before = of(&[("a", "1"), ("b", "2"), ("old", "")]);
        let after = of(&[("a", "1"), ("b", "3"), ("new", "4")]);
        let changed: Vec<String> = changes(&before, &after).into_iter().collect();
        assert_eq!(changed, ["b from \"2\" to \"3\""]);
    }
}
