//! State transfer between Galera nodes: the donor and the joiner.
//!
//! - [`Args`] are the server's arguments, [`OptionFiles`] and [`Settings`] the operator's settings,
//!   [`Layout`] the locations of the server's files. A [`Context`] holds them all.
//! - [`donate`] sends a backup; [`join`] receives and prepares it and swaps the data ([`swap`]).
//! - [`Server`] speaks the server's line protocol, [`ErrorLog`] writes to the server's error log,
//!   [`CancelToken`] cancels a transfer, [`Run`] starts programs that end with it.
//!
//! No text from a peer, an address or an option file reaches a shell.

mod cancel;
mod check;
mod context;
mod contract;
mod delta;
mod donor;
mod error;
mod joiner;
mod offer;
mod run;
mod server;
mod session;
pub mod swap;

pub use cancel::{CancelHook, CancelReason, CancelToken};
pub use check::{check_donor, check_joiner};
pub use context::Context;
pub use contract::args::{Args, ArgsError, Defaults, Product, Role};
pub use contract::datadir::{Kind, KindDir, Layout};
pub use contract::error_log::{ErrorLog, Level};
pub use contract::keep_patterns::{BadPattern, Keep};
pub use contract::login::Login;
pub use contract::option_files::OptionFiles;
pub use contract::position::{NoStateId, Position, StateId};
pub use contract::server_credentials::ServerCredentials;
pub use contract::server_lines::Server;
pub use contract::settings::{
    CreatedTablespaces, DeltaWish, KeyOptions, Old, RedoLog, SecondStart, Settings, SettingsError,
    Tls, TlsFiles, Verify,
};
pub use donor::{decline, donate};
pub use error::{RoomShort, SstError};
pub use joiner::datadir_lock::DatadirLock;
pub use joiner::recover::{Finished, drop_new, drop_old, finish_interrupted, has_made_way, tidy};
pub use joiner::{EngineLocks, is_untried, join, take_back};
pub use offer::{Offer, OfferError, Places, TransferKind};
pub use run::{ChildError, Run, Running};
pub use server::backup_version::options_of_server;

/// Parsers of input from a server, for property tests and fuzzing. Not a stable interface.
#[doc(hidden)]
pub mod parsers {
    use std::ffi::OsString;
    use std::sync::Arc;

    use bytes::Bytes;

    use crate::delta::fill::Filler;
    use crate::delta::group::HeldBlocks;
    use crate::delta::held::{HeldGroup, HeldGroups};
    use crate::delta::question::Question;

    /// Reads the lines that a server writes to standard input.
    pub fn credentials(lines: &[u8]) -> crate::ServerCredentials {
        crate::contract::server_credentials::of_lines(lines)
    }

    /// Returns whether bytes are a donor's question about the old data.
    pub fn is_question(bytes: &[u8]) -> bool {
        let question = Question::read(bytes);
        question.is_some_and(|question| question.write() == bytes)
    }

    /// Completes a donor's stream, in pieces of this length, with blocks of zeros that this node has promised in its
    /// reply; `None` if the stream does not fit, or if one of the others is none.
    pub fn complete(question: &[u8], reply: &[u8], stream: &[u8], piece: usize) -> Option<Vec<u8>> {
        let group = Question::read(question)?.group;
        let have = HeldBlocks::read(reply, &group).filter(|have| *have != HeldBlocks::default())?;
        let held = Arc::new(HeldGroups::new(0));
        held.push(HeldGroup { data: vec![0; group.len], group, have });
        let (mut filler, mut whole) = (Filler::new(held), Vec::new());
        for bytes in stream.chunks(piece.max(1)) {
            filler.push(&Bytes::copy_from_slice(bytes)).ok()?;
            std::iter::from_fn(|| filler.pop()).for_each(|bytes| whole.extend_from_slice(&bytes));
        }
        filler.finish().ok()?;
        std::iter::from_fn(|| filler.pop()).for_each(|bytes| whole.extend_from_slice(&bytes));
        Some(whole)
    }

    /// Splits options as a shell would; `None` if a quote is not closed.
    pub fn shell_words(text: &[u8]) -> Option<Vec<OsString>> {
        crate::contract::shell_words::split(text).ok()
    }
}
