//! The fleet as a table: a line for each server, and below it what is wrong with it.

use std::fmt::Write as _;

use xb_backup::ChainLock;
use xb_cli::{format_count, format_size, printable};

use crate::fleet::{Fleet, FleetRow, NewestBackup, chain_text, log_text, trend_text};
use crate::listing::{age, shortened};

const HEADS: [&str; 10] =
    ["STATE", "REPOSITORY", "SERVER", "AGE", "PROOF", "SIZE", "TREND", "CHAIN", "LOG", "COUNT"];
/// The columns of names, which are cut to the terminal.
const NAMES: [usize; 2] = [1, 2];
/// Columns that are aligned at their end.
const NUMBERS: [usize; 5] = [3, 5, 6, 8, 9];
/// Least width of a name that is cut.
const LEAST: usize = 8;

/// Options of the table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableOptions {
    /// Width of the terminal; without one, nothing is cut.
    pub(crate) columns: Option<usize>,
    /// Also who can open the newest backups, and until when they are locked.
    pub(crate) long: bool,
    /// Only lines that are not OK.
    pub(crate) only_problems: bool,
}

/// Returns the table.
pub(crate) fn table(fleet: &Fleet, shown: TableOptions) -> String {
    let lines = || fleet.lines.iter().filter(|line| !shown.only_problems || line.verdict.code != 0);
    let rows: Vec<[String; 10]> = lines().map(row).collect();
    let not_searched = fleet.not_searched();
    let not_searched = not_searched.iter().map(|what| format!("WARNING: {}\n", printable(what)));
    let not_searched: String = not_searched.collect();
    if rows.is_empty() {
        return not_searched;
    }
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    fit(&mut widths, shown.columns);
    let mut text = String::new();
    write(&mut text, &HEADS.map(str::to_owned), &widths);
    for (line, row) in lines().zip(rows) {
        write(&mut text, &row, &widths);
        for problem in line.problems() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}", printable(problem));
        }
        if let Some(newest) = line.newest.as_ref().filter(|_| shown.long) {
            details(&mut text, newest);
        }
    }
    text + &not_searched
}

/// The totals, in a sentence.
pub(crate) fn summary(fleet: &Fleet) -> String {
    let states = [(2, "CRITICAL"), (3, "UNKNOWN"), (1, "WARNING"), (0, "OK")];
    let states = states.into_iter().map(|(code, state)| (fleet.count(code), state));
    let states: Vec<String> = states
        .filter(|(number, _)| *number > 0)
        .map(|(number, state)| format!("{number} {state}"))
        .collect();
    let (backups, bytes) = fleet.backups();
    let repositories = match fleet.repositories {
        1 => "1 repository".to_owned(),
        number => format!("{number} repositories"),
    };
    format!(
        "{repositories}: {}; {}, {}",
        states.join(", "),
        format_count(backups, "backup"),
        format_size(bytes)
    )
}

/// Makes the names narrower until the table fits.
fn fit(widths: &mut [usize; 10], columns: Option<usize>) {
    let Some(columns) = columns else { return };
    let between = 2 * (HEADS.len() - 1);
    let mut over = (widths.iter().sum::<usize>() + between).saturating_sub(columns);
    while over > 0 {
        let wide = NAMES.into_iter().filter(|n| widths[*n] > LEAST.max(HEADS[*n].len()));
        let Some(widest) = wide.max_by_key(|n| widths[*n]) else { return };
        widths[widest] -= 1;
        over -= 1;
    }
}

fn write(text: &mut String, row: &[String; 10], widths: &[usize; 10]) {
    let mut line = String::new();
    for (n, (cell, width)) in row.iter().zip(widths).enumerate() {
        let width = *width;
        let cell = if NAMES.contains(&n) { shortened(cell, width) } else { cell.clone() };
        let _ = match NUMBERS.contains(&n) {
            true => write!(line, "{cell:>width$}  "),
            false => write!(line, "{cell:width$}  "),
        };
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

fn row(line: &FleetRow) -> [String; 10] {
    let none = || "-".to_owned();
    let newest = line.newest.as_ref();
    let found = line.found.as_ref();
    let seconds = |seconds: u64| age(i64::try_from(seconds).unwrap_or(i64::MAX));
    let proven = found.and_then(|found| found.proven.as_ref());
    [
        line.verdict.state.to_owned(),
        if line.path.is_empty() { ".".to_owned() } else { printable(&line.path) },
        line.server().map_or_else(none, printable),
        found
            .and_then(|found| found.newest.as_ref())
            .map_or_else(none, |(_, age)| seconds(age.as_secs())),
        proven.map_or_else(none, |(_, level, age)| format!("{level} {}", seconds(age.as_secs()))),
        found.map_or_else(none, |_| format_size(line.stored_bytes)),
        newest.and_then(|newest| trend_text(newest.trend?)).unwrap_or_else(none),
        newest.map_or_else(none, chain_text),
        line.archive.as_ref().map_or_else(none, |archive| log_text(archive, seconds)),
        found.map_or_else(none, |found| found.backups.to_string()),
    ]
}

/// The lines of `--long`.
fn details(text: &mut String, newest: &NewestBackup) {
    let mut add = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:11} {}", printable(&value));
    };
    add("newest", newest.name.clone());
    if newest.chain.len() > 1 {
        add("needs", newest.chain[..newest.chain.len() - 1].join(", "));
    }
    match (newest.keys.is_empty(), newest.encrypted) {
        (false, _) => add("opens with", newest.keys.join(", ")),
        (true, Some(false)) => add("sealed", "no: it opens without a key".to_owned()),
        (true, _) => add("opens with", "no key slot is the same for the whole chain".to_owned()),
    }
    match newest.lock {
        Some(ChainLock::Until(until)) => {
            add("locked", format!("until {}", until.strftime("%Y-%m-%d %H:%M:%S UTC")));
        }
        Some(ChainLock::Open) => add("locked", "no".to_owned()),
        Some(ChainLock::Unknown(why)) => add("locked", format!("unknown: {why}")),
        None => {}
    }
}
