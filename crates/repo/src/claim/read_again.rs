//! Reads after which a command gives up: no single answer decides.

use bytes::Bytes;
use xb_uploader::{Store, StoreError, StoreErrorKind};

/// Reads after the first one.
const AGAIN: u32 = 3;

/// Reads a small object until it is the expected one. Other bytes count if two answers in a row have them, a missing
/// object if it is missing four times: an answer may be altered, or older than a write. A directory is asked once.
///
/// # Errors
/// Those of the last read.
pub(super) async fn read_again(
    store: &Store,
    key: &str,
    is_expected: impl Fn(&Bytes) -> bool,
) -> Result<Bytes, StoreError> {
    let mut last = store.get(key).await;
    if store.is_folder() {
        return last;
    }
    for retry in 1..=AGAIN {
        match &last {
            Ok(found) if is_expected(found) => return last,
            Ok(_) => {}
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            Err(_) => return last,
        }
        store.pause(retry).await;
        let again = store.get(key).await;
        if matches!((&last, &again), (Ok(last), Ok(again)) if last == again) {
            return again;
        }
        last = again;
    }
    last
}
