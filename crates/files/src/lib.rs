//! Files of this host: absence told from an error ([`or_none`], [`exists`]), what a file system has of its own
//! ([`is_lost_and_found`]), and pipes of full size ([`enlarge_pipe`]).

mod absence;
mod lost_and_found;
mod pipe;

pub use absence::{exists, or_none};
pub use lost_and_found::{LOST_AND_FOUND, is_lost_and_found};
pub use pipe::enlarge_pipe;
