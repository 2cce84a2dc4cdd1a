//! Properties of every page.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use xb_pipeline::{Observer, Work};
use xb_report::{
    Cause, Direction, Document, End, Head, LaneCount, Report, Sample, SectionOptions, StageEnd,
    Totals, Traffic,
};

use crate::page::page;

const SECOND: Duration = Duration::from_secs(1);

const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}\u{0}";

pub(super) fn end(error: Option<Cause>) -> End {
    End {
        finished: "2026-11-22T03:17:05Z".parse().unwrap(),
        exit: u8::from(error.is_some()) * 6,
        meaning: "done and proven".into(),
        error,
    }
}

pub(super) fn begin(text: &str) -> Report {
    let started: Timestamp = "2026-11-22T03:15:00Z".parse().unwrap();
    let text = text.to_owned();
    Report::begin(Head {
        what: "Backup".into(),
        tool: text.clone(),
        place: text.clone(),
        host: text,
        started,
    })
}

/// A report of an upload of 3 files with 2 objects.
fn upload(text: &str) -> Report {
    let report = begin(text);
    report.name(text);
    let observer = Observer::default();
    let options = SectionOptions { direction: Direction::Up, encode: None, threads: 2 };
    let traffic = || Traffic { sent: 4100, requests: 7, retries: 1 };
    let watch = report.watch(text, options, &observer, traffic);
    observer.begin_phase("upload");
    observer.add_bytes(10_000);
    observer.add_stored(4096);
    observer.working(Work::Encode, 10_000, || ());
    let watcher = observer.watcher().unwrap();
    watcher.file_bytes(format!("{text}/orders.ibd").as_bytes(), 9000);
    watcher.packed(Some(3000));
    watcher.file_bytes(b"ibdata1", 1000);
    watcher.packed(Some(1096));
    watcher.object(4000);
    watcher.object(96);
    drop(watch);
    report.retry(text);
    report.setting(text, text);
    report.stage(text, StageEnd::Failed, Duration::from_secs(1));
    report
}

/// The page of that report, with a longer course than a test has time for.
fn upload_page(report: &Report, end: End) -> String {
    let mut document = report.end(end);
    let section = document.sections.last_mut().unwrap();
    for n in 1..=20_u32 {
        let limiting = SECOND * n / 2;
        let lane = |bytes: u64| LaneCount { bytes: bytes * u64::from(n) / 20, limiting };
        let lanes = [lane(10_000), lane(10_000), lane(0), lane(4100)];
        let sample = Sample { at: SECOND * n, lanes, retries: u64::from(n / 20) };
        section.samples.push(sample);
    }
    section.length = 20 * SECOND;
    page(&document)
}

/// Asserts that every element is closed where it was opened.
fn assert_nested(page: &str) {
    const VOID: [&str; 3] = ["meta", "link", "!DOCTYPE"];
    let mut open = Vec::new();
    let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
    let page = format!("{}{}", &page[..style.start], &page[style.end + "</style>".len()..]);
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag has an end");
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').find(|word| !word.is_empty());
        let name = name.expect("a tag has a name").to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "{tag}");
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn names_from_outside_stay_text() {
    let cause = Cause { message: HOSTILE.into(), hint: Some(HOSTILE.into()) };
    let end = End { meaning: HOSTILE.into(), ..end(Some(cause)) };
    let report = upload(HOSTILE);
    report.warning(HOSTILE);
    let page = upload_page(&report, end);
    assert!(!page.contains("<script") && !page.contains("\"'&") && !page.contains('\u{202e}'));
    // Title, heading, place, host twice, tool twice, name of section, phase, table, retry, setting,
    // cause, hint, warning, meaning.
    assert!(page.matches("&lt;script&gt;").count() >= 16, "{page}");
    assert_nested(&page);
}

#[test]
fn a_page_needs_nothing_from_outside() {
    let page = upload_page(&upload("shop"), end(None));
    for outside in ["http://", "https://", "src=", "url(", "@import", "<script", "onload"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("Content-Security-Policy"));
}

