//! A small made-up clone of MySQL, independent of the crate that reads one: files as a donor sends them while it
//! writes to them, patches, and what they become together.
//!
//! Its pages have right checksums, but no rows: no server can read it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::stream::StreamWriter;

/// Bytes of a page.
pub const PAGE: usize = 16384;
/// The stages' names in the stream.
pub const PATCHES: &str = "xb_clone.patches";
/// The last file of the stream.
pub const INFO: &str = "xb_clone.json";
/// Size of each file of the redo log.
const REDO: u64 = 65536;
/// A tablespace with its flags: that of one table, also encrypted, elsewhere, or shared.
const PLAIN: u32 = 0x4021;
const ENCRYPTED: u32 = PLAIN | 1 << 13;
const ELSEWHERE: u32 = PLAIN | 1 << 10;
const SHARED: u32 = PLAIN | 1 << 11;
/// Position at which recovery starts: behind the pages of the files, before those of the patches.
const CHECKPOINT: u64 = 0x1_0180;
/// Offset of the key in the first page, and in the head of a file of the redo log, and its length.
const KEY: usize = 10390;
const REDO_KEY: usize = 1072;
const KEY_LEN: usize = 111;

/// A made-up clone. All fields may be changed before it is written.
#[derive(Debug, Clone)]
pub struct MadeClone {
    /// The files of the stream, in their order: path and content as of the first stage.
    pub files: Vec<(String, Vec<u8>)>,
    /// Records of the patches: whether of the redo log, index, offset, bytes.
    pub patches: Vec<(bool, u32, u64, Vec<u8>)>,
    /// The facts that the clone states about itself.
    pub info: Value,
    /// The expected result: the content of each file of the data directory, without those that are made.
    pub result: BTreeMap<String, Vec<u8>>,
}

impl MadeClone {
    /// A clone with a torn page that a patch replaces, a file that grew, one from outside, and encrypted ones if
    /// asked for: the first page of one of them in the patches, and that of the other one not.
    #[must_use]
    pub fn new(is_encrypted: bool) -> Self {
        let flags = if is_encrypted { ENCRYPTED } else { PLAIN };
        let mut this = Self {
            files: Vec::new(),
            patches: Vec::new(),
            info: Value::Null,
            result: BTreeMap::new(),
        };
        let mut files = Vec::new();
        this.add(&mut files, "ib_buffer_pool", None, &[b"0,1\n".to_vec()], 0);
        let tables = [
            ("ibdata1", Some((0, 0x4000)), 64),
            ("mysql.ibd", Some((0xffff_fffe, PLAIN)), 3),
            ("shop/plain.ibd", Some((2, PLAIN)), 4),
            ("shop/first.ibd", Some((3, flags)), 3),
            ("shop/second.ibd", Some((4, flags)), 3),
            ("/far/away/shop/moved.ibd", Some((5, ELSEWHERE)), 3),
            ("/far/away/general.ibd", Some((6, SHARED)), 2),
        ];
        for (name, space, count) in tables {
            let (number, flags) = space.unwrap();
            let pages: Vec<Vec<u8>> = (0..count).map(|n| page(number, n, flags, 1)).collect();
            this.add(&mut files, name, space, &pages, 0);
        }
        // Torn, and replaced; behind the end of what came, and by the first page of its file.
        this.torn("shop/plain.ibd", 2);
        this.patch(3, 2, page(2, 2, PLAIN, 2));
        this.patch(4, 0, page(3, 0, flags, 2));
        this.patch(4, 4, page(3, 4, flags, 2));
        files[4]["size"] = json!(5 * PAGE);
        this.patch(6, 1, page(5, 1, ELSEWHERE, 2));
        for index in 0..2_u32 {
            let body: Vec<u8> = (0..6000_u32).map(|n| (n + index).to_le_bytes()[0] | 1).collect();
            this.patches.push((true, index, if index == 0 { 2048 } else { 0 }, body));
        }
        let mut head = redo_head(CHECKPOINT);
        if is_encrypted {
            head[REDO_KEY..REDO_KEY + KEY_LEN].copy_from_slice(&key(9));
            // Each file has it.
            let (_, _, _, body) = this.patches.last_mut().unwrap();
            body[REDO_KEY..REDO_KEY + KEY_LEN].copy_from_slice(&key(9));
        }
        this.patches.push((true, 0, 0, head));
        this.patches.push((true, 1, 6000, vec![8; 512]));
        this.info = json!({
            "format": 1, "version": "9.7.4-2", "settings": {}, "plugins": [], "page_size": PAGE,
            "protocol": 0x103, "has_keys": is_encrypted, "files": files,
            "redo": [{"index": 0, "size": REDO}, {"index": 1, "size": REDO}],
            "patches": this.patches.len(), "empty_tables": ["shop.gone (MyISAM)"],
            "gtids_from": "", "gtids_to": "", "has_binlog": true,
        });
        this.finish_changes();
        this
    }

