//! The report during the run: what is noted, and the page made from it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xb_pipeline::Observer;

use crate::gauge::{Gauge, Traffic};
use crate::page;
use crate::sampler::Watch;
use crate::section::{Content, ContentWatcher, Section, SectionOptions, Totals};
use crate::state::{
    End, FIRST_RETRIES, Head, LAST_RETRIES, MAX_ROWS, Retry, Stage, StageEnd, State,
};

/// The report of one run. Clones refer to the same report.
#[derive(Debug, Clone)]
pub struct Report(Arc<Mutex<State>>);

impl Report {
    /// Begins the report of a run that begins now.
    #[must_use]
    pub fn begin(head: Head) -> Self {
        Self(Arc::new(Mutex::new(State {
            head,
            name: None,
            begun: Instant::now(),
            sections: Vec::new(),
            stages: Vec::new(),
            settings: Vec::new(),
            warnings: Vec::new(),
            retries: Vec::new(),
            more_retries: 0,
        })))
    }

    /// Sets the name of the backup.
    pub fn name(&self, name: &str) {
        self.state().name = Some(name.to_owned());
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
            let mut state = self.state();
            if state.sections.len() >= MAX_ROWS {
                return Watch::none();
            }
            state.sections.push(Section::new(name, options));
            state.sections.len() - 1
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
        let mut state = self.state();
        let Some(section) = state.sections.get_mut(number) else { return Duration::MAX };
        section.recorder.push(sample);
        section.length = sample.at;
        section.phases = observer.phases_begun();
        section.parts = observer.parts();
        section.counted = Totals {
            stream_bytes: Some(now.bytes),
            stored_bytes: Some(now.stored),
            files: Some(now.files),
            objects: None,
            requests: section.direction.has_store().then_some(traffic.requests),
            retries: section.direction.has_store().then_some(traffic.retries),
        };
        if let Some(content) = content {
            section.counted.objects =
                section.direction.has_store().then_some(content.objects.objects);
            section.content = content;
        }
        section.recorder.interval()
    }

    /// States the totals of the newest section.
    pub fn totals(&self, totals: Totals) {
        if let Some(section) = self.state().sections.last_mut() {
            section.stated = totals;
        }
    }

    /// States the sizes of the objects that the newest section has read, with the number of each.
    pub fn objects(&self, sizes: impl IntoIterator<Item = (u64, u64)>) {
        if let Some(section) = self.state().sections.last_mut() {
            let sizes = sizes.into_iter();
            sizes.for_each(|(size, objects)| section.content.objects.add_many(size, objects));
        }
    }

    /// Sets a setting of the run: adds it, or replaces its value.
    pub fn setting(&self, name: &str, value: impl Into<String>) {
        let mut state = self.state();
        if let Some((_, old)) = state.settings.iter_mut().find(|(known, _)| known == name) {
            *old = value.into();
        } else if state.settings.len() < MAX_ROWS {
            state.settings.push((name.to_owned(), value.into()));
        }
    }

    /// Adds what was unusual, but no failure.
    pub fn warning(&self, text: &str) {
        let mut state = self.state();
        if state.warnings.len() < MAX_ROWS {
            state.warnings.push(text.to_owned());
        }
    }

    /// Adds a stage that has just ended, or was skipped.
    pub fn stage(&self, name: &str, end: StageEnd, took: Duration) {
        let mut state = self.state();
        if state.stages.len() < MAX_ROWS {
            let to = state.begun.elapsed();
            let from = to.saturating_sub(took);
            state.stages.push(Stage { name: name.to_owned(), end, from, to });
        }
    }

    /// Notes a retry and the error before it.
    pub fn retry(&self, error: &str) {
        let mut state = self.state();
        if state.retries.len() >= FIRST_RETRIES + LAST_RETRIES {
            state.retries.remove(FIRST_RETRIES);
            state.more_retries += 1;
        }
        let at = state.begun.elapsed();
        state.retries.push(Retry { at, error: error.to_owned() });
    }

    /// Returns the page.
    #[must_use]
    pub fn page(&self, end: &End) -> String {
        page::page(&self.state(), end)
    }

    #[cfg(test)]
    pub(crate) fn with_section(&self, change: impl FnOnce(&mut Section)) {
        if let Some(section) = self.state().sections.last_mut() {
            change(section);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A page with a number missing is better than none.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

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
        let state = report.state();
        assert_eq!(state.retries.len() as u64 + state.more_retries, 100);
        assert_eq!(state.retries[4].error, "error 4");
        assert_eq!(state.retries[5].error, "error 85");
        assert_eq!(state.retries[19].error, "error 99");
    }
}
