//! The report during the run: what is noted, and the document made from it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use xb_pipeline::{Observer, PhaseBegin};

use crate::content::object_sizes::ObjectSizes;
use crate::content::{Content, ContentWatcher};
use crate::direction::Direction;
use crate::document::{
    Cause, Delta, Document, FORMAT, Phase, Retry, Section, Setting, Stage, StageEnd, Totals,
};
use crate::gauge::{Gauge, Traffic};
use crate::recorder::Recorder;
use crate::sampler::Watch;

/// Number of sections, stages, settings and warnings that are kept.
const MAX_ROWS: usize = 64;
/// Number of tables that are kept one by one.
const MAX_TABLES: usize = 50;
/// Number of retries of which the error is kept: of the first ones, and of the last ones.
pub const FIRST_RETRIES: usize = 5;
const LAST_RETRIES: usize = 15;

/// Facts that are known when a run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The kind of run, as a noun: `Backup`.
    pub what: String,
    /// Program and version.
    pub tool: String,
    /// Destination or source of the data; without secrets.
    pub place: String,
    /// Name of this host.
    pub host: String,
    /// When it began.
    pub started: Timestamp,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When it ended.
    pub finished: Timestamp,
    /// Exit code of the program, and what it means.
    pub exit: u8,
    /// Meaning of the exit code.
    pub meaning: String,
    /// First cause of a failure.
    pub error: Option<Cause>,
}

/// Display options of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionOptions {
    /// Direction of the bytes.
    pub direction: Direction,
    /// Work of the threads on the way up, as a verb; `None`: compress.
    pub encode: Option<&'static str>,
    /// Worker threads.
    pub threads: usize,
}

/// The report of one run. Clones refer to the same report.
#[derive(Debug, Clone)]
pub struct Report(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    begun: Instant,
    /// The facts known so far. The end is that of a run that ends when it begins.
    document: Document,
}

impl Report {
    /// Begins the report of a run that begins now.
    #[must_use]
    pub fn begin(head: Head) -> Self {
        let Head { what, tool, place, host, started } = head;
        let document = Document {
            format: FORMAT,
            what,
            name: None,
            tool,
            place,
            host,
            started,
            finished: started,
            exit: 0,
            meaning: String::new(),
            error: None,
            warnings: Vec::new(),
            settings: Vec::new(),
            stages: Vec::new(),
            sections: Vec::new(),
            retries: Vec::new(),
            more_retries: 0,
        };
        Self(Arc::new(Mutex::new(State { begun: Instant::now(), document })))
    }

    /// Sets the name of the backup.
    pub fn name(&self, name: &str) {
        self.state().document.name = Some(name.to_owned());
    }

    /// Adds a section: samples the counters from now on, until the result is dropped. `traffic`
    /// reads the counters of the store.
    #[must_use]
    pub fn watch(
        &self,
        name: &str,
        options: SectionOptions,
        observer: &Observer,
        traffic: impl Fn() -> Traffic + Send + 'static,
    ) -> Watch {
        let number = {
            let State { begun, document } = &mut *self.state();
            if document.sections.len() >= MAX_ROWS {
                return Watch::none();
            }
            document.sections.push(Section {
                name: name.to_owned(),
                direction: options.direction,
                stages: options.direction.stages(options.encode),
                begin: begun.elapsed(),
                length: Duration::ZERO,
                phases: Vec::new(),
                stated: Totals::default(),
                counted: Totals::default(),
                delta: None,
                parts: 0,
                objects: None,
                tables: None,
                samples: Recorder::default(),
            });
            document.sections.len() - 1
        };
        let content = options.direction.packs().then(|| {
            let content = Arc::new(ContentWatcher::default());
            observer.watch(content.clone());
            content
        });
        let gauge = Gauge::new(observer, traffic, options.direction, options.threads);
        let (report, observer) = (self.clone(), observer.clone());
        Watch::start(gauge, move |gauge, ended| {
            let content = content.as_ref().filter(|_| ended).map(|content| content.take());
            report.sample(number, gauge, &observer, content)
        })
    }

