//! `report`: draws the page about a run from its report.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use xb_cli::{Failure, FailureContext as _, Readers, refuse_closed_output, write_whole};
use xb_report::Document;

use crate::args::ReportArgs;
use crate::page::page;
use crate::report;

/// Longest file that is read, in bytes. The report of the longest run has a tenth of it.
const MAX_FILE: u64 = 64 << 20;

const HINT: &str =
    "give a file that a state transfer wrote into its report-dir, such as xbrs-donor.json";

/// Draws the page that the command line asks for.
///
/// # Errors
/// The file cannot be read or is not a report, or the page cannot be written.
pub(crate) fn draw(args: &ReportArgs) -> Result<(), Failure> {
    let page = page(&read(&args.file)?);
    match &args.output {
        Some(file) => {
            let hint = "make its directory, and let this user write to it";
            let written = write_whole(file, &page, Readers::Owner);
            written.stage(&format!("writing {}", file.display())).hint(hint)
        }
        None => {
            refuse_closed_output("name a file for the page with -o")?;
            report::printed(std::io::stdout().write_all(page.as_bytes()))
        }
    }
}

fn read(file: &Path) -> Result<Document, Failure> {
    let stage = file.display().to_string();
    let mut text = Vec::new();
    let opened = File::open(file).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
    opened.stage(&stage).hint(HINT)?;
    if text.len() as u64 > MAX_FILE {
        let what = format!("it is longer than {} MiB, so it is not a report", MAX_FILE >> 20);
        return Err(Failure::new(what).stage(stage).hint(HINT));
    }
    Document::parse(&text).stage(&stage).hint(HINT)
}
