//! The table of `list`, in 80 columns.

use std::collections::BTreeSet;
use std::io::Write as _;

use jiff::Timestamp;
use xb_cli::{format_count, format_size, output_columns, printable};
use xb_repo::list::{BackupKind, Listing, State};
use xb_repo::records::Proof;

use crate::report::{details, state};

/// Width of a terminal that needs no setting.
const WIDTH: usize = 80;
/// Minimum width left for the last column.
const LEAST: usize = 12;
/// Minimum width of a name on a terminal.
const LEAST_NAME: usize = 20;
/// Name of servers without a name.
const NO_SERVER: &str = "none";
const HEADS: [&str; 6] = ["NAME", "STATE", "AGE", "SIZE", "PROOF", "KIND"];

/// Prints a listing on stdout, the newest backup last; with `json`, in the order of the names.
pub(crate) fn listing(listings: &[Listing], long: bool, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, listings)?;
        return writeln!(out);
    }
    let mut listings: Vec<&Listing> = listings.iter().collect();
    listings.sort_by_key(|line| order(line));
    let rows: Vec<[String; 6]> = listings.iter().map(|line| row(line)).collect();
    let mut widths = widths(&rows);
    if let Some(columns) = output_columns() {
        // Names for a program, not for a person, stay whole.
        let rest = widths[1..5].iter().map(|width| width + 2).sum::<usize>() + 2 + LEAST;
        widths[0] = widths[0].min(columns.saturating_sub(rest).max(LEAST_NAME));
    }
    let taken = widths[..5].iter().map(|width| width + 2).sum::<usize>();
    let columns = output_columns().unwrap_or(WIDTH);
    let rest = columns.saturating_sub(taken).max(LEAST);
    writeln!(out, "{}", line(&HEADS.map(str::to_owned), &widths))?;
    for (listing, mut row) in listings.into_iter().zip(rows) {
        if !long {
            row[5] = shortened(&row[5], rest);
            row[0] = shortened(&row[0], widths[0]);
        }
        writeln!(out, "{}", line(&row, &widths))?;
        for (what, value) in facts(listing).into_iter().filter(|_| long) {
            writeln!(out, "  {what:11} {}", printable(&value))?;
        }
        let broken = listing.broken.as_ref().map(|why| format!("cannot be restored: {why}"));
        let shrunk = listing.unaccepted().map(|what| format!("much smaller than usual: {what}"));
        let open = listing.open_question();
        let undated = listing
            .undated
            .as_ref()
            .map(|why| format!("it counts as made when it was stored: {why}"));
        let found = broken.iter().chain(&shrunk).chain(&open).chain(&undated);
        for problem in found.chain(&listing.problem) {
            writeln!(out, "  {}", printable(problem))?;
        }
    }
    Ok(())
}

/// Which backups of a listing are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListFilter<'a> {
    /// Only so many, the newest ones.
    pub(crate) last: Option<usize>,
    /// Only those that ended at this time or later.
    pub(crate) since: Option<Timestamp>,
    /// Only those of this server, or of servers without a name.
    pub(crate) server: Option<&'a str>,
}

/// Keeps the lines that are wanted, in their order. A manifest that cannot be read may be that of any backup.
pub(crate) fn select(mut lines: Vec<Listing>, wanted: ListFilter<'_>) -> Vec<Listing> {
    let ListFilter { last, since, server } = wanted;
    if last.is_none() && since.is_none() && server.is_none() {
        return lines;
    }
    let ended = |line: &Listing| line.finished.map_or(line.written, Timestamp::as_second);
    lines.retain(|line| {
        let is_unread = matches!(line.state, State::Damaged | State::Unreadable);
        let of = line.server.as_deref().unwrap_or(NO_SERVER);
        let is_recent = since.is_none_or(|since| ended(line) >= since.as_second());
        is_recent
            && (is_unread || line.finished.is_some() && server.is_none_or(|server| server == of))
    });
    if let Some(last) = last {
        let mut newest: Vec<(i64, String)> =
            lines.iter().map(|line| (ended(line), line.name.clone())).collect();
        newest.sort_by(|a, b| b.cmp(a));
        newest.truncate(last);
        let newest: BTreeSet<String> = newest.into_iter().map(|(_, name)| name).collect();
        lines.retain(|line| newest.contains(&line.name));
    }
    lines
}

