//! Whether the donor may leave out what this node's old data has.

use super::acceptance::EngineLocks;
use crate::context::Context;
use crate::contract::settings::DeltaWish;
use crate::delta::old_data::OldData;
use crate::delta::question::Key;

/// Returns the old data, and what the donor is to do, which has offered the key of its hashes.
pub(super) fn old_data(context: &Context, key: Option<Key>) -> (Option<(OldData, Key)>, DeltaWish) {
    let wish = context.settings.delta;
    let old = key.filter(|_| wish != DeltaWish::No).and_then(|key| Some((open(context)?, key)));
    let wish = if old.is_some() { wish } else { DeltaWish::No };
    (old, wish)
}

fn open(context: &Context) -> Option<OldData> {
    let Context { layout, error_log, .. } = context;
    let old = OldData::open(layout, error_log)?;
    // What is copied would be right, but there would be less and less of it.
    let is_free = matches!(EngineLocks::take(layout), Ok(Some(_)));
    if !is_free {
        error_log.warn("the old data may be in use: receiving all data from the donor");
    }
    is_free.then_some(old)
}
