//! Backups in a store: put, get, restore, list, delete.
//!
//! [`put`] and [`backup`] store a stream in a [`Root`](xb_repo::root::Root) and write its manifest
//! last; [`get`] and [`restore`] read a backup back, [`verify`] checks it, [`rewrap`] changes the
//! key slots, and [`delete`] removes the manifest first. What a repository holds, and which backups
//! in it can be restored, is in `xb_repo`.
//!
//! [`CancelToken`] cancels any operation, which then cleans up after itself; an
//! [`Observer`](xb_pipeline::Observer) counts for progress displays. Errors are [`BackupError`]:
//! the first cause, with its stage and a hint.
mod admin;
mod archive_error;
mod binlog;
mod cancel;
mod check;
mod child;
mod compare;
mod compare_error;
mod consolidate;
mod error;
mod full_disk;
mod fulltext;
mod hints;
mod note_folder;
mod objects;
mod private_server;
mod read;
mod rescue;
mod restore;
mod restored_pages;
mod root_notes;
mod scratch;
mod selection;
mod server;
mod session;
mod small_file;
mod state_owner;
mod table_id;
mod table_pattern;
mod until;
mod until_error;
mod verify;
mod write;

pub use admin::copy::request::{CopyOptions, CopyReport, CopyRequest};
pub use admin::copy::{copy, copy_with_archive};
pub use admin::delete::{
    Deleted, DeletionPlan, ObjectToDelete, delete, delete_shown, delete_unless_needed, doomed,
};
pub use admin::delete_files::delete_files;
pub use admin::gc::{
    GcFindings, OrphanedRun, abort_uploads, find_orphaned, find_orphaned_to_remove, remove,
    remove_all, remove_measurements,
};
pub use admin::object_lock::{ChainLock, LockReport, chain_lock, lock};
pub use admin::prune::candidate::Candidate;
pub use admin::prune::retention::{Keep, plan_prune};
pub use admin::prune::verdict::{KeepReason, Verdict};
pub use admin::prune::{Step as PruneStep, prune, prune_known};
pub use admin::rewrap::{RewrapRequest, rewrap};
pub use admin::show::{BackupDescription, ShowRequest, show, show_slots};
pub use archive_error::ArchiveError;
pub use binlog::archive::choose_archive::choose_archive;
pub use binlog::archive::copy::ArchiveCopy;
pub use binlog::archive::coverage::{Coverage, CoverageFacts, coverage};
pub use binlog::archive::overview::{ArchiveBranch, ArchiveState, archive_states};
pub use binlog::archive::prune::{
    KeptBackup, LogVerdict, kept_backups, plan_log_prune, prune_logs,
};
pub use binlog::archive::read::{FetchedSegment, fetch_segment};
pub use binlog::archive::show::{
    ArchiveSearch, FoundTransaction, HistoryBreak, SearchLine, Searched, search_archive,
};
pub use binlog::archive::state::forget_archives;
pub use binlog::archive::stream_report::{OriginReport, StreamReport};
pub use binlog::archive::verify::{
    ArchiveFacts, ArchiveReport, Window, list_archive, verify_archive,
};
pub use binlog::receive::notice::Notice;
pub use binlog::receive::push::{PushReport, push};
pub use binlog::receive::receiver::{ArchiveSettings, ReceiveRequest, receive};
pub use cancel::{CancelToken, OrInterrupted};
pub use check::binlog::check_binlog;
pub use check::clone::check_clone;
pub use check::keys::check_keys;
pub use check::producer::check_producer;
pub use check::store::check_store;
pub use check::{CheckLine, CheckState};
pub use child::{OWN_NOTE, OWN_WARNING, OnLine};
pub use compare::CompareOptions;
pub use compare_error::CompareError;
pub use consolidate::{ConsolidateOutcome, ConsolidateRequest, consolidate, unfit_by_import};
pub use error::BackupError;
pub use private_server::PrivateServer;
pub use read::file_list::FileEntry;
pub use read::get::get;
pub use read::request::{GetReport, GetRequest};
pub use read::stream_sink::{Output, StreamSink};
pub use read::unlock::Accept;
pub use rescue::{RescueOptions, RescueReport, RescueRequest, RescueUntil, Rescued, rescue};
pub use restore::clone::report::{ClonePosition, CloneReport};
pub use restore::galera::{Donor, Ist};
pub use restore::journal::head::is_unfinished;
pub use restore::owner::{Owner, UnknownOwner};
pub use restore::prepare::{
    PrepareChain, PrepareOptions, PrepareProgram, PrepareSync, PrepareTool,
};
pub use restore::request::{AfterRestore, RestoreChainReport};
pub use restore::restore_and_prepare::restore_chain;
pub use restore::{RestoreOptions, RestoreReport, Resumed, is_resumable, restore};
pub use root_notes::{Missed, NewestStored, RootNotes};
pub use selection::{Chosen, Selection};
pub use server::address::{CloneServer, clone_access, source_servers};
pub use server::checkpoint::{Checkpoint, NoCheckpoint, checkpoint};
pub use server::private::ServerOptions;
pub use server::proof::{UnprovenServer, pinned};
pub use server::watch::ServerWatch;
pub use session::{Resources, Session};
pub use state_owner::{create_state_folder, give_to_owner_of};
pub use until::{
    AdjacentTransaction, ReplayOptions, UntilPlan, UntilReport, UntilRequest, continuation,
    plan_until, replaying_program, restore_until,
};
pub use until_error::UntilError;
pub use verify::{Trial, VerifyRequest, verify, verify_by_restore};
pub use write::chooses_tables::chooses_tables;
pub use write::clone_source::{CloneRequest, CloneSource};
pub use write::incremental::{LocalRunLog, SinceRequest, since};
pub use write::name_template::{DEFAULT_NAME_TEMPLATE, TemplateError, fill_in, is_name_template};
pub use write::producer::{LockGuard, Producer, ProducerOutput};
pub use write::producer_log::ProducerLog;
pub use write::writer::Writer;
pub use write::{
    FIXED_SIZE, IncrementalBase, MergedChain, PutLayout, PutReport, PutRequest, backup, limits,
    plan, put, put_plan, refuse_without_base,
};
pub use xb_binlog::AnyGtid;
pub use xb_encryptor::{KeySlots, Keys};
pub use xb_mysql::Access;
pub use xb_pipeline::GlobError;

/// Parser of a store's contents, for property tests and fuzzing. Not a stable interface.
#[doc(hidden)]
pub mod parsers {
    use xb_repo::contents::Contents;
    use xb_repo::names::BackupName;

    use crate::objects::classic::ClassicFiles;

    /// Sorts a listing of keys below a backup's folder, with sizes in bytes, and reads the order of
    /// its classic objects.
    pub fn listing(objects: &[(String, u64)]) {
        let listed = |(key, size): &(String, u64)| xb_uploader::ListedObject {
            key: key.clone(),
            size: *size,
            modified: 0,
            tag: None,
        };
        let contents = Contents::sort(objects.iter().map(listed).collect());
        let files = ClassicFiles::of(&contents.classic);
        let _ = (
            contents.is_folder(),
            contents.foreign_objects(),
            files.bytes(),
            files.sizes().count(),
        );
        if let Ok(name) = BackupName::new("n") {
            let _ = files.check_runs(&name);
        }
        let _ = (files.in_order().count(), files.borders(), files.object_at(u64::MAX));
    }
}
