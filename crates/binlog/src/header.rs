//! The common header of all events.

use crate::event_type::EventType;
use crate::fields::Fields;

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 19;

/// Header of an event. ("Binlog Event Header", documentation of MariaDB Server)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// Time at which the statement began, in seconds since 1970; 0 in events that a server makes up.
    pub seconds: u32,
    /// Type of the event.
    pub event_type: EventType,
    /// `server_id` of the server that first wrote the event.
    pub server_id: u32,
    /// Length of the event in bytes, with header and checksum.
    pub length: u32,
    /// Offset at which the event ends, modulo 2³²; MariaDB 11.8 writes 0 within a transaction.
    pub end: u32,
    /// Flags.
    pub flags: Flags,
}

impl EventHeader {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let mut fields = Fields::new(bytes);
        // The array has all of them.
        Self {
            seconds: fields.u32().unwrap_or_default(),
            event_type: EventType(fields.u8().unwrap_or_default()),
            server_id: fields.u32().unwrap_or_default(),
            length: fields.u32().unwrap_or_default(),
            end: fields.u32().unwrap_or_default(),
            flags: Flags(fields.u16().unwrap_or_default()),
        }
    }
}

/// Flags of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// Of a format description: the server has not closed the log. The checksum of the event does
    /// not cover this bit.
    pub(crate) const IN_USE: u8 = 0x1;

    /// Of a format description: the server has not closed the log, because it still writes it or has
    /// crashed.
    #[must_use]
    pub fn is_in_use(self) -> bool {
        self.0 & u16::from(Self::IN_USE) != 0
    }

    /// Returns whether the statement depends on its session: `LOG_EVENT_THREAD_SPECIFIC_F`.
    #[must_use]
    pub(crate) fn is_of_session(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// Returns whether the server made the event up while it sent the log.
    #[must_use]
    pub fn is_artificial(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// Returns whether a reader that does not know the type may pass the event over.
    #[must_use]
    pub(crate) fn is_ignorable(self) -> bool {
        self.0 & 0x80 != 0
    }
}
