//! `consolidate`: makes a full backup out of a chain, and proves it.

use xb_backup::{
    ConsolidateOutcome, ConsolidateRequest, KeySlots, OrInterrupted as _, PutLayout, PutReport,
    PutRequest, Resources, Session, Trial,
};
use xb_cli::{Failure, ProgressEnd};
use xb_compressor::{AlgorithmError, Compression};
use xb_pipeline::{Content, EndRule, ObjectSize, XbstreamInput, codec_memory};
use xb_reader::Dialect;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_repo::verification::{Level, VerifyReport};
use xb_uploader::Lock;

use crate::args::consolidate::ConsolidateArgs;
use crate::args::{RunOptions, Source};
use crate::commands::context::{Context, DEFAULT_CHUNK, TOOL, memory, parallel};
use crate::commands::inspect::verify::{judged, not_reached, remarks};
use crate::commands::program_output::ProgramOutput;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::put::can_lock;
use crate::limits::default_threads;
use crate::report;

/// Suffix that is appended to the name of the last backup.
const SUFFIX: &str = "-full";

/// Settings of a consolidation.
pub(crate) struct Consolidation<'a> {
    /// The last backup of the chain.
    pub(crate) name: BackupName,
    /// Name of the new backup, if one is given.
    pub(crate) new_name: Option<BackupName>,
    /// Object size in bytes, and codec; by default those of the last backup.
    pub(crate) chunk_size: Option<u64>,
    pub(crate) compress: Option<&'a str>,
    pub(crate) key_slots: KeySlots,
    pub(crate) keys: xb_backup::Keys,
    pub(crate) accept: xb_backup::Accept,
    pub(crate) accept_imports: bool,
    pub(crate) trial: &'a Trial,
    pub(crate) lock: Option<Lock>,
}

impl Context {
    pub(crate) fn consolidate(&self, args: &ConsolidateArgs) -> Result<(), Failure> {
        let name = args.name.as_deref().filter(|name| !name.is_empty());
        let name = name.unwrap_or("latest").to_owned();
        crate::location::refuse_untrusted(&args.common.store.signing)?;
        let source = Source { name, server: args.server.clone() };
        let (root, name) = self.resolve(&source, &args.common)?;
        let new_name = args.new_name.as_deref().map(BackupName::new).transpose();
        let opening = &args.opening;
        let asked = Consolidation {
            name,
            new_name: new_name.map_err(|error| Failure::usage(format!("--as: {error}")))?,
            chunk_size: args.options.chunk_size.map(|size| size.bytes()),
            compress: args.options.compress.as_deref(),
            key_slots: opening.keys.key_slots(&args.recipients, &self.log)?,
            keys: crate::keys::opening(true, opening, &self.log)?,
            accept: opening.accept,
            accept_imports: args.options.accept_imports,
            trial: &args.trial,
            lock: args.retain.lock()?,
        };
        self.consolidate_backup(root, asked, &args.common.run).map(drop)
    }

    /// Consolidates a chain, and reports it. Returns the names of the new backup and of those that were merged; `None` if
    /// there is nothing to do.
    pub(crate) fn consolidate_backup(
        &self,
        root: Root,
        asked: Consolidation<'_>,
        run: &RunOptions,
    ) -> Result<Option<(String, Vec<String>)>, Failure> {
        let name = asked.name.clone();
        if asked.chunk_size == Some(0) {
            return Err(Failure::usage("--chunk-size must be at least 1"));
        }
        let compress = asked.compress.map(parsed).transpose()?;
        let resources = resources(run, compress);
        let trial = &Trial { state: state_dir(run), ..asked.trial.clone() };
        let output = ProgramOutput::new(&self.log, run, "consolidate", name.as_str());
        let lines = output.on_line();
        let lock = asked.lock;
        let work = |session: Session| async move {
            can_lock(&session.root, lock.as_ref(), &session.cancel).await?;
            let last =
                session.cancel.or(xb_repo::list::describe(&session.root, &asked.name)).await?;
            let request = ConsolidateRequest {
                put: put_request(
                    &asked.name,
                    asked.new_name,
                    &last.manifest,
                    asked.chunk_size,
                    compress,
                    asked.key_slots,
                )?,
                name: asked.name,
                keys: asked.keys,
                accept: asked.accept,
                accept_imports: asked.accept_imports,
                trial: trial.clone(),
                lock,
            };
            let done = xb_backup::consolidate(&session, request, &lines).await?;
            Ok((done, last.manifest))
        };
        let done = self.with_session("consolidate", run, root, resources, work);
        let ((done, last), end) = done.map_err(|failure| output.explain(failure))?;
        match done {
            ConsolidateOutcome::Tried { name: full, from, put, trial } => {
                self.tried(&last, &full, &from, put.as_deref(), &trial, &end)?;
                Ok(Some((full, from)))
            }
            ConsolidateOutcome::Before(full) => {
                self.log.info(format!("{name} is consolidated already, and proven: {full}"));
                Ok(None)
            }
            _ => {
                self.log.info(format!("{name} is a full backup: there is nothing to consolidate"));
                Ok(None)
            }
        }
    }

