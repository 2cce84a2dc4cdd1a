//! A store in a local directory, and a small stream to put there.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use xb_backup::{
    BackupError, GetRequest, KeySlots, Keys, PutLayout, PutReport, PutRequest, Resources,
    RestoreOptions, Session, StreamSink,
};
use xb_encryptor::KeyBytes;
use xb_pipeline::{Content, Durability, EndRule, ObjectSize, XbstreamInput, extract_from};
use xb_reader::{ChunkWriter, Dialect, TargetDir};
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_testkit::stream::StreamWriter;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

pub(crate) struct Store {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) root: Root,
}

impl Store {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root").to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        Self { folder, root }
    }

    /// A store of its own with the same files, of the same times.
    pub(crate) fn twin(&self) -> Self {
        // Not by another program: while that starts, it holds the locks of the tests beside this one.
        let twin = Self::new();
        let mut folders = vec![PathBuf::from("root")];
        while let Some(folder) = folders.pop() {
            let [from, to] = [self, &twin].map(|store| store.folder.path().join(&folder));
            if !from.is_dir() {
                continue;
            }
            std::fs::create_dir_all(&to).unwrap();
            for entry in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
                let (facts, name) = (entry.metadata().unwrap(), entry.file_name());
                if facts.is_dir() {
                    folders.push(folder.join(name));
                    continue;
                }
                let to = to.join(name);
                std::fs::copy(entry.path(), &to).unwrap();
                let file = std::fs::File::options().write(true).open(&to).unwrap();
                file.set_modified(facts.modified().unwrap()).unwrap();
            }
        }
        twin
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().join("root")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    /// All files except the claims of ended runs, which stay so that no older claim counts again.
    pub(crate) fn files_but_claims(&self) -> Vec<PathBuf> {
        let mut found = self.files();
        found.retain(|path| !path.iter().any(|part| part == "@claims"));
        found
    }

    pub(crate) fn put(
        &self,
        name: &str,
        layout: Layout,
        chunk_size: u64,
        input: impl Read + Send + 'static,
    ) -> Result<PutReport, BackupError> {
        let request = put_request(name, layout, chunk_size);
        block_on(xb_backup::put(&session(&self.root), &request, input))
    }

    pub(crate) fn get(&self, name: &str) -> Result<Vec<u8>, BackupError> {
        let (_, Collected(bytes)) =
            block_on(xb_backup::get(&session(&self.root), &request(name), Collected::default()))?;
        Ok(bytes)
    }

    pub(crate) fn restore(&self, name: &str, target: &Path) -> Result<u64, BackupError> {
        let done = block_on(xb_backup::restore(
            &session(&self.root),
            &request(name),
            target,
            RestoreOptions { sync: Durability::None, ..RestoreOptions::default() },
        ))?;
        Ok(done.files)
    }

    pub(crate) fn state(&self, name: &str) -> Option<State> {
        block_on(xb_repo::list::list(&self.root))
            .unwrap()
            .into_iter()
            .find(|l| l.name == name)
            .map(|l| l.state)
    }
}

pub(crate) fn session(root: &Root) -> Session {
    Session::new(root.clone(), Resources { memory: 64 << 20, threads: 2, parallel: 4 })
}

/// A put without compression or seal.
pub(crate) fn put_request(name: &str, layout: Layout, chunk_size: u64) -> PutRequest {
    PutRequest {
        name: BackupName::new(name).unwrap(),
        generated: false,
        layout: match layout {
            Layout::Packed => PutLayout::packed(),
            Layout::Classic => PutLayout::classic(),
        },
        object_size: ObjectSize::new(chunk_size),
        content: xbstream(),
        tool: "test".into(),
        server: None,
        since: None,
        base_elsewhere: false,
        watch: None,
        merged: None,
    }
}

pub(crate) fn xbstream() -> Content {
    Content::Xbstream(XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto })
}

pub(crate) fn request(name: &str) -> GetRequest {
    GetRequest {
        name: BackupName::new(name).unwrap(),
        files: xb_backup::Selection::default(),
        as_stored: false,
        accept: xb_backup::Accept::default(),
        keys: Keys::default(),
    }
}

