//! What a replay needs to know of a server, and its log lacks.

use std::collections::BTreeMap;

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

/// The engines that it has.
pub(crate) fn engines(client: &mut Client) -> Result<Vec<String>, ArchiveError> {
    let rows = client.rows(ENGINES)?;
    let names = rows.iter().map(|row| row.texts().map(|[name]| name));
    Ok(names.collect::<Result<_, _>>()?)
}
