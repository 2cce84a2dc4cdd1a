//! From the command line to the library and back.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use xb_backup::{
    Accept, BackupError, BackupName, GetRequest, Keys, Layout, ListCache, LockGuard, Manifest,
    Output, OwnRuns, Owner, PrepareOptions, Producer, PutRequest, Ready, Resolved, RestoreOptions,
    RewrapRequest, Root, Selection, SinceRequest, Stop, Talk, Wanted, WaysIn, stopper,
};
use xb_cli::{
    Failure, Level, Log, LogOptions, OrFail as _, Program, Progress, ProgressOptions, Signals,
    Snapshot, env_first,
};
use xb_compressor::{Algorithm, AlgorithmError};
use xb_keyring::{IdentityOptions, KeyOptions};
use xb_pipeline::{
    Content, Durability, EndRule, GetPlan, LastFile, Observer, Transform, Wait, XbstreamInput,
};
use xb_reader::Dialect;
use xb_uploader::{Lock, Traffic};

use crate::args::{
    BackupArgs, Command, CommonOptions, DialectArg, GcArgs, GetArgs, LayoutArg, Line, ListArgs,
    PlanArgs, PutArgs, PutOptions, RestoreArgs, RewrapArgs, RunOptions, Source, Sync,
};
use crate::limits::{default_memory, default_threads};
use crate::place::{backup_place, remote_place, root_place, wanted_place};
use crate::report;

