//! The lifecycle configuration of a bucket, as the store wrote it.
//!
//! It is sent back as a whole, so a rule that is not understood would be lost if it were written
//! anew. A new rule is therefore inserted into the text as it is, and a text of unknown structure
//! is refused.

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Root element.
const ROOT: &str = "LifecycleConfiguration";
/// Nesting depth beyond which a text is refused; lifecycle rules have four levels.
const DEEPEST: usize = 32;

/// Reason why a text is not read as lifecycle rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LifecycleError {
    /// It is something else, such as an error or the page of a proxy. Another try may help.
    #[error("the store's answer is not a lifecycle configuration")]
    Other,
    /// It is a configuration with something unknown in it.
    #[error("the bucket's lifecycle configuration has an unknown form: {0}")]
    Unknown(String),
}

/// An element, without what stores may write differently each time: order and white space.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Element {
    name: String,
    attributes: String,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn start(tag: &BytesStart<'_>) -> Option<Self> {
        let attributes = std::str::from_utf8(tag.attributes_raw()).ok()?.trim();
        // Stores declare their namespace at any element.
        let attributes = if attributes.starts_with("xmlns=") { "" } else { attributes };
        let name = std::str::from_utf8(tag.name().into_inner()).ok()?;
        Some(Self { name: name.to_owned(), attributes: attributes.to_owned(), ..Self::default() })
    }

    fn finished(mut self) -> Self {
        self.text = self.text.trim().to_owned();
        self.children.sort_unstable();
        self
    }

    /// Text of the child, or of the descendant, that these names lead to.
    fn text_of(&self, path: &[&str]) -> Option<&str> {
        match path {
            [] => Some(&self.text),
            [first, rest @ ..] => {
                self.children.iter().find(|child| child.name == *first)?.text_of(rest)
            }
        }
    }
}

/// One rule, and where it is in the text.
#[derive(Debug, Clone)]
struct Rule {
    at: Range<usize>,
    element: Element,
}

/// Lifecycle rules of a bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    text: String,
    /// Position of the root's end tag; `None` if there are no rules.
    end: Option<usize>,
    rules: Vec<Rule>,
}

impl PartialEq for Rules {
    /// Returns whether both hold the same rules.
    fn eq(&self, other: &Self) -> bool {
        self.elements() == other.elements()
    }
}

impl Rules {
    /// Parses a configuration.
    ///
    /// # Errors
    /// [`LifecycleError`]; never a rule that is left out.
    pub(super) fn read(text: &str) -> Result<Self, LifecycleError> {
        // The reader passes over a byte order mark, and does not count it.
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = Reader::from_str(text);
        // The elements that are open, and the position of the outermost rule.
        let (mut open, mut rule_at): (Vec<Element>, usize) = (Vec::new(), 0);
        let mut found = Self { text: text.to_owned(), ..Self::default() };
        let mut ended = false;
        loop {
            let at = position(&reader);
            let event = reader.read_event().map_err(|_| LifecycleError::Other)?;
            let unknown = |what: &str| Err(LifecycleError::Unknown(what.to_owned()));
            match (&event, open.len()) {
                (Event::Eof, 0) if ended => return Ok(found),
                (Event::Eof, _) => return Err(LifecycleError::Other),
                (Event::Decl(_), 0) if !ended => continue,
                (Event::Text(text), 0 | 1) if text.iter().all(u8::is_ascii_whitespace) => continue,
                (Event::Comment(_), 1..) => continue,
                (Event::Start(tag) | Event::Empty(tag), depth) => {
                    let element = Element::start(tag).ok_or(LifecycleError::Other)?;
                    match depth {
                        0 if ended || element.name != ROOT => return Err(LifecycleError::Other),
                        1 if element.name != "Rule" => {
                            return unknown(&format!("the element {}", element.name));
                        }
                        DEEPEST.. => return unknown("elements inside elements without end"),
                        1 => rule_at = at,
                        _ => {}
                    }
                    open.push(element);
                }
                (Event::End(_), 0) => return Err(LifecycleError::Other),
                (Event::End(_), _) => {}
                (Event::Text(text), 2..) => append(&mut open, text, "", "")?,
                (Event::GeneralRef(name), 2..) => append(&mut open, name, "&", ";")?,
                (_, 0) => return Err(LifecycleError::Other),
                _ => return unknown("text or instructions between or within the rules"),
            }
            if !matches!(event, Event::End(_) | Event::Empty(_)) {
                continue;
            }
            let Some(done) = open.pop().map(Element::finished) else {
                return Err(LifecycleError::Other);
            };
            match (open.len(), matches!(event, Event::End(_))) {
                (0, has_tag) => {
                    ended = true;
                    found.end = has_tag.then_some(at);
                }
                (1, _) => found.rules.push(Rule { at: rule_at..position(&reader), element: done }),
                _ => open
                    .last_mut()
                    .into_iter()
                    .for_each(|parent| parent.children.push(done.clone())),
            }
        }
    }

