//! `put`: stores a stream.

use std::io::Read;

use xb_backup::{
    BackupError, CancelToken, OrInterrupted as _, PutLayout, PutReport, PutRequest, Resources,
    Session,
};
use xb_cli::{Failure, FailureContext as _, KeyOptions, Log, ProgressEnd, Size, standard_stream};
use xb_compressor::{AlgorithmError, Compression};
use xb_pipeline::{
    Content, EndRule, Fifos, LastFile, Merge, ObjectSize, PackError, Transform, XbstreamInput,
    codec_memory,
};
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::Lock;

use crate::args::{PutArgs, PutOptions, RunOptions, StoreOptions, StreamOptions};
use crate::commands::context::{Context, DEFAULT_CHUNK, TOOL, put_resources};
use crate::location::{NewPlace, new_backup_place};
use crate::report;

impl Context {
    pub(crate) fn put(&self, args: &PutArgs) -> Result<(), Failure> {
        let fifos = fifos(&args.common.run, &args.put)?;
        if fifos.is_none() {
            xb_cli::refuse_terminal_input(
                "pipe a stream into it: mariadb-backup --backup --stream=xbstream | xbcloud-rs put ...",
            )?;
        }
        let NewPlace { root, name, generated } =
            new_backup_place(args.new.name.as_deref(), &args.new.name_template, &args.common)?;
        self.reporting.name(&name);
        let root = self.taking_over(root, args.put.classic.take_over);
        let (request, resources) =
            self.put_request(name, &args.put, &args.keys, &args.common.run)?;
        let request = PutRequest { generated, ..request };
        self.reporting.putting(&root, resources, &request);
        self.say_risks(&args.put, &root, &args.common.store);
        let lock = args.retain.lock()?;
        // The names of the FIFOs are removed at the end of this function.
        let (source, _names): (Box<dyn Read + Send>, _) = match fifos {
            None => (Box::new(standard_stream(&std::io::stdin()).stage("read")?), None),
            Some(fifos) => {
                let (merged, names) = Merge::new(fifos, None);
                (Box::new(merged), Some(names))
            }
        };
        let run = &args.common.run;
        let (report, end) =
            self.with_session("put", run, root, resources, |session| async move {
                let Session { root, cancel, .. } = &session;
                if self.stock && cancel.or(root.store().create_missing_bucket()).await? {
                    self.log.info("the bucket did not exist, and was created");
                }
                can_lock(root, lock.as_ref(), cancel).await?;
                self.warn_if_missed(root, cancel, run).await?;
                let put = xb_backup::put(&session, &request, source).await;
                let report = put.inspect_err(|error| self.say_incomplete(error))?;
                self.note_stored(root, &report.manifest, run);
                lock_all(&session, &report.manifest.name, lock.as_ref(), &self.log).await?;
                Ok(report)
            })?;
        self.say_stored(&report, &end, lock.as_ref());
        Ok(())
    }

    /// The request of a put with these options.
    pub(super) fn put_request(
        &self,
        name: BackupName,
        put: &PutOptions,
        keys: &KeyOptions,
        run: &RunOptions,
    ) -> Result<(PutRequest, Resources), Failure> {
        // Scripts for the stock tool read the objects in the bucket.
        let usual = if self.stock { Layout::Classic } else { Layout::Packed };
        let layout = put.layout.unwrap_or(usual);
        if layout == Layout::Packed && put.classic.md5 {
            return Err(Failure::usage("--md5 works only in the classic layout")
                .hint("remove --md5; the manifest of a packed backup has its own checksums"));
        }
        let compress = match &put.compress {
            // The stock tool compresses nothing by itself, and the classic layout is what it reads.
            None if layout == Layout::Packed && !self.stock => Compression::Auto,
            None => Compression::default(),
            Some(text) => text
                .parse()
                .map_err(|error: AlgorithmError| Failure::usage(format!("--compress: {error}")))?,
        };
        let chunk_size = put.chunk_size.map_or(DEFAULT_CHUNK, |size| size.bytes());
        if chunk_size == 0 {
            return Err(Failure::usage("--chunk-size must be at least 1"));
        }
        let object_size = ObjectSize::new(chunk_size);
        // Classic files are compressed by other workers, which have memory of their own.
        let codec_memory = if layout == Layout::Packed { codec_memory(compress) } else { 0 };
        let threads = run.threads.or(put.compress_threads.max(put.encrypt_threads));
        let resources = put_resources(run, threads, object_size, codec_memory);
        let layout = match layout {
            Layout::Packed if put.classic.encrypt_chunk_size.is_some() => {
                return Err(Failure::usage(
                    "--encrypt-chunk-size works only in the classic layout",
                )
                .hint("remove it; the segments of a sealed backup have a fixed size"));
            }
            Layout::Packed => {
                let key_slots = crate::keys::key_slots(put, keys, &self.log)?;
                PutLayout::Packed { compress, key_slots }
            }
            Layout::Classic => PutLayout::Classic {
                fixed_size: put.chunk_size.is_some(),
                transform: self.transform(put, keys, compress, resources.threads)?,
                md5: put.classic.md5,
            },
        };
        let content =
            if put.stream.raw { Content::Raw } else { xbstream(&put.stream, self.stock)? };
        let request = PutRequest {
            name,
            generated: false,
            layout,
            object_size,
            content,
            tool: TOOL.to_owned(),
            server: put.server.clone(),
            // The stock tool knows no chains.
            base_elsewhere: put.base_elsewhere || self.stock,
            since: None,
            watch: None,
            merged: None,
        };
        Ok((request, resources))
    }

