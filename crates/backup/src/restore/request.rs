//! Requests and results of a restore.

use xb_pipeline::Durability;
use xb_repo::manifest::source_info::GaleraPosition;

use crate::read::request::GetReport;
use crate::restore::clone::info::CloneOptions;
use crate::restore::clone::report::CloneReport;
use crate::restore::owner::Owner;
use crate::restore::prepare::{PrepareOptions, PrepareProgram};
use crate::server::private::ServerOptions;

/// Options for writing files.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct RestoreOptions {
    /// Do not decompress .qp, .lz4 and .zst files
    #[cfg_attr(feature = "clap", arg(long, conflicts_with_all = ["prepare", "export"]))]
    pub no_decompress: bool,
    /// Start even if the free space is less than the size of the stream
    // Sparse files need less space than that.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true))]
    pub no_space_check: bool,
    /// When to sync: file, each before it gets its name; end, all at once; none, never
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_enum,
            default_value = "end",
            value_name = "WHEN",
            hide_short_help = true,
            hide_possible_values = true
        )
    )]
    pub sync: Durability,
    /// Bytes that later steps write beside the files of the stream, for the check of the space.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub room_beside: u64,
    /// A later step syncs the file systems, and sees each error since before the first file was written. With
    /// `sync` at the end only.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub is_synced_later: bool,
}

/// Result of a successful restore.
#[derive(Debug)]
pub struct RestoreReport {
    /// Result of reading the backup.
    pub get: GetReport,
    /// Complete files with their final names.
    pub files: u64,
    /// Number of files that this run decrypted one by one.
    pub decrypted: u64,
    /// Data kept from an earlier run, if the restore was resumed.
    pub resumed: Option<Resumed>,
}

/// Data that a resumed restore did not have to fetch again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Files that were already complete.
    pub files: u64,
    /// Bytes of the complete files, and of the proven parts of incomplete ones.
    pub bytes: u64,
    /// Files that had changed since they were written, and were restored again.
    pub distrusted: u64,
}

/// Steps of a restore after fetching the backup.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct AfterRestore {
    /// Prepare the files with the program that took the backup, incremental backups in order
    #[cfg_attr(feature = "clap", arg(long))]
    pub prepare: bool,
    /// How the files are prepared; with `export` they are.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub preparing: PrepareOptions,
    /// Restore only the files of an increment, without its chain
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, conflicts_with_all = ["prepare", "export"]))]
    pub alone: bool,
    /// Owner of the files [default: the owner of the parent directory]
    #[cfg_attr(feature = "clap", arg(long, value_name = "USER[:GROUP]"))]
    pub owner: Option<Owner>,
    /// Make a Galera node: one that joins, or with --until the first
    #[cfg_attr(feature = "clap", arg(long, requires = "prepared", conflicts_with_all = ["files", "alone"]))]
    pub galera: bool,
    /// Leave the table keys of a clone under a public constant
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true))]
    pub allow_exposed_keys: bool,
    /// How the server is started that prepares a clone.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub server: ServerOptions,
    /// Fail if this donor's gcache no longer covers the backup
    #[cfg_attr(feature = "clap", arg(long = "check-donor", value_name = "HOST|SOCKET"))]
    pub donor: Option<String>,
}

impl AfterRestore {
    /// The files are prepared by this program.
    #[must_use]
    pub fn prepared(by: PrepareProgram) -> Self {
        let preparing = PrepareOptions { by, ..PrepareOptions::default() };
        Self { prepare: true, preparing, ..Self::default() }
    }

    /// Returns the options that apply to a clone.
    pub(super) fn of_clone(&self) -> CloneOptions {
        let by = &self.preparing.by;
        CloneOptions {
            server: self.prepare().map(|_| self.server.clone()),
            memory: self.preparing.use_memory,
            exports: self.preparing.export,
            has_program: by.program.is_some() || !by.options.is_empty(),
            allow_exposed_keys: self.allow_exposed_keys,
        }
    }

    /// How the files are prepared, if they are.
    #[must_use]
    pub fn prepare(&self) -> Option<&PrepareOptions> {
        (self.prepare || self.preparing.export).then_some(&self.preparing)
    }
}

/// Result of a complete restore.
#[derive(Debug)]
pub struct RestoreChainReport {
    /// Result of each backup of the chain, the full one first.
    pub restored: Vec<(String, RestoreReport)>,
    /// Position of the node.
    pub position: Option<GaleraPosition>,
    /// Number of write sets that the donor has to send.
    pub behind: Option<u64>,
    /// Report of a restored clone.
    pub clone: Option<CloneReport>,
    /// Remarks to read before a server starts on the prepared files.
    pub remarks: Vec<String>,
}
