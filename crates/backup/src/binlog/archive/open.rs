//! Opens a stream of an archive: finds its key, and checks that a holder of it wrote the stream's records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use xb_encryptor::{DataKey, Keys, KeysObject, MacKey, OpenError};
use xb_repo::archive::authority::Authority;
use xb_repo::archive::listing::{ListedStream, NO_SLOTS};
use xb_repo::names::RunId;

use crate::error::BackupError;
use crate::session::Session;

/// What begins the problem of a stream that the keys do not open.
pub(crate) const OF_KEYS: &str = "keys: ";
/// Streams that cannot be tried before no other one is.
const FAILURES: usize = 3;

/// Stream as these keys open it.
pub(crate) enum OpenedStream {
    /// It is sealed, and this is its key. What the key did not authenticate is a problem of the stream, and is
    /// ignored.
    Sealed(DataKey),
    /// It is not sealed.
    Plain,
    /// Its receiver was killed before it wrote the key slots, so that nothing else was stored.
    Empty,
    /// Its key slots are missing, although something else was stored.
    NoSlots,
    /// The keys do not open it, because of this.
    Locked(String),
}

/// Readable part of a stream.
pub(crate) enum Readable {
    /// Its segments, with the key if it is sealed; and what is wrong with that, if the reader has keys.
    Segments(Option<DataKey>, Option<String>),
    /// Nothing, because of this; without a reason, nothing is stored of it.
    Nothing(Option<String>),
}

impl OpenedStream {
    /// Returns the part that a reader with these keys can read, and its remarks.
    pub(crate) fn readable(self, keys: &Keys) -> Readable {
        match self {
            Self::Sealed(key) => Readable::Segments(Some(key), None),
            Self::Plain => {
                let what = (!keys.is_empty()).then_some("it is not sealed, but a key was given");
                Readable::Segments(None, what.map(str::to_owned))
            }
            Self::Empty => Readable::Nothing(None),
            Self::NoSlots => Readable::Nothing(Some(NO_SLOTS.to_owned())),
            Self::Locked(what) => Readable::Nothing(Some(format!("{OF_KEYS}{what}"))),
        }
    }
}

/// A stream, and its key slots as they are stored.
type StreamSlots = (RunId, Vec<u8>);

/// The keys of a reader, and the streams that they have opened so far: a passphrase, or a program, takes its time for each.
pub(crate) struct StreamKeys<'a> {
    keys: &'a Keys,
    session: &'a Session,
    /// A roll-up may have other slots than the stream has by now.
    opened: Mutex<BTreeMap<StreamSlots, Result<DataKey, OpenError>>>,
    /// Why the key of the first stream could not be tried, though it was tried twice, and of how many. That says nothing about
    /// the stream.
    untried: OnceLock<String>,
    failures: AtomicUsize,
    /// Whether a stream was opened, and why the first one was not that has no slot for these keys.
    has_opened: OnceLock<()>,
    wrong: OnceLock<String>,
}

impl<'a> StreamKeys<'a> {
    pub(crate) fn new(keys: &'a Keys, session: &'a Session) -> Self {
        Self {
            keys,
            session,
            opened: Mutex::default(),
            untried: OnceLock::new(),
            failures: AtomicUsize::new(0),
            has_opened: OnceLock::new(),
            wrong: OnceLock::new(),
        }
    }

    pub(crate) fn keys(&self) -> &'a Keys {
        self.keys
    }

    /// Checks that the keys have opened a stream, if any was sealed: wrong keys show nothing of an archive.
    ///
    /// # Errors
    /// [`BackupError::Keys`].
    pub(crate) fn check(&self) -> Result<(), BackupError> {
        match self.wrong.get().filter(|_| self.has_opened.get().is_none()) {
            None => Ok(()),
            Some(what) => Err(BackupError::Keys(what.clone())),
        }
    }

    /// The key of a stream; `None` if the reader has no keys, has been cancelled, or could not try one.
    fn take(&self, stream: RunId, slots: &KeysObject) -> Option<Result<DataKey, OpenError>> {
        let which = (stream, slots.encode().to_vec());
        let opened = self.opened.lock().ok().and_then(|mut opened| opened.remove(&which));
        // The streams of an archive are opened one after the other, without a pause in which a signal would end that.
        // If none can be tried, neither can hundreds.
        let fails =
            || self.has_opened.get().is_none() && self.failures.load(Ordering::Relaxed) >= FAILURES;
        let is_over = || self.session.cancel.reason().is_some() || fails();
        opened.or_else(|| if is_over() { None } else { self.open(stream, slots) })
    }

    fn open(&self, stream: RunId, slots: &KeysObject) -> Option<Result<DataKey, OpenError>> {
        let memory = self.session.resources.memory;
        let open = || tokio::task::block_in_place(|| self.keys.open(slots, memory));
        let is_untried =
            |opened: &Result<DataKey, OpenError>| opened.as_ref().is_err_and(OpenError::is_untried);
        let mut opened = open()?;
        if is_untried(&opened) {
            opened = open()?;
        }
        match &opened {
            Ok(_) => drop(self.has_opened.set(())),
            Err(error) if is_untried(&opened) => {
                let _ = self.untried.set(format!("stream {stream} of the archive: {error}"));
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        Some(opened)
    }
}

impl Authority for StreamKeys<'_> {
    fn key(&self, stream: RunId, slots: &KeysObject) -> Option<MacKey> {
        let opened = self.take(stream, slots)?;
        let key = opened.as_ref().ok().map(|key| key.archive_mac(&stream.0));
        if let Ok(mut known) = self.opened.lock() {
            known.insert((stream, slots.encode().to_vec()), opened);
        }
        key
    }
}

