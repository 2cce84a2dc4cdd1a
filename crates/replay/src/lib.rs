//! Replays binary logs onto a prepared data directory.
//!
//! [`replay`] writes the logs as relay logs, cut and filtered ([`xb_binlog::RelayWriter`]); starts a
//! private server on the data ([`xb_server`]), which applies them in parallel, as a replica would; waits
//! until exactly the planned transactions are applied; and stops the server, with the proof that it
//! stopped cleanly.
//!
//! ```text
//! pieces of logs ──► relay logs ──► private server, N workers ──► data at the stop
//! ```
//!
//! A replay that fails leaves data that is of no more use: a server that failed, or was killed, is
//! never continued. [`ReplayError::is_data_untouched`] tells whether the data directory has to be made
//! again.
//!
//! After a success, the caller's note ([`Watch::note`]) stays in the directory of the replay until
//! [`remove_note`]: a caller that is killed before it has noted the end finds it there ([`noted_end`]).

mod applier;
mod dialect;
mod error;
mod password_change;
mod place;
mod relay_files;
mod replay;
mod request;
mod settings;
mod status;
mod tables_in_use;
mod unlogged;

pub use error::{LEAVE_OUT, ReplayError};
pub use place::{check_untouched, noted_end, remove_note};
pub use replay::replay;
pub use request::{Piece, Progress, ReplayReport, ReplayRequest, Watch};
pub use settings::{
    ENGINES, ORIGIN_SETTINGS, SYSDATE_IS_NOW, lenient_option, lost_settings, origin_options,
};
pub use tables_in_use::{repair_table, tables_in_use};
