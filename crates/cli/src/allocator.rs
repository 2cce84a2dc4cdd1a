//! Makes the C library's allocator give large buffers back.
//!
//! glibc maps a large buffer by itself, and unmaps it when it is freed. But each one that is freed raises the size from which
//! on it does so, up to 32 MiB: from then on, such buffers come from the heaps, of which each thread has its own, and stay
//! there when they are freed. A `restore --until`, whose segments pass through several threads, had three times its live
//! memory.

/// Fixes the size from which on a buffer is mapped by itself, and how much of its end a heap keeps. Slabs are smaller, and in
/// pools; so what the system has to do for mapped buffers does not show in a `put` or a `get`.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the only way to tell glibc; SECURITY.md says why this is sound")]
pub(crate) fn give_large_buffers_back() {
    const LARGE: libc::c_int = 4 << 20;
    // A refusal would only cost memory.
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it takes two numbers, and changes settings of the allocator under the allocator's own lock.
        let _ = unsafe { libc::mallopt(setting, LARGE) };
    }
}

/// Other allocators have no such size that moves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_large_buffers_back() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_mapped_by_itself_after_a_larger_one_was_freed() {
        give_large_buffers_back();
        drop(vec![1_u8; 16 << 20]);
        for _ in 0..4 {
            let buffer = vec![1_u8; 8 << 20];
            // Behind the head of the mapping, which begins at a page.
            assert_eq!(buffer.as_ptr().addr() % 4096, 16);
        }
    }
}
