//! State transfer between Galera nodes: donor, joiner, and what crosses the wire between them.
//!
//! - [`Args`] are the server's words, [`OptionFiles`] and [`Settings`] the operator's, [`Layout`] is
//!   where the server's files are. A [`Context`] has them all.
//! - [`donate`] sends a backup, [`join`] receives, prepares and exchanges the data ([`swap`]).
//! - [`Server`] speaks the server's line protocol, [`Talk`] writes to its error log, [`Stop`] carries
//!   the wish to end to everybody, [`Launcher`] starts programs that never outlive us.
//!
//! Nothing that a peer, an address or an option file says reaches a shell.

mod args;
mod child;
mod context;
mod donor;
mod error;
mod estimate;
mod files;
mod gcache;
mod guardian;
mod joiner;
mod keep;
mod layout;
mod lock;
mod notify;
mod offer;
mod place;
mod progress;
mod protocol;
mod receive;
mod recover;
mod secret;
mod settings;
mod sql;
mod state;
mod stop;
pub mod swap;
mod talk;
mod unpaused;
mod version;
mod wire;
mod words;
mod work_folder;

pub use args::{Args, ArgsError, Defaults, Family, Role};
pub use child::{ChildError, Launcher, Run, Running};
pub use context::Context;
pub use donor::donate;
pub use error::SstError;
pub use files::OptionFiles;
pub use guardian::{NOT_STARTED, help};
pub use joiner::{has_old, join};
pub use keep::{BadPattern, Keep};
pub use layout::{Kind, Layout, Place};
pub use lock::Lock;
pub use offer::{Offer, OfferError, What};
pub use protocol::Server;
pub use recover::{drop_old, drop_received, finish_interrupted, tidy};
pub use secret::Login;
pub use settings::{Old, Settings, SettingsError, Tls, Verify};
pub use state::{NoStateId, Position, StateId};
pub use stop::{Hooked, Stop, Why};
pub use talk::{Level, Talk};
