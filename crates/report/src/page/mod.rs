//! The page: HTML that needs nothing else.

mod axis;
mod chart;
mod objects;
mod phases;
mod stages;
mod tables;
mod text;
mod tiles;

use std::fmt::Write as _;
use std::time::Duration;

use crate::lanes::Direction;
use crate::page::text::{card, escape};
use crate::section::Section;
use crate::state::{End, State};
use crate::timeline::Timeline;
use crate::units::{count, duration, time};

const STYLE: &str = include_str!("style.css");

/// Forbids everything from outside, and every script, whatever a name contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Number of parts of a timeline below which a chart shows nothing.
const MIN_BINS: usize = 3;

/// Returns the page of a run that has ended.
pub(crate) fn page(state: &State, end: &End) -> String {
    let length = end.finished.duration_since(state.head.started);
    let length = Duration::try_from(length).unwrap_or_default();
    let title = title(state);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
    );
    html += &head(state, end, length, &title);
    html += &failure(end);
    html += &warnings(state);
    html += &tiles::tiles(state, length, end.error.is_some());
    for section in &state.sections {
        html += &course(section);
    }
    let bars = phases::phases(state, length, end.error.is_some());
    if !bars.is_empty() {
        html += &card("phases", "Phases", "What the run did, and when.", &bars);
    }
    if let Some(section) = tiles::main_section(state) {
        html += &objects::objects(section);
        html += &tables::tables(section, end.error.is_some());
    }
    html += &retries(state);
    html += &settings(state);
    let _ = write!(
        html,
        "<footer>{} on {} · this page is complete in itself and loads nothing</footer>\n</main>\n</body>\n</html>\n",
        escape(&state.head.tool),
        escape(&state.head.host),
    );
    html
}

fn title(state: &State) -> String {
    let name = state.name.as_deref().unwrap_or_default();
    let joint = if name.is_empty() { "" } else { " " };
    escape(&format!("{}{joint}{name}", state.head.what))
}

fn head(state: &State, end: &End, length: Duration, title: &str) -> String {
    let (class, badge) = match end.error {
        None => ("good", "✓ succeeded"),
        Some(_) => ("bad", "✗ failed"),
    };
    let head = &state.head;
    format!(
        "<header>\n<div class=\"title\"><h1><bdi>{title}</bdi></h1><span class=\"badge {class}\" id=\"result\">{badge}</span></div>\n\
         <dl class=\"facts\">\n\
         <div><dt>where</dt><dd><bdi id=\"place\">{}</bdi></dd></div>\n\
         <div><dt>from</dt><dd><time datetime=\"{}\">{}</time></dd></div>\n\
         <div><dt>to</dt><dd><time datetime=\"{}\">{}</time> ({})</dd></div>\n\
         <div><dt>exit status</dt><dd><data id=\"exit\" value=\"{}\">{}</data>: {}</dd></div>\n\
         <div><dt>program</dt><dd><bdi>{}</bdi> on <bdi>{}</bdi></dd></div>\n</dl>\n</header>\n",
        escape(&head.place),
        head.started,
        time(head.started),
        end.finished,
        time(end.finished),
        duration(length),
        end.exit,
        end.exit,
        escape(&end.meaning),
        escape(&head.tool),
        escape(&head.host),
    )
}

fn failure(end: &End) -> String {
    let Some(cause) = &end.error else { return String::new() };
    let hint = cause.hint.as_deref().map(|hint| {
        format!("<p class=\"hint\" id=\"hint\"><strong>Next step:</strong> {}</p>", escape(hint))
    });
    format!(
        "<section class=\"card alarm\" id=\"failure\" role=\"alert\">\n<h2>Why it failed</h2>\n<p id=\"cause\">{}</p>\n{}\n</section>\n",
        escape(&cause.message),
        hint.unwrap_or_default(),
    )
}

fn warnings(state: &State) -> String {
    if state.warnings.is_empty() {
        return String::new();
    }
    let item = |warning: &String| format!("<li>{}</li>", escape(warning));
    let items: String = state.warnings.iter().map(item).collect();
    format!(
        "<section class=\"card notice\" id=\"warnings\">\n<h2>Warnings</h2>\n<ul>{items}</ul>\n</section>\n"
    )
}

/// The course of one section: the slowest stage in a sentence, the chart, and the stages.
fn course(section: &Section) -> String {
    let line = Timeline::new(section.recorder.samples());
    let used = chart::used(section, &line);
    if line.bins.is_empty() || used.is_empty() {
        return String::new();
    }
    let name = escape(&section.name);
    let id = format!("course-{name}");
    let title = match section.direction {
        Direction::Verify => "Rates of the verification".to_owned(),
        _ => format!("Rates of the {name}"),
    };
    let table = stages::table(section, &line, &used);
    if line.bins.len() < MIN_BINS {
        let about = "This took too short a time for a chart. The rates are in bytes that entered each stage.";
        return card(&id, &title, about, &table);
    }
    let (chart, legend) = (chart::chart(section, &line), stages::legend(section, &line, &used));
    let (verdict, about) = match section.lanes.len() {
        1 => (String::new(), "The rate over time."),
        _ => (
            stages::verdict(section, &line),
            "Each line shows how many bytes entered one stage per second. The band below names the stage that the others waited for, or that alone had work left; where it is empty, none held up the others for long.",
        ),
    };
    card(&id, &title, about, &format!("{verdict}{chart}{legend}{table}"))
}

fn retries(state: &State) -> String {
    if state.retries.is_empty() {
        return String::new();
    }
    let row = |at: Duration, error: &str| {
        format!(
            "<tr><td class=\"n\">{}</td><td><bdi>{}</bdi></td></tr>",
            duration(at),
            escape(error)
        )
    };
    let mut rows = String::new();
    for (number, retry) in state.retries.iter().enumerate() {
        if number == crate::state::FIRST_RETRIES && state.more_retries > 0 {
            let more = count(state.more_retries, "more retry", "more retries");
            let _ = write!(rows, "<tr class=\"rest\"><td></td><td>{more}</td></tr>");
        }
        rows += &row(retry.at, &retry.error);
    }
    let table = format!(
        "<table><thead><tr><th class=\"n\">after</th><th>error before the next try</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    card("retries", "Retries", "Requests that failed and were sent again.", &table)
}

fn settings(state: &State) -> String {
    if state.settings.is_empty() {
        return String::new();
    }
    let row = |(name, value): &(String, String)| {
        format!("<div><dt>{}</dt><dd><bdi>{}</bdi></dd></div>", escape(name), escape(value))
    };
    let rows: String = state.settings.iter().map(row).collect();
    let list = format!("<dl class=\"facts\">{rows}</dl>");
    card("settings", "Settings", "What the run worked with.", &list)
}

#[cfg(test)]
mod tests;
