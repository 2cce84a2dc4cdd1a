//! Journal of a restore: records what is written and proven, so that the next run need not fetch it
//! again.
//!
//! The journal is `.xb-partial/restore/journal` in the target, beside the unfinished files. Its
//! first line is JSON and names the backup and the way it is restored; then comes one line for each
//! proven fact. A line is written after the data that it describes.
//!
//! After a kill or a network failure, the kernel still has every byte that was written, so on the
//! same boot and mount the whole journal may count. After a reboot or a remount, only what had
//! reached the medium may count: every half minute, or after every gigabyte, the file system is
//! synced, and a line records how long the journal was before that sync. With `--sync=none` there
//! are no such lines, and nothing counts.
//!
//! Whatever may count is then read back and compared (`load`): a line holds the length and CRC-32
//! of the data that it describes. The only remaining assumption is that a CRC-32 does not match by
//! chance.

pub(crate) mod head;
mod line;
pub(crate) mod load;
#[cfg(test)]
mod tests;
pub(crate) mod write;
