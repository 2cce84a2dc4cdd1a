//! Advice if one stage of the pipeline is the slowest.

use xb_report::{Direction, Section};

const READ: &str = "The producer could not deliver more: let it copy more files at once with its \
    own --parallel, and check the server's disks.";
const ENCODE: &str =
    "More --threads, a lighter --compress, or --compress=auto would make this run faster.";
/// Nothing is compressed.
const ENCODE_ONLY: &str = "More --threads would make this run faster.";
const SEAL: &str = "More --threads would make this run faster.";
const UPLOAD: &str = "The store, or the link to it, could not accept more: try a higher --parallel \
    or a stronger --compress, and check --limit-rate.";
const DOWNLOAD: &str = "The store, or the link to it, could not deliver more: try a higher \
    --parallel, and check --limit-rate.";
const OPEN: &str = "More --threads would make this run faster.";
const DECODE: &str = "More --threads would make this run faster.";
const WRITE: &str = "The target's disk, or the program that reads the stream, could not accept \
    more: check its load.";
const SEND: &str = "The link or the joiner could not accept more: try a stronger compress= or \
    compress=auto on the donor, and check rlimit= and the joiner's disks.";
const COMPRESS: &str = "More compress-threads= or a lighter compress= would make this transfer \
    faster, unless the server needs the processors.";
const BACKUP: &str = "The backup program could not deliver more: more backup-threads= let it copy \
    more files at once; check the donor's disks.";
const RECEIVE: &str = "The donor, or the link to it, could not deliver more: its own report names \
    the stage that held it up.";
const DECOMPRESS: &str = "More write-threads= would make this transfer faster.";
const STORE: &str = "The joiner's disks could not accept more: check their load.";
const CHECK: &str = "Checking the content took longest: a lower level of verification reads less.";

/// Returns the advice about a stage, by its number in the section.
pub(super) fn advice(section: &Section, stage: usize) -> &'static str {
    let encode = match section.stages.get(1) {
        Some(name) if name.starts_with("compress") => ENCODE,
        _ => ENCODE_ONLY,
    };
    let all: &[&str] = match section.direction {
        Direction::Up => &[READ, encode, SEAL, UPLOAD],
        Direction::Restore => &[DOWNLOAD, OPEN, DECODE, WRITE],
        Direction::Verify => &[DOWNLOAD, OPEN, DECODE, CHECK],
        Direction::Copy => &[UPLOAD],
        Direction::Send => &[BACKUP, COMPRESS, SEAL, SEND],
        Direction::Receive => &[RECEIVE, OPEN, DECOMPRESS, STORE],
    };
    all.get(stage).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use xb_pipeline::Observer;
    use xb_report::Traffic;

    use super::*;
    use crate::page::tests::{begin, end};

    #[test]
    fn incompressible_data_gets_no_advice_to_compress_less() {
        let advice = |encode| {
            let report = begin("shop");
            let options =
                xb_report::SectionOptions { direction: Direction::Up, encode, threads: 1 };
            drop(report.watch("backup", options, &Observer::default(), Traffic::default));
            advice(&report.end(end(None)).sections[0], 1)
        };
        for encode in ["checksum", "encrypt"] {
            assert!(!advice(Some(encode)).contains("--compress"), "{encode}");
        }
        for encode in [None, Some("compress"), Some("compress and encrypt")] {
            assert!(advice(encode).contains("lighter --compress"), "{encode:?}");
        }
    }
}