/// Opens a stream of the archive of `server`, which was read with these keys as its authority.
///
/// # Errors
/// [`BackupError::Keys`] if it is sealed, and there are no keys, or one could not be tried.
pub(crate) fn open(
    found: &mut ListedStream,
    server: &str,
    keys: &StreamKeys<'_>,
) -> Result<OpenedStream, BackupError> {
    let Some(slots) = &found.keys else {
        return Ok(match found.is_sealed() {
            false => OpenedStream::Plain,
            true if found.is_empty() => OpenedStream::Empty,
            true => OpenedStream::NoSlots,
        });
    };
    let opened = keys.take(found.id, slots);
    // How much of the archive can be trusted is not known then. If another stream was opened, this one has another key.
    if let Some(what) = keys.untried.get().filter(|_| keys.has_opened.get().is_none()) {
        return Err(BackupError::Keys(what.clone()));
    }
    let Some(opened) = opened else {
        if let Some(signal) = keys.session.cancel.reason() {
            return Err(BackupError::Interrupted(signal));
        }
        let slots: Vec<_> = slots.slots().map(|slot| slot.to_string()).collect();
        return Err(BackupError::Keys(format!(
            "the archive of {server} is sealed, and no key was given; it opens with: {}",
            slots.join(", ")
        )));
    };
    Ok(match opened {
        Err(error) => {
            let _ = keys.wrong.set(format!("stream {} of the archive: {error}", found.id));
            OpenedStream::Locked(error.to_string())
        }
        Ok(key) => {
            found.authenticate(&key);
            OpenedStream::Sealed(key)
        }
    })
}

#[cfg(test)]
mod tests {
    use xb_encryptor::{FreshKey, KeyBytes, KeyCommand, KeySlotSpec, Passphrase};
    use xb_repo::root::Root;
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::session::Resources;

    /// A session whose store is not used.
    fn session() -> Session {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root = Root::open(&location, &StoreSettings::default(), Policy::default(), true);
        Session::new(root.unwrap(), Resources { memory: 1 << 20, threads: 1, parallel: 1 })
    }

    #[test]
    fn a_stream_with_new_key_slots_is_opened_although_a_roll_up_has_the_old_ones() {
        let [old, new] = [7, 8].map(|byte| KeyBytes::new(&[byte; 32]).unwrap());
        let (stream, fresh) = (RunId([1; 16]), FreshKey::generate().unwrap());
        let seal = |key| KeysObject::seal(fresh.key(), stream.0, &[KeySlotSpec::Key(key)]).unwrap();
        let reader = Keys { key: Some(new.clone()), ..Keys::default() };
        let session = session();
        let keys = StreamKeys::new(&reader, &session);
        assert!(keys.key(stream, &seal(&old)).is_none());
        let slots = seal(&new);
        assert!(keys.key(stream, &slots).is_some());
        assert!(keys.take(stream, &slots).unwrap().is_ok());
    }

    /// A program that fails for a moment says nothing about a stream.
    #[test]
    fn a_key_that_could_not_be_tried_is_no_wrong_key() {
        let (key, fresh) = (KeyBytes::new(&[7; 32]).unwrap(), FreshKey::generate().unwrap());
        let wrap = ["sh", "-c", "tr '\\000-\\377' '\\001-\\377\\000'"].map(Into::into);
        let wrap = KeyCommand::new(wrap).unwrap();
        let seal = |stream: RunId| {
            let slots = [KeySlotSpec::Key(&key), KeySlotSpec::Command(&wrap)];
            KeysObject::seal(fresh.key(), stream.0, &slots).unwrap()
        };
        let [one, two] = [RunId([1; 16]), RunId([2; 16])];
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        let script = format!("echo >> {}; exit 1", ran.display());
        let failing = || KeyCommand::new(["sh", "-c", &script].map(Into::into)).unwrap();
        let session = session();
        // Neither a passphrase that has no slot nor another key hides it.
        let other = KeyBytes::new(&[8; 32]).unwrap();
        let passphrase = Passphrase::new("secret".to_owned());
        let reader = Keys { command: Some(failing()), key: Some(other), ..Keys::default() };
        let reader = Keys { passphrase, ..reader };
        let keys = StreamKeys::new(&reader, &session);
        assert!(keys.key(one, &seal(one)).is_none() && keys.key(two, &seal(two)).is_none());
        let what = keys.untried.get().unwrap();
        assert!(
            what.contains(&one.to_string()) && what.contains("key command sh unwrap"),
            "{what}"
        );
        // Twice for each.
        assert_eq!(std::fs::read_to_string(&ran).unwrap().lines().count(), 4);
        // Another key opens it.
        let reader = Keys { command: Some(failing()), key: Some(key.clone()), ..Keys::default() };
        let keys = StreamKeys::new(&reader, &session);
        assert!(keys.key(one, &seal(one)).is_some() && keys.untried.get().is_none());
    }

    /// A program may take a minute for each stream, and there may be hundreds.
    #[test]
    fn a_signal_ends_the_opening_of_streams() {
        let (key, fresh) = (KeyBytes::new(&[7; 32]).unwrap(), FreshKey::generate().unwrap());
        let seal = |stream: RunId| {
            KeysObject::seal(fresh.key(), stream.0, &[KeySlotSpec::Key(&key)]).unwrap()
        };
        let [one, two] = [RunId([1; 16]), RunId([2; 16])];
        let (reader, session) = (Keys { key: Some(key.clone()), ..Keys::default() }, session());
        let keys = StreamKeys::new(&reader, &session);
        assert!(keys.key(one, &seal(one)).is_some());
        session.cancel.cancel(15);
        assert!(keys.key(two, &seal(two)).is_none());
        assert!(keys.take(two, &seal(two)).is_none());
    }
}
