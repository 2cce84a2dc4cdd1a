//! Facts about the origin of a log that a replay needs and the log lacks: settings, local time, engines, versions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use xb_binlog::{LogPosition, SystemZone};
use xb_replay::lost_settings;
use xb_repo::archive::plan::{Piece, Plan};
use xb_repo::archive::stream::{StoredPosition, StreamHead};

use crate::binlog::source::settings::changed;
use crate::until::archive::Archive;

/// Settings of the origin on which the result of statements depends.
#[derive(Debug, Clone, Default)]
pub(super) struct OriginSettings {
    pub(super) variables: Vec<(String, String)>,
    /// Their changes within the log, in order.
    pub(super) changes: Vec<SettingsChange>,
    pub(super) zone: Option<SystemZone>,
    pub(super) engines: Vec<String>,
}

/// Settings that the origin had with other values from a place on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingsChange {
    /// Number of the segment among those that are needed.
    pub(super) segment: usize,
    /// Offset in the segment's log; `None` for the segment's beginning.
    pub(super) offset: Option<u64>,
    pub(super) values: Vec<(String, String)>,
}

/// The heads of the streams that a plan needs, in the order in which they were begun.
pub(super) fn heads<'a>(archive: &'a Archive, plan: &Plan<'_>) -> Vec<&'a StreamHead> {
    let needed: BTreeSet<&str> = plan.pieces.iter().map(|piece| piece.stream).collect();
    let needed = archive.streams.iter().filter(|stream| needed.contains(stream.id()));
    let mut heads: Vec<&StreamHead> = needed.map(|stream| &stream.head.content).collect();
    heads.sort_by_key(|head| head.started);
    heads
}

/// The head of the next stream of the same server that records its settings: log files that were archived later have none.
fn informant<'a>(archive: &'a Archive, last: &StreamHead) -> Option<&'a StreamHead> {
    let all = archive.streams.iter().map(|stream| &stream.head.content);
    let is_one = |head: &&StreamHead| {
        let is_same = last.origin().differs_from(head.origin()).is_none();
        is_same && !head.settings.is_empty() && head.started >= last.started
    };
    all.filter(is_one).min_by_key(|head| head.started)
}

/// The settings of the origin, its versions, and remarks.
pub(super) fn origin(
    archive: &Archive,
    plan: &Plan<'_>,
) -> (OriginSettings, Vec<String>, Vec<String>) {
    let mut heads = heads(archive, plan);
    let versions = heads.iter().map(|head| head.server_version.clone()).collect();
    if heads.iter().all(|head| head.settings.is_empty()) {
        heads.extend(heads.last().and_then(|last| informant(archive, last)));
    }
    let mut remarks = Vec::new();
    // What is known last knows best, also of the time before: but not if the server moved to another zone.
    let zones = heads.iter().filter_map(|head| Some((head.system_zone.as_ref()?, head.started)));
    let zones: Vec<(&SystemZone, Timestamp)> = zones.collect();
    let last = zones.last().copied();
    let has_moved = |(last, began): (&SystemZone, Timestamp)| {
        zones.iter().any(|(zone, _)| !zone.agrees_until(last, began.as_second()))
    };
    if last.is_some_and(has_moved) {
        remarks.push(
            "the local time of the server's system was changed within the log: statements with the time zone SYSTEM get \
             the last one, so those before the change may produce different values"
                .to_owned(),
        );
    }
    if zones.is_empty() && !heads.is_empty() {
        remarks.push(
            "the archive does not record the local time of the server's system: statements with the time zone SYSTEM get that \
             of this host"
                .to_owned(),
        );
    }
    let parts: Vec<LogPart<'_>> = plan.pieces.iter().map(|one| LogPart::of(archive, one)).collect();
    let earlier = parts.first().and_then(|first| LogPart::earlier(archive, first));
    let mut course = SettingsTimeline::of(earlier.as_ref(), &parts);
    match heads.iter().find(|head| !head.settings.is_empty()) {
        None if heads.is_empty() => {}
        None => remarks.push(
            "the archive does not record the settings of the server (default_storage_engine and others): statements that depend on one get the default of the private server; give other values with --mysqld-opts"
                .to_owned(),
        ),
        Some(head) => {
            if course.first.is_empty() {
                course.first.clone_from(&head.settings);
            }
            if parts.first().is_some_and(|first| first.settings.is_none()) {
                remarks.push(format!(
                    "the beginning of the log was archived without the settings of the server: it is replayed with those that the server had at {}",
                    head.settings_at.as_ref().unwrap_or(&head.start)
                ));
            }
        }
    }
    let changed = course.changes.iter().flat_map(|change| &change.values);
    let all = course.first.iter().map(|(name, value)| (&**name, &**value));
    let all = all.chain(changed.map(|(name, value)| (&**name, &**value)));
    let lost: BTreeSet<&str> = lost_settings(all).collect();
    if !lost.is_empty() {
        let lost: Vec<&str> = lost.into_iter().collect();
        remarks.push(format!(
            "the replay does not apply these settings of the server: {}",
            lost.join(", ")
        ));
    }
    if !course.seen.is_empty() {
        let seen: Vec<String> = course.seen.iter().map(ToString::to_string).collect();
        remarks.push(format!(
            "settings of the server were changed within the log, and the replay changes them here: {}; a statement of the time in between, or of the seconds before, and a session that was connected already, may have had the other value",
            seen.join("; ")
        ));
    }
    let engines: BTreeSet<&String> = heads.iter().flat_map(|head| &head.engines).collect();
    let variables = course.first.into_iter().collect();
    let zone = last.map(|(zone, _)| zone.clone());
    let engines = engines.into_iter().cloned().collect();
    (OriginSettings { variables, changes: course.changes, zone, engines }, versions, remarks)
}

