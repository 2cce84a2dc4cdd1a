use std::time::Duration;

use super::*;
use crate::fleet::table::TableOptions;
use crate::job::{Limits, Remarks, judge};

const HOUR: Duration = Duration::from_secs(3600);

fn line(path: &str, age: Option<u32>, limit: u32) -> FleetRow {
    let newest = age.map(|age| ("n".to_owned(), HOUR * age));
    let last = newest.as_ref().map(|(name, _)| name.clone());
    let server = Some(format!("db-of-{path}"));
    let found = BackupFacts { server, last, newest, backups: 2, ..BackupFacts::default() };
    let limits = Limits { age: Some(HOUR * limit), ..Limits::default() };
    let verdict = judge(path, Remarks::default(), std::slice::from_ref(&found), &[], limits);
    FleetRow {
        path: path.to_owned(),
        root: format!("s3://bucket/{path}"),
        verdict,
        found: Some(found),
        stored_bytes: 2048,
        newest: None,
        archive: None,
    }
}

fn unread(path: &str) -> FleetRow {
    FleetRow { found: None, verdict: Verdict::unknown("denied\nand more"), ..line(path, None, 1) }
}

fn fleet(lines: Vec<FleetRow>) -> Fleet {
    let (began, ended) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    let (repositories, searched) = (lines.len() as u64, 9);
    let place = "s3://buck\"et/".to_owned();
    let mut fleet = Fleet {
        place,
        began,
        ended,
        lines,
        repositories,
        searched,
        depth: 3,
        too_deep: Vec::new(),
        too_many: Vec::new(),
        requests: 7,
    };
    fleet.sort();
    fleet
}

#[test]
fn the_worst_comes_first_and_is_the_state_of_all() {
    let fleet = fleet(vec![
        line("good", Some(1), 26),
        line("old", Some(90), 26),
        line("older", Some(99), 26),
        unread("denied"),
        line("never", None, 26),
    ]);
    let paths: Vec<&str> = fleet.lines.iter().map(|line| &*line.path).collect();
    assert_eq!(paths, ["never", "older", "old", "denied", "good"]);
    assert_eq!(fleet.worst(), (2, "CRITICAL"));
    assert_eq!(summary(&fleet), "5 repositories: 3 CRITICAL, 1 UNKNOWN, 1 OK; 8 backups, 10.0 KiB");
    let state = |lines| super::tests::fleet(lines).worst();
    assert_eq!(state(vec![line("good", Some(1), 26), unread("denied")]), (3, "UNKNOWN"));
    assert_eq!(state(vec![line("good", Some(1), 26)]), (0, "OK"));
    assert_eq!(state(Vec::new()), (2, "CRITICAL"), "nothing at all is not well");
}

#[test]
fn names_are_cut_to_the_terminal_and_reasons_are_not() {
    let long = "a/very/long/path/of/a/repository/in/which/a/team/keeps/its/backups/for-2026";
    let fleet = fleet(vec![line(long, Some(90), 26), line("short", Some(1), 26)]);
    let text = table(&fleet, TableOptions { columns: Some(80), ..TableOptions::default() });
    let mut lines = text.lines();
    let all: Vec<&str> = lines.by_ref().collect();
    assert_eq!(all.len(), 4, "{text}");
    assert!([0, 1, 3].iter().all(|n| all[*n].chars().count() <= 80), "{text}");
    assert!(all[1].contains('…') && all[1].contains("-2026"), "{text}");
    assert!(all[2].contains("the newest backup n is 3d 18h old, the limit is 1d 2h"), "{text}");
    let whole = table(&fleet, TableOptions::default());
    assert!(whole.contains(long) && whole.contains(&format!("db-of-{long}")), "{whole}");
    let bad = table(&fleet, TableOptions { only_problems: true, ..TableOptions::default() });
    assert!(!bad.contains("short") && bad.contains(long), "{bad}");
    let good = super::tests::fleet(vec![line("short", Some(1), 26)]);
    assert_eq!(table(&good, TableOptions { only_problems: true, ..TableOptions::default() }), "");
}

