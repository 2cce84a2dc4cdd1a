//! The page about all servers of all repositories below a place.

use std::fmt::Write as _;

use jiff::Timestamp;
use xb_backup::ChainLock;

use crate::fleet::{Fleet, FleetRow, NewestBackup, chain_text, log_text, trend_text};
use crate::listing::age;
use crate::page::document;
use crate::page::text::{data, escape};
use crate::page::units::{grouped, size, time};

/// Heads of the columns.
const HEADS: [(&str, &str); 9] = [
    ("state", ""),
    ("repository", ""),
    ("server", ""),
    ("newest", ""),
    ("proof", "one"),
    ("stored", "n"),
    ("trend", "n"),
    ("chain", "one"),
    ("log", "n"),
];

/// Returns the page. `tool` made it on `host`.
pub(crate) fn fleet_page(fleet: &Fleet, tool: &str, host: &str) -> String {
    let (code, state) = fleet.worst();
    let place = escape(&fleet.place);
    let mut html = format!(
        "<header>\n<div class=\"title\"><h1><bdi>{place}</bdi></h1><span class=\"badge {}\" id=\"result\">{state}</span></div>\n\
         <dl class=\"facts\">\n<div><dt>looked at</dt><dd><time datetime=\"{}\">{}</time></dd></div>\n\
         <div><dt>program</dt><dd><bdi>{}</bdi> on <bdi>{}</bdi></dd></div>\n</dl>\n</header>\n",
        class(code),
        fleet.ended,
        time(fleet.ended),
        escape(tool),
        escape(host),
    );
    html += &tiles(fleet);
    html += &not_searched("too-deep", "Not looked for deeper", &fleet.too_deep);
    html += &not_searched("too-many", "Not looked for in too many folders", &fleet.too_many());
    html += &table(fleet);
    html += "<footer>ages are those of the time above · this page is complete in itself and loads nothing</footer>\n";
    document(&format!("{state}: backups in {place}"), &html)
}

/// Class of a state.
fn class(code: u8) -> &'static str {
    match code {
        0 => "good",
        1 => "warn",
        2 => "bad",
        _ => "unknown",
    }
}

fn tiles(fleet: &Fleet) -> String {
    let (backups, bytes) = fleet.backups();
    let tile = |label: &str, value: String, note: String| {
        format!(
            "<div class=\"tile\"><span class=\"label\">{label}</span><span class=\"value\">{value}</span><span class=\"note\">{note}</span></div>"
        )
    };
    let number = |id: &str, value: u64| data(id, value, &grouped(value));
    let mut tiles = String::new();
    for (code, label) in [(2, "critical"), (3, "unknown"), (1, "warning"), (0, "ok")] {
        tiles += &tile(label, number(label, fleet.count(code)), String::new());
    }
    tiles += &tile("repositories", number("repositories", fleet.repositories), String::new());
    tiles += &tile("backups", number("backups", backups), size(bytes));
    format!("<div class=\"tiles\">{tiles}</div>\n")
}

fn not_searched(id: &str, heading: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let item = |name: &String| format!("<li><bdi>{}</bdi></li>", escape(name));
    let items: String = names.iter().take(20).map(item).collect();
    let more = match names.len().saturating_sub(20) {
        0 => String::new(),
        more => format!("<li>{more} more</li>"),
    };
    format!(
        "<section class=\"card notice\" id=\"{id}\">\n<h2>{heading}</h2>\n<ul>{items}{more}</ul>\n</section>\n"
    )
}

fn table(fleet: &Fleet) -> String {
    let heads: String =
        HEADS.iter().map(|(head, class)| format!("<th class=\"{class}\">{head}</th>")).collect();
    let mut rows = String::new();
    for line in &fleet.lines {
        row(&mut rows, line);
    }
    format!(
        "<section class=\"card\" id=\"servers\">\n<h2>Servers</h2>\n<p class=\"about\">The worst first. A backup counts as the newest only if it can be restored now.</p>\n<div class=\"wide\"><table class=\"fleet\"><thead><tr>{heads}</tr></thead>{rows}</table></div>\n</section>\n"
    )
}

fn row(html: &mut String, line: &FleetRow) {
    let found = line.found.as_ref();
    let newest = line.newest.as_ref();
    let short = |seconds: u64| age(i64::try_from(seconds).unwrap_or(i64::MAX));
    let none = || "–".to_owned();
    let backup = found.and_then(|found| found.newest.as_ref()).map(|(name, old)| {
        format!("{} <small><bdi>{}</bdi></small>", short(old.as_secs()), escape(name))
    });
    let proof = found
        .and_then(|found| found.proven.as_ref())
        .map(|(_, level, old)| format!("{} {}", escape(level), short(old.as_secs())));
    let path = if line.path.is_empty() { "." } else { &line.path };
    let cells = [
        format!("<span class=\"badge {}\">{}</span>", class(line.verdict.code), line.verdict.state),
        format!("<bdi title=\"{}\">{}</bdi>", escape(&line.root), escape(path)),
        line.server().map_or_else(none, |server| format!("<bdi>{}</bdi>", escape(server))),
        backup.unwrap_or_else(none),
        proof.unwrap_or_else(none),
        found.map_or_else(none, |found| {
            format!("{} <small>in {}</small>", size(line.stored_bytes), found.backups)
        }),
        newest.and_then(|newest| trend_text(newest.trend?)).map_or_else(none, |text| escape(&text)),
        newest.map_or_else(none, chain_text),
        line.archive.as_ref().map_or_else(none, |archive| log_text(archive, short)),
    ];
    // Writing to a string cannot fail.
    let _ = write!(html, "<tbody class=\"{}\"><tr>", class(line.verdict.code));
    for ((head, class), cell) in HEADS.iter().zip(cells) {
        let _ = write!(html, "<td class=\"{class}\" data-head=\"{head}\"><span>{cell}</span></td>");
    }
    html.push_str("</tr>");
    let problems: String =
        line.problems().map(|problem| format!("<li>{}</li>", escape(problem))).collect();
    let details = newest.map(details).unwrap_or_default();
    if !problems.is_empty() || !details.is_empty() {
        let list = if problems.is_empty() { String::new() } else { format!("<ul>{problems}</ul>") };
        let _ = write!(
            html,
            "<tr class=\"why\"><td colspan=\"{}\">{list}{details}</td></tr>",
            HEADS.len()
        );
    }
    html.push_str("</tbody>\n");
}

/// Keys that open the newest backup, and its lock, if requested.
fn details(newest: &NewestBackup) -> String {
    let lock = match newest.lock {
        None => return String::new(),
        Some(ChainLock::Open) => "not locked".to_owned(),
        Some(ChainLock::Unknown(why)) => format!("lock unknown: {}", escape(why)),
        Some(ChainLock::Until(until)) => format!("locked until {}", time_of(until)),
    };
    let keys = match (newest.keys.is_empty(), newest.encrypted) {
        (false, _) => format!("opens with <bdi>{}</bdi>", escape(&newest.keys.join(", "))),
        (true, Some(false)) => "not sealed".to_owned(),
        (true, _) => "no key slots are known".to_owned(),
    };
    format!("<small>{keys} · {lock}</small>")
}

fn time_of(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
