//! Command line and user interface, shared by the binaries and not used by libraries.
//!
//! The parts, in the order of a run:
//!
//! - [`run`] wraps `main`: it prints the [`Failure`] that ended the run and returns the [`Exit`]
//!   code. [`FailureContext`] adds stage and hint to any error.
//! - [`Personality`] tells by which name the program was called; a link named `xbcloud` makes a
//!   drop-in.
//! - [`Program::parse`] passes the arguments to clap: [`expand`] reads the option files and
//!   rewrites MySQL's option syntax into clap's, and removes each [`Secret`] from the process list.
//!   [`env_first`] reads the environment.
//! - [`KeyOptions`], [`RecipientOptions`], [`IdentityOptions`] and [`NewKeyOptions`] are the options from which
//!   keys come.
//! - [`Size`] and [`Secret`] are option types; [`format_size`] and similar functions format values
//!   for people.
//! - [`Log`] writes to standard error; [`Progress`] shows counters there.
//! - [`write_whole`] writes a file that others read, such as metrics or a report.
//! - [`Service`] is what a daemon tells the service manager.
//! - [`Signals`] turns HUP, INT and TERM into a callback and [`interrupted`].
//! - [`Input`] reads input and reacts to signals.
//! - [`long_version`] and [`write_manual`] make the text of `--version`, man pages and completion scripts.
//! - [`Question`] is what such a script asks; [`candidates`] and [`with_repositories`] add to the answer.
//! - [`refuse_terminal_input`] and [`refuse_terminal_output`] keep data off terminals; [`ask`] asks
//!   questions there.
//!
//! This crate never writes to standard output, which is for data. (clap prints help there, and
//! [`Program::parse_from`] the values of options.)
//!
//! ```
//! use clap::Command;
//! use xb_cli::{OptionFilePaths, Sources, expand, mysql_style};
//!
//! let put = Command::new("put")
//!     .arg(clap::arg!(--storage <KIND>))
//!     .arg(clap::arg!(<NAME>));
//! let mut command = mysql_style(Command::new("xbcloud").subcommand(put));
//! let argv = ["xbcloud", "--stor", "s3", "put", "monday"].map(Into::into);
//! let expanded = expand(&mut command, &Sources::default(), &argv, &OptionFilePaths::none())?;
//! assert_eq!(expanded.args, ["xbcloud", "put", "--storage=s3", "monday"]);
//! # Ok::<(), xb_cli::UsageError>(())
//! ```

mod allocator;
mod args;
mod closed;
mod complete;
mod exit;
mod failure;
mod help;
mod keys;
mod messages;
mod personality;
mod program;
mod stdio;
mod subcommand;
mod text;

pub use args::argv::mysql_style;
pub use args::expand::{ExpandedArgs, expand};
pub use args::secret::Secret;
pub use args::sources::environment::env_first;
pub use args::sources::{Repositories, Sources};
pub use args::usage_error::UsageError;
pub use complete::{Question, candidates, with_repositories};
pub use exit::Exit;
pub use failure::{Failure, FailureContext};
pub use help::HelpTopic;
pub use help::manual::write_manual;
pub use help::version::long_version;
pub use keys::{
    IdentityOptions, KeyOptions, NewKeyOptions, RecipientOptions, seal_version, sealing,
};
pub use messages::log::{Level, Log, LogOptions};
pub use messages::progress::{PhaseSnapshot, Progress, ProgressEnd, ProgressOptions, Snapshot};
pub use messages::size::{
    Size, SizeError, format_count, format_duration, format_rate, format_size, parse_age, parse_size,
};
pub use personality::Personality;
pub use program::host::host_name;
pub use program::output_file::{Readers, check_writable, write_new, write_whole};
pub use program::service::Service;
pub use program::signals::{Signals, interrupted};
pub use program::{Program, exit_of, run};
pub use stdio::bulk::standard_stream;
pub use stdio::input::{Input, UntilInterrupted};
pub use stdio::{
    ask, output_columns, refuse_closed_output, refuse_terminal_input, refuse_terminal_output,
};
pub use text::printable;
pub use xb_option_files::{FileOption, OptionFileError, OptionFilePaths, read_groups};
