//! Reasons to cancel a transfer.

/// Reason why a transfer is cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelReason {
    /// This process received a signal.
    #[error("interrupted by signal {0}")]
    Signal(i32),
    /// The server that started this process is gone.
    #[error("the server that started this program has ended")]
    ServerGone,
    /// The backup blocked its server for too long.
    #[error(
        "the backup was ended so that the server continues: it blocked commits, and waited {seconds} s for the joiner while the spool was full"
    )]
    LockStall {
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// The backup blocked its server, and waited for redo log that is gone.
    #[error(
        "the backup was ended so that the server continues: it blocked commits, and for {seconds} s tried to read one position of the redo log, which the server has probably overwritten; set a larger innodb_log_file_size on the server, and start the joiner again"
    )]
    OverwrittenRedo {
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// No data moved for too long.
    #[error("no data for {seconds} s (sst-idle-timeout)")]
    Idle {
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// Another part of the program failed, and its error is the cause.
    #[error("another part of the transfer failed")]
    Elsewhere,
}

impl CancelReason {
    /// Returns whether this process must end, rather than only the transfer.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::ServerGone)
    }
}

/// Cancels a transfer: running programs, waits and connections.
pub type CancelToken = xb_process::CancelToken<CancelReason>;

/// Function that is called when a transfer is cancelled.
pub type CancelHook = xb_process::CancelHook<CancelReason>;