/// Objects are this large when nobody says.
const DEFAULT_CHUNK: u64 = 64 << 20;
/// Requests at a time when nobody says.
const DEFAULT_PARALLEL: usize = 8;
/// Program and version, for manifests and records.
pub(crate) const TOOL: &str = concat!("xbcloud-rs ", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(program: &Program) -> Result<(), Failure> {
    let line: Line = program.parse(&["xbcloud"])?;
    let options = line.command.run_options();
    let level = match (options.quiet, options.verbose) {
        (true, _) => Level::Quiet,
        (false, true) => Level::Verbose,
        (false, false) => Level::Normal,
    };
    let log = program.start_log(LogOptions { level, json: options.json, ..LogOptions::default() });
    let context = Context { log, stock: program.personality().is_stock() };
    if !matches!(line.command, Command::Restore(_)) {
        // What goes into a local folder is a copy of all data: it is nobody else's to read.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    match line.command {
        Command::Put(args) => context.put(&args),
        Command::Backup(args) => context.backup(&args),
        Command::Get(args) => context.get(&args),
        Command::Restore(args) => context.restore(&args),
        Command::List(args) => context.list(&args),
        Command::Show(args) => context.show(&args),
        Command::Verify(args) => context.verify(&args),
        Command::Copy(args) => context.copy(&args),
        Command::Pin(args) => context.pin(&args),
        Command::Unpin(args) => context.unpin(&args),
        Command::Prune(args) => context.prune(&args),
        Command::Delete(args) => context.delete(&args),
        Command::Gc(args) => context.gc(&args),
        Command::Plan(args) => context.plan(&args),
        Command::Rewrap(args) => context.rewrap(&args),
    }
}

pub(crate) struct Context {
    pub(crate) log: Log,
    pub(crate) stock: bool,
}

impl Context {
    /// ROOT, where `--take-over` is given for one who takes claims over and says whose.
    pub(crate) fn taking_over(&self, root: Root, take_over: bool) -> Root {
        if !take_over {
            return root;
        }
        let log = self.log.clone();
        root.taking_over(move |who| {
            log.warn(format!("the claim of another run was taken over: {who}"));
        })
    }

    fn put(&self, args: &PutArgs) -> Result<(), Failure> {
        xb_cli::refuse_terminal_input(
            "pipe a stream into it: mariadb-backup --backup --stream=xbstream | xbcloud-rs put ...",
        )?;
        let (root, name) = backup_place(&args.name, &args.common, true)?;
        let root = self.taking_over(root, args.put.take_over);
        let request = self.put_request(name, &args.put, &args.keys, &args.common.run)?;
        let lock = args.retain.lock()?;
        let source = enlarged(&std::io::stdin()).stage("read")?;
        let traffic = root.store().traffic().clone();
        let (report, end) = self.with_progress(
            "put",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                can_lock(&root, lock.as_ref(), &mut stop).await?;
                let report = xb_backup::put(&root, &request, source, &observer, &mut stop).await?;
                lock_all(&root, &request, lock.as_ref(), &mut stop, &self.log).await?;
                Ok(report)
            },
        )?;
        report::put_done(&self.log, &report, &end, self.stock);
        report::locked(&self.log, lock.as_ref());
        Ok(())
    }

    fn backup(&self, args: &BackupArgs) -> Result<(), Failure> {
        let (root, name) = backup_place(&args.name, &args.common, true)?;
        let root = self.taking_over(root, args.put.take_over);
        let mut request = self.put_request(name, &args.put, &args.keys, &args.common.run)?;
        request.server = request.server.or_else(host_name);
        let guard = lock_guard(args);
        // Refused before the producer locks anything.
        xb_backup::plan(&root, &request).map_err(report::failure)?;
        let lock = args.retain.lock()?;
        let since = self.goes_on_from(args)?;
        let own = own_runs(args.state_dir.as_deref());
        let traffic = root.store().traffic().clone();
        let (report, end) = self.with_progress(
            "backup",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                can_lock(&root, lock.as_ref(), &mut stop).await?;
                let log = self.log.clone();
                let talk = move |line: &[u8]| log.pass_on(&String::from_utf8_lossy(line));
                let mut producer = args.producer.clone();
                if let Some((wanted, keys)) = &since {
                    let server = request.server.as_deref();
                    let memory = request.memory;
                    let since = SinceRequest {
                        wanted,
                        server,
                        keys,
                        sealed: is_encrypted(&request),
                        accept_unsealed: args.accept_unsealed,
                        memory,
                        own: own.as_ref(),
                    };
                    let (since, doubts) = stop.or(xb_backup::since(&root, &since)).await?;
                    doubts.iter().for_each(|doubt| self.log.warn(doubt));
                    self.log.info(format!(
                        "only what has changed since {}, LSN {}",
                        since.base.name, since.lsn
                    ));
                    producer.push(format!("--incremental-lsn={}", since.lsn).into());
                    request.since = Some(since);
                }
                let (producer, output) = Producer::start(&producer, &guard, talk)?;
                let report =
                    xb_backup::backup(&root, &request, (producer, output), &observer, &mut stop)
                        .await?;
                // The backup stands; without the note only --incremental-from may want a key.
                if let Some(own) = own
                    && let Err(error) = own.note(&report.manifest)
                {
                    self.log.verbose(format!("this run is not noted on this host: {error}"));
                }
                lock_all(&root, &request, lock.as_ref(), &mut stop, &self.log).await?;
                Ok(report)
            },
        )?;
        report::put_done(&self.log, &report, &end, self.stock);
        report::locked(&self.log, lock.as_ref());
        Ok(())
    }

    /// What `--incremental-from` names, and what its manifest may be opened with.
    fn goes_on_from(&self, args: &BackupArgs) -> Result<Option<(Wanted, Keys)>, Failure> {
        let Some(name) = &args.incremental_from else { return Ok(None) };
        let given = |option: &str| {
            let has = |word: &OsString| word.to_string_lossy().starts_with(option);
            args.producer.iter().any(has)
        };
        if given("--incremental-lsn") || given("--incremental-basedir") {
            return Err(Failure::usage(
                "--incremental-from and an option of the producer both say where to go on",
            )
            .hint("leave --incremental-lsn or --incremental-basedir away"));
        }
        let wanted = Wanted::parse(name)
            .map_err(|error| Failure::usage(format!("--incremental-from: {error}")))?;
        let keys = crate::keys::keys(false, &IdentityOptions::default(), &args.keys, &self.log)?;
        Ok(Some((wanted, keys)))
    }

    fn get(&self, args: &GetArgs) -> Result<(), Failure> {
        xb_cli::refuse_terminal_output(
            "send it somewhere: xbcloud-rs get ... | mbstream -x -C DIR",
        )?;
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
            None => "the whole stream was written",
            Some(_) => "the stream of these files was written",
        };
        report::get_done(&self.log, what, &report, &end);
        report::unsealed(&self.log, keyed, &shown, &report);
        Ok(())
    }

    fn restore(&self, args: &RestoreArgs) -> Result<(), Failure> {
        let (root, name) = self.which(&args.source, &args.common)?;
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let keyed = !keys.is_empty();
        let ready = ready(args)?;
        let request = get_request(name, keys, &args.common.run);
        let request = GetRequest {
            files: selection(&[], &args.files)?.with_what_prepare_needs(ready.prepare.is_some()),
            accept: args.unsealed.accept(&args.opening),
            ..request
        };
        let how = RestoreOptions {
            durability: match args.sync {
                Sync::File => Durability::File,
                Sync::End => Durability::End,
                Sync::None => Durability::None,
            },
            decompress: !args.no_decompress,
            check_room: !args.no_space_check,
        };
        let talk: Talk = {
            let log = self.log.clone();
            Arc::new(move |line| log.pass_on(&String::from_utf8_lossy(line)))
        };
        let traffic = root.store().traffic().clone();
        let target = &args.target_dir;
        let outcome = self.with_progress(
            "restore",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                xb_backup::restore_ready(
                    &root, request, target, how, &ready, &talk, &observer, &mut stop,
                )
                .await
            },
        );
        if outcome.is_err() && xb_backup::is_unfinished(target) {
            self.log.info("what has come is kept: the same restore goes on with it");
        }
        let (report, end) = outcome?;
        report::restore_done(&self.log, args, &report, &end);
        for (name, restored) in &report.restored {
            report::unsealed(&self.log, keyed, name, &restored.get);
        }
        Ok(())
    }

    fn list(&self, args: &ListArgs) -> Result<(), Failure> {
        let root = root_place(args.root.as_deref(), &args.common)?;
        let cache = match args.no_cache {
            false => list_cache(args)?,
            true => None,
        };
        let (listings, _) =
            self.with_progress("list", &args.common.run, None, |_, mut stop| async move {
                stop.or(xb_backup::list_with(&root, cache.as_ref())).await
            })?;
        report::listing(&listings, args.long, args.common.run.json).stage("output")?;
        crate::catalogue::proven(&self.log, &listings);
        Ok(())
    }

    fn rewrap(&self, args: &RewrapArgs) -> Result<(), Failure> {
        let (root, name) = self.which(&args.source, &args.common)?;
        let add = args.new.ways_in(&self.log)?;
        if add.is_empty() && args.remove.is_empty() {
            return Err(Failure::usage("no new way in is given").hint(
                "give --new-key-file, --recipient, --recipients-file, --new-passphrase-file or --new-key-command",
            ));
        }
        let request = RewrapRequest {
            name,
            accept_unvouched: args.opening.accept_unvouched,
            keys: crate::keys::opening(false, &args.opening, &self.log)?,
            add,
            remove: match (args.new.keep, &args.remove[..]) {
                (true, _) => Some(Vec::new()),
                (false, []) => None,
                (false, numbers) => Some(numbers.to_vec()),
            },
            memory: memory(&args.common.run),
        };
        let (slots, _) =
            self.with_progress("rewrap", &args.common.run, None, |_, mut stop| async move {
                stop.or(xb_backup::rewrap(&root, &request)).await
            })?;
        for slot in slots {
            self.log.info(format!("way in {}: {slot}", slot.slot));
        }
        Ok(())
    }

    fn gc(&self, args: &GcArgs) -> Result<(), Failure> {
        let root = root_place(args.root.as_deref(), &args.common)?;
        let age = Duration::from_secs(args.older_than * 3600);
        let (leftovers, _) =
            self.with_progress("gc", &args.common.run, None, |_, mut stop| async move {
                let found = stop.or(xb_backup::leftovers(&root, age)).await?;
                if args.yes {
                    for dead in &found.dead {
                        if !stop.or(xb_backup::remove(&root, dead)).await? {
                            self.log.info(format!("{}: left alone, it lives again", dead.name));
                        }
                    }
                    stop.or(xb_backup::abort_uploads(&root, &found)).await?;
                }
                Ok(found)
            })?;
        report::leftovers(&self.log, &leftovers, args.yes, args.common.run.json).stage("output")?;
        Ok(())
    }

    fn plan(&self, args: &PlanArgs) -> Result<(), Failure> {
        let like = match &args.like {
            None => None,
            Some(name) => {
                let (root, name) = backup_place(name, &args.common, false)?;
                let find = |_, mut stop: Stop| async move {
                    stop.or(xb_backup::describe(&root, &name)).await
                };
                Some(self.with_progress("plan", &args.common.run, None, find)?.0)
            }
        };
        let layout = match (&like, args.layout) {
            (Some(manifest), _) => manifest.layout,
            (None, Some(LayoutArg::Classic)) => Layout::Classic,
            (None, _) => Layout::Packed,
        };
        let cut_as = like.as_ref().and_then(|manifest| manifest.classic.as_ref());
        let chunk_size = args.chunk_size.map(|size| size.bytes());
        let chunk_size = chunk_size.or(cut_as.map(|classic| classic.chunk_size));
        let recut = layout == Layout::Classic && chunk_size.is_some();
        let chunk_size = chunk_size.unwrap_or(DEFAULT_CHUNK);
        let (memory, threads) =
            (memory(&args.common.run), args.common.run.threads.unwrap_or_else(default_threads));
        let parallel = args.common.run.parallel.unwrap_or(DEFAULT_PARALLEL);
        let request = xb_backup::EstimateRequest {
            stored: like.as_ref().map_or_else(
                || args.size.map_or(0, |size| size.bytes()),
                |manifest| manifest.stored_bytes,
            ),
            layout,
            recut,
            files: like.as_ref().map_or(args.files, |manifest| manifest.files),
            sealed: like.as_ref().map_or(args.sealed, Manifest::is_sealed),
            put: xb_backup::put_plan(memory, chunk_size, threads, parallel, recut)
                .map_err(report::failure)?,
            get: GetPlan::new(memory, threads, parallel)
                .map_err(|error| report::failure(error.into()))?,
        };
        report::estimate(&xb_backup::estimate(&request), args.common.run.json).stage("output")?;
        Ok(())
    }

    fn put_request(
        &self,
        name: BackupName,
        put: &PutOptions,
        keys: &KeyOptions,
        run: &RunOptions,
    ) -> Result<PutRequest, Failure> {
        let layout = match put.layout {
            Some(LayoutArg::Packed) => Layout::Packed,
            Some(LayoutArg::Classic) => Layout::Classic,
            // Scripts around the stock tool look at what lies in the bucket.
            None if self.stock => Layout::Classic,
            None => Layout::Packed,
        };
        if layout == Layout::Packed && put.md5 {
            return Err(Failure::usage("--md5 belongs to the classic layout")
                .hint("a packed backup has its own checksums in the manifest"));
        }
        let compress = match &put.compress {
            None => Algorithm::None,
            Some(text) => text
                .parse()
                .map_err(|error: AlgorithmError| Failure::usage(format!("--compress: {error}")))?,
        };
        let threads = run.threads.or(put.compress_threads.max(put.encrypt_threads));
        let threads = threads.unwrap_or_else(default_threads);
        let (compress, ways_in, transform) = match layout {
            Layout::Packed if put.encrypt_chunk_size.is_some() => {
                return Err(Failure::usage("--encrypt-chunk-size belongs to the classic layout")
                    .hint("the segments of a sealed backup have one size"));
            }
            Layout::Packed => (compress, crate::keys::ways_in(put, keys, &self.log)?, None),
            Layout::Classic => {
                let transform = self.transform(put, keys, compress, threads)?;
                (Algorithm::None, WaysIn::default(), transform)
            }
        };
        let content = if put.raw { Content::Raw } else { xbstream(put)? };
        let chunk_size = put.chunk_size.map_or(DEFAULT_CHUNK, |size| size.bytes());
        if chunk_size == 0 {
            return Err(Failure::usage("--chunk-size must be at least 1"));
        }
        Ok(PutRequest {
            name,
            layout,
            chunk_size,
            recut: layout == Layout::Classic && put.chunk_size.is_some(),
            compress,
            ways_in,
            transform,
            memory: memory(run),
            threads,
            parallel: run.parallel.unwrap_or(DEFAULT_PARALLEL),
            content,
            md5: put.md5,
            tool: TOOL.to_owned(),
            server: put.server.clone(),
            since: None,
        })
    }

    /// What is done to each file of a classic backup, if anything.
    fn transform(
        &self,
        put: &PutOptions,
        keys: &KeyOptions,
        compress: Algorithm,
        threads: usize,
    ) -> Result<Option<Transform>, Failure> {
        let encrypt = crate::keys::file_cipher(put, keys, &self.log)?;
        let codec = compress.member_codec();
        if codec.is_none() && compress != Algorithm::None {
            return Err(Failure::usage(format!(
                "--compress={compress} is not a codec of the classic layout"
            ))
            .hint("lz4 and zstd are, which stock readers know; or take --layout=packed"));
        }
        let wanted = codec.is_some() || encrypt.is_some();
        Ok(wanted.then_some(Transform { compress: codec, encrypt, threads }))
    }

    /// The backup that a place means, also where it says `latest`.
    pub(crate) fn which(
        &self,
        source: &Source,
        common: &CommonOptions,
    ) -> Result<(Root, BackupName), Failure> {
        let (root, wanted) = wanted_place(&source.name, common)?;
        if let Wanted::Name(name) = wanted {
            return Ok((root, name));
        }
        let server = source.server.as_deref();
        let find = |_, mut stop: Stop| async move {
            stop.or(xb_backup::resolve(&root, &wanted, server)).await
        };
        let (Resolved { name, doubts }, _) = self.with_progress("find", &common.run, None, find)?;
        doubts.iter().for_each(|doubt| self.log.warn(doubt));
        self.log.info(format!("the backup is {name}"));
        // Connections belong to the runtime in which they were made, and that one is gone.
        Ok((wanted_place(&source.name, common)?.0, name))
    }

    /// Runs `command` to its end or until a signal asks it to stop, with progress on stderr if there
    /// is `traffic` to show.
    pub(crate) fn with_progress<T, F, Fut>(
        &self,
        what: &str,
        run: &RunOptions,
        traffic: Option<Traffic>,
        command: F,
    ) -> Result<(T, xb_cli::ProgressEnd), Failure>
    where
        F: FnOnce(Observer, Stop) -> Fut,
        Fut: Future<Output = Result<T, xb_backup::BackupError>>,
    {
        let observer = Observer::default();
        let (stopper, stop) = stopper();
        let _signals = Signals::catch(move |signal| stopper.stop(signal)).stage("run")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .stage("run")?;
        let drawn = observer.clone();
        let options = ProgressOptions {
            enabled: traffic.is_some() && !run.no_progress && !run.quiet,
            ..ProgressOptions::default()
        };
        let traffic = traffic.unwrap_or_default();
        let progress =
            Progress::start(&self.log, what, options, move || snapshot(&drawn, &traffic))
                .stage("run")?;
        let outcome = runtime.block_on(command(observer, stop));
        let end = progress.finish();
        // A thread of ours may still wait for a stalled producer: the process's end ends it.
        runtime.shutdown_background();
        Ok((outcome.map_err(report::failure)?, end))
    }
}

