//! The text of `binlog list`, in 80 columns.

use std::fmt::Write as _;

use jiff::Timestamp;
use xb_backup::{ArchiveReport, OriginReport, StreamReport, Window};
use xb_cli::{format_count, format_duration, format_size, printable};

/// Streams that are shown without `--long`, besides gaps, branches and problems.
const SHOWN: usize = 5;
/// Characters of a stream's ID that are shown.
const SHORT: usize = 8;

/// Lists archives.
pub(super) fn table(found: &[ArchiveReport], long: bool, now: Timestamp) -> String {
    let mut out = String::new();
    for (number, report) in found.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        one(&mut out, report, long, now);
    }
    out
}

/// Writing to a string cannot fail.
fn line(out: &mut String, text: impl std::fmt::Display) {
    let _ = writeln!(out, "{text}");
}

fn one(out: &mut String, report: &ArchiveReport, long: bool, now: Timestamp) {
    let bytes: u64 = report.streams.iter().map(|stream| stream.bytes).sum();
    let until = report.streams.iter().filter_map(|stream| stream.covered_until).max();
    let until = until.map_or("nothing yet".to_owned(), |at| {
        format!("until {} ({} ago)", time(at), ago(now, at))
    });
    line(
        out,
        format!(
            "{}: stored {until}, {} in {}",
            printable(&report.server),
            format_size(bytes),
            format_count(report.streams.len() as u64, "stream"),
        ),
    );
    let alive = report.streams.iter().filter_map(|stream| stream.alive).max();
    if let Some(alive) = alive.filter(|at| now.as_second() - at.as_second() > 120) {
        line(out, format!("  no receiver for {}", ago(now, alive)));
    }
    streams(out, &report.streams, long);
    for problem in &report.problems {
        line(out, format!("  problem: {}", printable(problem)));
    }
    for stranded in &report.stranded {
        line(out, format!("  note: {}", printable(stranded)));
    }
    windows(out, &report.backups);
    for backup in &report.unreadable {
        line(out, format!("  unknown, because its manifest cannot be read: {}", printable(backup)));
    }
    if !report.past_gaps.is_empty() {
        let number = format_count(report.past_gaps.len() as u64, "gap");
        line(out, format!("  {number} above: history that no backup needs"));
    }
}

fn streams(out: &mut String, streams: &[StreamReport], long: bool) {
    let hidden = if long { 0 } else { streams.len().saturating_sub(SHOWN) };
    let is_shown = |number: usize, stream: &StreamReport| {
        number >= hidden || stream.reason.is_some() || !stream.problems.is_empty()
    };
    line(out, "  STREAM    BEGAN (UTC)       FOLLOWS         SIZE  ENDS AT");
    let (mut left, mut server) = (0, None);
    for (number, stream) in streams.iter().enumerate() {
        // A host may get another name.
        let now = stream.origin.as_ref().map(OriginReport::identity);
        let is_other = server.is_some() && now.is_some() && server != now;
        server = now.or(server);
        if !is_shown(number, stream) && !is_other {
            left += 1;
            continue;
        }
        if left > 0 {
            line(out, format!("  ({} not shown)", format_count(left, "stream")));
            left = 0;
        }
        let began =
            stream.started.map_or("?".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M").to_string());
        line(
            out,
            format!(
                "  {:SHORT$}  {began:16}  {:9}  {:>9}  {}{}",
                stream.stream.get(..SHORT).unwrap_or(&stream.stream),
                stream.begins.as_deref().unwrap_or("?"),
                format_size(stream.bytes),
                printable(stream.to.as_deref().unwrap_or("-")),
                if stream.sealed { "" } else { "  NOT SEALED" },
            ),
        );
        if let Some(origin) = stream.origin.as_ref().filter(|_| is_other) {
            let takes_over = stream.takes_over_at.as_ref();
            let place = takes_over.map(|at| format!(", takes over at {at}")).unwrap_or_default();
            line(
                out,
                format!("    SERVER: {}{}", printable(&origin.to_string()), printable(&place)),
            );
        }
        if let Some(reason) = &stream.reason {
            let kind = stream.begins.as_deref().unwrap_or_default();
            line(out, format!("    {}: {}", kind.to_uppercase(), printable(reason)));
        }
        for problem in &stream.problems {
            line(out, format!("    problem: {}", printable(problem)));
        }
        for remark in &stream.remarks {
            line(out, format!("    note: {}", printable(remark)));
        }
    }
}

fn windows(out: &mut String, windows: &[Window]) {
    if windows.is_empty() {
        return line(
            out,
            "  no backup records its position in the log, so nothing can be replayed",
        );
    }
    let width = windows.iter().map(|window| window.backup.chars().count()).max().unwrap_or(0);
    let width = width.max("BACKUP".len());
    line(out, format!("  {:width$}  RESTORABLE FROM          TO (UTC)", "BACKUP"));
    for window in windows {
        let backup = printable(&window.backup);
        let text = match (&window.problem, window.until) {
            (None, until) => {
                // Right after a backup, its own data is the newest.
                let until = until.map(|until| time(until.max(window.from)));
                let end = until.unwrap_or_else(|| window.to.clone().unwrap_or_default());
                format!("{:23}  {end}", time(window.from))
            }
            (Some(problem), _) if !window.archived => {
                let why = match problem.starts_with("its log") {
                    true => printable(problem),
                    false => "its log is not archived".to_owned(),
                };
                format!("{:23}  only itself: {why}", time(window.from))
            }
            (Some(problem), Some(until)) if window.is_cut() => {
                let (from, until) = (time(window.from), time(until));
                format!("{from:23}  {until}, not to the end: {}", printable(problem))
            }
            (Some(problem), Some(_)) => format!("{:23}  {}", time(window.from), printable(problem)),
            (Some(problem), None) => format!("not to the end: {}", printable(problem)),
        };
        line(out, format!("  {backup:width$}  {text}"));
    }
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    let seconds = u64::try_from(now.as_second() - at.as_second()).unwrap_or_default();
    format_duration(std::time::Duration::from_secs(seconds))
}