    fn tried(
        &self,
        last: &Manifest,
        full: &str,
        from: &[String],
        put: Option<&PutReport>,
        trial: &VerifyReport,
        end: &ProgressEnd,
    ) -> Result<(), Failure> {
        if let Some(put) = put {
            report::put_done(&self.log, put, end, false);
            if let Some(lost) = report::lost_tables(&put.manifest) {
                self.unusual(&lost);
            }
            if let Some(warning) = other_slots(last, &put.manifest) {
                self.log.warn(warning);
            }
        }
        remarks(&self.log, trial);
        let chain_stays = "the new backup is not proven, so its chain still counts instead; see `xbcloud-rs list`";
        let unproven = judged(trial)
            .err()
            .or_else(|| (trial.reached < Some(Level::Restore)).then(|| not_reached(trial)));
        let ok = unproven.is_none();
        self.log.event(
            "consolidated",
            &serde_json::json!({
                "name": full, "from": from, "made": put.is_some(), "proven": ok,
                "seconds": end.elapsed.as_secs_f64(),
            }),
        );
        if let Some(failure) = unproven {
            self.log.warn(chain_stays);
            return Err(failure);
        }
        self.log.info(format!(
            "{full}: a full backup out of {}, proven by a trial restore; `prune` may remove them by its rules",
            from.join(", ")
        ));
        Ok(())
    }
}

fn parsed(text: &str) -> Result<Compression, Failure> {
    text.parse().map_err(|error: AlgorithmError| Failure::usage(format!("--compress: {error}")))
}

/// Limits of a command that reads and writes.
fn resources(run: &RunOptions, compress: Option<Compression>) -> Resources {
    let codec = codec_memory(compress.unwrap_or(Compression::Auto));
    let memory = memory(run);
    let threads = run.threads.unwrap_or_else(|| default_threads(memory, codec));
    Resources { memory, threads, parallel: parallel(run) }
}

/// The new backup: as `last` was stored, unless something else is asked for.
fn put_request(
    name: &BackupName,
    new_name: Option<BackupName>,
    last: &Manifest,
    chunk_size: Option<u64>,
    compress: Option<Compression>,
    key_slots: KeySlots,
) -> Result<PutRequest, xb_backup::BackupError> {
    let packed = last.packed.as_ref();
    let codecs: Vec<Compression> = packed
        .map(|packed| packed.codecs.iter().filter_map(|codec| codec.parse().ok()).collect())
        .unwrap_or_default();
    let compress = compress.unwrap_or(match *codecs {
        [] => Compression::default(),
        [codec] => codec,
        _ => Compression::Auto,
    });
    let chunk_size = chunk_size.or(packed.map(|packed| packed.chunk_size));
    let generated = new_name.is_none();
    let new_name = match new_name {
        Some(name) => name,
        None => BackupName::new(&format!("{name}{SUFFIX}"))?,
    };
    Ok(PutRequest {
        name: new_name,
        generated,
        layout: PutLayout::Packed { compress, key_slots },
        object_size: ObjectSize::new(chunk_size.unwrap_or(DEFAULT_CHUNK)),
        content: Content::Xbstream(XbstreamInput {
            rule: EndRule::KnownProducer,
            dialect: Dialect::default(),
        }),
        tool: TOOL.to_owned(),
        server: None,
        base_elsewhere: false,
        since: None,
        watch: None,
        merged: None,
    })
}

/// Warns if other keys open the new backup than the last one of its chain.
fn other_slots(last: &Manifest, new: &Manifest) -> Option<String> {
    let slots = |manifest: &Manifest| {
        let sealed = manifest.packed.as_ref()?.sealed.as_ref()?;
        let mut slots = sealed.key_slots.clone();
        slots.sort();
        Some(slots.join(", "))
    };
    let (before, now) = (slots(last)?, slots(new).unwrap_or_default());
    (before != now)
        .then(|| format!("{} opens with {now}, and {} opened with {before}", new.name, last.name))
}
