//! `xbcloud-rs`: stores backup streams in an object store, and reads them back.

mod args;
mod cache;
mod commands;
mod evidence;
mod exit;
mod fleet;
mod job;
mod keys;
mod limits;
mod listing;
mod location;
mod page;
mod report;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    xb_cli::run("xbcloud-rs", commands::run)
}