#[test]
fn the_numbers_of_the_run_are_in_the_page() {
    let report = upload("shop");
    let counted = upload_page(&report, end(None));
    assert_nested(&counted);
    for text in [
        "<data id=\"stream-bytes\" value=\"10000\">9.77 KiB</data>",
        "<data id=\"stored-bytes\" value=\"4096\">4.00 KiB</data>",
        "<data id=\"objects\" value=\"2\">2 objects</data>",
        "<data id=\"requests\" value=\"7\">7</data>",
        "<data id=\"retries\" value=\"1\">1 retry</data>",
        "<bdi>shop.orders</bdi>",
        "<td class=\"n\" data-bytes=\"3000\">2.93 KiB</td><td class=\"n\">3.00×</td><td class=\"n\">90 %</td>",
        "data-phase=\"upload\"",
        "2m 05s",
        "class=\"badge good\"",
        "class=\"chart\"",
        "data-stage=\"compress\"",
        "data-retries=\"1\"",
        "<code>--parallel</code>",
        "prefers-color-scheme: dark",
    ] {
        assert!(counted.contains(text), "{text}\n{counted}");
    }
    // The totals that the run states take precedence.
    report.totals(Totals { stored_bytes: Some(5000), ..Totals::default() });
    let stated = upload_page(&report, end(None));
    assert!(stated.contains("<data id=\"stored-bytes\" value=\"5000\">"));
    assert!(stated.contains("<data id=\"stream-bytes\" value=\"10000\">"));
}

#[test]
fn a_failure_shows_its_cause_and_the_next_step() {
    let cause = Cause { message: "disk full".into(), hint: Some("remove something".into()) };
    let page = upload_page(&upload("shop"), end(Some(cause)));
    for text in ["class=\"badge bad\"", "<p id=\"cause\">disk full</p>", "remove something"] {
        assert!(page.contains(text), "{text}");
    }
}

