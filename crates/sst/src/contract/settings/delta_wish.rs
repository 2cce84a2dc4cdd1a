//! The setting `delta`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::SettingsError;
use super::reader::{Reader, value};

/// Whether a transfer leaves out what the joiner already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeltaWish {
    /// If the network holds the transfer up.
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

impl FromStr for DeltaWish {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "1" | "on" | "yes" | "true" => Ok(Self::Yes),
            "0" | "off" | "no" | "false" => Ok(Self::No),
            _ => Err(()),
        }
    }
}

impl fmt::Display for DeltaWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        })
    }
}

impl Reader<'_> {
    /// The setting, or its default.
    pub(super) fn delta(&self) -> Result<DeltaWish, SettingsError> {
        let Some(text) = self.files.sst("delta") else { return Ok(DeltaWish::Auto) };
        let wish = text.to_str().and_then(|text| text.parse().ok());
        wish.ok_or_else(|| value("delta", "expected auto, yes or no"))
    }
}
