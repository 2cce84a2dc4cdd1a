//! Messages of the donor, one in each packet: its kind is the first byte.

use super::command::INNODB;
use super::descriptor::Descriptor;
use super::error::{CloneError, broken, unsupported};
use super::fields::Fields;

const LOCATORS: u8 = 1;
const DESCRIPTOR: u8 = 2;
const DATA: u8 = 3;
const PLUGIN: u8 = 4;
const CONFIG: u8 = 5;
const COLLATION: u8 = 6;
const PLUGIN_FILE: u8 = 7;
const CONFIG_3: u8 = 8;
const CONFIG_4: u8 = 9;
const COMPLETE: u8 = 99;
const ERROR: u8 = 100;

/// A message of the donor.
#[derive(Debug)]
pub(super) enum Answer<'a> {
    /// The version of the protocol, and the locator of InnoDB's part.
    Locators {
        version: u32,
        locator: &'a [u8],
    },
    Descriptor(Descriptor<'a>),
    Data(&'a [u8]),
    /// A plugin, and its library unless it is part of the server.
    Plugin {
        name: String,
        library: Option<String>,
    },
    Setting {
        name: String,
        value: String,
    },
    Collation,
    Complete,
}

impl<'a> Answer<'a> {
    /// Parses a message. An error that the donor reports is returned as such.
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, CloneError> {
        let mut fields = Fields::new("message", message);
        let kind = fields.u8()?;
        let answer = match kind {
            LOCATORS => locators(&mut fields)?,
            DESCRIPTOR => {
                let (engine, index) = (fields.u8()?, fields.u8()?);
                if (engine, index) != (INNODB, 0) {
                    return broken(format!("a descriptor of engine {engine}, locator {index}"));
                }
                Self::Descriptor(Descriptor::parse(fields.rest())?)
            }
            DATA => Self::Data(fields.rest()),
            PLUGIN => Self::Plugin { name: fields.text()?, library: None },
            PLUGIN_FILE => {
                let (name, library) = (fields.text()?, fields.text()?);
                Self::Plugin { name, library: (!library.is_empty()).then_some(library) }
            }
            CONFIG | CONFIG_3 | CONFIG_4 => {
                Self::Setting { name: fields.text()?, value: fields.text()? }
            }
            COLLATION => {
                let _ = fields.text()?;
                Self::Collation
            }
            COMPLETE => Self::Complete,
            ERROR => {
                let code = i32::from_le_bytes(fields.u32_le()?.to_le_bytes());
                let message = String::from_utf8_lossy(fields.rest()).into_owned();
                return Err(CloneError::Donor { code, message });
            }
            other => return broken(format!("a message of the unknown kind {other}")),
        };
        fields.end()?;
        Ok(answer)
    }

    /// The message's kind, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Locators { .. } => "locators",
            Self::Descriptor(Descriptor::Locator) => "a descriptor of a locator",
            Self::Descriptor(Descriptor::Task { .. }) => "a descriptor of a task",
            Self::Descriptor(Descriptor::State(_)) => "a descriptor of a stage",
            Self::Descriptor(Descriptor::File(_)) => "a descriptor of a file",
            Self::Descriptor(Descriptor::Data(_)) => "a descriptor of data",
            Self::Data(_) => "data",
            Self::Plugin { .. } => "a plugin",
            Self::Setting { .. } => "a setting",
            Self::Collation => "a collation",
            Self::Complete => "a completion",
        }
    }
}

fn locators<'a>(fields: &mut Fields<'a>) -> Result<Answer<'a>, CloneError> {
    let version = fields.u32_le()?;
    let (engine, locator) = (fields.u8()?, fields.counted()?);
    if engine != INNODB || !fields.is_empty() {
        // Such as MyRocks in Percona Server: its data would be missing.
        return unsupported(
            "the server has data in a second storage engine, which a clone stores beside InnoDB's: back it up with the server's own tool",
        );
    }
    match Descriptor::parse(locator)? {
        Descriptor::Locator => Ok(Answer::Locators { version, locator }),
        _ => broken("an invalid locator"),
    }
}