/// The totals of the lines that are shown, in a sentence; `all` is the number of backups before the selection.
pub(crate) fn totals(shown: &[Listing], all: usize) -> Option<String> {
    let backups = || shown.iter().filter(|line| line.finished.is_some());
    let number = backups().count();
    if number < 2 && number == all {
        return None;
    }
    let bytes = backups().filter_map(|line| line.stored_bytes).fold(0, u64::saturating_add);
    let servers: BTreeSet<&str> = backups().filter_map(|line| line.server.as_deref()).collect();
    let of_servers = match servers.len() {
        0 | 1 => String::new(),
        servers => format!(" of {servers} servers"),
    };
    let of_all = if number == all { String::new() } else { format!(", of {all}") };
    let backups = format_count(number as u64, "backup");
    Some(format!("{backups}{of_servers}{of_all}: {}", format_size(bytes)))
}

/// Sort key: first the names that were never a backup, then backups by their end, then runs in
/// progress.
fn order(line: &Listing) -> (u8, Option<Timestamp>, &str) {
    let group = match (line.state, line.finished) {
        (State::Running, _) => 2,
        (_, Some(_)) => 1,
        (_, None) => 0,
    };
    (group, line.finished, &line.name)
}

fn row(line: &Listing) -> [String; 6] {
    let none = || "-".to_owned();
    let mut kind = match (line.kind, &line.base) {
        (Some(BackupKind::Full), _) if line.mysql_clone.is_some() => "full clone".to_owned(),
        (Some(BackupKind::Full), _) if !line.consolidated_from.is_empty() => {
            let what = if line.may_lack_imports { "imports unknown" } else { "consolidated" };
            format!("full, {what}")
        }
        (Some(BackupKind::Full), _) => "full".to_owned(),
        (Some(BackupKind::Incremental), Some(base)) => {
            let doubt = if line.may_lack_imports { ", imports unknown" } else { "" };
            format!("on {}{doubt}", printable(&base.name))
        }
        (Some(BackupKind::Incremental), None) => "incremental".to_owned(),
        (None, _) => match (line.state, line.backups) {
            (State::Folder, Some(1)) => "1 backup".to_owned(),
            (State::Folder, Some(n)) => format!("{n} backups"),
            _ => none(),
        },
    };
    if line.is_partial {
        kind += ", partial";
    }
    if line.pinned.is_some() {
        kind = format!("pinned, {kind}");
    }
    [
        printable(&line.name),
        match line.state {
            State::Folder => "folder".to_owned(),
            _ => state(line),
        },
        line.age_seconds.map_or_else(none, age),
        line.stored_bytes.map_or_else(none, format_size),
        proof(line),
        kind,
    ]
}

/// Level and age of the proof: `pages 3d`.
fn proof(line: &Listing) -> String {
    match &line.verified {
        Some(Proof { failed: Some(level), .. }) => format!("DAMAGED {level}"),
        Some(Proof { level: Some(level), .. }) => {
            let age = line.verified_age_seconds.map(age).unwrap_or_default();
            format!("{level} {age}").trim_end().to_owned()
        }
        _ => "-".to_owned(),
    }
}

/// An age in one unit: `40s`, `5m`, `30h`, `12d`.
pub(crate) fn age(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = seconds.max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / MINUTE),
        7200..172_800 => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

fn widths(rows: &[[String; 6]]) -> [usize; 6] {
    let mut widths = HEADS.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn line(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let [name, state, age, size, proof, kind] = cells;
    let [w0, w1, w2, w3, w4, _] = widths;
    format!("{name:w0$}  {state:w1$}  {age:>w2$}  {size:>w3$}  {proof:w4$}  {kind}")
}

/// The text, or its start and its end with `…` between them: names differ at the end.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return text.to_owned();
    }
    let head = 3.min(most / 3);
    let tail = most.saturating_sub(head + 1);
    let (start, end) = (&chars[..head], &chars[chars.len() - tail..]);
    start.iter().chain(['…'].iter()).chain(end).collect()
}

/// Additional lines of `--long`.
fn facts(line: &Listing) -> Vec<(&'static str, String)> {
    let mut facts = details(line);
    let mut add = |what, value: Option<String>| {
        if let Some(value) = value {
            facts.push((what, value));
        }
    };
    add("finished", line.finished.map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()));
    add("objects", line.objects.map(|number| number.to_string()));
    add("files", line.files.map(|number| number.to_string()));
    add("version", line.server_version.clone());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (86_400 * 400, "400d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn a_long_base_keeps_its_end() {
        assert_eq!(shortened("on monday", 12), "on monday");
        let text = shortened("on db1.example.net-20261122T031500Z", 20);
        assert_eq!((text.chars().count(), &*text), (20, "on …20261122T031500Z"));
    }
}