    /// The same clone, beside which DDL ran: two files have swapped their names, one is removed, one has another name,
    /// and a late one has the name that this one had.
    #[must_use]
    pub fn with_ddl(mut self) -> Self {
        let files = &mut self.info["files"];
        files[4]["name"] = json!("shop/second.ibd");
        files[5]["name"] = json!("shop/first.ibd");
        files[3]["name"] = json!("shop/renamed.ibd");
        files[6]["is_removed"] = json!(true);
        files.as_array_mut().unwrap().push(json!({
            "index": 8, "path": "xb_clone.outside/8", "name": "shop/plain.ibd", "size": 3 * PAGE, "space": 9,
            "space_flags": PLAIN, "page_size": PAGE, "is_encrypted": false, "has_compressed_pages": false,
            "is_late": true,
        }));
        // Gone before the end.
        files.as_array_mut().unwrap().push(json!({
            "index": 9, "path": "xb_clone.outside/9", "name": "shop/plain.ibd", "size": 3 * PAGE, "space": 10,
            "space_flags": PLAIN, "page_size": PAGE, "is_encrypted": false, "has_compressed_pages": false,
            "is_late": true, "is_removed": true,
        }));
        self.patches.insert(0, (false, 8, 0, page(9, 0, PLAIN, 2)));
        self.patches.insert(1, (false, 9, 0, page(10, 0, PLAIN, 2)));
        self.info["allows_ddl"] = json!(true);
        self.info["patches"] = json!(self.patches.len());
        self.result.clear();
        self.finish_changes();
        self
    }

    fn add(
        &mut self,
        files: &mut Vec<Value>,
        name: &str,
        space: Option<(u32, u32)>,
        pages: &[Vec<u8>],
        more: usize,
    ) {
        let index = files.len();
        let content = pages.concat();
        let path = match name.starts_with('/') {
            true => format!("xb_clone.outside/{index}"),
            false => name.to_owned(),
        };
        files.push(json!({
            "index": index, "path": path, "name": name, "size": content.len() + more,
            "space": space.map(|(number, _)| number),
            "space_flags": space.map_or(u32::MAX, |(_, flags)| flags),
            "page_size": if space.is_some() { PAGE } else { 0 },
            "is_encrypted": space.is_some_and(|(_, flags)| flags & 1 << 13 != 0),
            "has_compressed_pages": false,
        }));
        self.files.push((path, content));
    }