/// Whether a new backup is for the holder of some key alone.
fn is_encrypted(request: &PutRequest) -> bool {
    let files = request.transform.as_ref().is_some_and(|transform| transform.encrypt.is_some());
    files || !request.ways_in.is_empty()
}

/// Refuses before anything is stored what could not be locked after it.
async fn can_lock(root: &Root, lock: Option<&Lock>, stop: &mut Stop) -> Result<(), BackupError> {
    match lock {
        Some(_) => stop.or(async { Ok(root.store().can_lock().await?) }).await,
        None => Ok(()),
    }
}

/// Locks what was put, if that was asked for.
async fn lock_all(
    root: &Root,
    request: &PutRequest,
    lock: Option<&Lock>,
    stop: &mut Stop,
    log: &Log,
) -> Result<(), BackupError> {
    let Some(lock) = lock else { return Ok(()) };
    let locking = xb_backup::lock(root, &request.name, lock, request.parallel);
    let locked = stop.or(locking).await;
    if locked.is_err() {
        // Whatever the error is: it is not the backup that has failed.
        log.warn(format!(
            "{} is complete; what of it is not locked, `pin --retain` locks",
            request.name
        ));
    }
    locked.map(drop)
}

/// What is to be done after the files are there.
fn ready(args: &RestoreArgs) -> Result<Ready, Failure> {
    let options = &args.ready;
    let prepare = (options.prepare || options.export).then(|| PrepareOptions {
        program: options.prepare_program.clone(),
        use_memory: options.use_memory.map(|size| size.bytes()),
        export: options.export,
    });
    let owner = match &options.owner {
        Some(text) => Some(crate::owner::owner(text)?),
        // Nobody else may give files away.
        None if rustix::process::geteuid().is_root() => Owner::of_parent(&args.target_dir),
        None => None,
    };
    Ok(Ready {
        prepare,
        alone: options.alone,
        galera: options.galera,
        donor: options.check_donor.clone(),
        owner,
    })
}

