//! Messages of the recipient.

use std::time::Duration;

use super::descriptor::{CloneProgress, Stage, StateMark, empty_locator};

/// Newest version of the protocol that this recipient asks for; a donor answers with the lower of both.
pub(super) const NEWEST: u32 = 0x0103;
/// Oldest version that there is.
pub(super) const OLDEST: u32 = 0x0100;
/// Number of InnoDB among the engines that can be cloned.
pub(super) const INNODB: u8 = 12;

/// Limit in seconds that is sent if DDL runs. With 0, a donor and a RENAME TABLE waited for each other, for ever.
const FREE_DDL_LIMIT: u32 = 300;

/// Treatment of DDL on the donor while it is cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ddl {
    /// It waits for the end of the clone. The donor waits for so long, in whole seconds, for DDL that runs.
    Waits(Duration),
    /// It runs: files are created, renamed and removed meanwhile.
    Runs,
}

const INIT: u8 = 1;
const REINIT: u8 = 3;
const EXECUTE: u8 = 4;
const ACKNOWLEDGE: u8 = 5;
const EXIT: u8 = 6;

/// Number of the error "Query execution was interrupted".
const INTERRUPTED: u32 = 1317;

/// Asks for a new clone.
pub(super) fn init(ddl: Ddl) -> Vec<u8> {
    begin(INIT, ddl, &empty_locator())
}

/// Asks to continue a clone on new connections: everything up to this place has arrived.
pub(super) fn reinit(ddl: Ddl, locator: &[u8], place: &CloneProgress) -> Vec<u8> {
    begin(REINIT, ddl, &place.locator(locator))
}

fn begin(kind: u8, ddl: Ddl, locator: &[u8]) -> Vec<u8> {
    // The highest bit says that DDL need not wait.
    let seconds = match ddl {
        Ddl::Waits(limit) => u32::try_from(limit.as_secs()).unwrap_or(u32::MAX) & !(1 << 31),
        Ddl::Runs => 1 << 31 | FREE_DDL_LIMIT,
    };
    let mut message = vec![kind];
    message.extend(NEWEST.to_le_bytes());
    message.extend(seconds.to_le_bytes());
    put_locator(&mut message, locator);
    message
}

/// Asks for the data.
pub(super) fn execute() -> Vec<u8> {
    vec![EXECUTE]
}

/// Tells the donor that everything of a stage has arrived.
pub(super) fn acknowledge(locator: &[u8], stage: Stage, mark: StateMark) -> Vec<u8> {
    let state = mark.acknowledgement(stage);
    let mut message = vec![ACKNOWLEDGE];
    // No error of the recipient.
    message.extend(0_u32.to_le_bytes());
    put_locator(&mut message, locator);
    put_counted(&mut message, &state);
    message
}

/// Tells the donor that the recipient has failed, so that it ends the clone.
pub(super) fn fail(locator: &[u8]) -> Vec<u8> {
    let mut message = vec![ACKNOWLEDGE];
    message.extend(INTERRUPTED.to_le_bytes());
    put_locator(&mut message, locator);
    put_counted(&mut message, &[]);
    message
}

/// Leaves the clone.
pub(super) fn exit() -> Vec<u8> {
    vec![EXIT]
}

fn put_locator(message: &mut Vec<u8>, locator: &[u8]) {
    message.push(INNODB);
    put_counted(message, locator);
}

/// Appends bytes after their length. All that are sent are shorter than 4 MiB.
fn put_counted(message: &mut Vec<u8>, bytes: &[u8]) {
    message.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    message.extend_from_slice(bytes);
}
