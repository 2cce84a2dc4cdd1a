//! Mode `-x`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use xb_cli::{
    Failure, FailureContext as _, Log, Progress, ProgressOptions, Signals, Snapshot, format_count,
    format_rate, format_size, interrupted,
};
use xb_pipeline::{
    Decrypt, EndRule, EndWatch, ExtractOptions, ExtractReport, Extractor, Observer, SLAB, SlabPool,
    StoredStream, logical_name,
};
use xb_reader::{ChunkWriter, RelPath, TargetDir};

use crate::args::CommandLine;
use crate::hints;
use crate::source::Source;

/// Every stock program writes a file of less than this many bytes as one chunk.
const ONE_CHUNK: u64 = 1 << 20;

pub(crate) fn run(line: &CommandLine, stock: bool, log: &Log) -> Result<(), Failure> {
    let fifos = line.fifos()?;
    if fifos.is_none() {
        xb_cli::refuse_terminal_input("redirect a stream to it: xbstream-rs -x -C DIR < FILE")?;
    }
    let observer = Observer::default();
    let threads = line.threads(stock, log);
    let decoding = line.decoding(threads, log)?;
    let keeps_encrypted = decoding.decompress && matches!(decoding.decrypt, Decrypt::Leave);
    let mut options = ExtractOptions::default()
        .with_threads(threads)
        .with_durability(line.sync)
        .with_decoding(decoding);
    options.dialect = line.dialect;
    options.allow_truncated = line.allow_truncated;
    options.observer = observer.clone();
    // From here on a signal ends the run through this function, so that it cleans up.
    let _signals = Signals::catch(|_| ()).stage("start")?;
    let target = TargetDir::open(&line.dir()).map_err(|error| hints::target_failure(&error))?;
    // The names of the FIFOs are removed at the end of this function.
    let (input, _names) = Source::new(fifos).stage("start")?;
    let seen = Arc::new(Mutex::new(StreamEvidence::default()));
    let stored = input.stored(threads).stage("start")?;
    let slabs = SlabPool::new(SLAB, 2 * options.threads + 3);
    let extractor = Extractor::new(target, options)
        .map_err(|error| hints::extract_failure(&error.cause, 0))?
        .on_file({
            let (seen, log) = (Arc::clone(&seen), log.clone());
            move |path| {
                log.file(path);
                seen.lock().unwrap_or_else(PoisonError::into_inner).add(path);
            }
        });
    let progress =
        ProgressOptions { enabled: !stock && !line.no_progress, ..ProgressOptions::default() };
    let total = input.len();
    let progress = Progress::start(log, "extract", progress, move || Snapshot {
        done: observer.snapshot().bytes,
        total,
        ..Snapshot::default()
    })
    .stage("start")?;
    let result = match stored {
        Some(stored) => pump_stored(stored, extractor, stock),
        None => feed(input, &slabs, extractor, stock),
    };
    let end = progress.finish();
    let report = result?;
    warn_of_cut(log, &report);
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.warn(log);
    if keeps_encrypted && seen.encrypted > 0 {
        log.warn(format_args!(
            "encrypted files (.xbcrypt) neither decrypted nor decompressed: {}; add --decrypt=AES256 and a key to decode them",
            seen.encrypted
        ));
    }
    if !stock {
        #[allow(clippy::cast_precision_loss)]
        let rate = report.bytes as f64 / end.elapsed.as_secs_f64().max(0.001);
        log.event("done", &serde_json::json!({
            "files": report.files, "stream_bytes": report.bytes, "seconds": end.elapsed.as_secs_f64(),
        }));
        log.info(format_args!(
            "{} from {} ({})",
            format_count(report.files, "file"),
            format_size(report.bytes),
            format_rate(rate)
        ));
    }
    Ok(())
}

/// Feeds the extractor until the input ends, the extractor finds an error, or a signal arrives.
fn feed(
    mut input: Source,
    slabs: &SlabPool,
    mut extractor: Extractor,
    stock: bool,
) -> Result<ExtractReport, Failure> {
    let mut over = false;
    while !over && !extractor.is_stopped() {
        let mut slab = slabs.take(None);
        while !over && !slab.is_full() && !extractor.is_stopped() {
            if let Some(signal) = interrupted() {
                return Err(give_up(extractor, signal));
            }
            match input.read(slab.room()) {
                Ok(Some(0)) => over = true,
                Ok(Some(len)) => slab.advance(len),
                // Use the waiting time to extract what has arrived.
                Ok(None) if !slab.is_empty() => break,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let _ = extractor.feed(slab.freeze());
                    return Err(read_failed(extractor, error));
                }
            }
        }
        // The loop checks whether the extractor has stopped; `finish` reports the error.
        let _ = extractor.feed(slab.freeze());
    }
    finish(extractor, stock)
}

