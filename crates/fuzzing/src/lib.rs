//! Code of the fuzz targets, and seeds in each target's own input form.
//!
//! The targets in `fuzz/` call these functions. The tests of this crate run them over the seeds and
//! over simple mutations of them, so that `scripts/test` finds a target that no longer works. A
//! function returns if its input was handled properly, and panics if not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic reports a finding")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers of small inputs")]

mod binlog;
mod catalogue;
mod codecs;
mod commands;
mod delta;
mod extract;
mod frames;
mod inputs;
mod keys;
mod listings;
mod packed_index;
mod peers;
mod redo;
mod xbstream;

use peers::{certificates, clone, mysql, sst_delta, wire};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target, as in `cargo fuzz run NAME`.
    pub name: &'static str,
    /// Handles one input.
    pub run: fn(&[u8]),
    /// Returns inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, one for each parser of bytes from outside.
pub const TARGETS: [Target; 30] = [
    Target { name: "binlog", run: binlog::log, seeds: binlog::seeds },
    Target { name: "binlog_relay", run: binlog::relay, seeds: binlog::relay_seeds },
    Target { name: "xbstream_decode", run: xbstream::decode, seeds: xbstream::seeds },
    Target { name: "extract", run: extract::extract, seeds: extract::seeds },
    Target { name: "frame_stream", run: frames::stream, seeds: frames::stream_seeds },
    Target { name: "frame_index", run: frames::index, seeds: frames::index_seeds },
    Target { name: "packed_index", run: packed_index::read, seeds: packed_index::seeds },
    Target { name: "codec_block", run: codecs::block, seeds: codecs::block_seeds },
    Target { name: "codec_member", run: codecs::member, seeds: codecs::member_seeds },
    Target { name: "codec_qpress", run: codecs::qpress, seeds: codecs::qpress_seeds },
    Target { name: "xbcrypt_decode", run: keys::xbcrypt, seeds: keys::xbcrypt_seeds },
    Target { name: "delta", run: delta::read, seeds: delta::seeds },
    Target { name: "redo_head", run: redo::head, seeds: redo::seeds },
    Target { name: "seal_open", run: keys::seal, seeds: keys::seal_seeds },
    Target { name: "keys_object_open", run: keys::keys_object, seeds: keys::keys_object_seeds },
    Target { name: "manifest", run: catalogue::manifest, seeds: catalogue::manifest_seeds },
    Target { name: "records", run: catalogue::records, seeds: catalogue::record_seeds },
    Target { name: "archive_rollup", run: catalogue::rollup, seeds: catalogue::rollup_seeds },
    Target { name: "object_names", run: catalogue::names, seeds: catalogue::name_seeds },
    Target { name: "listing_page", run: listings::page, seeds: listings::seeds },
    Target { name: "option_file", run: commands::option_file, seeds: commands::file_seeds },
    Target { name: "sst_args", run: commands::sst_args, seeds: commands::args_seeds },
    Target { name: "sst_delta", run: sst_delta::delta, seeds: sst_delta::delta_seeds },
    Target { name: "sst_lines", run: commands::sst_lines, seeds: commands::line_seeds },
    Target { name: "certificates", run: certificates::check, seeds: certificates::seeds },
    Target { name: "wire_inbound", run: wire::inbound, seeds: wire::inbound_seeds },
    Target { name: "wire_announcement", run: wire::announcement, seeds: wire::text_seeds },
    Target { name: "mysql_clone", run: clone::receive, seeds: clone::seeds },
    Target { name: "mysql_dump", run: mysql::dump, seeds: mysql::dump_seeds },
    Target { name: "mysql_session", run: mysql::session, seeds: mysql::seeds },
];

/// Handles one input of the target `name`.
///
/// # Panics
/// On a finding, or if there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target").run)(input);
}
