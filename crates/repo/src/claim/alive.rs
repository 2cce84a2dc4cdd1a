//! Proof that the process which wrote a claim is dead.
//!
//! A process ID alone is not enough, because systems reuse IDs. Together with boot ID and start
//! time it identifies a process among those that share a PID namespace. Nothing can be proven about
//! a process of another machine, boot or container: its claim looks alive until it is old.

use serde_json::{Value, json};

/// Returns the fields by which a claim identifies the current process.
pub(crate) fn own_mark() -> Value {
    let pid = std::process::id();
    json!({ "pid": pid, "process_started": start(pid), "pid_namespace": pid_namespace() })
}

/// Returns whether a claim names the current process.
pub(crate) fn is_own(mark: &Value) -> bool {
    on_this_machine(mark).is_some_and(|(pid, _)| pid == std::process::id())
}

/// Returns whether the process named in a claim ran on this machine and has ended.
pub(crate) fn is_proven_dead(mark: &Value) -> bool {
    let Some((pid, started)) = on_this_machine(mark) else { return false };
    match start(pid) {
        Some(start) => start != started,
        // The system may hide another user's process from us, but not that its ID is in use.
        None => !exists(pid) || is_zombie(pid),
    }
}

/// Returns whether the process named in a claim runs on this machine.
pub(crate) fn is_proven_alive(mark: &Value) -> bool {
    on_this_machine(mark).is_some_and(|(pid, started)| start(pid).as_deref() == Some(started))
}

/// ID and start of the process named in a claim, if they have a meaning on this machine, in this
/// boot and PID namespace.
fn on_this_machine(mark: &Value) -> Option<(u32, &str)> {
    let text = |field: &str| mark.get(field).and_then(Value::as_str);
    let pid = u32::try_from(mark.get("pid")?.as_u64()?).ok()?;
    let started = text("process_started")?;
    let (boot, _) = started.split_once(' ')?;
    let here = boot_id().as_deref() == Some(boot)
        && text("pid_namespace").is_some()
        && text("pid_namespace") == pid_namespace().as_deref();
    here.then_some((pid, started))
}

/// The PID namespace of the current process.
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

/// The fields of `/proc/PID/stat`, beginning with the process state.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may contain spaces and parentheses; the fields after the last one do not.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns whether the process has ended but its parent has not reaped it yet, which in a container may
/// never happen.
fn is_zombie(pid: u32) -> bool {
    stat(pid).and_then(|fields| fields.into_iter().next()).is_some_and(|s| s == "Z" || s == "X")
}

/// Boot ID and start time of a running process of this machine: `BOOT TICKS`.
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
        assert!(!is_proven_dead(&own_mark()) && is_proven_alive(&own_mark()));
        assert!(!is_proven_dead(&json!({})));
    }

    /// A killed process remains a zombie until its parent reaps it.
    #[test]
    fn a_killed_process_is_dead_before_its_parent_knows() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let mark = json!({
            "pid": pid, "process_started": start(pid), "pid_namespace": pid_namespace(),
        });
        assert!(!is_proven_dead(&mark));
        child.kill().unwrap();
        // It is not reaped, so only its state can tell. The signal may take a moment to act.
        while !is_zombie(pid) {
            std::thread::yield_now();
        }
        let dead = is_proven_dead(&mark);
        child.wait().unwrap();
        assert!(dead);
        assert!(is_proven_dead(&mark) && !is_proven_alive(&mark));
    }
}
