//! `get`: writes a backup to standard output.

use xb_backup::{Accept, BackupName, GetRequest, Keys, Output, Selection};
use xb_cli::{Failure, OrFail as _};

use crate::args::{GetArgs, RunOptions};
use crate::commands::context::{Context, DEFAULT_PARALLEL, memory};
use crate::limits::default_threads;
use crate::report;
use crate::standard_stream::enlarged;

impl Context {
    pub(crate) fn get(&self, args: &GetArgs) -> Result<(), Failure> {
        xb_cli::refuse_terminal_output("redirect it: xbcloud-rs get ... | mbstream -x -C DIR")?;
        let (root, name) = self.which(&args.source, &args.common)?;
        let keys = crate::keys::opening(false, &args.opening, &self.log)?;
        let (keyed, shown) = (!keys.is_empty(), name.to_string());
        let request = get_request(name, keys, &args.common.run);
        let request = GetRequest {
            files: selection(&args.files, &args.globs)?,
            as_stored: args.as_stored,
            accept: args.unsealed.accept(&args.opening),
            ..request
        };
        let output = Output::new(enlarged(&std::io::stdout()).stage("output")?, "stdout");
        let traffic = root.store().traffic().clone();
        let ((report, output), end) = self.with_progress(
            "get",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                xb_backup::get(&root, &request, output, &observer, &mut stop).await
            },
        )?;
        output.finish().map_err(report::failure)?;
        let what = match report.chosen {
            None => "wrote the whole stream",
            Some(_) => "wrote the stream of the selected files",
        };
        report::get_done(&self.log, what, &report, &end);
        report::unsealed(&self.log, keyed, &shown, &report);
        Ok(())
    }
}

/// Selects files by exact names or by patterns.
pub(crate) fn selection(exact: &[String], globs: &[String]) -> Result<Selection, Failure> {
    if !exact.is_empty() {
        return Ok(Selection::exact(exact.to_vec()));
    }
    Selection::globs(globs).map_err(|error| Failure::usage(format!("--files: {error}")))
}

pub(crate) fn get_request(name: BackupName, keys: Keys, run: &RunOptions) -> GetRequest {
    GetRequest {
        name,
        files: Selection::default(),
        as_stored: false,
        keys,
        accept: Accept::default(),
        memory: memory(run),
        threads: run.threads.unwrap_or_else(default_threads),
        parallel: run.parallel.unwrap_or(DEFAULT_PARALLEL),
    }
}