/// Where this host notes its own backups.
fn own_runs(dir: Option<&Path>) -> Option<OwnRuns> {
    let usual = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib/xbcloud-rs")),
        false => {
            let state = env_first(&["XDG_STATE_HOME"]).map(PathBuf::from);
            let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".local/state"));
            Some(state.or_else(home)?.join("xbcloud-rs"))
        }
    };
    dir.map(Path::to_owned).or_else(usual).map(OwnRuns::new)
}

/// Where listings of this place keep what they have read.
fn list_cache(args: &ListArgs) -> Result<Option<ListCache>, Failure> {
    let Some(place) = remote_place(args.root.as_deref(), &args.common)? else {
        return Ok(None);
    };
    let cache = env_first(&["XDG_CACHE_HOME"]).map(PathBuf::from);
    let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".cache"));
    let folder = cache.or_else(home).filter(|folder| folder.is_absolute());
    Ok(folder.and_then(|folder| ListCache::open(&folder.join("xbcloud-rs/list"), &place)))
}

/// What this host is called.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn lock_guard(args: &BackupArgs) -> LockGuard {
    let usual = || Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir());
    let spool_dir = match &args.spool_dir {
        None => usual(),
        Some(dir) => Some(dir.clone()).filter(|dir| dir.as_os_str() != "none"),
    };
    LockGuard {
        spool_dir,
        spool_size: args.spool_size.bytes(),
        lock_stall: (args.lock_stall > 0).then(|| Duration::from_secs(args.lock_stall)),
    }
}

