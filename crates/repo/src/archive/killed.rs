//! The roll-up that a killed receiver had not stored yet.

use futures::{StreamExt as _, TryStreamExt as _};

use crate::archive::listing::{PARALLEL, segment_head_text};
use crate::archive::names::{END, rollup_name, segment_name, server_folder, stream_folder};
use crate::archive::rollup::{RollUp, SMALL, heads};
use crate::error::RepoError;
use crate::names::RunId;
use crate::root::Root;

/// The roll-up that a receiver would have stored at the end of a stream, had it not been killed: of the heads from the last
/// multiple of [`SMALL`] up to segment `last`. `None` if there is nothing to save, or one of them cannot be used.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be reached.
pub async fn left_by_killed(
    root: &Root,
    server: &str,
    stream: &str,
    last: u64,
) -> Result<Option<RollUp>, RepoError> {
    let Some(id) = RunId::parse(stream) else { return Ok(None) };
    let folder = stream_folder(&server_folder(server)?, id);
    let span = (last - last % SMALL, last);
    let key = |name: &str| root.key(&format!("{folder}/{name}"));
    for name in [END, &rollup_name(span)] {
        if span.0 == span.1 || root.store().size(&key(name)).await?.is_some() {
            return Ok(None);
        }
    }
    let reading = (span.0..=span.1).map(|number| {
        let key = format!("{folder}/{}", segment_name(number));
        async move {
            match root.store().size(&root.key(&key)).await? {
                Some(size) => segment_head_text(root, &key, size).await,
                None => Ok(Err("it is missing".to_owned())),
            }
        }
    });
    let reading: Vec<_> = reading.collect();
    let read: Vec<_> = futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let mut text = Vec::new();
    for head in read {
        match head {
            Ok((_, bytes)) => text.extend_from_slice(&bytes),
            Err(_) => return Ok(None),
        }
    }
    Ok(heads(&text, stream, span).is_ok().then_some(RollUp { span, text }))
}