/// A page must not say that bytes were stored which it does not count as stored.
#[test]
fn objects_of_a_failed_run_are_not_called_stored() {
    let cause = || Cause { message: "cut".into(), hint: None };
    let report = upload("shop");
    let page = upload_page(&report, end(Some(cause())));
    assert_nested(&page);
    for text in [
        "sent before the end",
        "<data id=\"sent-bytes\" value=\"4100\">",
        "<data id=\"objects\" value=\"2\">2 complete objects</data>",
        "<th class=\"n\">packed</th>",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    for text in ["stored-bytes", "stream to stored", "<th class=\"n\">stored</th>"] {
        assert!(!page.contains(text), "{text}\n{page}");
    }
    // A later stage failed: the backup exists.
    report.totals(Totals { stored_bytes: Some(5000), ..Totals::default() });
    let page = upload_page(&report, end(Some(cause())));
    assert!(page.contains("<data id=\"stored-bytes\" value=\"5000\">"), "{page}");
    assert!(!page.contains("sent before the end") && page.contains("<th class=\"n\">stored</th>"));
}

#[test]
fn a_setting_has_one_value() {
    let report = begin("shop");
    report.setting("sealed", "no");
    report.setting("layout", "packed");
    report.setting("sealed", "yes");
    let page = page(&report.end(end(None)));
    let sealed = "<div><dt>sealed</dt><dd><bdi>yes</bdi></dd></div>";
    assert!(page.contains(sealed) && page.matches("sealed").count() == 1, "{page}");
}

#[test]
fn objects_that_were_read_have_sizes_and_no_parts() {
    let report = begin("shop");
    let options = SectionOptions { direction: Direction::Restore, encode: None, threads: 1 };
    drop(report.watch("download", options, &Observer::default(), Traffic::default));
    assert!(!page(&report.end(end(None))).contains("id=\"object-sizes\""));
    report.objects([(64, 3), (13, 1)]);
    let page = page(&report.end(end(None)));
    assert_nested(&page);
    assert!(page.contains("<data id=\"sized-objects\" value=\"4\">4</data>"), "{page}");
    assert!(!page.contains("id=\"parts\""), "{page}");
}

#[test]
fn no_stage_is_blamed_for_a_small_share_of_the_time() {
    let report = begin("shop");
    let observer = Observer::default();
    let options = SectionOptions { direction: Direction::Up, encode: None, threads: 1 };
    drop(report.watch("upload", options, &observer, Traffic::default));
    let mut document = report.end(end(None));
    for n in 1..=10_u64 {
        let lane = LaneCount { bytes: n, limiting: SECOND.mul_f64(0.05) };
        let lanes = [lane; 4];
        let at = SECOND * u32::try_from(n).unwrap();
        document.sections[0].samples.push(Sample { at, lanes, retries: 0 });
    }
    let page = page(&document);
    assert!(page.contains("No stage held up the others") && !page.contains("data-slowest="));
}

#[test]
fn a_run_that_failed_before_it_began_has_a_page() {
    let cause = Cause { message: "no key".into(), hint: None };
    let page = page(&begin("shop").end(end(Some(cause))));
    assert_nested(&page);
    assert!(page.contains("no key") && !page.contains("<svg"));
}

#[test]
fn a_short_step_has_numbers_and_no_chart() {
    let report = begin("shop");
    let observer = Observer::default();
    let options = SectionOptions { direction: Direction::Up, encode: None, threads: 1 };
    let watch = report.watch("backup", options, &observer, Traffic::default);
    observer.add_bytes(10);
    drop(watch);
    let page = page(&report.end(end(None)));
    assert_nested(&page);
    assert!(page.contains("<data id=\"backup-0-bytes\" value=\"10\">"), "{page}");
    assert!(!page.contains("class=\"chart\"") && !page.contains("-0 %"), "{page}");
}

#[test]
fn a_page_has_at_most_fifty_tables() {
    let report = begin("shop");
    let observer = Observer::default();
    let options = SectionOptions { direction: Direction::Up, encode: None, threads: 1 };
    let watch = report.watch("backup", options, &observer, Traffic::default);
    for table in 0..70 {
        let path = format!("s/t{table}.ibd");
        observer.watcher().unwrap().file_bytes(path.as_bytes(), 100 + table);
        observer.watcher().unwrap().packed(Some(10));
    }
    drop(watch);
    let page = page(&report.end(end(None)));
    assert_eq!(page.matches("<bdi>s.t").count(), 50);
    assert!(page.contains("20 tables more"), "{page}");
    assert!(page.contains("<bdi>s.t69</bdi>") && !page.contains("<bdi>s.t19</bdi>"));
}

/// Sets every field of this name that has a value of the same kind.
fn set_all(document: &mut Value, name: &str, value: &Value) {
    match document {
        Value::Array(all) => all.iter_mut().for_each(|inner| set_all(inner, name, value)),
        Value::Object(fields) => {
            for (key, inner) in fields {
                if key == name
                    && (inner.is_number(), inner.is_string())
                        == (value.is_number(), value.is_string())
                {
                    *inner = value.clone();
                }
                set_all(inner, name, value);
            }
        }
        _ => {}
    }
}

/// A page is drawn from a file that anything may have written.
#[test]
fn numbers_that_no_run_has_are_drawn_too() {
    let mut document = upload("shop").end(end(None));
    for n in 1..=20_u32 {
        let lane = LaneCount { bytes: u64::from(n), limiting: SECOND * n };
        let sample = Sample { at: SECOND * n, lanes: [lane; 4], retries: 0 };
        document.sections[0].samples.push(sample);
    }
    let good: Value = serde_json::from_str(&document.to_json()).unwrap();
    let longest = json!(10_000_000_000_u64);
    for (name, value) in [
        ("bytes", json!(u64::MAX)),
        ("held_up", longest.clone()),
        ("at", longest.clone()),
        ("at", json!(0)),
        ("length", longest.clone()),
        ("begin", longest.clone()),
        ("from", longest.clone()),
        ("to", json!(0)),
        ("objects", json!(0)),
        ("objects", json!(u64::MAX)),
        ("largest", json!(0)),
        ("raw", json!(u64::MAX)),
        ("retries", json!(u64::MAX)),
        ("started", json!("9999-12-30T00:00:00Z")),
        ("finished", json!("-009999-01-03T00:00:00Z")),
        ("direction", json!("copy")),
    ] {
        let mut changed = good.clone();
        set_all(&mut changed, name, &value);
        assert_ne!(changed, good, "{name}");
        let changed = Document::parse(changed.to_string().as_bytes()).unwrap();
        assert_nested(&page(&changed));
    }
    // Fewer names than stages.
    let mut changed = good;
    changed["sections"][0]["stages"] = json!(["<read>"]);
    assert_nested(&page(&Document::parse(changed.to_string().as_bytes()).unwrap()));
}
