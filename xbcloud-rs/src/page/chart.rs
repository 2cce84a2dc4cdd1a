//! The chart of a section: a line for the rate of each stage, marks for retries, and a band that
//! shows the slowest stage at each time.

use std::fmt::Write as _;
use std::time::Duration;

use xb_report::{MAX_LANES, Section};

use crate::page::axis::{place, rates, times};
use crate::page::stages::name;
use crate::page::text::escape;
use crate::page::timeline::{Bin, Timeline};
use crate::page::units::{count, duration, rate};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 262.0;
/// Top and height of the band.
const BAND: (f64, f64) = (298.0, 22.0);
const HEIGHT: f64 = 330.0;

/// Returns the chart as SVG.
pub(crate) fn chart(section: &Section, line: &Timeline) -> String {
    let chart = Chart { section, line, length: line.length.as_secs_f64(), top: top(line) };
    let mut svg = format!(
        "<svg class=\"chart\" data-section=\"{0}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Rate of each stage of {0} over time\">",
        escape(&section.name),
    );
    chart.grid(&mut svg);
    chart.lines(&mut svg);
    chart.retries(&mut svg);
    if section.stages.len() > 1 {
        chart.band(&mut svg);
    }
    chart.tips(&mut svg);
    svg.push_str("</svg>");
    svg
}

fn top(line: &Timeline) -> f64 {
    rates(line.peak()).last().map_or(1.0, |tick| tick.at)
}

/// Stages whose bytes were counted. Others did not take part: a backup without a key is not sealed.
pub(crate) fn used(section: &Section, line: &Timeline) -> Vec<usize> {
    (0..section.stages.len().min(MAX_LANES)).filter(|lane| line.lanes[*lane].bytes > 0).collect()
}

struct Chart<'a> {
    section: &'a Section,
    line: &'a Timeline,
    /// End of the axis of time, in seconds.
    length: f64,
    /// End of the axis of rates.
    top: f64,
}

impl Chart<'_> {
    fn x(&self, at: Duration) -> f64 {
        LEFT + place(at.as_secs_f64(), self.length, WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - place(rate, self.top, BOTTOM - TOP)
    }

    fn grid(&self, svg: &mut String) {
        svg.push_str("<g class=\"grid\">");
        for tick in rates(self.line.peak()) {
            let y = self.y(tick.at);
            let _ = write!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                tick.label,
            );
        }
        for tick in times(self.line.length) {
            let x = self.x(Duration::from_secs_f64(tick.at));
            let _ = write!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 5.0,
                BOTTOM + 20.0,
                tick.label,
            );
        }
        svg.push_str("</g>");
    }

    fn lines(&self, svg: &mut String) {
        let last = used(self.section, self.line).last().copied();
        for lane in used(self.section, self.line) {
            let points = self.points(lane);
            if Some(lane) == last {
                let _ = write!(
                    svg,
                    "<polygon class=\"area l{lane}\" points=\"{:.1},{BOTTOM} {points} {:.1},{BOTTOM}\"/>",
                    LEFT,
                    WIDTH - RIGHT,
                );
            }
            let name = name(self.section, lane);
            let _ = write!(
                svg,
                "<polyline class=\"rate l{lane}\" data-stage=\"{name}\" points=\"{points}\"/>"
            );
        }
    }

    /// The rate of a stage: one point in the middle of each part, and one at both ends.
    fn points(&self, lane: usize) -> String {
        let bins = &self.line.bins;
        let middle =
            |bin: &Bin| (bin.from + (bin.to.saturating_sub(bin.from)) / 2, bin.rates[lane]);
        let first = bins.first().map(|bin| (bin.from, bin.rates[lane]));
        let last = bins.last().map(|bin| (bin.to, bin.rates[lane]));
        let all = first.into_iter().chain(bins.iter().map(middle)).chain(last);
        let point = |(at, rate)| format!("{:.1},{:.1}", self.x(at), self.y(rate));
        all.map(point).collect::<Vec<_>>().join(" ")
    }

    fn retries(&self, svg: &mut String) {
        for bin in self.line.bins.iter().filter(|bin| bin.retries > 0) {
            let x = self.x(bin.from + (bin.to.saturating_sub(bin.from)) / 2);
            let _ = write!(
                svg,
                "<g class=\"retry\" data-retries=\"{}\"><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/><path d=\"M{:.1} {:.1}h12l-6 10z\"/></g>",
                bin.retries,
                x - 6.0,
                TOP - 12.0,
            );
        }
    }

    fn band(&self, svg: &mut String) {
        let (top, height) = BAND;
        let _ = write!(
            svg,
            "<g class=\"band\"><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">slowest</text><rect class=\"none\" x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" rx=\"4\"/>",
            LEFT - 8.0,
            top + 15.0,
            WIDTH - LEFT - RIGHT,
        );
        for (from, to, slowest) in self.line.stretches() {
            let Some(lane) = slowest else { continue };
            let (x, width) = (self.x(from), self.x(to) - self.x(from));
            let name = name(self.section, lane);
            let _ = write!(
                svg,
                "<rect class=\"l{lane}\" x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"><title>{} to {}: {name} is the slowest stage</title></rect>",
                duration(from),
                duration(to),
            );
            // A name that does not fit is left to the colour and the tip.
            if width > 70.0 {
                let _ = write!(
                    svg,
                    "<text class=\"on l{lane}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                    x + width / 2.0,
                    top + 15.5,
                );
            }
        }
        svg.push_str("</g>");
    }

    /// Invisible columns whose tips tell the numbers.
    fn tips(&self, svg: &mut String) {
        svg.push_str("<g class=\"tips\">");
        for bin in &self.line.bins {
            let (from, to) = (self.x(bin.from), self.x(bin.to));
            let mut tip = format!("{} to {}", duration(bin.from), duration(bin.to));
            for lane in used(self.section, self.line) {
                let name = name(self.section, lane);
                let _ = write!(tip, "\n{name}: {}", rate(bin.rates[lane]));
            }
            if bin.retries > 0 {
                let _ = write!(tip, "\n{}", count(bin.retries, "retry", "retries"));
            }
            let _ = write!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{tip}</title></rect>",
                to - from,
                BOTTOM - TOP,
            );
        }
        svg.push_str("</g>");
    }
}