/// Sink that shares the bytes it received, including those before an error.
#[derive(Clone, Default)]
pub(crate) struct Witness(pub(crate) std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl StreamSink for Witness {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        self.0.lock().unwrap().extend_from_slice(&bytes);
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Collected(pub(crate) Vec<u8>);

impl StreamSink for Collected {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        self.0.extend_from_slice(&bytes);
        Ok(())
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub(crate) fn stream() -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    writer.payload("shop/orders.ibd", 0, &[1; 900]).unwrap();
    writer.payload("shop/orders.ibd", 900, &[2; 300]).unwrap();
    writer.end("shop/orders.ibd").unwrap();
    writer.end("empty").unwrap();
    writer
        .payload(
            "xtrabackup_info",
            0,
            b"tool_name = mariadb-backup\nserver_version = 10.11.19-MariaDB\n",
        )
        .unwrap();
    writer.end("xtrabackup_info").unwrap();
    writer.finish().unwrap()
}

/// A backup from one LSN to another; from 0 it is a full one.
pub(crate) fn positioned(from: u64, to: u64) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new());
    writer.file("shop/orders.ibd", b"some pages", 1 << 20).positions(from, to).info();
    writer.finish()
}

/// Puts the stream, compressed and sealed for this key.
pub(crate) fn put_sealed(
    store: &Store,
    name: &str,
    key: &[u8; 32],
) -> Result<PutReport, BackupError> {
    let request = PutRequest {
        layout: PutLayout::Packed {
            compress: "zstd:1".parse().unwrap(),
            key_slots: KeySlots { key: Some(KeyBytes::new(key).unwrap()), ..KeySlots::default() },
        },
        ..put_request(name, Layout::Packed, 400)
    };
    block_on(xb_backup::put(&session(&store.root), &request, stream_reader()))
}

/// Like [`get_sealed`], and checks that no wrong bytes are returned before an error.
pub(crate) fn get_watched(store: &Store, name: &str, key: &[u8; 32]) -> Result<(), BackupError> {
    let keys = Keys { key: Some(KeyBytes::new(key).unwrap()), ..Keys::default() };
    let request = GetRequest { keys, ..request(name) };
    let witness = Witness::default();
    let in_session = session(&store.root);
    let run = xb_backup::get(&in_session, &request, witness.clone());
    let outcome = block_on(run).map(|_| ());
    assert!(stream().starts_with(&witness.0.lock().unwrap()), "bytes that nobody has sealed");
    outcome
}

pub(crate) fn get_sealed(
    store: &Store,
    name: &str,
    key: &[u8; 32],
) -> Result<Vec<u8>, BackupError> {
    let keys = Keys { key: Some(KeyBytes::new(key).unwrap()), ..Keys::default() };
    let request = GetRequest { keys, ..request(name) };
    let in_session = session(&store.root);
    let run = xb_backup::get(&in_session, &request, Collected::default());
    block_on(run).map(|(_, Collected(bytes))| bytes)
}

pub(crate) fn stream_reader() -> std::io::Cursor<Vec<u8>> {
    std::io::Cursor::new(stream())
}

pub(crate) const MIB: usize = 1 << 20;

/// Bytes without repetition that cannot be compressed.
pub(crate) fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(seed >> 11).to_le_bytes()[..5]);
    }
    bytes.truncate(len);
    bytes
}

/// Two threads copy tables side by side; the test selects one of the tables.
pub(crate) fn backup_stream() -> (Vec<u8>, BTreeMap<&'static str, Vec<u8>>) {
    let files: BTreeMap<_, _> = [
        ("big/a.ibd", 18 * MIB + 7),
        ("big/b.ibd", 9 * MIB),
        ("shop/t.ibd", 3 * MIB + 100),
        ("shop/t.frm", 900),
        ("ibdata1", 2 * MIB),
        ("xtrabackup_checkpoints", 100),
    ]
    .into_iter()
    .zip(1_u64..)
    .map(|((name, len), seed)| (name, noise(seed, len)))
    .collect();
    let mut writer = ChunkWriter::new(Vec::new());
    let chunk = 2 * MIB;
    for n in 0..10 {
        for (name, content) in &files {
            if let Some(piece) = content.chunks(chunk).nth(n) {
                writer.payload(name, (n * chunk) as u64, piece).unwrap();
                if (n + 1) * chunk >= content.len() {
                    writer.end(name).unwrap();
                }
            }
        }
    }
    writer.end("shop/empty.MYD").unwrap();
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    (writer.finish().unwrap(), files)
}

/// The files of an xbstream.
pub(crate) fn unpacked(stream: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    extract_from(stream, target, xb_pipeline::ExtractOptions::default()).unwrap();
    tree(dir.path())
}

/// Files below a directory.
pub(crate) fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}