/// A part of the log, with what its stream knows of the settings.
#[derive(Clone)]
struct LogPart<'a> {
    stream: &'a str,
    server: usize,
    /// Position of its first byte, and behind its last.
    from: Option<LogPosition>,
    end: Option<LogPosition>,
    /// Its log begins with it, and is the first one since the server was started.
    is_of_start: bool,
    /// `None` if the stream records none.
    settings: Option<&'a BTreeMap<String, String>>,
    /// Where the server had them.
    settings_at: Option<LogPosition>,
}

impl<'a> LogPart<'a> {
    fn log(&self) -> Option<&str> {
        self.from.as_ref().map(LogPosition::log)
    }

    /// The end of the stream before the first part, if the settings were found to be others behind the beginning of that.
    fn earlier(archive: &'a Archive, first: &Self) -> Option<Self> {
        if first.settings_at.as_ref()? <= first.from.as_ref()? {
            return None;
        }
        let of = |id: &str| archive.streams.iter().find(|stream| stream.id() == id);
        let head = &of(first.stream)?.head.content;
        let before = of(&head.begins.after()?.stream)?;
        let known = Some(&before.head.content).filter(|known| {
            !known.settings.is_empty() && known.origin().differs_from(head.origin()).is_none()
        })?;
        let end = before.end.as_ref().and_then(StoredPosition::position);
        let (stream, settings) = (before.id(), Some(&known.settings));
        Some(Self { stream, end, settings, settings_at: None, is_of_start: false, ..first.clone() })
    }

    fn of(archive: &'a Archive, piece: &Piece<'a>) -> Self {
        let stream = archive.streams.iter().find(|stream| stream.id() == piece.stream);
        let head = stream.map(|stream| &stream.head.content);
        let segment = piece.segment;
        let at = head.and_then(|head| head.settings_at.as_ref());
        Self {
            stream: piece.stream,
            server: piece.server,
            from: segment.begin(),
            end: LogPosition::new(&segment.from.log, piece.until),
            is_of_start: segment.is_of_start,
            settings: head.map(|head| &head.settings).filter(|settings| !settings.is_empty()),
            settings_at: at.and_then(StoredPosition::position),
        }
    }
}

/// A change of settings: after the end of what one stream has, and before the next one found it.
#[derive(Debug, PartialEq, Eq)]
struct ObservedChange {
    values: Vec<(String, String)>,
    after: Option<LogPosition>,
    /// Where it was found; `None` if that is not known.
    found: Option<LogPosition>,
    /// Where the replay makes it; `None` if it stops before.
    made: Option<LogPosition>,
}