    /// Transformation of each file of a classic backup, if any.
    fn transform(
        &self,
        put: &PutOptions,
        keys: &KeyOptions,
        compress: Compression,
        threads: usize,
    ) -> Result<Option<Transform>, Failure> {
        let encrypt = crate::keys::file_cipher(put, keys, &self.log)?;
        let codec = match compress {
            Compression::Fixed(algorithm) => algorithm.file_codec(),
            Compression::Auto => None,
        };
        if codec.is_none() && compress != Compression::default() {
            return Err(Failure::usage(format!(
                "--compress={compress} does not work in the classic layout"
            ))
            .hint("use lz4 or zstd, which the stock tools can read, or --layout=packed"));
        }
        let wanted = codec.is_some() || encrypt.is_some();
        Ok(wanted.then_some(Transform { compress: codec, encrypt, threads }))
    }

    /// Reports a backup that is complete.
    pub(super) fn say_stored(&self, report: &PutReport, end: &ProgressEnd, lock: Option<&Lock>) {
        self.reporting.put(report);
        report::put_done(&self.log, report, end, self.stock);
        if report.manifest.is_of_unknown_base() && !self.stock {
            self.unusual(&format!(
                "{} is an increment of unknown base, because its positions cannot be read: no retention rule counts it, and `restore` refuses it (`get` returns its stream); take increments with --incremental-from",
                report.manifest.name
            ));
        }
        if let Some(lost) = report::lost_tables(&report.manifest) {
            self.unusual(&lost);
        }
        if let Some(why) = report.manifest.undated.as_ref().filter(|_| !self.stock) {
            self.unusual(&format!(
                "{} counts as made now, and may be older: {why}; no other backup is pruned in its favour",
                report.manifest.name
            ));
        }
        report::locked(&self.log, lock, None);
    }

    /// Says once, before the first byte, what the options do not protect against, and what they cost.
    pub(super) fn say_risks(&self, put: &PutOptions, root: &Root, store: &StoreOptions) {
        const GIB: u64 = 1 << 30;
        /// Objects of this size are 16,384 requests for each GiB.
        const SMALL: u64 = 64 << 10;
        let stream = &put.stream;
        // The stock tool says nothing, and its scripts read what it says.
        if self.stock {
            return;
        }
        if stream.raw {
            self.log.warn("input not inspected (--raw); completeness is not verified");
        }
        if stream.unsafe_any_end {
            self.log.warn(
                "the producer's last file is not checked (--unsafe-any-end): a stream that was cut between two files counts as complete",
            );
        }
        if let Some(size) = put.chunk_size.map(Size::bytes)
            && (1..SMALL).contains(&size)
            && !root.store().is_folder()
        {
            self.log.warn(format!(
                "--chunk-size={size} makes {} objects per GiB, and each is a request that costs money and can fail; leave the option out for objects of {} MiB",
                GIB.div_ceil(size),
                DEFAULT_CHUNK >> 20
            ));
        }
        if store.connection.insecure {
            self.log.warn(
                "the store's certificate is not checked (--insecure): another host could read or change the backup in transit",
            );
        }
    }

    /// Scripts for the stock tool look for this line to notice that the sender has gone away, whether
    /// the stream ends between two files or within one.
    fn say_incomplete(&self, error: &BackupError) {
        if self.stock
            && matches!(
                error,
                BackupError::Put(PackError::Stream(_))
                    | BackupError::Input(_)
                    | BackupError::TarInput
            )
        {
            self.log.warn("Upload failed: backup is incomplete.");
        }
    }
}

/// Refuses, before anything is stored, a store in which the objects could not be locked.
pub(crate) async fn can_lock(
    root: &Root,
    lock: Option<&Lock>,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    match lock {
        Some(_) => cancel.or(root.store().can_lock()).await,
        None => Ok(()),
    }
}

/// Locks the stored objects, if requested.
pub(super) async fn lock_all(
    session: &Session,
    name: &str,
    lock: Option<&Lock>,
    log: &Log,
) -> Result<(), BackupError> {
    let Some(lock) = lock else { return Ok(()) };
    let name = BackupName::new(name)?;
    let locking = xb_backup::lock(&session.root, &name, lock, session.resources.parallel);
    let locked = session.cancel.or(locking).await;
    if let Ok(xb_backup::LockReport { incomplete: Some(why), .. }) = &locked {
        log.warn(format!("the backups that {name} needs are not all locked: {why}"));
    }
    if locked.is_err() {
        // Whatever the error is, the backup itself has not failed.
        log.warn(format!(
            "{name} is complete, but not fully locked; lock the rest with `pin --retain`"
        ));
    }
    locked.map(drop)
}

/// The FIFOs to read from, if there are several streams.
pub(super) fn fifos(run: &RunOptions, put: &PutOptions) -> Result<Option<Fifos>, Failure> {
    let fifos = run.fifo.fifos(put.stream.dialect)?;
    if fifos.is_some() && put.stream.raw {
        return Err(Failure::usage("--raw works only with one stream")
            .hint("remove --fifo-streams, or --raw"));
    }
    Ok(fifos)
}

/// An xbstream, and its end rule.
fn xbstream(stream: &StreamOptions, stock: bool) -> Result<Content, Failure> {
    let rule = match (&stream.last_file, stream.unsafe_any_end) {
        (Some(pattern), _) => EndRule::LastFile(
            LastFile::new(pattern)
                .map_err(|error| Failure::usage(format!("--last-file: {error}")))?,
        ),
        (None, true) => EndRule::AnyEnd,
        // The operators store single files, and count on their objects although the put fails.
        (None, false) if stock => EndRule::KnownProducerOrPart,
        (None, false) => EndRule::KnownProducer,
    };
    Ok(Content::Xbstream(XbstreamInput { rule, dialect: stream.dialect }))
}
