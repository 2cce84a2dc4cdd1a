//! The stages of a section in words and numbers.

use std::fmt::Write as _;

use xb_report::Section;

use crate::page::advice::advice;
use crate::page::text::{data, escape};
use crate::page::timeline::Timeline;
use crate::page::units::{percent, rate, size};

/// Name of a stage, by its number.
pub(crate) fn name(section: &Section, stage: usize) -> String {
    section.stages.get(stage).map(|name| escape(name)).unwrap_or_default()
}

/// Which stage was the slowest, and what helps.
pub(crate) fn verdict(section: &Section, line: &Timeline) -> String {
    let Some(slowest) = line.slowest else {
        return "<p class=\"verdict\">No stage held up the others for long.</p>".to_owned();
    };
    format!(
        "<p class=\"verdict\" data-slowest=\"{0}\"><span class=\"key l{slowest}\"></span><span><strong>{0}</strong> was the slowest stage for {1} of the time. {2}</span></p>",
        name(section, slowest),
        percent(line.lanes[slowest].slowest),
        with_options(advice(section, slowest)),
    )
}

/// Marks the options in a sentence of our own, so that none is divided at the end of a line.
fn with_options(text: &str) -> String {
    let word = |word: &str| match word.strip_prefix("--") {
        None => word.to_owned(),
        Some(option) => {
            let name = option.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            format!("<code>--{name}</code>{}", &option[name.len()..])
        }
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// The colours of the stages.
pub(crate) fn legend(section: &Section, line: &Timeline, used: &[usize]) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for lane in used {
        let name = name(section, *lane);
        let _ = write!(html, "<li><span class=\"key l{lane}\"></span>{name}</li>");
    }
    if line.bins.iter().any(|bin| bin.retries > 0) {
        html += "<li><span class=\"key retry\">▼</span>retries</li>";
    }
    html + "</ul>"
}

/// The numbers of the stages.
pub(crate) fn table(section: &Section, line: &Timeline, used: &[usize]) -> String {
    let mut rows = String::new();
    for lane in used {
        let (name, total) = (name(section, *lane), &line.lanes[*lane]);
        let id = format!("{}-{lane}-bytes", escape(&section.name));
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><span class=\"key l{lane}\"></span>{name}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            data(&id, total.bytes, &size(total.bytes)),
            rate(total.mean),
            rate(total.peak),
            percent(total.slowest),
        );
    }
    format!(
        "<table class=\"stages\"><thead><tr><th>stage</th><th class=\"n\">bytes</th><th class=\"n\">mean rate</th><th class=\"n\">highest rate</th><th class=\"n\">slowest stage for</th></tr></thead><tbody>{rows}</tbody></table>"
    )
}
