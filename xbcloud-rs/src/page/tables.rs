//! The tables of a backup: how large, and how well compressed.

use std::fmt::Write as _;

use xb_report::{Section, Sizes};

use crate::page::axis::share;
use crate::page::text::{card, escape};
use crate::page::units::{count, percent, ratio, size};

/// Returns the card, or nothing if the run does not know the tables. A run that has `failed` may not have
/// stored all of them.
pub(crate) fn tables(section: &Section, failed: bool) -> String {
    let Some(tables) = &section.tables else { return String::new() };
    let most = tables.largest.first().map_or(0, |table| table.sizes.plain);
    let mut rows = String::new();
    for table in &tables.largest {
        let name = format!("<bdi>{}</bdi>", escape(&table.name));
        row(&mut rows, "", &name, table.sizes, tables.all, most);
    }
    if tables.rest_tables > 0 {
        let name = format!("{} more", count(tables.rest_tables, "table", "tables"));
        row(&mut rows, "rest", &name, tables.rest, tables.all, most);
    }
    row(&mut rows, "sum", "all tables", tables.all, tables.all, 0);
    let (there, about) = match section.direction.has_store() {
        // The bytes encoded last may never have been sent.
        true if section.is_cut_off(failed) => {
            ("packed", "packed its share of the bytes made from them, of which not all were sent")
        }
        true => ("stored", "stored its share of the bytes in the store"),
        false => ("sent", "sent its share of the bytes on the wire"),
    };
    let body = format!(
        "<table><thead><tr><th>table</th><th class=\"n\">raw</th><th class=\"n\">{there}</th><th class=\"n\">ratio</th><th class=\"n\">share</th><th></th></tr></thead><tbody>{rows}</tbody></table>"
    );
    let about = format!(
        "Raw is the content of a table’s files as the producer wrote it, {about}, headers included; share is that of the raw bytes. A file outside of any schema has a row of its own."
    );
    card("tables", "Tables", &about, &body)
}

fn row(html: &mut String, class: &str, name: &str, sizes: Sizes, all: Sizes, most: u64) {
    let bar = match most {
        0 => String::new(),
        // The bar is as long as the raw bytes, and filled as far as the stored ones.
        most => format!(
            "<span class=\"raw\" style=\"width:{:.1}%\"></span><span style=\"width:{:.1}%\"></span>",
            share(sizes.plain, most).min(1.0) * 100.0,
            share(sizes.stored, most).min(1.0) * 100.0,
        ),
    };
    let _ = write!(
        html,
        "<tr class=\"{class}\"><th scope=\"row\">{name}</th><td class=\"n\" data-bytes=\"{}\">{}</td><td class=\"n\" data-bytes=\"{}\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"bar\">{bar}</td></tr>",
        sizes.plain,
        size(sizes.plain),
        sizes.stored,
        size(sizes.stored),
        ratio(sizes.plain, sizes.stored),
        percent(share(sizes.plain, all.plain)),
    );
}
