//! Output of `plan`.

use std::io::{self, Write};

use serde_json::{Value, json};
use xb_cli::{format_count, format_size};
use xb_pipeline::MAX_SUMS;
use xb_tune::{Estimate, Requests, run_failure};

use crate::args::RunOptions;
use crate::commands::inspect::price_options::{Priced, dollars};

/// Retries of a request, where the options set neither their number nor their time.
const DEFAULT_RETRIES: u32 = 10;

/// Likelihood that a run fails.
pub(crate) struct Failures {
    rate: f64,
    retries: u32,
    with_retries: f64,
    without: f64,
}

impl Failures {
    /// For a backup with the retries of `run`.
    pub(crate) fn of(estimate: &Estimate, rate: f64, run: &RunOptions) -> Self {
        let default = if run.retry_timeout.is_some() { 0 } else { DEFAULT_RETRIES };
        let retries = run.max_retries.unwrap_or(default);
        let likely = |tries| run_failure(estimate.backup_requests, rate, tries);
        Self { rate, retries, with_retries: likely(retries.saturating_add(1)), without: likely(1) }
    }

    fn json(&self) -> Value {
        json!({
            "request_failure_rate": self.rate, "retries": self.retries,
            "run_failure": self.with_retries, "run_failure_without_retries": self.without,
        })
    }
}

/// An estimate, with prices and likelihoods.
pub(crate) struct PlanReport {
    pub(crate) estimate: Estimate,
    pub(crate) prices: Option<Priced>,
    pub(crate) failure: Option<Failures>,
}

impl PlanReport {
    /// Prints the report on standard output.
    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, &self.json()?)?;
            return writeln!(out);
        }
        self.sizes(&mut out)?;
        self.cost(&mut out)?;
        self.failures(&mut out)
    }

    fn json(&self) -> io::Result<Value> {
        let mut all = serde_json::to_value(self.estimate)?;
        if let (Some(priced), Some(fields)) = (&self.prices, all.as_object_mut()) {
            let cost = serde_json::to_value(self.estimate.cost(&priced.prices))?;
            fields.insert("cost".to_owned(), cost);
            fields.insert("prices".to_owned(), priced.json());
        }
        if let (Some(failure), Some(fields)) = (&self.failure, all.as_object_mut()) {
            fields.insert("failure".to_owned(), failure.json());
        }
        Ok(all)
    }

    fn sizes(&self, out: &mut impl Write) -> io::Result<()> {
        let e = &self.estimate;
        let parts =
            if e.parts > 1 { format!(", each in {} parts", e.parts) } else { String::new() };
        let (stored, object) = (format_size(e.stored), format_size(e.object_bytes));
        writeln!(out, "in the store       {stored} in {} of {object}{parts}", objects(e.objects))?;
        writeln!(out, "                   (stock tool: about {})", objects(e.stock_objects))?;
        if e.objects > MAX_SUMS as u64 {
            let most = objects(MAX_SUMS as u64);
            writeln!(
                out,
                "                   no checksum list: with more than {most}, `verify` cannot name a damaged\n\
                 \x20                  object without a key; a larger --chunk-size makes fewer"
            )?;
        }
        let Requests { put, list, get } = e.backup_kinds;
        writeln!(
            out,
            "requests, backup   {} ({put} write, {list} list, {get} read)",
            e.backup_requests
        )?;
        writeln!(
            out,
            "requests, verify   {} (reads every byte; a restore needs as many)",
            e.verify_requests
        )?;
        writeln!(
            out,
            "requests, copy     {} (to another bucket in the same store)",
            e.copy_requests
        )?;
        let (memory, least) = (format_size(e.memory), format_size(e.least_memory));
        writeln!(out, "memory             {memory} (at least {least})")
    }

    fn cost(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(priced) = &self.prices else { return Ok(()) };
        let cost = self.estimate.cost(&priced.prices);
        writeln!(out, "cost, backup       {} for requests", dollars(cost.backup))?;
        writeln!(
            out,
            "cost, verify       {} for requests; {} more if it reads from outside the provider's network",
            dollars(cost.verify),
            dollars(cost.verify_egress)
        )?;
        writeln!(out, "cost, copy         {} for requests", dollars(cost.copy))?;
        writeln!(out, "cost, storage      {} a month", dollars(cost.storage_month))?;
        writeln!(out, "prices             {}", priced.origin())
    }

    fn failures(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(failure) = &self.failure else { return Ok(()) };
        let retries = match failure.retries {
            0 => "without retries".to_owned(),
            n => {
                let number = if n == 1 { "1 retry".to_owned() } else { format!("{n} retries") };
                format!("with {number} per request, {} without", percent(failure.without))
            }
        };
        writeln!(
            out,
            "run fails          {} {retries}, if {} of the tries fail independently",
            percent(failure.with_retries),
            percent(failure.rate),
        )
    }
}

/// A likelihood for people.
fn percent(likelihood: f64) -> String {
    match likelihood * 100.0 {
        0.0 => "0 %".to_owned(),
        ..0.0001 => "less than 0.0001 %".to_owned(),
        percent @ ..1.0 => format!("{} %", format!("{percent:.4}").trim_end_matches('0')),
        percent => format!("{percent:.1} %"),
    }
}

fn objects(number: u64) -> String {
    format_count(number, "object")
}
