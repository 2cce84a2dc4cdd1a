//! What a server leaves to the programs it starts, and what they should not have.

use nix::sys::signal::SigSet;

/// Closes every descriptor above 2. Servers leak their own into us, among them the other end of our
/// standard output, which would then never look closed to them.
pub(crate) fn close_what_leaked() {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // One was the folder's own.
        let _ = nix::unistd::close(number);
    }
}

/// Signals may come blocked.
pub(crate) fn unblock_signals() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Leaves the server's process group: what is sent to one is not meant for the other.
pub(crate) fn own_group() {
    let _ = rustix::process::setpgid(None, None);
}
