//! Content of a claim: which run wrote it, and the phase of that run.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::claim::alive;
use crate::claim::left::RemainingObjects;
use crate::error::RepoError;
use crate::names::RunId;

/// Phase of a run, or of a command that removes a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The run checks whether the name is free.
    Claiming,
    /// The run writes and removes objects.
    Holding,
    /// The manifest of the run that the claim names is about to be removed, and stays if another
    /// backup or a pin turns out to need it. Objects and records follow.
    Removing,
    /// The objects of the packed run that the claim names are being removed; it has no manifest. A copy
    /// of that run has the same keys.
    Clearing,
    /// The run is over, and left nothing that another run would have to remove: a complete backup,
    /// objects as the stock tool leaves them ([`Note::left`]), or nothing.
    Ended,
}

impl Phase {
    const NAMES: [(Self, &str); 5] = [
        (Self::Claiming, "claiming"),
        (Self::Holding, "holding"),
        (Self::Removing, "removing"),
        (Self::Clearing, "clearing"),
        (Self::Ended, "ended"),
    ];
}

/// Content of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// ID of the writer: random, and unique to one claim.
    pub holder: String,
    pub phase: Phase,
    /// The run that writes the objects, or whose manifest or objects are about to be removed.
    pub run: String,
    pub mark: Value,
    pub host: Option<String>,
    /// Whether a run before this one may have been alive, so that its requests may still arrive.
    pub late: bool,
    /// Objects without a manifest that the ended run left in the layout of the stock tool.
    pub left: Option<RemainingObjects>,
    /// Whether the objects without a manifest are a stock backup, in every phase and whatever becomes of the run.
    pub stock: bool,
}

impl Note {
    pub(crate) fn new(run: String) -> Result<Self, RepoError> {
        let holder = RunId::random()?;
        let mark = alive::own_mark();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.map(|host| host.trim().to_owned());
        let holder = holder.to_string();
        let phase = Phase::Claiming;
        Ok(Self { holder, phase, run, mark, host, late: false, left: None, stock: false })
    }

    /// Encodes the claim; the bytes differ each time.
    pub(crate) fn encode(&self) -> Bytes {
        let phase = Phase::NAMES.iter().find(|(phase, _)| *phase == self.phase);
        let mut text = json!({
            "run": self.run, "holder": self.holder, "state": phase.map(|(_, name)| name),
            "host": self.host, "time": jiff::Timestamp::now(), "late": self.late,
            "left": self.left.as_ref().map(RemainingObjects::encode), "stock": self.stock,
        });
        if let (Some(text), Some(mark)) = (text.as_object_mut(), self.mark.as_object()) {
            text.extend(mark.clone());
        }
        Bytes::from(format!("{text}\n"))
    }

    /// Parses a claim. Earlier versions removed their claims at the end, so a claim without a phase
    /// counts as holding.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let state = text("state").unwrap_or_default();
        let phase = Phase::NAMES.iter().find(|(_, name)| *name == state);
        Self {
            holder: text("holder").unwrap_or_default(),
            phase: phase.map_or(Phase::Holding, |(phase, _)| *phase),
            run: text("run").unwrap_or_default(),
            host: text("host"),
            late: value.get("late").and_then(Value::as_bool).unwrap_or_default(),
            left: value.get("left").and_then(RemainingObjects::read),
            stock: value.get("stock").and_then(Value::as_bool).unwrap_or_default(),
            mark: value,
        }
    }

    /// Describes the writer for messages.
    pub(crate) fn describe(&self) -> String {
        let pid = self.mark.get("pid").and_then(Value::as_u64);
        let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let host = self.host.as_deref().unwrap_or("unknown");
        format!("run {}, host {host}, process {pid}", self.run)
    }
}
