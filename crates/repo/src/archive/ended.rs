//! Roll-ups of streams that have ended: copies of their records in one object, so that an archive of many connections is
//! read with few requests.
//!
//! The records are as they are stored, check lines included, and nothing of a stream that has ended changes. As with
//! [roll-ups of heads](super::rollup), no answer depends on one alone: which objects exist, and how long they are, is
//! what the store lists. One that is missing or not as it should be costs requests.

use std::collections::BTreeMap;
use std::io::Cursor;

use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use xb_encryptor::KeysObject;
use xb_pipeline::Observer;
use xb_pipeline::filter::{OpenFile, read_stream};

use crate::archive::authority::Authority;
use crate::archive::names::{ALIVE, END, HEAD, KEYS, STREAMS};
use crate::archive::record::Record;
use crate::archive::rollup::{
    LimitedBuffer, ListedHeads, MAX_OBJECT, MAX_TEXT, PARALLEL, Rolled, SMALL, heads, is_of_object,
    listed,
};
use crate::archive::stream::{Alive, End, StreamHead};
use crate::error::RepoError;
use crate::names::RunId;
use crate::root::Root;

/// Streams in one roll-up, unless their records are many bytes.
pub const STREAMS_AT_ONCE: usize = 16;

/// The records of a stream that has ended, as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedStream {
    /// ID of the stream.
    pub id: RunId,
    /// Its head.
    pub head: Vec<u8>,
    /// Its key slots; empty if it is not sealed.
    pub keys: Vec<u8>,
    /// Its last sign of life.
    pub alive: Vec<u8>,
    /// Its end.
    pub end: Vec<u8>,
    /// The heads of all its segments, one after the other; empty if they are more than [`SMALL`]: those have a roll-up of
    /// their own.
    pub heads: Vec<u8>,
}

/// The header of each stream's records: how many bytes each record has.
#[derive(Serialize, Deserialize)]
struct Lengths {
    stream: String,
    head: usize,
    keys: usize,
    alive: usize,
    end: usize,
    heads: usize,
}

/// The plain bytes of a roll-up of these streams.
#[must_use]
pub fn encode(streams: &[EndedStream]) -> Vec<u8> {
    let mut text = Vec::new();
    for of in streams {
        let [head, keys, alive, end, heads] = of.parts().map(<[u8]>::len);
        let lengths = Lengths { stream: of.id.to_string(), head, keys, alive, end, heads };
        // Numbers and digits always have a text.
        text.extend(serde_json::to_vec(&lengths).unwrap_or_default());
        text.push(b'\n');
        of.parts().iter().for_each(|part| text.extend_from_slice(part));
    }
    text
}

impl EndedStream {
    fn parts(&self) -> [&[u8]; 5] {
        [&self.head, &self.keys, &self.alive, &self.end, &self.heads]
    }

