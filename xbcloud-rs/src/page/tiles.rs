//! The numbers of a run at a glance.

use std::time::Duration;

use xb_report::{Document, Section};

use crate::page::text::data;
use crate::page::units::{count, duration, grouped, rate, ratio, real, size};

/// The section that the run is about: the one that packs if there is one, else the first.
pub(crate) fn main_section(report: &Document) -> Option<&Section> {
    let up = report.sections.iter().find(|section| section.direction.packs());
    up.or(report.sections.first())
}

struct Tile {
    label: &'static str,
    value: String,
    note: String,
}

pub(crate) fn tiles(report: &Document, length: Duration) -> String {
    let Some(section) = main_section(report) else { return String::new() };
    let tile = |tile: Tile| {
        format!(
            "<div class=\"tile\"><span class=\"label\">{}</span><span class=\"value\">{}</span><span class=\"note\">{}</span></div>",
            tile.label, tile.value, tile.note
        )
    };
    let tiles: String =
        all(section, length, report.error.is_some()).into_iter().map(tile).collect();
    format!("<div class=\"tiles\">{tiles}</div>\n")
}

fn all(section: &Section, length: Duration, failed: bool) -> Vec<Tile> {
    let totals = section.totals();
    let cut_off = section.is_cut_off(failed);
    let (packs, has_store) = (section.direction.packs(), section.direction.has_store());
    let (stream, stored) =
        (totals.stream_bytes.unwrap_or_default(), totals.stored_bytes.unwrap_or_default());
    // Objects that were not complete are no backup, but they were sent.
    let lost = (packs && has_store && cut_off).then(|| section.sent().max(stored));
    let files = totals.files.filter(|files| *files > 0);
    let mut tiles = vec![
        Tile {
            label: if packs { "stream" } else { "written" },
            value: data("stream-bytes", stream, &size(stream)),
            note: files.map_or(String::new(), |files| {
                let shown = count(files, "file", "files");
                format!("in {}", data("files", files, &shown))
            }),
        },
        match lost {
            Some(sent) => Tile {
                label: "sent before the end",
                value: data("sent-bytes", sent, &size(sent)),
                note: totals.objects.map_or(String::new(), |objects| {
                    let shown = count(objects, "complete object", "complete objects");
                    data("objects", objects, &shown)
                }),
            },
            None => Tile {
                label: match (packs, has_store) {
                    (true, true) => "stored",
                    (false, true) => "read from the store",
                    (_, false) => "on the wire",
                },
                value: data("stored-bytes", stored, &size(stored)),
                note: totals.objects.map_or(String::new(), |objects| {
                    let shown = count(objects, "object", "objects");
                    format!("in {}", data("objects", objects, &shown))
                }),
            },
        },
    ];
    // The bytes read and sent differ if some were still on their way.
    if lost.is_none() {
        tiles.push(Tile {
            label: "compressed",
            value: ratio(stream, stored),
            note: if has_store { "stream to stored" } else { "stream to wire" }.to_owned(),
        });
    }
    tiles.push(Tile { label: "duration", value: duration(length), note: String::new() });
    let seconds = section.length.as_secs_f64();
    if seconds > 0.0 {
        tiles.push(Tile {
            label: "mean rate",
            value: rate(real(stream) / seconds),
            note: "of the stream".to_owned(),
        });
    }
    if let Some(requests) = totals.requests {
        let retries = totals.retries.unwrap_or_default();
        tiles.push(Tile {
            label: "requests",
            value: data("requests", requests, &grouped(requests)),
            note: data("retries", retries, &count(retries, "retry", "retries")),
        });
    }
    tiles
}
