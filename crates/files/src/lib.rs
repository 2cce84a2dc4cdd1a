//! Files of this host: absence told from an error ([`or_none`], [`exists`]), and pipes of full size ([`enlarge_pipe`]).

mod absence;
mod pipe;

pub use absence::{exists, or_none};
pub use pipe::enlarge_pipe;