    /// Its bytes in a roll-up, without those of their lengths.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Returns whether it has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The records of a stream that has ended, as a roll-up has them.
#[derive(Debug)]
pub(super) struct EndedRecords {
    pub(super) head: Record<StreamHead>,
    pub(super) keys: Option<KeysObject>,
    pub(super) alive: Record<Alive>,
    pub(super) end: Record<End>,
    /// Those of its segments that are wanted, or none.
    pub(super) segments: ListedHeads,
    /// Heads of all its segments, or none, until the wanted ones are listed.
    heads: Vec<Rolled>,
    /// Names of its records, and their bytes.
    sizes: BTreeMap<&'static str, u64>,
}

impl EndedRecords {
    /// Returns whether the store has these records and no others, as far as their lengths show it.
    pub(super) fn fit(&self, listed: &BTreeMap<String, u64>) -> bool {
        [HEAD, KEYS, ALIVE, END].iter().all(|name| listed.get(*name) == self.sizes.get(name))
    }
}

/// Reads the roll-ups with these names in the folder of a server. Returns what they have, and what is wrong with them. Of
/// the heads it keeps those of the segments that are wanted, by stream and number: roll-ups outlive segments, so that all of
/// them may be many times what the archive still has.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be reached.
pub(super) async fn ended(
    root: &Root,
    folder: &str,
    names: Vec<String>,
    authority: &dyn Authority,
    is_wanted: impl Fn(RunId, u64) -> bool + Sync,
) -> Result<(BTreeMap<RunId, EndedRecords>, Vec<String>), RepoError> {
    let is_wanted = &is_wanted;
    let reading = names.into_iter().map(|name| async move {
        let key = root.key(&format!("{folder}/{STREAMS}/{name}"));
        let found = match root.store().get_at_most(&key, MAX_OBJECT).await {
            Ok(object) => {
                let decoding = tokio::task::spawn_blocking(move || {
                    let streams = split(&text_of(object.to_vec())?)?;
                    let records = streams.iter().map(|of| Ok((of.id, EndedRecords::of(of)?)));
                    records.collect::<Result<Vec<_>, String>>()
                });
                decoding.await.unwrap_or_else(|_| Err("its thread panicked".to_owned()))
            }
            Err(error) if is_of_object(&error) => Err(error.to_string()),
            Err(error) => return Err(RepoError::from(error)),
        };
        let found = found.map(|mut streams| {
            for (id, of) in &mut streams {
                let mut heads = std::mem::take(&mut of.heads);
                heads.retain(|(head, _)| is_wanted(*id, head.content.number));
                let key = of.keys.as_ref().filter(|_| !heads.is_empty());
                let key = key.and_then(|slots| authority.key(*id, slots));
                of.segments = listed(&heads, key.as_ref());
            }
            streams
        });
        Ok((name, found))
    });
    let reading: Vec<_> = reading.collect();
    let read: Vec<_> = futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let (mut streams, mut remarks) = (BTreeMap::new(), Vec::new());
    for (name, found) in read {
        match found {
            Ok(found) => streams.extend(found),
            Err(what) => remarks.push(format!(
                "{STREAMS}/{name} is ignored, and the records of its streams are used instead: {what}"
            )),
        }
    }
    Ok((streams, remarks))
}

/// Reads a roll-up: a native stream of the records of streams that have ended.
///
/// # Errors
/// The fault of the object.
pub fn decode(object: Vec<u8>) -> Result<Vec<EndedStream>, String> {
    parse(&text_of(object)?)
}

fn text_of(object: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut text = LimitedBuffer(Vec::new());
    let settings = OpenFile { threads: 1, max_memory: 0 };
    read_stream(Cursor::new(object), &mut text, None, settings, &Observer::default())
        .map_err(|error| error.to_string())?;
    Ok(text.0)
}

/// The streams in the plain bytes of a roll-up, each with records that are its own.
///
/// # Errors
/// The fault of the text.
pub fn parse(text: &[u8]) -> Result<Vec<EndedStream>, String> {
    let streams = split(text)?;
    streams.iter().try_for_each(|of| EndedRecords::of(of).map(drop))?;
    Ok(streams)
}

fn split(text: &[u8]) -> Result<Vec<EndedStream>, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("it has {} bytes", text.len()));
    }
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let number = found.len();
        let wrong = |what: &str| format!("stream {number}: {what}");
        let line = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| wrong("it is cut"))?;
        let (line, behind) = rest.split_at(line + 1);
        let lengths: Lengths =
            serde_json::from_slice(line).map_err(|error| wrong(&error.to_string()))?;
        let id = RunId::parse(&lengths.stream).ok_or_else(|| wrong("the ID of the stream"))?;
        rest = behind;
        let mut part = |len: usize| {
            let (part, behind) = rest.split_at_checked(len).ok_or_else(|| wrong("it is cut"))?;
            rest = behind;
            Ok::<_, String>(part.to_vec())
        };
        let (head, keys) = (part(lengths.head)?, part(lengths.keys)?);
        let (alive, end) = (part(lengths.alive)?, part(lengths.end)?);
        let stream = EndedStream { id, head, keys, alive, end, heads: part(lengths.heads)? };
        found.push(stream);
    }
    Ok(found)
}

impl EndedRecords {
    fn of(stream: &EndedStream) -> Result<Self, String> {
        let (id, [head, keys, alive, end, text]) = (stream.id, stream.parts());
        let sizes = [(HEAD, head), (KEYS, keys), (ALIVE, alive), (END, end)];
        let sizes = sizes.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let sizes = sizes.map(|(name, bytes)| (name, bytes.len() as u64)).collect();
        let is_sealed = !keys.is_empty();
        let keys = is_sealed.then(|| KeysObject::parse(keys)).transpose();
        let keys = keys.map_err(|error| format!("{KEYS}: {error}"))?;
        let of = |name: &str, error: &dyn std::fmt::Display| format!("{name}: {error}");
        let head = Record::<StreamHead>::decode(head).map_err(|error| of(HEAD, &error))?;
        let alive = Record::<Alive>::decode(alive).map_err(|error| of(ALIVE, &error))?;
        let end = Record::<End>::decode(end).map_err(|error| of(END, &error))?;
        let (own, segments) = (id.to_string(), end.content.segments);
        let ids = [&head.content.stream, &alive.content.stream, &end.content.stream];
        if ids.iter().any(|stream| **stream != own) {
            return Err("its records are those of another stream".to_owned());
        }
        let heads = match segments.checked_sub(1) {
            Some(last) if !text.is_empty() && last < SMALL => heads(text, &own, (0, last))?,
            _ if text.is_empty() => Vec::new(),
            _ => return Err("it lacks the heads of its segments".to_owned()),
        };
        Ok(Self { head, keys, alive, end, segments: Vec::new(), heads, sizes })
    }
}

#[cfg(test)]
mod tests {
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::archive::authority::Keyless;

    /// A roll-up outlives the segments whose heads it has.
    #[tokio::test]
    async fn heads_that_nobody_wants_take_no_memory() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("shop").join(STREAMS);
        std::fs::create_dir_all(&folder).unwrap();
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/archive/ended-streams");
        std::fs::copy(fixture, folder.join("x")).unwrap();
        let path = place.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let names = vec!["x".to_owned()];
        let (found, remarks) =
            ended(&root, "shop", names, &Keyless, |_, number| number == 1).await.unwrap();
        assert_eq!(remarks, [""; 0]);
        let segments: Vec<_> = found.values().flat_map(|of| &of.segments).collect();
        let [(segment, _)] = segments[..] else { panic!("{segments:?}") };
        assert_eq!(segment.number, 1);
        assert!(found.values().all(|of| of.heads.capacity() == 0 && of.segments.capacity() <= 1));
    }
}
