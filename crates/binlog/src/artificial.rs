//! Events that a server makes up before it sends a log, or a part of one.

use crc_fast::{CrcAlgorithm, checksum};

use crate::event_type::EventType;
use crate::format::ChecksumKind;
use crate::header::{Flags, HEADER_LEN};

/// Offsets of fields in a format description: the end of the event, its flags, and the time at which
/// the server started with the log.
const END: std::ops::Range<usize> = 13..17;
const FLAGS: usize = 17;
const CREATED: std::ops::Range<usize> = HEADER_LEN + 52..HEADER_LEN + 56;
/// Length of a checksum.
const SUM: usize = 4;
/// Flags of an event that a server made up, of one of the relay log itself, and of one that a reader may pass over.
const ARTIFICIAL: u16 = 0x20;
const OF_RELAY_LOG: u16 = 0x40;
const IGNORABLE: u16 = 0x80;

/// The format description `format` of a log without its place in it, as it is put before a part of the log.
/// `None` if it is too short.
///
/// The flag that the server still writes the log is removed. The time of the server's start is kept only in a part that
/// begins with the log (`is_first`): where a replica reads it, it drops temporary tables.
#[must_use]
pub fn artificial_description(format: &[u8], is_first: bool) -> Option<Vec<u8>> {
    let created = if is_first { format.get(CREATED)? } else { &[0; 4] };
    description_created(format, u32::from_le_bytes(created.try_into().ok()?))
}

/// The same of a server that has started at this time since the log before; 0: it has not.
pub(crate) fn description_created(format: &[u8], created: u32) -> Option<Vec<u8>> {
    let mut description = format.get(..format.len().checked_sub(SUM)?)?.to_vec();
    description.get_mut(END)?.fill(0);
    clear_in_use(&mut description);
    description.get_mut(CREATED)?.copy_from_slice(&created.to_le_bytes());
    Some(with_sum(description, true))
}

/// Takes the mark off an event, by its header, that the server still writes the log: it is in files only, and no
/// checksum counts it.
pub fn clear_in_use(header: &mut [u8]) {
    if let Some(flags) = header.get_mut(FLAGS) {
        *flags &= !Flags::IN_USE;
    }
}

/// A rotation to `offset` of the log `name`, by the server of this format description; with a checksum, if events have
/// them so far. `None` if the name is too long, or the description too short.
#[must_use]
pub fn artificial_rotation(
    name: &str,
    offset: u64,
    format: &[u8],
    checksums: ChecksumKind,
) -> Option<Vec<u8>> {
    let body = [&offset.to_le_bytes()[..], name.as_bytes()].concat();
    artificial(EventType::ROTATE, ARTIFICIAL, &body, format, checksums)
}

/// An empty list of previous GTIDs, as in a relay log of MySQL: without one, the server refuses the log.
pub(crate) fn artificial_previous_gtids(format: &[u8], checksums: ChecksumKind) -> Option<Vec<u8>> {
    artificial(EventType::PREVIOUS_GTIDS, OF_RELAY_LOG | IGNORABLE, &[0; 8], format, checksums)
}

fn artificial(
    event_type: EventType,
    flags: u16,
    body: &[u8],
    format: &[u8],
    checksums: ChecksumKind,
) -> Option<Vec<u8>> {
    let has_sum = checksums == ChecksumKind::Crc32;
    let length = HEADER_LEN + body.len() + if has_sum { SUM } else { 0 };
    let mut event = vec![0; 4];
    event.push(event_type.0);
    event.extend(format.get(5..9)?);
    event.extend(u32::try_from(length).ok()?.to_le_bytes());
    event.extend([0; 4]);
    event.extend(flags.to_le_bytes());
    event.extend(body);
    Some(with_sum(event, has_sum))
}

fn with_sum(mut event: Vec<u8>, has_sum: bool) -> Vec<u8> {
    if has_sum {
        let sum = checksum(CrcAlgorithm::Crc32IsoHdlc, &event);
        event.extend(u32::try_from(sum).unwrap_or_default().to_le_bytes());
    }
    event
}
