//! `xbcloud-rs`: backup streams into an object store, and back.

mod args;
mod catalogue;
mod catalogue_args;
mod commands;
mod delete;
mod destination;
mod keys;
mod limits;
mod owner;
mod place;
mod report;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    xb_cli::run("xbcloud-rs", commands::run)
}
