//! Changes to the listings of a store: entries that are left out, or that appear twice.

use crate::http::Head;

/// Change to the entries of a listing in XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Entries that contain this text are left out.
    Hide(&'static str),
    /// Each entry appears twice.
    Double,
    /// Each entry appears twice; in the second, the first text is replaced by the other.
    Differ(&'static str, &'static str),
}

/// Elements of S3 and of Azure that are entries of a listing.
const ENTRIES: [&str; 3] = ["Contents", "CommonPrefixes", "Blob"];

impl Edit {
    /// Changes the body of a response, and its head to match.
    pub(super) fn apply(self, head: &mut Head, body: &[u8]) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for element in ENTRIES {
            text = self.entries(&text, element);
        }
        head.rewrite(|name, value| match name {
            "transfer-encoding" | "content-length" => None,
            _ => Some((name, value.to_owned())),
        });
        head.add("content-length", &text.len().to_string());
        text.into_bytes()
    }

    fn entries(self, text: &str, element: &str) -> String {
        let (start, end) = (format!("<{element}>"), format!("</{element}>"));
        let mut pieces = text.split(&*start);
        let mut changed = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (inside, after) = piece.split_once(&*end).unwrap_or((piece, ""));
            let entry = format!("{start}{inside}{end}");
            match self {
                Self::Hide(part) if inside.contains(part) => {}
                Self::Hide(_) => changed.push_str(&entry),
                Self::Double => changed.extend([&*entry, &*entry]),
                Self::Differ(from, to) => changed.extend([&*entry, &*entry.replace(from, to)]),
            }
            changed.push_str(after);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_hidden_or_doubled() {
        let (a, b) = ("<Contents><Key>a</Key></Contents>", "<Contents><Key>b</Key></Contents>");
        let text = format!("<L>{a}<X/>{b}</L>");
        let edited = |edit: Edit| edit.entries(&text, "Contents");
        assert_eq!(edited(Edit::Hide(">b<")), format!("<L>{a}<X/></L>"));
        assert_eq!(edited(Edit::Double), format!("<L>{a}{a}<X/>{b}{b}</L>"));
        let other = "<Contents><Key>c</Key></Contents>";
        let differ = edited(Edit::Differ(">b<", ">c<"));
        assert_eq!(differ, format!("<L>{a}{a}<X/>{b}{other}</L>"));
    }
}
