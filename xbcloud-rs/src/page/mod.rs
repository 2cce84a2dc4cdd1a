//! The pages about a run, drawn from its report, and about a fleet: HTML that contains its styles and pictures, loads
//! nothing, and has no script. Every name from outside is escaped.

mod advice;
mod axis;
mod chart;
mod fleet;
mod objects;
mod phases;
mod stages;
mod tables;
mod text;
mod tiles;
mod timeline;
mod units;

use std::fmt::Write as _;
use std::time::Duration;

use xb_report::{Cause, Direction, Document, FIRST_RETRIES, Section, Setting};

pub(crate) use self::fleet::fleet_page;
use crate::page::text::{card, escape};
use crate::page::timeline::Timeline;
use crate::page::units::{count, duration, time};

const STYLE: &str = include_str!("style.css");

/// Forbids everything from outside, and every script, whatever a name contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Number of parts of a timeline below which a chart shows nothing.
const MIN_BINS: usize = 3;

/// Returns the page of a run.
pub(crate) fn page(report: &Document) -> String {
    let length = report.finished.duration_since(report.started);
    let length = Duration::try_from(length).unwrap_or_default();
    let title = title(report);
    let mut html = String::new();
    html += &head(report, length, &title);
    html += &failure(report.error.as_ref());
    html += &warnings(report);
    html += &tiles::tiles(report, length);
    for section in &report.sections {
        html += &course(section);
    }
    let bars = phases::phases(report, length);
    if !bars.is_empty() {
        html += &card("phases", "Phases", "What the run did, and when.", &bars);
    }
    if let Some(section) = tiles::main_section(report) {
        html += &objects::objects(section);
        html += &tables::tables(section, report.error.is_some());
    }
    html += &retries(report);
    html += &settings(report);
    let _ = writeln!(
        html,
        "<footer>{} on {} · this page is complete in itself and loads nothing</footer>",
        escape(&report.tool),
        escape(&report.host),
    );
    document(&title, &html)
}

/// The document with this title, which is HTML like the body.
fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
    )
}

fn title(report: &Document) -> String {
    let name = report.name.as_deref().unwrap_or_default();
    let joint = if name.is_empty() { "" } else { " " };
    escape(&format!("{}{joint}{name}", report.what))
}

fn head(report: &Document, length: Duration, title: &str) -> String {
    let (class, badge) = match report.error {
        None => ("good", "✓ succeeded"),
        Some(_) => ("bad", "✗ failed"),
    };
    format!(
        "<header>\n<div class=\"title\"><h1><bdi>{title}</bdi></h1><span class=\"badge {class}\" id=\"result\">{badge}</span></div>\n\
         <dl class=\"facts\">\n\
         <div><dt>where</dt><dd><bdi id=\"place\">{}</bdi></dd></div>\n\
         <div><dt>from</dt><dd><time datetime=\"{}\">{}</time></dd></div>\n\
         <div><dt>to</dt><dd><time datetime=\"{}\">{}</time> ({})</dd></div>\n\
         <div><dt>exit status</dt><dd><data id=\"exit\" value=\"{}\">{}</data>: {}</dd></div>\n\
         <div><dt>program</dt><dd><bdi>{}</bdi> on <bdi>{}</bdi></dd></div>\n</dl>\n</header>\n",
        escape(&report.place),
        report.started,
        time(report.started),
        report.finished,
        time(report.finished),
        duration(length),
        report.exit,
        report.exit,
        escape(&report.meaning),
        escape(&report.tool),
        escape(&report.host),
    )
}

fn failure(cause: Option<&Cause>) -> String {
    let Some(cause) = cause else { return String::new() };
    let hint = cause.hint.as_deref().map(|hint| {
        format!("<p class=\"hint\" id=\"hint\"><strong>Next step:</strong> {}</p>", escape(hint))
    });
    format!(
        "<section class=\"card alarm\" id=\"failure\" role=\"alert\">\n<h2>Why it failed</h2>\n<p id=\"cause\">{}</p>\n{}\n</section>\n",
        escape(&cause.message),
        hint.unwrap_or_default(),
    )
}

fn warnings(report: &Document) -> String {
    if report.warnings.is_empty() {
        return String::new();
    }
    let item = |warning: &String| format!("<li>{}</li>", escape(warning));
    let items: String = report.warnings.iter().map(item).collect();
    format!(
        "<section class=\"card notice\" id=\"warnings\">\n<h2>Warnings</h2>\n<ul>{items}</ul>\n</section>\n"
    )
}

/// The course of one section: the slowest stage in a sentence, the chart, and the stages.
fn course(section: &Section) -> String {
    let line = Timeline::new(section.samples.samples());
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
    let (verdict, about) = match section.stages.len() {
        1 => (String::new(), "The rate over time."),
        _ => (
            stages::verdict(section, &line),
            "Each line shows how many bytes entered one stage per second. The band below names the stage that the others waited for, or that alone had work left; where it is empty, none held up the others for long.",
        ),
    };
    card(&id, &title, about, &format!("{verdict}{chart}{legend}{table}"))
}

fn retries(report: &Document) -> String {
    if report.retries.is_empty() {
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
    for (number, retry) in report.retries.iter().enumerate() {
        if number == FIRST_RETRIES && report.more_retries > 0 {
            let more = count(report.more_retries, "more retry", "more retries");
            let _ = write!(rows, "<tr class=\"rest\"><td></td><td>{more}</td></tr>");
        }
        rows += &row(retry.at, &retry.error);
    }
    let table = format!(
        "<table><thead><tr><th class=\"n\">after</th><th>error before the next try</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    card("retries", "Retries", "Requests that failed and were sent again.", &table)
}

fn settings(report: &Document) -> String {
    if report.settings.is_empty() {
        return String::new();
    }
    let row = |Setting { name, value }: &Setting| {
        format!("<div><dt>{}</dt><dd><bdi>{}</bdi></dd></div>", escape(name), escape(value))
    };
    let rows: String = report.settings.iter().map(row).collect();
    let list = format!("<dl class=\"facts\">{rows}</dl>");
    card("settings", "Settings", "What the run worked with.", &list)
}

#[cfg(test)]
mod tests;
