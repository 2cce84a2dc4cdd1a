//! Tags of objects.

use object_store::TagSet;

/// Maximum number of tags of an object ("Categorizing your objects using tags").
const MAX_TAGS: usize = 10;
/// Maximum length of a key and of a value, in characters.
const KEY: usize = 128;
const VALUE: usize = 256;
/// Characters that are allowed besides letters, digits and spaces.
const ALLOWED: &str = "+-=._:/@";

/// Tags that every new object gets. S3 and compatible stores only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<(String, String)>);

/// Tags that no store would accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// There is no `=`.
    #[error("tag `{tag}` is not of the form KEY=VALUE")]
    Form {
        /// The tag.
        tag: String,
    },
    /// Key or value is too long, or the key is empty.
    #[error("tag `{key}`: a key has 1 to {KEY} characters, a value at most {VALUE}")]
    Length {
        /// Key of the tag.
        key: String,
    },
    /// A character that S3 does not allow.
    #[error("tag `{key}`: `{char}` is not allowed, only letters, digits, spaces and {ALLOWED}")]
    Character {
        /// Key of the tag.
        key: String,
        /// The character.
        char: char,
    },
    /// The key belongs to AWS.
    #[error("tag `{key}`: keys that begin with aws: are reserved")]
    Reserved {
        /// Key of the tag.
        key: String,
    },
    /// The same key twice.
    #[error("tag `{key}` is given twice")]
    Twice {
        /// Key of the tag.
        key: String,
    },
    /// Too many tags.
    #[error("{count} tags are too many: an object has at most {MAX_TAGS}")]
    TooMany {
        /// Number of tags.
        count: usize,
    },
}

impl Tags {
    /// Parses tags of the form `KEY=VALUE`.
    ///
    /// # Errors
    /// [`TagError`] if S3 would refuse them.
    pub fn parse(tags: &[String]) -> Result<Self, TagError> {
        let mut found: Vec<(String, String)> = Vec::new();
        for tag in tags {
            let form = || TagError::Form { tag: tag.clone() };
            let (key, value) = tag.split_once('=').ok_or_else(form)?;
            check(key, value)?;
            if found.iter().any(|(known, _)| known == key) {
                return Err(TagError::Twice { key: key.to_owned() });
            }
            found.push((key.to_owned(), value.to_owned()));
        }
        match found.len() {
            0..=MAX_TAGS => Ok(Self(found)),
            count => Err(TagError::TooMany { count }),
        }
    }

    /// Returns whether there are no tags.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn set(&self) -> TagSet {
        let mut set = TagSet::default();
        self.0.iter().for_each(|(key, value)| set.push(key, value));
        set
    }
}

fn check(key: &str, value: &str) -> Result<(), TagError> {
    let owned = || key.to_owned();
    if key.is_empty() || key.chars().count() > KEY || value.chars().count() > VALUE {
        return Err(TagError::Length { key: owned() });
    }
    let forbidden =
        |char: &char| !(char.is_alphanumeric() || *char == ' ' || ALLOWED.contains(*char));
    if let Some(char) = key.chars().chain(value.chars()).find(forbidden) {
        return Err(TagError::Character { key: owned(), char });
    }
    match key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:")) {
        true => Err(TagError::Reserved { key: owned() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_s3_refuses_are_refused() {
        let parse = |tags: &[&str]| {
            Tags::parse(&tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(parse(&[]).unwrap(), Tags::default());
        let tags = parse(&["team=db a+b", "cost/center=47=11", "Größe="]).unwrap();
        assert_eq!(tags.set().encoded(), "team=db+a%2Bb&cost%2Fcenter=47%3D11&Gr%C3%B6%C3%9Fe=");
        let long = ["k".repeat(129) + "=v", format!("k={}", "v".repeat(257))];
        for (tags, expected) in [
            (vec!["team"], "not of the form KEY=VALUE"),
            (vec!["=v"], "1 to 128"),
            (vec![long[0].as_str()], "1 to 128"),
            (vec![long[1].as_str()], "at most 256"),
            (vec!["a=x\ny"], "is not allowed"),
            (vec!["a&b=x"], "`&` is not allowed"),
            (vec!["AWS:x=1"], "reserved"),
            (vec!["a=1", "a=2"], "given twice"),
        ] {
            let error = parse(&tags).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let many: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        assert_eq!(Tags::parse(&many), Err(TagError::TooMany { count: 11 }));
        assert!(Tags::parse(&many[..10]).is_ok());
    }
}
