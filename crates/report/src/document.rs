//! The report of a run that has ended: everything that its page shows, as one JSON document.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content::object_sizes::Objects;
use crate::content::table_totals::Tables;
use crate::direction::Direction;
use crate::recorder::Recorder;
use crate::seconds;

/// Version of the document. It changes only when a field changes its meaning or disappears.
pub const FORMAT: u32 = 1;

/// End of a stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageEnd {
    /// Done.
    Ok,
    /// Failed.
    Failed,
    /// Not begun, because an earlier stage failed.
    Skipped,
}

/// First cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Message: the step that failed, its object and the cause.
    pub message: String,
    /// Next step for the user.
    pub hint: Option<String>,
}

/// A stage of a run, such as `verify`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Name.
    pub name: String,
    /// Outcome.
    pub status: StageEnd,
    /// Begin, since the beginning of the run.
    #[serde(with = "seconds")]
    pub from: Duration,
    /// End, since the beginning of the run.
    #[serde(with = "seconds")]
    pub to: Duration,
}

/// A phase of a section, such as `upload`. It lasts until the next one begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Name.
    pub name: String,
    /// Begin, since the beginning of the run.
    #[serde(with = "seconds")]
    pub at: Duration,
}

/// A retry with the error before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// When it was decided, since the beginning of the run.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// The error.
    pub error: String,
}

/// A setting of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name.
    pub name: String,
    /// Value, as text for people.
    pub value: String,
}

/// Totals of a section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes of the stream, as the producer wrote it.
    pub stream_bytes: Option<u64>,
    /// Bytes in the store, or on the wire.
    pub stored_bytes: Option<u64>,
    /// Files.
    pub files: Option<u64>,
    /// Objects.
    pub objects: Option<u64>,
    /// Requests to the store, retries included.
    pub requests: Option<u64>,
    /// Tries that followed a failed one.
    pub retries: Option<u64>,
}

/// Bytes that a state transfer has left out, because the joiner's old data has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Bytes about which the donor has asked.
    pub asked_bytes: u64,
    /// Bytes among these that the joiner has kept.
    pub kept_bytes: u64,
    /// Bytes among these that were sent.
    pub sent_bytes: u64,
}

/// One transfer through the pipeline, and what is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Names of its stages, in the order of the bytes: those of `stages` in each sample.
    pub stages: Vec<String>,
    /// Begin, since the beginning of the run.
    #[serde(with = "seconds")]
    pub begin: Duration,
    /// Its duration.
    #[serde(with = "seconds")]
    pub length: Duration,
    /// Its phases, in order.
    pub phases: Vec<Phase>,
    /// Totals that the run itself states. If none is set, the transfer was not completed, or nothing states its
    /// totals.
    pub stated: Totals,
    /// Totals that were counted, for those that the run does not state.
    pub counted: Totals,
    /// Bytes left out; `None` if none were to be, or the transfer was not completed.
    pub delta: Option<Delta>,
    /// Parts of objects that were sent in several parts.
    pub parts: u64,
    /// Objects by size, as far as they are known.
    pub objects: Option<Objects>,
    /// Bytes by table, as far as the tables are known.
    pub tables: Option<Tables>,
    /// Counters over time.
    pub samples: Recorder,
}

impl Section {
    /// Returns whether the run ended before the transfer was complete: then it never stated what it has stored.
    #[must_use]
    pub fn is_cut_off(&self, failed: bool) -> bool {
        failed && self.stated == Totals::default()
    }

    /// Returns the bytes that were passed to the last stage.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let last = self.samples.samples().last();
        last.and_then(|sample| sample.lanes.last()).map_or(0, |lane| lane.bytes)
    }

    /// Returns the totals, as far as anything is known.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (stated, counted) = (&self.stated, &self.counted);
        Totals {
            stream_bytes: stated.stream_bytes.or(counted.stream_bytes),
            stored_bytes: stated.stored_bytes.or(counted.stored_bytes),
            files: stated.files.or(counted.files),
            objects: stated.objects.or(counted.objects),
            requests: stated.requests.or(counted.requests),
            retries: stated.retries.or(counted.retries),
        }
    }
}

