//! A folder whose large objects are written past the page cache of the system.
//!
//! A backup is written once, and read days later, if ever. Through the page cache, the system looks for memory for each of its pages, copies
//! them, and gives up those of the database beside it: that takes more processor time than all the rest of a put.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result, UploadPart,
};

use crate::store::direct_file::{DirectFile, IfTaken};

/// Least size of an object that is written directly, in bytes.
const LARGE: usize = 1 << 20;

/// The store of a folder.
#[derive(Debug)]
pub(crate) struct DirectFolder {
    folder: LocalFileSystem,
    /// Whether its file system is known to take no direct writes.
    is_cached: AtomicBool,
}

impl DirectFolder {
    /// `folder` has to sync what it writes.
    pub(crate) fn new(folder: LocalFileSystem) -> Self {
        Self { folder, is_cached: AtomicBool::new(false) }
    }

    /// Creates the file of an object; `None` if it cannot be written directly.
    async fn create(&self, location: &Path) -> Result<Option<DirectFile>> {
        if self.is_cached.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let name = self.folder.path_to_filesystem(location)?;
        let file = blocking(location, || DirectFile::create(name)).await?;
        self.is_cached.fetch_or(file.is_none(), Ordering::Relaxed);
        Ok(file)
    }
}

impl fmt::Display for DirectFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for DirectFolder {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let if_taken = match options.mode {
            PutMode::Overwrite => Some(IfTaken::Replace),
            PutMode::Create => Some(IfTaken::Fail),
            PutMode::Update(_) => None,
        };
        let is_large = payload.content_length() >= LARGE && options.attributes.is_empty();
        if let Some(if_taken) = if_taken.filter(|_| is_large)
            && let Some(file) = self.create(location).await?
        {
            let write = move || {
                file.write(0, payload.iter())?;
                file.publish(if_taken)
            };
            return blocking(location, write).await.map(|facts| put(&facts));
        }
        self.folder.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if options.attributes.is_empty()
            && let Some(file) = self.create(location).await?
        {
            let (location, file) = (location.clone(), Some(Arc::new(file)));
            return Ok(Box::new(DirectUpload { location, file, end: 0 }));
        }
        self.folder.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.folder.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.folder.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.folder.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.folder.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.folder.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.folder.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.folder.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.folder.rename_opts(from, to, options).await
    }
}

/// An object that comes in parts.
#[derive(Debug)]
struct DirectUpload {
    location: Path,
    /// `None` once it has ended.
    file: Option<Arc<DirectFile>>,
    /// Where the next part begins.
    end: u64,
}

#[async_trait]
impl MultipartUpload for DirectUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (location, file, begin) = (self.location.clone(), self.file.clone(), self.end);
        self.end += data.content_length() as u64;
        Box::pin(async move {
            let write = move || file.ok_or_else(ended)?.write(begin, data.iter());
            blocking(&location, write).await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let file = self.file.take();
        let publish = move || {
            let file = file.ok_or_else(ended)?;
            // What is written after the sync might not be on the disk.
            let unfinished = || io::Error::other("a part of the upload has not ended");
            Arc::into_inner(file).ok_or_else(unfinished)?.publish(IfTaken::Replace)
        };
        blocking(&self.location, publish).await.map(|facts| put(&facts))
    }

    async fn abort(&mut self) -> Result<()> {
        let file = self.file.take();
        blocking(&self.location, move || file.ok_or_else(ended)?.give_up()).await
    }
}

impl Drop for DirectUpload {
    fn drop(&mut self) {
        // A part that is still written holds the file too, and may outlive this process's wish to wait for it.
        let _ = self.file.take().map(|file| file.give_up());
    }
}

fn ended() -> io::Error {
    io::Error::other("the upload has ended")
}

/// The result of a put. The entity tag is formed as by the `object_store` crate, which forms it again whenever it is asked; it is
/// not asked here, because others may have replaced or removed the object by now.
fn put(facts: &Metadata) -> PutResult {
    let changed = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.unwrap_or_default().as_micros();
    let e_tag = format!("\"{:x}-{changed:x}-{:x}\"", facts.ino(), facts.len());
    PutResult { e_tag: Some(e_tag), version: None, extensions: Default::default() }
}