    /// Adds an empty page that is in use, to a clone whose recovery starts at this position of the log. The page's
    /// tablespace was written before the default one, and after 0x1_0000. Only the stream changes.
    pub fn miss_a_page(&mut self, checkpoint: u64) {
        let (_, content) =
            self.files.iter_mut().find(|(name, _)| name == "shop/plain.ibd").unwrap();
        content.resize(5 * PAGE, 0);
        self.info["files"][3]["size"] = json!(5 * PAGE);
        // Pages in the file, pages that were ever used, and an extent of a segment.
        for (at, number) in [(46, 5_u32), (50, 5), (170, 4)] {
            content[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        set_checksum(&mut content[..PAGE]);
        let head = self
            .patches
            .iter_mut()
            .find(|(is_redo, index, at, _)| (*is_redo, *index, *at) == (true, 0, 0));
        head.unwrap().3 = redo_head(checkpoint);
    }

    /// Makes a page as it is when a server writes to it meanwhile.
    fn torn(&mut self, path: &str, number: usize) {
        let (_, content) = self.files.iter_mut().find(|(name, _)| name == path).unwrap();
        let newer = page(2, u32::try_from(number).unwrap(), PLAIN, 2);
        let half = number * PAGE..number * PAGE + PAGE / 2;
        content[half].copy_from_slice(&newer[..PAGE / 2]);
    }

    fn patch(&mut self, index: u32, number: u64, page: Vec<u8>) {
        self.patches.push((false, index, number * PAGE as u64, page));
    }

    /// The expected result of all changes, by the rules of docs/spec/clone.md.
    fn finish_changes(&mut self) {
        let list = self.info["files"].as_array().unwrap();
        for (index, file) in list.iter().enumerate() {
            if file["is_removed"] == true {
                continue;
            }
            let size = usize::try_from(file["size"].as_u64().unwrap()).unwrap();
            // A late file has none.
            let content = self.files.get(index).map(|(_, content)| content.clone());
            let mut content = content.unwrap_or_default();
            content.resize(size, 0);
            for (_, _, offset, bytes) in self.patches.iter().filter(|(is_redo, index, ..)| {
                !is_redo && u64::from(*index) == file["index"].as_u64().unwrap()
            }) {
                let at = usize::try_from(*offset).unwrap();
                content[at..at + bytes.len()].copy_from_slice(bytes);
            }
            let name = file["name"].as_str().unwrap();
            let name = name.strip_prefix("/far/away/").unwrap_or(name);
            self.result.insert(name.to_owned(), content);
        }
        for index in 0..2 {
            let mut content = vec![0; usize::try_from(REDO).unwrap()];
            for (_, _, offset, bytes) in
                self.patches.iter().filter(|(is_redo, to, ..)| *is_redo && *to == index)
            {
                let at = usize::try_from(*offset).unwrap();
                content[at..at + bytes.len()].copy_from_slice(bytes);
            }
            self.result.insert(format!("#innodb_redo/#ib_redo{index}"), content);
        }
    }

    /// The content of the file of patches.
    #[must_use]
    pub fn patch_file(&self) -> Vec<u8> {
        let mut out = b"XBCLPT01".to_vec();
        for (is_redo, index, offset, bytes) in &self.patches {
            out.push(if *is_redo { 2 } else { 1 });
            out.extend(index.to_le_bytes());
            out.extend(offset.to_le_bytes());
            out.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            out.extend(bytes);
        }
        out.push(3);
        out.extend(0_u32.to_le_bytes());
        out.extend((self.patches.len() as u64).to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        out
    }

    /// All files of the stream, in their order.
    #[must_use]
    pub fn parts(&self) -> Vec<(String, Vec<u8>)> {
        let mut parts = vec![("xb_clone.README".to_owned(), b"Read me.\n".to_vec())];
        parts.extend(self.files.clone());
        parts.push((PATCHES.to_owned(), self.patch_file()));
        parts.push((INFO.to_owned(), self.info.to_string().into_bytes()));
        parts
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> Vec<u8> {
        let mut out = StreamWriter::new(Vec::new());
        for (name, content) in self.parts() {
            for (number, piece) in content.chunks(100_000).enumerate() {
                out.payload(&name, number as u64 * 100_000, piece);
            }
            out.end(&name);
        }
        out.finish()
    }

    /// Writes the files of the stream below a directory.
    pub fn extract(&self, to: &Path) {
        for (name, content) in self.parts() {
            let path = to.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }
}

/// Names and contents of all files below a directory, but those of a restore that is not finished.
#[must_use]
pub fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut all, mut folders) = (BTreeMap::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(dir.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true if name != ".xb-partial" => folders.push(format!("{name}/")),
                true => {}
                false => drop(all.insert(name.clone(), std::fs::read(dir.join(name)).unwrap())),
            }
        }
    }
    all
}

/// Keys in what the clone becomes, if it is encrypted: file and offset.
const KEYS: [(&str, usize); 4] = [
    ("shop/first.ibd", KEY),
    ("shop/second.ibd", KEY),
    ("#innodb_redo/#ib_redo0", REDO_KEY),
    ("#innodb_redo/#ib_redo1", REDO_KEY),
];

impl MadeClone {
    /// Checks that a directory has what the clone becomes, and nothing else.
    ///
    /// # Panics
    /// If it differs.
    pub fn assert_is_in(&self, dir: &Path) {
        let mut found = content(dir);
        assert!(dir.join("mysql").is_dir());
        for name in ["#clone/#status_fix", "#clone/#replace_files"] {
            assert_eq!(found.remove(name), Some(Vec::new()), "{name}");
        }
        let settings = String::from_utf8(found.remove("backup-my.cnf").unwrap()).unwrap();
        assert_eq!(
            settings,
            "[mysqld]\ninnodb_page_size=16384\ninnodb_data_file_path=ibdata1:1M:autoextend\n"
        );
        let mut wanted = self.result.clone();
        let mut keys = KEYS.to_vec();
        keys.retain(|(name, at)| wanted[*name][*at] == b'l');
        for (name, at) in keys {
            let key = &found[name][at..at + KEY_LEN];
            assert_eq!(&key[..7], b"lCC\0\0\0\0", "{name}");
            assert_ne!(key[43..107], wanted[name][at + 43..at + 107], "{name} has a key in clear");
            for all in [&mut found, &mut wanted] {
                let content = all.get_mut(name).unwrap();
                content[at..at + KEY_LEN].fill(0);
                if name.ends_with(".ibd") {
                    content[..4].fill(0);
                    content[PAGE - 8..PAGE - 4].fill(0);
                }
            }
        }
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
        for (name, wanted) in wanted {
            // Where they differ, for a message that can be read.
            let found = &found[&name];
            assert_eq!(found.len(), wanted.len(), "{name}");
            let differ = found.iter().zip(&wanted).position(|(one, other)| one != other);
            assert_eq!(differ, None, "{name}");
        }
    }
}

/// A page with its number, tablespace and checksum; the first one of an encrypted tablespace has a key in clear.
fn page(space: u32, number: u32, flags: u32, version: u8) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    for (at, byte) in page.iter_mut().enumerate().skip(200) {
        *byte = u8::try_from((at + usize::try_from(number).unwrap()) % 251).unwrap() ^ version;
    }
    page[4..8].copy_from_slice(&number.to_be_bytes());
    let lsn = [0, 0, 0, 0, 0, 1, version, 7];
    page[16..24].copy_from_slice(&lsn);
    page[24..26].copy_from_slice(&if number == 0 { 8_u16 } else { 17855 }.to_be_bytes());
    page[34..38].copy_from_slice(&space.to_be_bytes());
    if number == 0 {
        page[38..42].copy_from_slice(&space.to_be_bytes());
        page[54..58].copy_from_slice(&flags.to_be_bytes());
        page[KEY..KEY + 111].fill(0);
        if flags & 1 << 13 != 0 {
            page[KEY..KEY + 111].copy_from_slice(&key(version));
        }
    }
    page[PAGE - 4..].copy_from_slice(&lsn[4..]);
    set_checksum(&mut page);
    page
}

fn set_checksum(page: &mut [u8]) {
    let sum = (crc32c(&page[4..26]) ^ crc32c(&page[38..PAGE - 8])).to_be_bytes();
    page[..4].copy_from_slice(&sum);
    page[PAGE - 8..PAGE - 4].copy_from_slice(&sum);
}

/// The first bytes of the redo log, with its checkpoint.
fn redo_head(checkpoint: u64) -> Vec<u8> {
    let mut head = vec![7; 2048];
    head[..4].copy_from_slice(&6_u32.to_be_bytes());
    head[520..528].copy_from_slice(&checkpoint.to_be_bytes());
    let sum = crc32c(&head[512..1020]).to_be_bytes();
    head[1020..1024].copy_from_slice(&sum);
    head
}

/// A key in clear.
fn key(seed: u8) -> Vec<u8> {
    let key: Vec<u8> = (0..64).map(|n| n ^ seed).collect();
    [b"lCC\0\0\0\x05", &[b'u'; 36][..], &key, &crc32c(&key).to_be_bytes()].concat()
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes
        .iter()
        .fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