#[test]
fn a_name_from_outside_stays_on_its_line() {
    let fleet = fleet(vec![line("a\nb\u{1b}[31m", Some(1), 26)]);
    let text = table(&fleet, TableOptions::default());
    assert!(text.lines().count() == 2 && !text.contains('\u{1b}'), "{text:?}");
    let text = metrics_beside(&fleet, "xbcloud-rs 0.1.0", "");
    let label = "fleet=\"s3://buck\\\"et/\",repository=\"s3://bucket/a\\nb\u{1b}[31m\"";
    assert!(text.contains(label), "{text}");
    let page = crate::page::fleet_page(&fleet, "xbcloud-rs 0.1.0", "<host>");
    assert!(!page.contains('\u{1b}') && !page.contains("<host>"), "{page}");
}

#[test]
fn a_trend_is_a_percentage_of_what_is_usual() {
    for (now, usual, text) in [
        (103, 100, Some("+3%")),
        (40, 100, Some("-60%")),
        (100, 100, Some("+0%")),
        (u64::MAX, 1, Some(">+999%")),
        (0, u64::MAX, Some("-100%")),
        (7, 0, None),
    ] {
        assert_eq!(trend_text((now, usual)).as_deref(), text);
    }
}

#[test]
fn a_file_of_other_metrics_is_noticed() {
    let own = metrics_beside(&fleet(vec![line("good", Some(1), 26)]), "xbcloud-rs 0.1.0", "");
    assert!(!holds_others(&own) && !holds_others(""));
    assert!(holds_others("# HELP xbcloud_run_success X.\n"));
}

#[test]
fn an_unsearched_folder_is_a_warning_and_named() {
    let mut fleet = fleet(vec![line("good", Some(1), 26)]);
    assert_eq!((fleet.worst(), fleet.not_searched()), ((0, "OK"), vec![]));
    fleet.too_deep = ["a", "b", "c", "d\n"].map(str::to_owned).to_vec();
    assert_eq!(fleet.worst(), (1, "WARNING"));
    let quiet = table(&fleet, TableOptions { only_problems: true, ..TableOptions::default() });
    let text =
        "WARNING: not searched more than 3 folders deep: below a, b, c, 1 more; raise --depth\n";
    assert_eq!(quiet, text);
    let text = metrics_beside(&fleet, "xbcloud-rs 0.1.0", "");
    assert!(text.contains("xbcloud_fleet_too_deep{fleet=\"s3://buck\\\"et/\"} 4\n"), "{text}");
    fleet.too_deep.clear();
    fleet.too_many = vec![("app/customers".to_owned(), 70_000), (String::new(), 9)];
    assert_eq!(fleet.worst(), (1, "WARNING"));
    let quiet = table(&fleet, TableOptions { only_problems: true, ..TableOptions::default() });
    let text = "WARNING: not looked for in too many folders: those in app/customers (70000), the place itself (9); raise --max-folders, or give a place below\n";
    assert_eq!(quiet, text);
    let text = metrics_beside(&fleet, "xbcloud-rs 0.1.0", "");
    assert!(text.contains("xbcloud_fleet_too_many{fleet=\"s3://buck\\\"et/\"} 2\n"), "{text}");
    fleet.lines.push(unread("denied"));
    assert_eq!(fleet.worst(), (3, "UNKNOWN"));
}

#[test]
fn fleets_share_a_file() {
    let tool = "xbcloud-rs 0.1.0";
    let of = |place: &str, lines| Fleet { place: place.to_owned(), ..fleet(lines) };
    let one = of("s3://one", vec![line("shop", Some(1), 26)]);
    let other = of("s3://one/2", vec![line("web", Some(1), 26), unread("vault")]);
    let first = metrics_beside(&one, tool, "");
    let both = metrics_beside(&other, tool, &first);
    for code in ["{fleet=\"s3://one\"} 0\n", "{fleet=\"s3://one/2\"} 3\n"] {
        assert!(both.contains(&format!("xbcloud_fleet_exit_code{code}")), "{both}");
    }
    let heads: Vec<&str> = both.lines().filter(|line| line.starts_with("# HELP")).collect();
    let names: std::collections::BTreeSet<&str> = heads.iter().copied().collect();
    assert_eq!(heads.len(), names.len(), "{both}");
    // A later look replaces its own samples, and only these.
    let again = metrics_beside(&one, tool, &both);
    let sorted =
        |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(&again), sorted(&both));
    assert_eq!(again.lines().count(), both.lines().count());
}
