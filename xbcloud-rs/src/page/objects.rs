//! The objects of a backup by size.

use std::fmt::Write as _;

use xb_report::Section;

use crate::page::axis::share;
use crate::page::text::{card, data};
use crate::page::units::{grouped, percent, real, size};

/// Returns the card, or nothing if no object was stored or read.
pub(crate) fn objects(section: &Section) -> String {
    let Some(sizes) = &section.objects else { return String::new() };
    let most = sizes.sizes.iter().map(|class| class.objects).max().unwrap_or_default();
    let mut rows = String::new();
    for class in &sizes.sizes {
        let (from, to) = (class.from, class.to);
        let range = match from == to {
            true if from < 1024 => size(from),
            true => format!("{} <small>({} bytes)</small>", size(from), grouped(from)),
            false => format!("{} to {}", size(from), size(to)),
        };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{range}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"bar\"><span style=\"width:{:.1}%\"></span></td></tr>",
            grouped(class.objects),
            percent(share(class.objects, sizes.objects)),
            share(class.objects, most) * 100.0,
        );
    }
    let mean = real(sizes.bytes) / real(sizes.objects.max(1));
    // At most the largest size, so the conversion cannot fail.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let mean = mean as u64;
    let (parts, about) = match section.direction.packs() {
        true => {
            let parts = data("parts", section.parts, &grouped(section.parts));
            (
                format!("<div><dt>parts</dt><dd>{parts}</dd></div>"),
                "The data objects that the store has acknowledged. A large object is sent in parts, each with a request of its own.",
            )
        }
        false => (String::new(), "The data objects that were read, whole."),
    };
    let body = format!(
        "<dl class=\"facts\"><div><dt>objects</dt><dd>{}</dd></div><div><dt>smallest</dt><dd>{}</dd></div><div><dt>mean</dt><dd>{}</dd></div><div><dt>largest</dt><dd>{}</dd></div>{parts}</dl>\
         <table><thead><tr><th>size</th><th class=\"n\">objects</th><th class=\"n\">share</th><th></th></tr></thead><tbody>{rows}</tbody></table>",
        data("sized-objects", sizes.objects, &grouped(sizes.objects)),
        size(sizes.smallest),
        size(mean),
        size(sizes.largest),
    );
    card("object-sizes", "Objects", about, &body)
}
