//! Output of `tune`.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use xb_cli::{Size, format_count, format_duration, format_rate, format_size};
use xb_tune::{Job, Link as StoreLink, Machine, Prediction, Recommendation, Sample};

use crate::commands::inspect::price_options::{Priced, dollars};

/// The measurements, and the recommendation.
pub(crate) struct TuneReport<'a> {
    pub(crate) sample: &'a Sample,
    pub(crate) machine: Machine,
    pub(crate) link: StoreLink,
    pub(crate) job: Job,
    pub(crate) prices: Option<Priced>,
    pub(crate) found: Recommendation,
}

impl TuneReport<'_> {
    /// Prints the report on standard output.
    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, &self.json())?;
            return writeln!(out);
        }
        self.measured(&mut out)?;
        let size = format_size(self.job.bytes);
        let sealed = if self.job.sealed { ", sealed" } else { "" };
        writeln!(out, "\nPredicted for a backup of {size}{sealed}; * is recommended:")?;
        let found = &self.found;
        self.table(&mut out, "compress", &found.compress, |one| one.compress.clone())?;
        self.table(&mut out, "chunk-size", &found.chunk_size, |one| size_of(one.chunk_size))?;
        self.table(&mut out, "parallel", &found.parallel, |one| one.parallel.to_string())?;
        self.table(&mut out, "memory", &found.memory, |one| size_of(one.memory))?;
        if let Some(priced) = &self.prices {
            writeln!(out, "\nPrices: {}", priced.origin())?;
        }
        writeln!(out, "\nFor the option file:\n\n[xbcloud]")?;
        for (option, value) in self.options() {
            writeln!(out, "{option:10} = {value}")?;
        }
        Ok(())
    }

    /// The recommended options and their values.
    fn options(&self) -> [(&'static str, String); 4] {
        let best = &self.found.best;
        [
            ("compress", best.compress.clone()),
            ("chunk-size", size_of(best.chunk_size)),
            ("parallel", best.parallel.to_string()),
            ("memory", size_of(best.memory)),
        ]
    }

    fn json(&self) -> Value {
        let options =
            self.options().into_iter().map(|(option, value)| (option.into(), value.into()));
        json!({
            "size": self.job.bytes,
            "sealed": self.job.sealed,
            "sample": {
                "bytes": self.sample.len(), "total": self.sample.total, "files": self.sample.files,
            },
            "machine": self.machine,
            "link": self.link,
            "prices": self.prices.as_ref().map(Priced::json),
            "recommended": self.found.best,
            "compress": self.found.compress,
            "chunk_size": self.found.chunk_size,
            "parallel": self.found.parallel,
            "memory": self.found.memory,
            "options": Value::Object(options.collect()),
        })
    }

    fn measured(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { sample, machine, link, .. } = self;
        let files = sample.files.map(|files| format!(" in {}", format_count(files, "file")));
        writeln!(
            out,
            "sample    {} of {}{}, read at {}",
            format_size(sample.len()),
            format_size(sample.total),
            files.unwrap_or_default(),
            format_rate(machine.read)
        )?;
        writeln!(
            out,
            "threads   {}; speeds are per thread, with all of them busy",
            machine.threads
        )?;
        for codec in &machine.codecs {
            writeln!(
                out,
                "codec     {:8} {:>12}, to {:.1} %",
                codec.compress,
                format_rate(codec.speed),
                codec.ratio * 100.0
            )?;
        }
        writeln!(out, "seal      {:8} {:>12}", "", format_rate(machine.seal))?;
        let latency = link.latency * 1000.0;
        if link.requests == 0 {
            let rate = link.points.first().map_or(0.0, |point| point.rate);
            return writeln!(
                out,
                "link      {} and {latency:.0} ms per request, as given",
                format_rate(rate)
            );
        }
        writeln!(out, "link      {latency:.1} ms per request")?;
        for point in &link.points {
            let requests = format!("{} parallel", point.parallel);
            writeln!(out, "          {requests:12} {:>12}", format_rate(point.measured))?;
        }
        writeln!(
            out,
            "          ({} uploaded in {}, all removed)",
            format_size(link.uploaded),
            format_count(link.requests, "request")
        )
    }

    /// One table: the predictions for the values of an option.
    fn table(
        &self,
        out: &mut impl Write,
        option: &str,
        rows: &[Prediction],
        value: impl Fn(&Prediction) -> String,
    ) -> io::Result<()> {
        let cost = if self.prices.is_some() { "      cost  a month" } else { "" };
        writeln!(out, "\n  {option:10}  duration  limit      stored   objects  requests{cost}")?;
        for row in rows {
            let mark = if *row == self.found.best { '*' } else { ' ' };
            write!(
                out,
                "{mark} {:10}  {:>8}  {:5}  {:>10}  {:>8}  {:>8}",
                value(row),
                format_duration(Duration::try_from_secs_f64(row.seconds).unwrap_or(Duration::MAX)),
                row.slowest_stage.name(),
                format_size(row.stored),
                row.objects,
                row.requests
            )?;
            if let (Some(backup), Some(month)) = (row.cost_backup, row.cost_storage_month) {
                write!(out, "  {:>8}  {:>7}", dollars(backup), dollars(month))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// A size as an option's value.
fn size_of(bytes: u64) -> String {
    Size(bytes).to_string()
}
