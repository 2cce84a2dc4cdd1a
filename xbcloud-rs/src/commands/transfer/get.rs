//! `get`: writes a backup to standard output.

use xb_backup::{BackupError, GetReport, GetRequest, OrInterrupted as _, Output, Selection};
use xb_cli::{Failure, FailureContext as _, ProgressEnd, standard_stream};
use xb_pipeline::{FifoError, FifoNames, Fifos, Split};
use xb_reader::Dialect;
use xb_repo::root::Root;

use crate::args::{GetArgs, RunOptions};
use crate::commands::context::{Context, resources};
use crate::report;

impl Context {
    pub(crate) fn get(&self, args: &GetArgs) -> Result<(), Failure> {
        let fifos = args.common.run.fifo.fifos(Dialect::Auto)?;
        match &fifos {
            None => xb_cli::refuse_terminal_output(
                "redirect it: xbcloud-rs get ... | mbstream -x -C DIR",
            )?,
            Some(_) if args.as_stored => {
                return Err(Failure::usage("--as-stored works only with one stream")
                    .hint("remove --fifo-streams, or --as-stored"));
            }
            Some(_) => {}
        }
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let keys = crate::keys::opening(false, &args.opening, &self.log)?;
        self.reporting.name(&name);
        let (keyed, shown) = (!keys.is_empty(), name.to_string());
        let request = GetRequest {
            files: selection(&args.files, &args.globs)?,
            as_stored: args.as_stored,
            accept: args.opening.accept,
            ..GetRequest::new(name, keys)
        };
        let run = &args.common.run;
        let done = match fifos {
            None => self.get_to_stdout(root, request, run)?,
            Some(fifos) => Some(self.get_to_fifos(root, request, run, fifos)?),
        };
        let Some((report, end)) = done else { return Ok(()) };
        self.reporting.get(&report);
        let what = match report.chosen {
            None => "wrote the whole stream",
            Some(_) => "wrote the stream of the selected files",
        };
        report::get_done(&self.log, what, &report, &end);
        report::unsealed(&self.log, keyed, &shown, &report);
        Ok(())
    }

    /// Writes one stream to standard output. `None`: none of the selected files is in the backup.
    fn get_to_stdout(
        &self,
        root: Root,
        mut request: GetRequest,
        run: &RunOptions,
    ) -> Result<Option<(GetReport, ProgressEnd)>, Failure> {
        let stdout = standard_stream(&std::io::stdout()).stage("output")?;
        let (done, end) =
            self.with_session("get", run, root, resources(run), |session| async move {
                loop {
                    let failed = |source| BackupError::Output { what: STDOUT.to_owned(), source };
                    let output = Output::new(stdout.try_clone().map_err(failed)?, STDOUT);
                    let got = xb_backup::get(&session, &request, output).await;
                    match got {
                        // The operators ask for a file, and if they get nothing, for its compressed
                        // form; a failure they take for the last word.
                        Err(error @ BackupError::NoFile { .. }) if self.stock => {
                            self.log.warn(&error);
                            if !error.no_file().is_some_and(|file| request.files.without(file)) {
                                return Ok(None);
                            }
                        }
                        got => return got.map(Some),
                    }
                }
            })?;
        let Some((report, output)) = done else { return Ok(None) };
        output.finish().map_err(report::failure)?;
        Ok(Some((report, end)))
    }

    /// Writes several streams to FIFOs.
    fn get_to_fifos(
        &self,
        root: Root,
        request: GetRequest,
        run: &RunOptions,
        fifos: Fifos,
    ) -> Result<(GetReport, ProgressEnd), Failure> {
        // Removed at the end of this function.
        let names = FifoNames::default();
        let opening = Split::opening(fifos, &names);
        self.with_session("get", run, root, resources(run), |session| async move {
            let split = session.cancel.or(opened(opening)).await?;
            let output = Output::new(split, STREAMS);
            let (report, output) = xb_backup::get(&session, &request, output).await?;
            output.into_inner().finish().map_err(fifo_failed)?;
            Ok(report)
        })
    }
}

/// Name of standard output in errors.
const STDOUT: &str = "stdout";
/// Name of several streams in errors.
const STREAMS: &str = "the streams";

/// Creates the FIFOs, and waits for their readers.
async fn opened(
    opening: impl FnOnce() -> Result<Split, FifoError> + Send + 'static,
) -> Result<Split, BackupError> {
    let opening = tokio::task::spawn_blocking(opening);
    let opened =
        opening.await.map_err(|_| BackupError::Bug("the thread that opens FIFOs panicked"))?;
    opened.map_err(fifo_failed)
}

fn fifo_failed(error: FifoError) -> BackupError {
    BackupError::Output { what: STREAMS.to_owned(), source: error.into() }
}

/// Selects files by exact names or by patterns.
pub(crate) fn selection(exact: &[String], globs: &[String]) -> Result<Selection, Failure> {
    if !exact.is_empty() {
        return Ok(Selection::exact(exact.to_vec()));
    }
    Selection::globs(globs).map_err(|error| Failure::usage(format!("--files: {error}")))
}
