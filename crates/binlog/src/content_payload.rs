//! Counts the events in a compressed transaction of MySQL as if they stood in the log.

use crate::event_type::EventType;
use crate::format::Fork;
use crate::partial_event::{Kind, PartialEvent};
use crate::payload::PlainPayload;
use crate::query::Verb;
use crate::transaction_digest::TransactionDigest;
use crate::transactions::Outcome;

/// Limit on the length of what is compressed, in bytes.
const MAX: u64 = 1 << 30;

/// The events of a compressed transaction, which arrives in pieces. They have no checksums.
#[derive(Debug)]
pub(crate) struct PayloadContent {
    plain: PlainPayload,
    event: PartialEvent,
    /// How the transaction ends, once the event that ends it has arrived.
    outcome: Option<Outcome>,
}

impl Default for PayloadContent {
    fn default() -> Self {
        let plain = PlainPayload::new(MAX);
        Self { plain, event: PartialEvent::default(), outcome: None }
    }
}

impl PayloadContent {
    /// Takes the next bytes, and counts the events in them.
    pub(crate) fn take(&mut self, bytes: &[u8], transaction: &mut TransactionDigest) {
        let Self { plain, event, outcome } = self;
        let taken = plain.push(bytes, &mut |mut plain| {
            while !plain.is_empty() {
                let (taken, rest) = plain.split_at(event.missing().min(plain.len()));
                plain = rest;
                if !event.take(taken, Fork::MySql, 0).is_empty() {
                    return None;
                }
                let Some(header) = event.header else { continue };
                if event.missing() == 0 {
                    // Nothing follows the end.
                    if outcome.is_some() {
                        return None;
                    }
                    *outcome = count(event, header.event_type, transaction)?;
                    event.clear();
                }
            }
            Some(())
        });
        if taken.is_none() {
            transaction.break_off();
        }
    }

    /// How the transaction ends. `None` if it did not arrive as a whole.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.filter(|_| self.plain.is_whole())
    }
}

/// Counts an event. Returns how it ends the transaction, if it does; `None` if it cannot stand in a compressed one.
fn count(
    event: &mut PartialEvent,
    event_type: EventType,
    transaction: &mut TransactionDigest,
) -> Option<Option<Outcome>> {
    let is_query = event_type == EventType::QUERY;
    let verb = if is_query { Verb::of(&event.text) } else { Verb::Other };
    let outcome = match (event_type, verb) {
        (EventType::XID, _) | (EventType::QUERY, Verb::Commit) => Some(Outcome::Commit),
        (EventType::QUERY, Verb::Rollback) => Some(Outcome::Rollback),
        (EventType::XA_PREPARE, _) => Some(match event.fields.first()? {
            0 => Outcome::XaPrepared,
            _ => Outcome::Commit,
        }),
        _ => None,
    };
    match (Kind::of(event_type, Fork::MySql), verb) {
        // The statement of the rows that follow.
        (Kind::Nothing, _) => {
            matches!(event_type, EventType::XID | EventType::ROWS_QUERY).then_some(outcome)
        }
        (_, Verb::Begin | Verb::XaStart | Verb::Commit | Verb::Rollback) => Some(outcome),
        _ => {
            transaction.count(event, event_type);
            Some(outcome)
        }
    }
}
