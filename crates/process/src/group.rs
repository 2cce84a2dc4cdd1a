//! Whether a process group still runs.

use rustix::process::{Pid, test_kill_process_group};

/// Returns whether any process of a group runs. A process that has ended does not, even if nothing has
/// reaped it yet: process 1 of a container may never do so. `false` if that cannot be found out.
pub(crate) fn is_running(group: Pid) -> bool {
    // Usually nothing is left, and the list of all processes need not be read.
    test_kill_process_group(group).is_ok()
        && std::fs::read_dir("/proc").is_ok_and(|processes| {
            processes.flatten().any(|process| {
                let stat = std::fs::read(process.path().join("stat"));
                stat.is_ok_and(|stat| runs_in(group, &stat))
            })
        })
}

/// Reads a process's `stat` (proc_pid_stat(5)). The first thread of a process may have ended before the
/// others.
fn runs_in(group: Pid, stat: &[u8]) -> bool {
    // The name before the parenthesis may contain anything.
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let fields = String::from_utf8_lossy(&stat[name_end + 1..]);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let (Some(state), Some(its), Some(threads)) = (fields.first(), fields.get(2), fields.get(17))
    else {
        return false;
    };
    let is_dead = matches!(*state, "Z" | "X") && *threads <= "1";
    *its == group.as_raw_nonzero().to_string() && !is_dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        let seven = Pid::from_raw(7).unwrap();
        let stat = |name: &str, state: char, group: u32, threads: u32| {
            format!("9 ({name}) {state} 1 {group} 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 {threads} 0 100")
        };
        assert!(runs_in(seven, stat("a", 'S', 7, 1).as_bytes()));
        assert!(runs_in(seven, stat("a) Z 1 8 (", 'R', 7, 40).as_bytes()));
        assert!(runs_in(seven, stat("a", 'Z', 7, 2).as_bytes()));
        assert!(!runs_in(seven, stat("a", 'Z', 7, 1).as_bytes()));
        assert!(!runs_in(seven, stat("a) S 1 7 (", 'S', 77, 1).as_bytes()));
        for broken in ["", "9 (a", "9 (a)", "9 (a) S 1 7"] {
            assert!(!runs_in(seven, broken.as_bytes()), "{broken}");
        }
    }

    #[test]
    fn our_own_group_runs() {
        assert!(is_running(rustix::process::getpgrp()));
    }
}