/// As [`feed`], for input in a regular file.
fn pump_stored(
    mut input: StoredStream,
    mut extractor: Extractor,
    stock: bool,
) -> Result<ExtractReport, Failure> {
    let mut more = Ok(true);
    while matches!(more, Ok(true)) && !extractor.is_stopped() {
        if let Some(signal) = interrupted() {
            return Err(give_up(extractor, signal));
        }
        more = input.feed_next(&mut extractor);
    }
    let result = match more {
        Ok(_) => finish(extractor, stock),
        Err(error) => Err(read_failed(extractor, error)),
    };
    // A program that shares the descriptor continues behind the stream.
    input.leave().stage("extract")?;
    result
}

/// Ends the extraction because of a signal.
fn give_up(extractor: Extractor, signal: i32) -> Failure {
    drop(extractor);
    Failure::interrupted(signal).hint("complete files were kept, the others removed")
}

fn finish(extractor: Extractor, stock: bool) -> Result<ExtractReport, Failure> {
    if let Some(path) = extractor.only_unfinished().filter(|_| stock).cloned() {
        return keep_unfinished(extractor, &path);
    }
    extractor.finish().map_err(|error| hints::extract_failure(&error.cause, error.report.files))
}

/// Gives the only file of the stream its name although its end is missing. The operators extract a
/// single object of a backup so: its first chunk.
///
/// For point-in-time recovery they do this with the small files that describe a backup, and give up
/// unless the status is 0 and nothing is printed. Such a file fits into its first chunk. A missing
/// end of any other file is an error.
fn keep_unfinished(mut extractor: Extractor, path: &RelPath) -> Result<ExtractReport, Failure> {
    let mut end = ChunkWriter::new(Vec::new());
    if end.end(path.to_string()).is_ok()
        && let Ok(end) = end.finish()
    {
        let _ = extractor.feed(end.into());
    }
    match extractor.finish() {
        Ok(report) if describes(path) && report.bytes < ONE_CHUNK => Ok(report),
        Ok(_) => Err(Failure::new(format!("{path}: the stream has only its beginning"))
            .stage("extract")
            .hint(
                "the file was created from it and may be too short: fetch all objects of the file",
            )),
        Err(error) => Err(hints::extract_failure(&error.cause, error.report.files)),
    }
}

/// Returns whether this is one of the small files that describe a backup.
fn describes(path: &RelPath) -> bool {
    let name = logical_name(path.as_bytes());
    [&b"sst_info"[..], b"xtrabackup_info", b"xtrabackup_binlog_info", b"xtrabackup_galera_info"]
        .contains(&name)
}

fn read_failed(extractor: Extractor, error: io::Error) -> Failure {
    let error = extractor.read_failed(error);
    hints::extract_failure(&error.cause, error.report.files)
}

fn warn_of_cut(log: &Log, report: &ExtractReport) {
    let Some(truncated) = &report.truncated else { return };
    log.warn(&truncated.cause);
    for (path, offset) in &truncated.dropped {
        log.warn(format_args!(
            "{path}: not extracted; the stream has only its first {offset} bytes"
        ));
    }
    log.warn(format_args!(
        "complete files kept: {}; other files may be missing entirely",
        report.files
    ));
}

/// Evidence whether the stream is a server's backup, and whether it has its last file.
#[derive(Debug)]
pub(crate) struct StreamEvidence {
    backup: bool,
    /// Number of encrypted files.
    encrypted: u64,
    end: EndWatch,
}

impl Default for StreamEvidence {
    fn default() -> Self {
        Self { backup: false, encrypted: 0, end: EndWatch::new(EndRule::KnownProducer) }
    }
}

impl StreamEvidence {
    pub(crate) fn add(&mut self, path: &RelPath) {
        self.backup |= logical_name(path.as_bytes()) == b"ibdata1";
        self.encrypted += u64::from(path.as_bytes().ends_with(b".xbcrypt"));
        // Only names count here.
        self.end.ended(path.as_bytes(), u64::MAX);
    }

    /// Warns if the stream may have been cut between two files. The chunks do not show this, but it
    /// can be guessed if the names show that this is a server's full backup.
    pub(crate) fn warn(&self, log: &Log) {
        if self.backup && !self.end.has_last_file() {
            log.warn(
                "the stream has ibdata1 but not the file that backup programs write last \
                 (xtrabackup_info, mariadb_backup_info): it may have been cut between two files",
            );
        }
    }
}
