//! Values from environment variables with several names.

/// Returns the value of the first of `names` that is set and not empty.
///
/// The environment has lower precedence than the command line and the option files, so call this
/// only for options that neither of them sets. A value that is not UTF-8 counts as not set.
pub fn env_first(names: &[&str]) -> Option<String> {
    first_of(names, |name| std::env::var(name).ok())
}

fn first_of(names: &[&str], lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    names.iter().filter_map(|name| lookup(name)).find(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hit_that_is_not_empty_wins() {
        let lookup = |name: &str| match name {
            "EMPTY" => Some(String::new()),
            "ONE" => Some("1".to_owned()),
            "TWO" => Some("2".to_owned()),
            _ => None,
        };
        assert_eq!(first_of(&["ONE", "TWO"], lookup).as_deref(), Some("1"));
        assert_eq!(first_of(&["TWO", "ONE"], lookup).as_deref(), Some("2"));
        assert_eq!(first_of(&["NONE", "EMPTY", "TWO"], lookup).as_deref(), Some("2"));
        assert_eq!(first_of(&["NONE", "EMPTY"], lookup), None);
        assert_eq!(first_of(&[], lookup), None);
    }
}
