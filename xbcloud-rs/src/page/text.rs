//! Text and boxes of a page.

/// Escapes text for content and attributes of HTML. Control characters, and those that change the
/// direction of the text around them, are replaced: a name must not be able to disguise itself.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                escaped.push('\u{fffd}');
            }
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A number with its exact value, for programs and for those who copy it.
pub(crate) fn data(id: &str, value: u64, shown: &str) -> String {
    format!("<data id=\"{id}\" value=\"{value}\">{shown}</data>")
}

/// A box of the page. `body` is HTML, the other texts are our own.
pub(crate) fn card(id: &str, title: &str, about: &str, body: &str) -> String {
    format!(
        "<section class=\"card\" id=\"{id}\">\n<h2>{title}</h2>\n<p class=\"about\">{about}</p>\n<div class=\"wide\">{body}</div>\n</section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(
            escape("<b onclick=\"x\">&'\u{1b}[31m\u{202e}é"),
            "&lt;b onclick=&quot;x&quot;&gt;&amp;&#39;\u{fffd}[31m\u{fffd}é"
        );
    }
}