    /// The configuration as it was read.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn elements(&self) -> Vec<&Element> {
        let mut elements: Vec<&Element> = self.rules.iter().map(|rule| &rule.element).collect();
        elements.sort_unstable();
        elements
    }

    /// Returns whether an enabled rule with this ID aborts uploads below this prefix after so many days.
    pub(super) fn abort_after(&self, id: &str, prefix: &str, days: u32) -> bool {
        let days = days.to_string();
        let of = |rule: &Rule, path: &[&str], text: &str| rule.element.text_of(path) == Some(text);
        self.rules.iter().any(|rule| {
            // Older stores know no filter.
            let below = [&["Filter", "Prefix"][..], &["Prefix"]];
            let below = below.into_iter().find_map(|path| rule.element.text_of(path));
            of(rule, &["ID"], id)
                && unescaped(below.unwrap_or_default()) == prefix
                && of(rule, &["Status"], "Enabled")
                && of(rule, &["AbortIncompleteMultipartUpload", "DaysAfterInitiation"], &days)
        })
    }

    /// The text with `rule` at its end, without those that have its ID. All else stays as it is,
    /// byte for byte.
    pub(super) fn with(&self, id: &str, rule: &str) -> String {
        let Some(end) = self.end else {
            return format!(
                r#"<{ROOT} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{rule}</{ROOT}>"#
            );
        };
        let (mut text, mut kept) = (String::new(), 0);
        for old in self.of_id(id) {
            text.push_str(self.text.get(kept..old.at.start).unwrap_or_default());
            kept = old.at.end;
        }
        text.push_str(self.text.get(kept..end).unwrap_or_default());
        text.push_str(rule);
        text.push_str(self.text.get(end..).unwrap_or_default());
        text
    }

    fn of_id(&self, id: &str) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.element.text_of(&["ID"]) == Some(id))
    }

    /// Returns whether it has a rule that `before` does not have in any form, apart from the one with this ID: someone else has
    /// added it.
    pub(super) fn has_more_than(&self, before: &Self, id: &str) -> bool {
        fn of(rule: &Rule) -> Option<&str> {
            rule.element.text_of(&["ID"])
        }
        let is_known = |rule: &Rule| {
            of(rule) == Some(id) || before.rules.iter().any(|known| of(known) == of(rule))
        };
        !self.rules.iter().all(is_known)
    }

    /// The rules, except those with this ID, that `later` does not have any more, as they are
    /// written.
    pub(super) fn lost_in(&self, later: &Self, id: &str) -> Vec<&str> {
        let mut there = later.elements();
        let mut lost = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.element.text_of(&["ID"]) != Some(id)) {
            match there.iter().position(|element| **element == rule.element) {
                Some(n) => drop(there.remove(n)),
                None => lost.extend(self.text.get(rule.at.clone())),
            }
        }
        lost
    }
}

/// The text of an element, which is kept as it was written.
fn unescaped(text: &str) -> Cow<'_, str> {
    quick_xml::escape::unescape(text).unwrap_or(Cow::Borrowed(text))
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

