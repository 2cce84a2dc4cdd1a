//! Proof that the process which wrote a claim is dead.
//!
//! A process id alone would not do: ids are used again. With boot and start time it is unmistakable
//! among processes that see each other. About a process of another machine, boot or container nothing
//! is proven: its claim looks alive until it is old.

use serde_json::{Value, json};

/// What a claim says of the process that writes it.
pub(crate) fn own_mark() -> Value {
    let pid = std::process::id();
    json!({ "pid": pid, "process_started": start(pid), "pid_namespace": pid_namespace() })
}

/// Whether the process that a claim names has run on this machine and does no longer.
pub(crate) fn is_proven_dead(mark: &Value) -> bool {
    let text = |field: &str| mark.get(field).and_then(Value::as_str);
    let pid = mark.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    let (Some(pid), Some(started)) = (pid, text("process_started")) else { return false };
    let Some((boot, _)) = started.split_once(' ') else { return false };
    let namespace = text("pid_namespace");
    if boot_id().as_deref() != Some(boot)
        || namespace.is_none()
        || namespace != pid_namespace().as_deref()
    {
        return false;
    }
    match start(pid) {
        Some(start) => start != started,
        // A process of another user may be hidden from us, but not that its id is in use.
        None => !exists(pid) || is_zombie(pid),
    }
}

/// The name space in which process ids are counted here.
fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str().map(str::to_owned)
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The fields of `/proc/PID/stat` from the state on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold blanks and brackets; the fields after its last bracket do not.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Ended, and not yet collected by its parent, which in a container may never happen.
fn is_zombie(pid: u32) -> bool {
    stat(pid).and_then(|fields| fields.into_iter().next()).is_some_and(|s| s == "Z" || s == "X")
}

/// Boot and start time of a process of this machine that runs: `BOOT TICKS`.
fn start(pid: u32) -> Option<String> {
    let fields = stat(pid).filter(|_| !is_zombie(pid))?;
    Some(format!("{} {}", boot_id()?, fields.get(19)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_alive_and_has_one_start() {
        let own = start(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, start(std::process::id()));
        assert_ne!(own, start(1));
        assert!(!is_proven_dead(&own_mark()));
        assert!(!is_proven_dead(&json!({})));
    }

    /// A killed process stays as a zombie until its parent has asked how it ended.
    #[test]
    fn a_killed_process_is_dead_before_its_parent_knows() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let mark = json!({
            "pid": pid, "process_started": start(pid), "pid_namespace": pid_namespace(),
        });
        assert!(!is_proven_dead(&mark));
        child.kill().unwrap();
        // Not reaped: only the state can tell. The signal takes effect at its own time.
        while !is_zombie(pid) {
            std::thread::yield_now();
        }
        let dead = is_proven_dead(&mark);
        child.wait().unwrap();
        assert!(dead);
        assert!(is_proven_dead(&mark));
    }
}
