//! The stages and phases of a run, as bars along its time.

use std::fmt::Write as _;
use std::time::Duration;

use xb_report::{Document, Phase, Section, StageEnd};

use crate::page::axis::{place, times};
use crate::page::text::escape;
use crate::page::units::{duration, percent};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 26.0;

/// Time before the first phase that has a row of its own.
const NOTABLE: Duration = Duration::from_millis(20);

/// One bar.
struct Row {
    name: String,
    /// Whether it is a part of the row above it.
    inner: bool,
    end: StageEnd,
    from: Duration,
    to: Duration,
}

/// Returns the chart, or nothing if the run had no phases. If it has failed, it did so in the last
/// one.
pub(crate) fn phases(report: &Document, length: Duration) -> String {
    let rows = rows(report, length);
    if rows.is_empty() {
        return String::new();
    }
    let mut height = 8.0;
    let mut bars = String::new();
    for row in &rows {
        bar(&mut bars, row, length, height);
        height += ROW;
    }
    let mut grid = String::new();
    for tick in times(length) {
        let x = x(Duration::from_secs_f64(tick.at), length);
        let _ = write!(
            grid,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{height:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height + 16.0,
            tick.label,
        );
    }
    format!(
        "<svg class=\"phases\" viewBox=\"0 0 {WIDTH} {:.1}\" role=\"img\" aria-label=\"Phases of the run\"><g class=\"grid\">{grid}</g>{bars}</svg>",
        height + 24.0,
    )
}

fn x(at: Duration, length: Duration) -> f64 {
    LEFT + place(at.as_secs_f64(), length.as_secs_f64(), WIDTH - LEFT - RIGHT)
}

fn bar(svg: &mut String, row: &Row, length: Duration, top: f64) {
    let took = row.to.saturating_sub(row.from);
    let (from, to) = (x(row.from, length), x(row.to, length));
    let (class, shown) = match row.end {
        StageEnd::Ok if row.inner => ("inner", duration(took)),
        StageEnd::Ok => ("ok", duration(took)),
        StageEnd::Failed => ("failed", format!("✗ {}", duration(took))),
        StageEnd::Skipped => ("skipped", "skipped".to_owned()),
    };
    let whole = length.as_secs_f64();
    let share = if whole > 0.0 { took.as_secs_f64() / whole } else { 0.0 };
    let name = escape(&row.name);
    let _ = write!(
        svg,
        "<g class=\"phase {class}\" data-phase=\"{name}\" data-seconds=\"{:.3}\"><title>{name}: {shown}, {}</title><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
        took.as_secs_f64(),
        percent(share),
        LEFT - 10.0,
        top + 17.0,
    );
    if row.end != StageEnd::Skipped {
        let (inset, height) = if row.inner { (7.0, 12.0) } else { (4.0, 18.0) };
        let _ = write!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height}\" rx=\"3\"/>",
            top + inset,
            (to - from).max(2.0),
        );
    }
    let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{shown}</text></g>", to + 8.0, top + 17.0);
}

fn rows(report: &Document, length: Duration) -> Vec<Row> {
    if report.stages.is_empty() {
        let rows = report.sections.iter().flat_map(|section| inner(section, false));
        let mut rows: Vec<Row> = rows.collect();
        if let Some(last) = rows.last_mut().filter(|_| report.error.is_some()) {
            last.end = StageEnd::Failed;
        }
        return rows;
    }
    let mut rows = Vec::new();
    for stage in &report.stages {
        // Skipped stages are listed when the run ends.
        let (from, to) = match stage.status {
            StageEnd::Skipped => (Duration::ZERO, Duration::ZERO),
            _ => (stage.from, stage.to.min(length)),
        };
        rows.push(Row { name: stage.name.clone(), inner: false, end: stage.status, from, to });
        let own = report.sections.iter().filter(|section| section.name == stage.name);
        rows.extend(own.flat_map(|section| inner(section, true)));
    }
    rows
}

/// The phases of a section, and what came before the first one.
fn inner(section: &Section, inner: bool) -> Vec<Row> {
    let begin = section.begin;
    let end = begin + section.length;
    let at = |phase: &Phase| phase.at.clamp(begin, end);
    let first = section.phases.first().map_or(end, at);
    let row =
        |name: &str, from, to| Row { name: name.to_owned(), inner, end: StageEnd::Ok, from, to };
    let mut rows = Vec::new();
    if first.saturating_sub(begin) >= NOTABLE {
        rows.push(row("start", begin, first));
    }
    for (number, phase) in section.phases.iter().enumerate() {
        let to = section.phases.get(number + 1).map_or(end, at);
        rows.push(row(&phase.name, at(phase), to));
    }
    rows
}
