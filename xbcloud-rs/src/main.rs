//! `xbcloud-rs`: backup streams into an object store, and back.

mod args;
mod commands;
mod keys;
mod limits;
mod owner;
mod place;
mod report;
mod settings;
mod standard_stream;

use std::process::ExitCode;

fn main() -> ExitCode {
    xb_cli::run("xbcloud-rs", commands::run)
}
