//! Facts about a server that a replay needs and the log lacks.

use std::collections::{BTreeMap, BTreeSet};

use xb_mysql::{Client, Row};
use xb_replay::{ENGINES, ORIGIN_SETTINGS, SYSDATE_IS_NOW};

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
    let mut settings: BTreeMap<String, String> = texts.collect::<Result<_, _>>()?;
    let rows = client.rows(SYSDATE_IS_NOW)?;
    let [_, is_now] = rows.first().ok_or(xb_mysql::Error::Unexpected)?.texts()?;
    settings.insert("sysdate_is_now".to_owned(), is_now);
    Ok(settings)
}

/// The variables that both times have, with other values: these.
pub(crate) fn changed(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let is_other =
        |(name, new): &(&String, &String)| before.get(*name).is_some_and(|old| old != *new);
    after.iter().filter(is_other).map(|(name, new)| (name.clone(), new.clone())).collect()
}

/// The same, as `NAME from VALUE to VALUE`.
pub(crate) fn changes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let said = |(name, new): (String, String)| {
        let old = before.get(&name).map_or("", String::as_str);
        format!("{name} from \"{old}\" to \"{new}\"")
    };
    changed(before, after).into_iter().map(said).collect()
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
