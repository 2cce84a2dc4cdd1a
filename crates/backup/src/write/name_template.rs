//! Generated names of new backups.

use jiff::Timestamp;
use xb_repo::names::{BackupName, NameError};

/// Template that gives each host's backups distinct names, in the order of time.
pub const DEFAULT_NAME_TEMPLATE: &str = "{host}-{utc}";

/// Error in a template for names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// Text in braces that is not a field.
    #[error("`{{{field}}}` is not a field of a name: use {{host}}, {{utc}} or {{date}}")]
    Field {
        /// Text between the braces.
        field: String,
    },
    /// The result cannot be the name of a backup.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Returns whether `text` has fields to fill in, or braces that are none.
#[must_use]
pub fn is_name_template(text: &str) -> bool {
    text.contains(['{', '}'])
}

/// Fills in `{host}`, `{utc}` (`20261122T031500Z`) and `{date}` (`2026-11-22`).
///
/// Characters of the host that no name may have become `-`.
///
/// # Errors
/// [`TemplateError`] for an unknown field, or if the result is not a name.
pub fn fill_in(template: &str, host: &str, now: Timestamp) -> Result<BackupName, TemplateError> {
    let mut name = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        name.push_str(before);
        let unknown = || TemplateError::Field { field: after.chars().take(40).collect() };
        let (field, behind) = after.split_once('}').ok_or_else(unknown)?;
        match field {
            "host" => name.extend(host.chars().map(allowed)),
            "utc" => name.push_str(&now.strftime("%Y%m%dT%H%M%SZ").to_string()),
            "date" => name.push_str(&now.strftime("%Y-%m-%d").to_string()),
            other => {
                return Err(TemplateError::Field { field: other.chars().take(40).collect() });
            }
        }
        rest = behind;
    }
    name.push_str(rest);
    if let Some((before, _)) = name.split_once('}') {
        return Err(TemplateError::Field { field: before.chars().take(40).collect() });
    }
    Ok(BackupName::new(&name)?)
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, host: &str) -> Result<String, TemplateError> {
        let now = "2026-11-22T03:15:07Z".parse().unwrap();
        fill_in(template, host, now).map(|name| name.to_string())
    }

    #[test]
    fn fields_are_filled_in() {
        let name = |template| filled(template, "db1.example.net").unwrap();
        assert_eq!(name(DEFAULT_NAME_TEMPLATE), "db1.example.net-20261122T031507Z");
        assert_eq!(name("shop_{date}"), "shop_2026-11-22");
        assert_eq!(name("monday"), "monday");
        assert_eq!(filled("{host}", "ä b/c").unwrap(), "--b-c");
    }

    #[test]
    fn a_wrong_field_or_name_is_refused() {
        for bad in ["{day}", "{", "}", "{host", "x{}", "a/{host}", "", "{host}{"] {
            assert!(filled(bad, "h").is_err(), "{bad}");
        }
        assert!(filled("{host}", "").is_err());
    }
}
