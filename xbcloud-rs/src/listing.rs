//! The table of `list`, in 80 columns.

use std::io::Write as _;

use xb_cli::{format_size, printable};
use xb_repo::list::{BackupKind, Listing, State};
use xb_repo::records::Proof;

use crate::report::{details, state};

/// Width of a terminal that needs no setting.
const WIDTH: usize = 80;
/// Minimum width left for the last column.
const LEAST: usize = 12;
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
    let widths = widths(&rows);
    let taken = widths[..5].iter().map(|width| width + 2).sum::<usize>();
    let rest = WIDTH.saturating_sub(taken).max(LEAST);
    writeln!(out, "{}", line(&HEADS.map(str::to_owned), &widths))?;
    for (listing, mut row) in listings.into_iter().zip(rows) {
        if !long {
            row[5] = shortened(&row[5], rest);
        }
        writeln!(out, "{}", line(&row, &widths))?;
        for (what, value) in facts(listing).into_iter().filter(|_| long) {
            writeln!(out, "  {what:11} {}", printable(&value))?;
        }
        let broken = listing.broken.as_ref().map(|why| format!("cannot be restored: {why}"));
        let shrunk = listing.unaccepted().map(|what| format!("much smaller than usual: {what}"));
        let open = listing.open_question();
        for problem in broken.iter().chain(&shrunk).chain(&open).chain(&listing.problem) {
            writeln!(out, "  {}", printable(problem))?;
        }
    }
    Ok(())
}

/// Sort key: first the names that were never a backup, then backups by their end, then runs in
/// progress.
fn order(line: &Listing) -> (u8, Option<jiff::Timestamp>, &str) {
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
            "full, consolidated".to_owned()
        }
        (Some(BackupKind::Full), _) => "full".to_owned(),
        (Some(BackupKind::Incremental), Some(base)) => format!("on {}", printable(&base.name)),
        (Some(BackupKind::Incremental), None) => "incremental".to_owned(),
        (None, _) => match (line.state, line.backups) {
            (State::Folder, Some(1)) => "1 backup".to_owned(),
            (State::Folder, Some(n)) => format!("{n} backups"),
            _ => none(),
        },
    };
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
fn age(seconds: i64) -> String {
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
fn shortened(text: &str, most: usize) -> String {
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
