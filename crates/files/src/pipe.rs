//! Size of pipes.

use std::os::fd::AsFd;

/// Largest size that an unprivileged process can request, in bytes.
const LARGEST: usize = 1 << 20;

/// Gives a pipe the largest size, so that its two ends wait for each other less often. Anything else, and a pipe for which
/// the system does not permit that, stays as it is: a small one works, too.
pub fn enlarge_pipe(pipe: &impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGEST);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_enlarged_and_a_file_stays_as_it_is() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let before = rustix::pipe::fcntl_getpipe_size(&reader).unwrap();
        enlarge_pipe(&reader);
        assert!(rustix::pipe::fcntl_getpipe_size(&reader).unwrap() >= before);
        enlarge_pipe(&tempfile::tempfile().unwrap());
    }
}