/// An xbstream, and when it counts as whole.
fn xbstream(put: &PutOptions) -> Result<Content, Failure> {
    let rule = match (&put.last_file, put.unsafe_any_end) {
        (Some(pattern), _) => EndRule::LastFile(
            LastFile::new(pattern)
                .map_err(|error| Failure::usage(format!("--last-file: {error}")))?,
        ),
        (None, true) => EndRule::AnyEnd,
        (None, false) => EndRule::KnownProducer,
    };
    let dialect = match put.dialect {
        DialectArg::Auto => Dialect::Auto,
        DialectArg::Percona => Dialect::Percona,
        DialectArg::Mariadb => Dialect::MariaDb,
    };
    Ok(Content::Xbstream(XbstreamInput { rule, dialect }))
}

pub(crate) fn threads(run: &RunOptions) -> usize {
    run.threads.unwrap_or_else(default_threads)
}

pub(crate) fn parallel(run: &RunOptions) -> usize {
    run.parallel.unwrap_or(DEFAULT_PARALLEL)
}

pub(crate) fn memory(run: &RunOptions) -> u64 {
    run.memory.map_or_else(default_memory, |size| size.bytes())
}

/// The files that are wanted, by exact names or by patterns.
fn selection(exact: &[String], globs: &[String]) -> Result<Selection, Failure> {
    if !exact.is_empty() {
        return Ok(Selection::exact(exact.to_vec()));
    }
    Selection::globs(globs).map_err(|error| Failure::usage(format!("--files: {error}")))
}

fn get_request(name: BackupName, keys: Keys, run: &RunOptions) -> GetRequest {
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

fn snapshot(observer: &Observer, traffic: &Traffic) -> Snapshot {
    let now = observer.snapshot();
    Snapshot {
        done: now.bytes,
        total: None,
        stored: Some(now.stored),
        retries: traffic.retries(),
        bottleneck: now.bottleneck.map(|wait| {
            match wait {
                Wait::Source => "source",
                Wait::Workers => "cpu",
                Wait::Sink => "sink",
            }
            .to_owned()
        }),
    }
}

/// Size we ask for a pipe, in bytes: what an unprivileged process may have.
const PIPE: usize = 1 << 20;

/// A standard stream without the library's buffer, its pipe enlarged where it is one.
fn enlarged(stream: &impl AsFd) -> std::io::Result<File> {
    let fd = stream.as_fd().try_clone_to_owned()?;
    // A file is no pipe, and a small pipe works too.
    let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE);
    Ok(File::from(fd))
}
