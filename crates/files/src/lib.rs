//! Files of this host: absence told from an error ([`or_none`], [`exists`]), what a file system has of its own
//! ([`is_lost_and_found`]), pipes of full size ([`enlarge_pipe`]), and files that are replaced whole ([`replace_file`]).

mod absence;
mod lost_and_found;
mod pipe;
mod replaced;

pub use absence::{exists, or_none};
pub use lost_and_found::{LOST_AND_FOUND, is_lost_and_found};
pub use pipe::enlarge_pipe;
pub use replaced::replace_file;
