//! Metrics of a receiver of binary logs.

use jiff::Timestamp;

use crate::job::metrics::{Text, escaped};

/// Work of a receiver of binary logs since it started.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiverState {
    /// Name of the repository.
    pub(crate) repository: String,
    /// Name of the server.
    pub(crate) server: String,
    /// Program and version.
    pub(crate) tool: String,
    /// Whether the server sends its log.
    pub(crate) receiving: bool,
    /// Whether the store accepts the received log.
    pub(crate) storing: bool,
    /// Everything up to this time is stored.
    pub(crate) stored_until: Option<Timestamp>,
    /// Last sign of life in the archive.
    pub(crate) alive: Option<Timestamp>,
    /// Segments stored.
    pub(crate) segments: u64,
    /// Gaps in the archive.
    pub(crate) gaps: u64,
    /// Branches of the server's history.
    pub(crate) branches: u64,
    /// Times that the archive lacked what this host remembers.
    pub(crate) lost: u64,
}

impl ReceiverState {
    /// Returns whether the log is received and stored.
    pub(crate) fn is_well(&self) -> bool {
        self.receiving && self.storing
    }
}

/// Returns the metrics of a receiver.
pub(crate) fn receiver_metrics(state: &ReceiverState) -> String {
    let mut text = Text::new(&state.repository, Some(&state.server));
    text.head("xbcloud_binlog_build_info", "Version of the receiver.");
    let version = format!(",version=\"{}\"", escaped(&state.tool));
    text.sample("xbcloud_binlog_build_info", &version, "1");
    let flags = [
        ("xbcloud_binlog_receiving", "Whether the server sends its log.", state.receiving),
        ("xbcloud_binlog_storing", "Whether the store accepts the received log.", state.storing),
    ];
    for (name, help, value) in flags {
        text.one(name, help, u8::from(value));
    }
    let times = [
        (
            "xbcloud_binlog_stored_until_timestamp_seconds",
            "Everything that the server had committed by then is stored.",
            state.stored_until,
        ),
        (
            "xbcloud_binlog_alive_timestamp_seconds",
            "Last sign of life in the archive.",
            state.alive,
        ),
    ];
    for (name, help, time) in times {
        if let Some(time) = time {
            text.one(name, help, time.as_second());
        }
    }
    let numbers = [
        ("xbcloud_binlog_segments", "Segments stored since the receiver started.", state.segments),
        ("xbcloud_binlog_gaps", "Gaps since the receiver started.", state.gaps),
        ("xbcloud_binlog_branches", "Branches since the receiver started.", state.branches),
        (
            "xbcloud_binlog_lost",
            "How often since its start the receiver found that the archive lacked a segment it had stored.",
            state.lost,
        ),
    ];
    for (name, help, value) in numbers {
        text.one(name, help, value);
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_not_known_are_left_out() {
        let mut state = ReceiverState {
            repository: "shop".to_owned(),
            server: "db1".to_owned(),
            receiving: true,
            gaps: 2,
            ..ReceiverState::default()
        };
        let text = receiver_metrics(&state);
        let labels = "{repository=\"shop\",server=\"db1\"}";
        assert!(text.contains(&format!("xbcloud_binlog_gaps{labels} 2\n")), "{text}");
        assert!(text.contains(&format!("xbcloud_binlog_storing{labels} 0\n")), "{text}");
        assert!(!text.contains("timestamp") && !state.is_well());
        state.stored_until = Timestamp::from_second(7).ok();
        let name = "xbcloud_binlog_stored_until_timestamp_seconds";
        assert!(receiver_metrics(&state).contains(&format!("{name}{labels} 7\n")));
    }
}
