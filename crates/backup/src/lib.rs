//! Backups in a store: put, get, restore, list, delete.
//!
//! A [`Root`] is a place in a store. [`put`] and [`backup`] bring a stream there and write its
//! [`Manifest`] last: a backup exists if and only if that stands. [`get`] and [`restore`] bring it
//! back, [`list`] says what is there and what it is worth, [`rewrap`] changes who can open it,
//! [`delete`] removes the manifest first.
//! What lies where is in `docs/store.md`.
//!
//! Every operation can be asked to [`Stop`], and then cleans up behind itself; an
//! [`Observer`](xb_pipeline::Observer) counts for progress displays. Errors are [`BackupError`]:
//! the first cause, with its stage and a hint.
mod alive;
mod attested;
mod cache;
mod chain;
mod child;
mod choose;
mod claim;
mod classic;
mod classic_sums;
mod copy;
mod delete;
mod error;
mod estimate;
mod facts;
mod fetch;
mod galera;
mod gc;
mod get;
mod index;
mod input;
mod journal;
mod lease;
mod ledger;
mod list;
mod lock;
mod manifest;
mod md5;
mod names;
mod owner;
mod prepare;
mod producer;
mod prune;
mod put;
mod ready;
mod record;
mod resolve;
mod restore;
mod rewrap;
mod root;
mod select;
mod show;
mod since;
mod stop;
mod sums;
mod verify;

pub use cache::ListCache;
pub use chain::{Link, chain, dependents};
pub use child::Talk;
pub use choose::Chosen;
pub use copy::{CopyReport, CopyRequest, copy};
pub use delete::{Deleted, Doomed, DoomedObject, delete, delete_unless_needed, doomed};
pub use error::BackupError;
pub use estimate::{Estimate, EstimateRequest, estimate};
pub use facts::Facts;
pub use galera::{Donor, GaleraPosition, Ist};
pub use gc::{LEAST_AGE, Leftover, Leftovers, abort_uploads, leftovers, remove};
pub use get::{GetReport, GetRequest, Output, StreamSink, get};
/// Time as manifests and records have it.
pub use jiff::Timestamp;
pub use journal::is_unfinished;
pub use list::{BackupKind, Listing, State, describe, list, list_with};
pub use lock::lock;
pub use manifest::{
    Base, ClassicFacts, End, FORMAT, Layout, Manifest, ManifestError, MemberFacts, PackedFacts,
    Sealed,
};
pub use names::{BackupName, CATALOG, NameError, RunId, manifest_key, run_folder};
pub use owner::Owner;
pub use prepare::{PrepareOptions, PrepareTool, prepare};
pub use producer::{LockGuard, Producer, ProducerOutput};
pub use prune::{Candidate, Keep, Verdict, Why, plan_prune, prune};
pub use put::{PutReport, PutRequest, Since, backup, plan, put, put_plan};
pub use ready::{Ready, ReadyReport, restore_ready};
pub use record::{Pin, Proof, VerifyResult, pin, unpin};
pub use resolve::{Resolved, Wanted, WantedError, resolve};
pub use restore::{RestoreOptions, RestoreReport, WentOn, restore};
pub use rewrap::{RewrapRequest, rewrap};
pub use root::Root;
pub use select::Selection;
pub use show::{FileEntry, ShowRequest, Shown, show};
pub use since::{OwnRuns, since};
pub use stop::{Stop, Stopper, stopper};
pub use verify::{
    Authenticity, Level, LevelReport, MAX_PROBLEMS, PageReport, Problem, RestoreTest,
    ServerOptions, Trial, VerifyReport, VerifyRequest, verify, verify_by_restore,
};
pub use xb_encryptor::{Keys, WaysIn};
pub use xb_pipeline::GlobError;