    /// Takes a sample; returns the time until the next one.
    fn sample(
        &self,
        number: usize,
        gauge: &mut Gauge,
        observer: &Observer,
        content: Option<Content>,
    ) -> Duration {
        let (sample, traffic, now) = (gauge.sample(), gauge.traffic(), observer.snapshot());
        let State { begun, document } = &mut *self.state();
        let Some(section) = document.sections.get_mut(number) else { return Duration::MAX };
        section.samples.push(sample);
        section.length = sample.at;
        let phase = |phase: &PhaseBegin| Phase {
            name: phase.name.to_owned(),
            at: phase.at.saturating_duration_since(*begun),
        };
        section.phases = observer.phases_begun().iter().map(phase).collect();
        section.parts = observer.parts();
        let of_store = |number| section.direction.has_store().then_some(number);
        section.counted = Totals {
            stream_bytes: Some(now.bytes),
            stored_bytes: Some(now.stored),
            files: Some(now.files),
            objects: None,
            requests: of_store(traffic.requests),
            retries: of_store(traffic.retries),
        };
        if let Some(content) = content {
            section.objects = content.objects.summary();
            section.tables = content.tables.largest(MAX_TABLES);
            section.counted.objects =
                of_store(section.objects.as_ref().map_or(0, |objects| objects.objects));
        }
        section.samples.interval()
    }

    /// States the totals of the newest section.
    pub fn totals(&self, totals: Totals) {
        if let Some(section) = self.state().document.sections.last_mut() {
            section.stated = totals;
        }
    }

    /// States what the newest section has left out.
    pub fn delta(&self, delta: Delta) {
        if let Some(section) = self.state().document.sections.last_mut() {
            section.delta = Some(delta);
        }
    }

    /// States the sizes of the objects that the newest section has read, with the number of each.
    pub fn objects(&self, sizes: impl IntoIterator<Item = (u64, u64)>) {
        let mut all = ObjectSizes::default();
        sizes.into_iter().for_each(|(size, objects)| all.add_many(size, objects));
        if let Some(section) = self.state().document.sections.last_mut() {
            section.objects = all.summary();
        }
    }

    /// Sets a setting of the run: adds it, or replaces its value.
    pub fn setting(&self, name: &str, value: impl Into<String>) {
        let settings = &mut self.state().document.settings;
        if let Some(setting) = settings.iter_mut().find(|setting| setting.name == name) {
            setting.value = value.into();
        } else if settings.len() < MAX_ROWS {
            settings.push(Setting { name: name.to_owned(), value: value.into() });
        }
    }

    /// Adds what was unusual, but no failure.
    pub fn warning(&self, text: &str) {
        let warnings = &mut self.state().document.warnings;
        if warnings.len() < MAX_ROWS {
            warnings.push(text.to_owned());
        }
    }

    /// Adds a stage that has just ended, or was skipped.
    pub fn stage(&self, name: &str, status: StageEnd, took: Duration) {
        let State { begun, document } = &mut *self.state();
        if document.stages.len() < MAX_ROWS {
            let to = begun.elapsed();
            let from = to.saturating_sub(took);
            document.stages.push(Stage { name: name.to_owned(), status, from, to });
        }
    }

    /// Notes a retry and the error before it.
    pub fn retry(&self, error: &str) {
        let State { begun, document } = &mut *self.state();
        if document.retries.len() >= FIRST_RETRIES + LAST_RETRIES {
            document.retries.remove(FIRST_RETRIES);
            document.more_retries += 1;
        }
        document.retries.push(Retry { at: begun.elapsed(), error: error.to_owned() });
    }

    /// Returns the report of the run, which has ended.
    #[must_use]
    pub fn end(&self, end: End) -> Document {
        let End { finished, exit, meaning, error } = end;
        Document { finished, exit, meaning, error, ..self.state().document.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A report with a number missing is better than none.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_retries_are_kept() {
        let report = Report::begin(Head {
            what: "Backup".into(),
            tool: "x".into(),
            place: "y".into(),
            host: "z".into(),
            started: Timestamp::UNIX_EPOCH,
        });
        for n in 0..100 {
            report.retry(&format!("error {n}"));
        }
        let document = &report.state().document;
        assert_eq!(document.retries.len() as u64 + document.more_retries, 100);
        assert_eq!(document.retries[4].error, "error 4");
        assert_eq!(document.retries[5].error, "error 85");
        assert_eq!(document.retries[19].error, "error 99");
    }
}