/// Does what waits for a disk. Its errors are as those of the `object_store` crate.
async fn blocking<T: Send + 'static>(
    location: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::JoinError { source: error })?.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::AlreadyExists { path: location.to_string(), source: error.into() }
        }
        _ => Error::Generic { store: "LocalFileSystem", source: error.into() },
    })
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;
    use xb_testkit::short_disk::ShortDisk;

    use super::*;
    use crate::store::direct_file::tests::{folder_on_disk, noise};

    /// Both stores of a folder: the one that is tested, and that of the crate.
    fn stores(folder: &std::path::Path) -> [Arc<dyn ObjectStore>; 2] {
        let plain = || LocalFileSystem::new_with_prefix(folder).unwrap().with_fsync(true);
        [Arc::new(DirectFolder::new(plain())), Arc::new(plain())]
    }

    #[tokio::test]
    async fn objects_are_those_of_the_crate_whatever_their_size() {
        let Some(folder) = folder_on_disk() else { return };
        let all = stores(folder.path());
        for size in [
            0,
            LARGE - 1,
            LARGE,
            LARGE + 1,
            LARGE + 4095,
            LARGE + 4096,
            LARGE + 4097,
            LARGE + 65_536,
            3 * LARGE + 65_537,
        ] {
            let content = noise(size);
            for (number, store) in all.iter().enumerate() {
                let key = Path::from(format!("run/{size}/{number}"));
                let payload: PutPayload =
                    content.chunks(100_001).map(Bytes::copy_from_slice).collect();
                let done = store.put(&key, payload.clone()).await.unwrap();
                let found = all[1].get(&key).await.unwrap();
                assert_eq!((found.meta.e_tag.clone(), found.meta.size), (done.e_tag, size as u64));
                assert!(found.bytes().await.unwrap() == content, "{size} {number}");
                let again = store.put_opts(&key, payload, PutMode::Create.into()).await;
                assert!(
                    matches!(again, Err(Error::AlreadyExists { .. })),
                    "{size} {number}: {again:?}"
                );
            }
        }
        // Nothing else is there.
        let listed: Vec<_> = futures::StreamExt::collect(all[1].list(None)).await;
        assert_eq!(listed.len(), 18);
        let unfinished = std::fs::read_dir(folder.path().join("run/1048576")).unwrap().count();
        assert_eq!(unfinished, 2);
    }

    #[tokio::test]
    async fn parts_become_one_object_or_nothing() {
        let Some(folder) = folder_on_disk() else { return };
        let [store, plain] = stores(folder.path());
        let (key, content) = (Path::from("a/b"), noise(3 * LARGE + 5));
        for is_complete in [false, true] {
            let mut upload = store.put_multipart_opts(&key, Default::default()).await.unwrap();
            let parts = content.chunks(LARGE + 1000);
            let parts: Vec<_> = parts.map(|part| upload.put_part(part.to_vec().into())).collect();
            // In any order.
            for part in parts.into_iter().rev() {
                part.await.unwrap();
            }
            if is_complete {
                let done = upload.complete().await.unwrap();
                let found = plain.get(&key).await.unwrap();
                assert_eq!(found.meta.e_tag, done.e_tag);
                assert!(found.bytes().await.unwrap() == content);
                assert!(upload.complete().await.is_err());
            } else {
                upload.abort().await.unwrap();
                assert!(plain.get(&key).await.is_err());
                assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 0);
                assert!(upload.put_part(content.clone().into()).await.is_err());
            }
        }
        // A part that is not written yet, or is being written, keeps no file, and none gets its name without it.
        for end in ["abort", "drop", "complete"] {
            let mut upload = store.put_multipart_opts(&key, Default::default()).await.unwrap();
            let part = upload.put_part(content.clone().into());
            match end {
                "abort" => upload.abort().await.unwrap(),
                "drop" => drop(upload),
                _ => assert!(upload.complete().await.is_err()),
            }
            if end != "complete" {
                let left = std::fs::read_dir(folder.path().join("a")).unwrap().count();
                assert_eq!(left, 1, "{end}");
            }
            part.await.unwrap();
            assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 1, "{end}");
        }
        // One that is forgotten.
        let mut upload = store.put_multipart_opts(&key, Default::default()).await.unwrap();
        upload.put_part(content.into()).await.unwrap();
        drop(upload);
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_full_disk_leaves_what_was_there_and_the_error_of_the_crate() {
        let Some(disk) = ShortDisk::mount(64) else {
            xb_testkit::skipped("no loop device can be mounted here");
            return;
        };
        if DirectFile::create(disk.path().join("probe")).unwrap().is_none() {
            xb_testkit::skipped("this kernel does not say whether ext4 takes direct writes");
            return;
        }
        let [store, plain] = stores(&disk.path());
        let key = Path::from("a/b");
        let old = noise(2 * LARGE);
        let _ = store.put(&key, old.clone().into()).await.unwrap();
        // Takes all room but 2 MiB or a little more, without writing it.
        let filler = std::fs::File::create(disk.path().join("filler")).unwrap();
        let (mut end, none) = (0, rustix::fs::FallocateFlags::empty());
        for piece in [64 << 20, 1 << 20] {
            while rustix::fs::fallocate(&filler, none, end, piece).is_ok() {
                end += piece;
            }
        }
        filler.set_len(end - 2 * LARGE as u64).unwrap();
        let large = noise(8 * LARGE + 5);
        for (store, name) in [(&store, "direct"), (&plain, "plain")] {
            for mode in [PutMode::Create, PutMode::Overwrite] {
                let key = if mode == PutMode::Create { Path::from("a/new") } else { key.clone() };
                let error = store.put_opts(&key, large.clone().into(), mode.into()).await;
                let Err(error @ Error::Generic { .. }) = error else { panic!("{name} {error:?}") };
                let message = crate::error::root_message(&error);
                assert!(message.contains("(os error 28)"), "{name}: {message}");
            }
            let mut upload = store.put_multipart_opts(&key, Default::default()).await.unwrap();
            let written = upload.put_part(large.clone().into()).await;
            assert!(written.is_err(), "{name}");
            upload.abort().await.unwrap();
            let found = std::fs::read_dir(disk.path().join("a")).unwrap();
            let found: Vec<_> = found.map(|one| one.unwrap().file_name()).collect();
            assert_eq!(found, ["b"], "{name}");
            assert!(plain.get(&key).await.unwrap().bytes().await.unwrap() == old, "{name}");
        }
    }

    /// A file system in memory may take such writes, but does not say so.
    #[tokio::test]
    async fn a_file_system_that_says_nothing_of_direct_writes_is_written_as_the_crate_does() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let plain = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
        let store = DirectFolder::new(plain);
        let key = Path::from("a/b");
        store.put(&key, noise(2 * LARGE).into()).await.unwrap();
        assert!(store.is_cached.load(Ordering::Relaxed));
        assert!(store.get(&key).await.unwrap().bytes().await.unwrap() == noise(2 * LARGE));
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