/// Appends to the text of the innermost element.
fn append(
    open: &mut [Element],
    text: &[u8],
    before: &str,
    after: &str,
) -> Result<(), LifecycleError> {
    let text = std::str::from_utf8(text).map_err(|_| LifecycleError::Other)?;
    if let Some(element) = open.last_mut() {
        element.text.extend([before, text, after]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "<Rule><ID>ours</ID><Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>";
    /// Forms that stores and people use.
    const FOREIGN: [&str; 6] = [
        "<Rule><ID>a</ID><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule>",
        "<Rule xmlns=\"urn:x\">\n  <ID>b</ID><Filter><And><Tag><Key>k</Key><Value>&lt;v&amp;</Value></Tag></And></Filter></Rule>",
        "<Rule kept=\"1\"><!-- ours? <ID>ours</ID> --><Unknown/></Rule>",
        "<Rule />",
        "<Rule><Filter><Prefix>ours</Prefix></Filter><Nested><ID>ours</ID></Nested></Rule>",
        "<Rule\n><ID>ours2</ID></Rule\n>",
    ];

    fn root(inside: &str) -> String {
        format!("<?xml version=\"1.0\"?>\n<{ROOT} xmlns=\"urn:s3\" more=\"x\">{inside}</{ROOT}>\n")
    }

    #[test]
    fn foreign_rules_stay_byte_for_byte() {
        let inside = FOREIGN.join("\n<!-- between -->\n");
        let before = Rules::read(&root(&inside)).unwrap();
        assert_eq!(before.rules.len(), FOREIGN.len());
        assert!(!before.abort_after("ours", "", 7));
        let text = before.with("ours", OURS);
        assert_eq!(text, root(&format!("{inside}{OURS}")));
        let after = Rules::read(&text).unwrap();
        assert!(after.abort_after("ours", "", 7) && !after.abort_after("ours", "", 8));
        // An older one of ours goes, and only that.
        let newer = OURS.replace('7', "9");
        assert_eq!(after.with("ours", &newer), root(&format!("{inside}{newer}")));
        assert!(before.lost_in(&after, "ours").is_empty());
        assert_eq!(after.lost_in(&before, "ours"), Vec::<&str>::new());
        assert_ne!(before, after);
    }

    /// The rule would be written into the end tag, and a store that takes such a text may keep no rule at all.
    #[test]
    fn a_byte_order_mark_moves_no_rule() {
        let before = Rules::read(&format!("\u{feff}{}", root(FOREIGN[0]))).unwrap();
        assert_eq!(before.with("ours", OURS), root(&format!("{}{OURS}", FOREIGN[0])));
        let changed = Rules::read(&root(OURS)).unwrap();
        assert_eq!(before.lost_in(&changed, "ours"), [FOREIGN[0]]);
    }

    #[test]
    fn a_rule_for_another_prefix_is_another_rule() {
        let of = |prefix: &str| {
            let rule = OURS.replace("<Status>", &format!("{prefix}<Status>"));
            Rules::read(&root(&rule)).unwrap()
        };
        let filtered = of("<Filter><Prefix>shop&amp;co</Prefix></Filter>");
        assert!(filtered.abort_after("ours", "shop&co", 7));
        assert!(!filtered.abort_after("ours", "mail", 7) && !filtered.abort_after("ours", "", 7));
        assert!(of("<Prefix>shop</Prefix>").abort_after("ours", "shop", 7));
        assert!(of("<Filter><Prefix/></Filter>").abort_after("ours", "", 7));
        assert!(of("<Filter/>").abort_after("ours", "", 7));
    }

    #[test]
    fn lost_rules_are_found_in_any_order_and_layout() {
        let before = Rules::read(&root(&FOREIGN.concat())).unwrap();
        let mut others = FOREIGN;
        others.reverse();
        let spaced = others.join(" ").replace("<Days>9</Days>", "\n<Days> 9 </Days>\n");
        let same = Rules::read(&root(&spaced)).unwrap();
        assert!(before == same && before.lost_in(&same, "ours").is_empty());
        for (n, rule) in FOREIGN.iter().enumerate() {
            let mut fewer = FOREIGN.to_vec();
            fewer.remove(n);
            let later = Rules::read(&root(&fewer.concat())).unwrap();
            assert_eq!(before.lost_in(&later, "ours"), [*rule]);
        }
        let doubled = Rules::read(&root(&[FOREIGN[0]; 2].concat())).unwrap();
        let once = Rules::read(&root(FOREIGN[0])).unwrap();
        assert_eq!(doubled.lost_in(&once, "ours"), [FOREIGN[0]]);
    }

    #[test]
    fn no_rules_become_one() {
        for none in [Rules::default(), Rules::read(&format!("<{ROOT}/>")).unwrap()] {
            let text = none.with("ours", OURS);
            assert!(Rules::read(&text).unwrap().abort_after("ours", "", 7), "{text}");
        }
        let empty = root("");
        let text = Rules::read(&empty).unwrap().with("ours", OURS);
        assert_eq!(text, root(OURS));
    }

    #[test]
    fn an_unknown_rule_is_refused() {
        let other = |text: &str| {
            assert_eq!(Rules::read(text).unwrap_err(), LifecycleError::Other, "{text}")
        };
        for text in ["", "<html/>", "<Error><Code>InternalError</Code></Error>", "rules", "<Rule/>"]
        {
            other(text);
        }
        let whole = root(&FOREIGN.concat());
        let least = whole.trim_end().len();
        (0..least).filter(|end| whole.is_char_boundary(*end)).for_each(|end| other(&whole[..end]));
        other(&format!("{whole}{whole}"));
        other(&format!("{whole}<html/>"));
        other(&whole.replace(ROOT, &format!("s3:{ROOT}")));
        for inside in [
            "<rule/>",
            "<Rule/><More/>",
            "<s3:Rule/>",
            "text",
            "<Rule><![CDATA[x]]></Rule>",
            "<?php x?>",
            "&amp;",
        ] {
            let error = Rules::read(&root(inside)).unwrap_err();
            assert!(matches!(error, LifecycleError::Unknown(_)), "{inside}: {error}");
        }
        let deep = "<a>".repeat(100);
        assert!(Rules::read(&root(&format!("<Rule>{deep}"))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_kept_or_refused(parts in proptest::collection::vec(0_usize..FOREIGN.len(), 0..5), at in 0_usize..500, with in "[<>/a&! -]{0,3}") {
            let mut text = root(&parts.iter().map(|n| FOREIGN[*n]).collect::<String>());
            if text.is_char_boundary(at.min(text.len())) {
                text.insert_str(at.min(text.len()), &with);
            }
            if let Ok(rules) = Rules::read(&text) {
                let new = rules.with("ours", OURS);
                let kept = rules.of_id("ours").next().is_none() && rules.end.is_some();
                prop_assert!(!kept || new.replace(OURS, "") == text);
                let again = Rules::read(&new).unwrap();
                prop_assert!(rules.lost_in(&again, "ours").is_empty() && again.abort_after("ours", "", 7));
            }
        }
    }
}
