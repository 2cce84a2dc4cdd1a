//! Cleans up what a server passes to the programs that it starts.

use nix::sys::signal::SigSet;

/// Closes every descriptor above 2. Servers leak descriptors into this process, among them the
/// other end of its standard output, which would then never appear closed to them.
pub(crate) fn close_what_leaked() {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // One of them belonged to the directory listing itself.
        let _ = nix::unistd::close(number);
    }
}

/// Unblocks the signals, which may be blocked at the start.
pub(crate) fn unblock_signals() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Leaves the server's process group: signals to one group are not meant for the other.
pub(crate) fn own_group() {
    let _ = rustix::process::setpgid(None, None);
}