/// `NAME="VALUE" at bin.000002:900 (changed after bin.000002:400)`
impl std::fmt::Display for ObservedChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.values.iter().map(|(name, value)| format!("{name}=\"{value}\""));
        f.write_str(&values.collect::<Vec<_>>().join(", "))?;
        match &self.made {
            Some(made) => write!(f, " at {made}")?,
            None => f.write_str(" behind the stop")?,
        }
        match (&self.after, &self.found) {
            (Some(after), Some(found)) if self.found != self.made => {
                write!(f, " (changed between {after} and {found})")
            }
            (Some(after), Some(found)) if after != found => write!(f, " (changed after {after})"),
            (Some(_), None) => f.write_str(" (changed there or later)"),
            _ => Ok(()),
        }
    }
}

/// The settings with which a log begins, and their changes within it.
#[derive(Default)]
struct SettingsTimeline {
    first: BTreeMap<String, String>,
    changes: Vec<SettingsChange>,
    seen: Vec<ObservedChange>,
    /// How many of `seen` are in `changes`.
    made: usize,
}

impl SettingsTimeline {
    /// Reads what the streams found. A change is made where the server was started since the stream before, and otherwise
    /// where it was found: nothing tells the time of a SET GLOBAL, and what came before it must not get the new value.
    fn of(earlier: Option<&LogPart<'_>>, parts: &[LogPart<'_>]) -> Self {
        let mut known = earlier.and_then(|earlier| earlier.settings).cloned().unwrap_or_default();
        let mut this = Self { first: known.clone(), ..Self::default() };
        let mut before = earlier;
        for (segment, part) in parts.iter().enumerate() {
            // Positions of two servers do not compare.
            let is_continued = before.is_some_and(|before| before.server == part.server);
            if !is_continued {
                this.make(segment, part, |_| true);
            }
            if before.is_none_or(|before| before.stream != part.stream)
                && let Some(now) = part.settings
            {
                let values = changed(&known, now);
                for (name, value) in now {
                    // What is known first also counts for the time before.
                    this.first.entry(name.clone()).or_insert_with(|| value.clone());
                    known.insert(name.clone(), value.clone());
                }
                if !values.is_empty() {
                    let found = part.settings_at.clone().filter(|_| is_continued);
                    if found.is_none() {
                        this.make(segment, part, |_| true);
                    }
                    let after =
                        before.filter(|_| is_continued).and_then(|before| before.end.clone());
                    this.seen.push(ObservedChange { values, after, found, made: None });
                }
            }
            let is_new = before.is_some_and(|before| before.log() != part.log());
            let is_start = is_continued && is_new && part.is_of_start;
            let is_before =
                |found: &LogPosition| part.from.as_ref().is_some_and(|from| found <= from);
            this.make(segment, part, |seen| is_start || seen.found.as_ref().is_none_or(is_before));
            this.make_within(segment, part);
            before = Some(part);
        }
        this
    }

    /// Makes the next changes at the beginning of a segment, as long as they are such.
    fn make(
        &mut self,
        segment: usize,
        part: &LogPart<'_>,
        is_such: impl Fn(&ObservedChange) -> bool,
    ) {
        while let Some(seen) = self.seen.get_mut(self.made).filter(|seen| is_such(seen)) {
            seen.made.clone_from(&part.from);
            let values = seen.values.clone();
            self.changes.push(SettingsChange { segment, offset: None, values });
            self.made += 1;
        }
    }

    /// Makes the next changes that were found within a segment.
    fn make_within(&mut self, segment: usize, part: &LogPart<'_>) {
        let is_in = |found: &LogPosition| part.end.as_ref().is_some_and(|end| found <= end);
        while let Some(seen) = self.seen.get_mut(self.made)
            && let Some(found) = seen.found.clone().filter(is_in)
        {
            let (offset, values) = (Some(found.offset()), seen.values.clone());
            self.changes.push(SettingsChange { segment, offset, values });
            seen.made = Some(found);
            self.made += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panic")]
mod tests {
    use super::*;

    fn at(position: &str) -> Option<LogPosition> {
        let (log, offset) = position.split_once(':')?;
        LogPosition::new(&format!("bin.{log}"), offset.parse().ok()?)
    }

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn part<'a>(
        stream: &'a str,
        (from, end): (&str, &str),
        of: &'a BTreeMap<String, String>,
        settings_at: &str,
    ) -> LogPart<'a> {
        LogPart {
            stream,
            server: 0,
            from: at(from),
            end: at(end),
            is_of_start: false,
            settings: Some(of).filter(|of| !of.is_empty()),
            settings_at: at(settings_at),
        }
    }

    /// Segment, offset and value of a change.
    type Made = (usize, Option<u64>, String);

    /// Each change, and what is said of them.
    fn made(parts: &[LogPart<'_>]) -> (Vec<Made>, Vec<String>) {
        let course = SettingsTimeline::of(None, parts);
        let values = |change: &SettingsChange| {
            change.values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
        };
        let made = course.changes.iter();
        let made = made.map(|change| (change.segment, change.offset, values(change))).collect();
        (made, course.seen.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_known_first_counts_for_the_time_before_too() {
        let (none, some) = (settings(&[]), settings(&[("a", "1")]));
        let (more, last) =
            (settings(&[("a", "1"), ("b", "2")]), settings(&[("a", "1"), ("b", "3")]));
        let parts = [
            part("pushed", ("1:4", "1:100"), &none, ""),
            part("old", ("1:100", "1:200"), &some, ""),
            part("new", ("1:200", "1:300"), &more, "1:200"),
            part("last", ("1:300", "1:400"), &last, "1:300"),
        ];
        let course = SettingsTimeline::of(None, &parts);
        assert_eq!(course.first, more);
        assert_eq!(course.changes.len(), 1);
        assert_eq!(SettingsTimeline::of(None, &parts[..3]).changes, []);
        assert!(SettingsTimeline::of(None, &parts[..1]).first.is_empty());
    }

    #[test]
    fn a_change_is_made_where_it_was_found_or_where_the_server_was_started() {
        let (one, two, three) =
            (settings(&[("a", "1")]), settings(&[("a", "2")]), settings(&[("a", "3")]));
        // Found far behind the beginning of the stream, in its second segment.
        let parts = [
            part("one", ("1:4", "1:100"), &one, "1:50"),
            part("two", ("1:100", "1:200"), &two, "1:250"),
            part("two", ("1:200", "1:300"), &two, "1:250"),
        ];
        let (changes, said) = made(&parts);
        assert_eq!(changes, [(2, Some(250), "2".to_owned())]);
        assert_eq!(said, ["a=\"2\" at bin.1:250 (changed after bin.1:100)"]);
        // The backup was taken in between: the stream before says what the settings were.
        let course = SettingsTimeline::of(Some(&parts[0]), &parts[1..]);
        assert_eq!((course.first, course.changes.len()), (one.clone(), 1));
        // The stop lies before it.
        let (changes, said) = made(&parts[..2]);
        assert!(changes.is_empty() && said[0].contains("behind the stop"), "{changes:?} {said:?}");
        // The stream ends before it, and the next one finds another change.
        let next = [
            parts[0].clone(),
            parts[1].clone(),
            part("three", ("1:200", "1:300"), &three, "2:60"),
            part("three", ("2:4", "2:100"), &three, "2:60"),
        ];
        let (changes, _) = made(&next);
        assert_eq!(changes, [(2, Some(250), "2".to_owned()), (3, Some(60), "3".to_owned())]);
        // The server was started with the next log.
        let started = LogPart { is_of_start: true, ..next[3].clone() };
        let (changes, said) = made(&[next[..3].to_vec(), vec![started.clone()]].concat());
        assert_eq!(changes, [(2, Some(250), "2".to_owned()), (3, None, "3".to_owned())]);
        assert!(
            said[1].contains("at bin.2:4 (changed between bin.1:200 and bin.2:60)"),
            "{said:?}"
        );
        // As before that, in an archive of an earlier version.
        let old = [parts[0].clone(), LogPart { settings_at: None, ..parts[1].clone() }];
        let (changes, said) = made(&old);
        assert_eq!(changes, [(1, None, "2".to_owned())]);
        assert_eq!(said, ["a=\"2\" at bin.1:100 (changed there or later)"]);
        // Another server has its own from the beginning, and what was not made yet comes before.
        let other = LogPart { server: 1, ..started };
        let (changes, said) = made(&[parts[0].clone(), parts[1].clone(), other]);
        assert_eq!(said[1], "a=\"3\" at bin.2:4");
        assert_eq!(changes, [(2, None, "2".to_owned()), (2, None, "3".to_owned())]);
    }
}
