//! Options of the programs that prepare.

/// Returns whether an option is one of these; the programs take `_` for `-`.
pub(super) fn is_option(option: &str, names: &[&str]) -> bool {
    let name = option.split('=').next().unwrap_or_default().replace('_', "-");
    names.contains(&name.as_str())
}
