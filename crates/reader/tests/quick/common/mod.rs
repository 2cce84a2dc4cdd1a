//! Shared by the tests: the vectors, a plain extractor, ways to cut the input.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test crate uses its part of it

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use xb_reader::{
    Change, ChunkReader, Dialect, Item, Limits, PartialFile, Placement, RelPath, TargetDir,
};

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/xbstream")
}

#[derive(Debug, Deserialize)]
pub struct Vector {
    pub file: String,
    pub plain: Option<BTreeMap<String, Content>>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Content {
    pub size: u64,
    pub sha256: String,
}

impl Vector {
    pub fn all() -> Vec<Self> {
        let list = fs::read_to_string(fixtures().join("vectors.jsonl")).unwrap();
        let all: Vec<Self> = list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(all.len() > 50, "vectors are missing");
        all
    }

    pub fn bytes(&self) -> Vec<u8> {
        let raw = fs::read(fixtures().join(&self.file)).unwrap();
        if !self.file.ends_with(".gz") {
            return raw;
        }
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&raw[..]).read_to_end(&mut plain).unwrap();
        plain
    }
}

/// Returns at most `step` bytes per read.
pub struct Steps<'a> {
    pub bytes: &'a [u8],
    pub step: usize,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.step.min(buffer.len());
        self.bytes.read(&mut buffer[..len])
    }
}

/// Extracts in one thread, using only the parts of this crate.
pub fn extract(input: impl Read, dir: &Path) -> Result<(), Box<dyn Error>> {
    let target = TargetDir::open(dir)?;
    let mut reader = ChunkReader::new(input, Dialect::Auto, Limits::default());
    let mut open: HashMap<RelPath, PartialFile> = HashMap::new();
    let mut current: Option<(RelPath, Placement)> = None;
    while let Some(item) = reader.next()? {
        match item {
            Item::Chunk(head, change) => {
                let path = &head.path;
                current = Some((path.clone(), head.placement()));
                match change {
                    Change::Opened { replaces, .. } => {
                        if replaces.is_some() {
                            target.remove(path)?;
                        }
                        open.insert(path.clone(), target.begin(path)?);
                    }
                    Change::Ended { size, only_chunk, .. } => {
                        let file = if only_chunk {
                            target.begin(path)?
                        } else {
                            open.remove(path).unwrap()
                        };
                        file.commit(&target, path, size, false)?;
                    }
                    Change::Renamed { open: still_open, replaces, .. } => {
                        let xb_reader::ChunkKind::Rename { to } = &head.kind else { panic!() };
                        if replaces.is_some() {
                            target.remove(to)?;
                        }
                        if still_open {
                            target.check_absent(to)?;
                            let file = open.remove(path).unwrap();
                            open.insert(to.clone(), file);
                        } else {
                            target.rename(path, to)?;
                        }
                    }
                    Change::Removed { id: None, .. } | Change::FolderRemoved { .. } => {
                        target.check_absent(path)?;
                    }
                    Change::Removed { open: true, .. } => drop(open.remove(path)),
                    Change::Removed { .. } => target.remove(path)?,
                    Change::Continued { .. } => {}
                    Change::Ignored => current = None,
                }
            }
            Item::Data(mut piece) => {
                let Some((path, place)) = &mut current else { continue };
                while let Some((offset, len)) = place.take(piece.len() as u64) {
                    let (now, later) = piece.split_at(usize::try_from(len).unwrap());
                    open[path].write_at(offset, now)?;
                    piece = later;
                }
            }
            Item::ChunkEnd => {}
        }
    }
    Ok(())
}

/// All files beneath a directory.
pub fn tree(dir: &Path) -> BTreeMap<String, Content> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let sha256: String =
                Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            found.insert(name, Content { size: bytes.len() as u64, sha256 });
        }
    }
    found
}