/// Everything that the page of a run shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: u32,
    /// The kind of run, as a noun: `Backup`.
    pub what: String,
    /// Name of the backup, once it is known.
    pub name: Option<String>,
    /// Program and version.
    pub tool: String,
    /// Destination or source of the data; without secrets.
    pub place: String,
    /// Name of the host.
    pub host: String,
    /// When the run began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// Exit code of the program.
    pub exit: u8,
    /// Meaning of the exit code.
    pub meaning: String,
    /// First cause of a failure.
    pub error: Option<Cause>,
    /// Events that were unusual, but no failure.
    pub warnings: Vec<String>,
    /// Settings of the run.
    pub settings: Vec<Setting>,
    /// Stages, in order; empty for a run of one transfer.
    pub stages: Vec<Stage>,
    /// The transfers, in order.
    pub sections: Vec<Section>,
    /// The first retries and the last ones.
    pub retries: Vec<Retry>,
    /// Number of retries between them whose error was not kept.
    pub more_retries: u64,
}

/// Text is not the document of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is not JSON, or a field is missing or has a value that it cannot have.
    #[error("it is not the JSON of a report: {0}")]
    Json(#[from] serde_json::Error),
    /// A later version wrote it.
    #[error("it has version {0} of the format, and this program reads version {FORMAT}")]
    Format(u64),
}

impl Document {
    /// Returns the document as JSON text, with a final newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys: this cannot fail.
        format!("{}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// Parses JSON text.
    ///
    /// # Errors
    /// [`DocumentError`], with line and column.
    pub fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let Version { format } = serde_json::from_slice(text)?;
        match format == u64::from(FORMAT) {
            true => Ok(serde_json::from_slice(text)?),
            false => Err(DocumentError::Format(format)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::Direction;
    use crate::{End, Head, Report, SectionOptions, Traffic};

    fn document() -> Document {
        let report = Report::begin(Head {
            what: "Backup".into(),
            tool: "x 1".into(),
            place: "file:///b/n".into(),
            host: "db1".into(),
            started: "2026-11-22T03:15:00Z".parse().unwrap(),
        });
        let observer = xb_pipeline::Observer::default();
        let options = SectionOptions { direction: Direction::Up, encode: None, threads: 2 };
        let watch = report.watch("upload", options, &observer, Traffic::default);
        observer.begin_phase("upload");
        observer.add_bytes(10_000);
        let watcher = observer.watcher().unwrap();
        watcher.file_bytes(b"shop/orders.ibd", 9000);
        watcher.packed(Some(3000));
        watcher.object(3000);
        drop(watch);
        report.retry("HTTP 503");
        report.setting("sealed", "yes");
        report.stage("backup", StageEnd::Failed, Duration::from_millis(1));
        report.warning("slow");
        report.end(End {
            finished: "2026-11-22T03:15:13Z".parse().unwrap(),
            exit: 6,
            meaning: "damaged".into(),
            error: Some(Cause { message: "m".into(), hint: None }),
        })
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let document = document();
        let text = document.to_json();
        assert_eq!(Document::parse(text.as_bytes()).unwrap(), document);
        let table = r#"{"table":"shop.orders","raw":9000,"stored":3000}"#;
        assert!(text.contains(table), "{text}");
        assert!(text.contains(r#""stages":["read","compress","seal","upload"]"#), "{text}");
    }

    #[test]
    fn a_malformed_report_is_refused_with_its_place() {
        let error = |text: &str| Document::parse(text.as_bytes()).unwrap_err().to_string();
        let good = document().to_json();
        assert!(error("").contains("line 1 column 0"));
        assert!(error("[1]").contains("it is not the JSON of a report"));
        assert!(error(r#"{"format":1}"#).contains("missing field `what`"));
        assert!(error(r#"{"format":2,"what":7}"#).contains("version 2 of the format"));
        assert!(error(&good[..good.len() / 2]).contains("EOF while parsing"));
        for (value, bad) in [
            (r#""begin":"#, r#""begin":-1,"x":"#),
            (r#""begin":"#, r#""begin":1e300,"x":"#),
            // A duration for the system, but the end of the section is none.
            (r#""begin":"#, r#""begin":1e19,"x":"#),
            (r#""direction":"up""#, r#""direction":"sideways""#),
            (r#""exit":6"#, r#""exit":600"#),
            (r#""stages":[{"bytes""#, r#""stages":[{"held_up":0,"bytes":0},{"bytes""#),
        ] {
            assert!(good.contains(value), "{value}");
            let text = good.replacen(value, bad, 1);
            assert!(error(&text).contains("column"), "{bad}: {}", error(&text));
        }
    }
}
