//! Backups in a store: put, get, restore, list, delete.
//!
//! A [`Root`] is a prefix in a store. [`put`] and [`backup`] store a stream there and write its
//! [`Manifest`] last: a backup exists if and only if its manifest exists. [`get`] and [`restore`]
//! read a backup back, [`list`] reports the backups and their verification state, [`rewrap`]
//! changes the key slots, and [`delete`] removes the manifest first. `docs/spec/repository.md`
//! describes the keys in the store.
//!
//! [`CancelToken`] cancels any operation, which then cleans up after itself; an
//! [`Observer`](xb_pipeline::Observer) counts for progress displays. Errors are [`BackupError`]:
//! the first cause, with its stage and a hint.
mod admin;
mod cancel;
mod catalog;
mod check;
mod child;
mod claim;
mod cost;
mod error;
mod hex;
mod hints;
mod objects;
mod read;
mod restore;
mod server;
mod small_file;
mod tune;
mod verify;
mod write;

pub use admin::copy::copy;
pub use admin::copy::request::{CopyReport, CopyRequest};
pub use admin::delete::{
    Deleted, DeletionPlan, DoomedObject, delete, delete_shown, delete_unless_needed, doomed,
};
pub use admin::delete_files::delete_files;
pub use admin::estimate::{Estimate, EstimateRequest, estimate};
pub use admin::gc::{
    LEAST_AGE, Leftovers, OrphanedRun, abort_uploads, leftovers, remove, remove_measurements,
};
pub use admin::object_lock::lock;
pub use admin::pin::{pin, unpin};
pub use admin::prune::candidate::Candidate;
pub use admin::prune::plan::{Keep, plan_prune};
pub use admin::prune::prune;
pub use admin::prune::verdict::{Verdict, Why};
pub use admin::rewrap::{RewrapRequest, rewrap};
pub use admin::show::{FileEntry, ShowRequest, Shown, show};
pub use cancel::{CancelToken, Canceller, stopper};
pub use catalog::chain::{Link, chain};
pub use catalog::history::NotContinued;
pub use catalog::list::list_cache::ListCache;
pub use catalog::list::{BackupKind, Listing, State, describe, list, list_by_key, list_with};
pub use catalog::manifest::galera_position::GaleraPosition;
pub use catalog::manifest::history::{FileBirth, History, RedoLog};
pub use catalog::manifest::source_info::SourceInfo;
pub use catalog::manifest::{
    Base, ClassicFacts, End, FORMAT, Layout, Manifest, ManifestError, MemberFacts, PackedFacts,
    Sealed,
};
pub use catalog::names::{BackupName, CATALOG, NameError, RunId, manifest_key, run_folder};
pub use catalog::records::{Pin, Proof, VerifyResult};
pub use catalog::resolve::{Resolved, Wanted, WantedError, resolve};
pub use catalog::root::Root;
pub use check::keys::check_keys;
pub use check::producer::check_producer;
pub use check::store::check_store;
pub use check::{CheckLine, CheckState};
pub use child::OnLine;
pub use cost::failure::run_failure;
pub use cost::price_table::PRICE_TABLE;
pub use cost::prices::{Cost, PriceFacts, Prices};
pub use cost::requests::Requests;
pub use error::BackupError;
/// Type of the times in manifests and records.
pub use jiff::Timestamp;
pub use read::file_filter::Selection;
pub use read::get::{Output, get};
pub use read::partial::Chosen;
pub use read::request::{GetReport, GetRequest};
pub use read::stream_sink::StreamSink;
pub use read::unlock::Accept;
pub use restore::galera::{Donor, Ist};
pub use restore::journal::head::is_unfinished;
pub use restore::owner::Owner;
pub use restore::prepare::{PrepareOptions, PrepareTool, prepare};
pub use restore::restore_and_prepare::{Ready, ReadyReport, restore_ready};
pub use restore::{RestoreOptions, RestoreReport, Resumed, restore};
pub use server::watch::ServerWatch;
pub use tune::error::TuneError;
pub use tune::link::{LinkBounds, measure_link};
pub use tune::machine::{CodecSpeed, Machine, measure_machine};
pub use tune::model::{Bottleneck, Choice, Job, Link as StoreLink, LinkPoint, Prediction, predict};
pub use tune::recommend::{Candidates, Recommendation, recommend};
pub use tune::sample::Sample;
pub use verify::{
    Authenticity, Level, LevelReport, MAX_PROBLEMS, OtherEntries, PageReport, Problem, RestoreTest,
    ServerOptions, Trial, VerifyReport, VerifyRequest, verify, verify_by_restore,
};
pub use write::incremental::{LocalRunLog, SinceRequest, since};
pub use write::name_template::{DEFAULT_NAME_TEMPLATE, TemplateError, fill_in, is_name_template};
pub use write::producer::{LockGuard, Producer, ProducerOutput};
pub use write::producer_log::ProducerLog;
pub use write::{
    IncrementalBase, PutLayout, PutReport, PutRequest, PutSizing, backup, plan, put, put_plan,
    refuse_without_base,
};
pub use xb_encryptor::{KeySlots, Keys};
pub use xb_pipeline::GlobError;

/// Parsers of a store's contents, for property tests and fuzzing. Not a stable interface.
#[doc(hidden)]
pub mod parsers {
    pub use crate::catalog::records::{is_pin, is_verification};
    pub use crate::claim::has_claim_phase;

    use crate::catalog::names::BackupName;
    use crate::objects::classic::ClassicFiles;
    use crate::objects::contents::Contents;

    /// Sorts a listing of keys below a backup's folder, with sizes in bytes, and reads the order of
    /// its classic objects.
    pub fn listing(objects: &[(String, u64)]) {
        let listed = |(key, size): &(String, u64)| xb_uploader::Listed {
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
