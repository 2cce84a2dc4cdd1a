//! Reports to a watcher how many bytes of each file pass, and their share of the stored bytes.

use xb_reader::{ChunkHead, RelPath};

use crate::flow::observer::Observer;
use crate::pack::encode::SlabContent;

/// What is stored of a slab that is not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainSlabs {
    /// The bytes as they are.
    Stored,
    /// What a later stage makes of them and reports itself.
    Transformed,
}

/// Divides each stored slab among the files in it.
pub(crate) struct FileShares {
    observer: Observer,
    plain: PlainSlabs,
    /// File of the current chunk.
    current: Option<RelPath>,
    /// Files in the current slab, and the bytes of each.
    slab: Vec<(RelPath, u64)>,
}

impl FileShares {
    /// Creates a division that reports to the observer's watcher. Without one it does nothing.
    pub(crate) fn new(observer: &Observer, plain: PlainSlabs) -> Self {
        Self { observer: observer.clone(), plain, current: None, slab: Vec::new() }
    }

    /// Start of a chunk.
    pub(crate) fn head(&mut self, head: &ChunkHead) {
        if self.observer.watcher().is_some() {
            self.current = Some(head.path.clone());
        }
    }

    /// Next piece of the chunk's payload.
    pub(crate) fn piece(&mut self, len: usize) {
        let Some(path) = &self.current else { return };
        match self.slab.last_mut() {
            Some((last, bytes)) if last == path => *bytes += len as u64,
            _ => self.slab.push((path.clone(), len as u64)),
        }
    }

    /// End of the slab. What surrounds the pieces counts in proportion to them.
    pub(crate) fn slab_end(&mut self, content: &SlabContent) {
        let Some(watcher) = self.observer.watcher() else { return };
        let mut left = match (content, self.plain) {
            (SlabContent::Frame(frame), _) => Some(frame.stored.len() as u64),
            (SlabContent::Plain(_), PlainSlabs::Stored) => None,
            (SlabContent::Plain(_), PlainSlabs::Transformed) => Some(0),
        };
        let mut bytes: u64 = self.slab.iter().map(|(_, bytes)| bytes).sum();
        for (path, plain) in self.slab.drain(..) {
            let stored = match &mut left {
                None => plain,
                Some(left) => {
                    let share = u128::from(*left) * u128::from(plain) / u128::from(bytes.max(1));
                    let share = u64::try_from(share).unwrap_or(*left);
                    *left -= share;
                    bytes -= plain;
                    share
                }
            };
            watcher.file_bytes(path.as_bytes(), plain, stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::flow::slab::SlabPool;
    use crate::flow::work::Watcher;
    use crate::pack::encode::FramePayload;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, u64, u64)>>);

    impl Watcher for Heard {
        fn file_bytes(&self, path: &[u8], plain: u64, stored: u64) {
            let path = String::from_utf8_lossy(path).into_owned();
            self.0.lock().unwrap().push((path, plain, stored));
        }
        fn object(&self, _size: u64) {}
    }

    fn frame(stored: usize) -> SlabContent {
        let mut slab = SlabPool::new(4096, 1).take(None);
        slab.advance(stored);
        let codec = xb_frame::Codec::Lz4;
        SlabContent::Frame(FramePayload {
            stored: slab,
            codec,
            plain_len: 4096,
            crc32c: 0,
            crc64: None,
        })
    }

    #[test]
    fn a_frame_is_divided_without_a_rest() {
        let (observer, heard) = (Observer::default(), Arc::new(Heard::default()));
        observer.watch(heard.clone());
        let mut shares = FileShares::new(&observer, PlainSlabs::Transformed);
        for (path, len) in [("a", 1000), ("b", 10), ("b", 20), ("a", 70)] {
            shares.current = Some(RelPath::new(path.as_bytes()).unwrap());
            shares.piece(len);
        }
        shares.slab_end(&frame(997));
        // The rest of the chunk is in the next slab.
        shares.piece(5);
        shares.slab_end(&SlabContent::Plain(bytes::Bytes::new()));
        let heard = heard.0.lock().unwrap();
        let plain: Vec<u64> = heard.iter().map(|(_, plain, _)| *plain).collect();
        assert_eq!(plain, [1000, 30, 70, 5]);
        assert_eq!(heard.iter().map(|(_, _, stored)| stored).sum::<u64>(), 997);
        assert_eq!(heard[3], ("a".to_owned(), 5, 0));
    }
}
