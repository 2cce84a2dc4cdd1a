//! The index of a packed backup whose manifest and objects come from somebody else.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use xb_backup::{
    Accept, BackupError, GetRequest, Keys, Resources, Selection, Session, ShowRequest, StreamSink,
};
use xb_frame::{TRAILER_LEN, Trailer};
use xb_pipeline::object_key;
use xb_repo::manifest::{Manifest, PackedFacts};
use xb_repo::names::{BackupName, manifest_key};
use xb_repo::root::Root;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

use crate::catalogue::sample;
use crate::commands::scratch;
use crate::frames;

const MEMORY: u64 = 64 << 20;

/// A sink that takes everything.
struct Nowhere;

impl StreamSink for Nowhere {
    fn take(&mut self, _: Bytes) -> Result<(), BackupError> {
        Ok(())
    }
}

/// Any bytes as the object of a packed backup, and any numbers in its manifest: its files are shown
/// and read, or the backup is damaged; no panic, and no endless loop.
pub(crate) fn read(data: &[u8]) {
    let Some((head, stream)) = data.split_first_chunk::<18>() else { return };
    let (how, chunk) = (head[0], head[1]);
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| head[at + n]));
    let mut stream = stream.to_vec();
    if how & 1 == 1 {
        frames::mend(&mut stream);
    }
    let mut manifest = sample(&stream);
    if let Some(id) = stream.get(16..32) {
        manifest.run = base16ct::lower::encode_string(id);
    }
    let place = match stream.last_chunk::<TRAILER_LEN>().and_then(|t| Trailer::parse(t).ok()) {
        // Where the stream has its index, so that most inputs get further.
        Some(Trailer { last_index: Some(place), .. }) if how & 2 == 2 => {
            (place.position, u64::from(place.len))
        }
        _ => (number(2), number(10)),
    };
    let chunk_size = 1 << (8 + chunk % 16);
    manifest.packed = manifest.packed.map(|packed| PackedFacts {
        chunk_size,
        index_position: place.0,
        index_len: place.1,
        ..packed
    });
    manifest.objects = (stream.len() as u64).div_ceil(chunk_size);
    if how & 4 == 4 {
        manifest.stored_bytes = number(10);
    }
    store(&manifest, &stream, chunk_size);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    runtime.block_on(show_and_get());
}

/// Places the backup in the folder.
fn store(manifest: &Manifest, stream: &[u8], chunk_size: u64) {
    let root = scratch().path().join("root");
    let name = BackupName::new("n").expect("a name");
    let (Some(run), Ok(text)) = (manifest.run_id(), manifest.encode(None)) else { return };
    let _ = fs::remove_dir_all(&root);
    let write = |key: String, content: &[u8]| {
        let path = root.join(key);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("room");
        fs::write(path, content).expect("room");
    };
    for (number, object) in stream.chunks(chunk_size as usize).enumerate() {
        write(format!("{name}/{run}/{}", object_key(number as u64)), object);
    }
    write(manifest_key(&name), &text);
}

async fn show_and_get() {
    let path = scratch().path().join("root");
    let path = path.to_str().unwrap_or_default().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), Policy::default(), false);
    let (Ok(root), Ok(name)) = (root, BackupName::new("n")) else { return };
    let (keys, accept) = (Keys::default(), Accept::default());
    let show = ShowRequest { name: name.clone(), keys, accept, memory: MEMORY };
    let _ = xb_backup::show(&root, &show).await;
    let files = Selection::globs(&["*".to_owned()]).expect("a pattern");
    let request = GetRequest { name, files, as_stored: false, keys: Keys::default(), accept };
    let session = Session::new(root, Resources { memory: MEMORY, threads: 1, parallel: 2 });
    let _ = xb_backup::get(&session, &request, Nowhere).await;
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let heads = [[3_u8; 18], [2; 18], [0; 18], [7; 18]];
    heads.iter().flat_map(|head| crate::inputs::with_head(head, frames::streams())).collect()
}
