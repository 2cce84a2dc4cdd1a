use super::*;
use crate::chunk::{FLAG_REWRITE, MapEntry};

fn name(name: &str) -> RelPath {
    RelPath::new(name.as_bytes()).unwrap()
}

fn head(path: &str, kind: ChunkKind) -> ChunkHead {
    ChunkHead { position: 99, head_len: 40, flags: 0, path: name(path), kind }
}

fn payload(path: &str, offset: u64, len: u64) -> ChunkHead {
    head(path, ChunkKind::Payload { offset, len, crc: 0 })
}

fn end(path: &str) -> ChunkHead {
    head(path, ChunkKind::End)
}

fn rename(path: &str, to: &str) -> ChunkHead {
    head(path, ChunkKind::Rename { to: name(to) })
}

#[test]
fn interleaved_files_have_their_own_offsets() {
    let mut table = FileTable::new();
    let (a, b) = (FileId(0), FileId(1));
    assert_eq!(table.apply(&payload("a", 0, 5)), Ok(Change::Opened { id: a, replaces: None }));
    assert_eq!(table.apply(&payload("b", 0, 7)), Ok(Change::Opened { id: b, replaces: None }));
    assert_eq!(table.apply(&payload("a", 5, 0)), Ok(Change::Continued { id: a }));
    assert_eq!(table.apply(&payload("a", 5, 1)), Ok(Change::Continued { id: a }));
    assert_eq!(table.apply(&end("a")), Ok(Change::Ended { id: a, size: 6, only_chunk: false }));
    let unfinished = table.finish().unwrap_err();
    assert_eq!(unfinished, Unfinished::Files { count: 1, first: vec![(name("b"), 7)] });
    assert_eq!(
        unfinished.to_string(),
        "the stream is truncated: 1 file has no end chunk: b (at 7)"
    );
    assert_eq!(table.apply(&end("b")), Ok(Change::Ended { id: b, size: 7, only_chunk: false }));
    assert_eq!(table.finished(), 2);
    table.finish().unwrap();
}

#[test]
fn gaps_overlaps_and_late_starts_are_refused_and_change_nothing() {
    let mut table = FileTable::new();
    let late = table.apply(&payload("x", 1, 1)).unwrap_err();
    assert!(matches!(late, OrderError::Offset { expected: 0, got: 1, position: 99, .. }));
    assert_eq!(table.finish(), Err(Unfinished::Empty));
    table.apply(&payload("x", 0, 3)).unwrap();
    for got in [0, 2, 4] {
        let error = table.apply(&payload("x", got, 3)).unwrap_err();
        assert!(matches!(error, OrderError::Offset { expected: 3, .. }), "{error}");
    }
    table.apply(&payload("x", 3, 3)).unwrap();
}

#[test]
fn holes_count_in_offsets_and_size() {
    let mut table = FileTable::new();
    let map = [MapEntry { skip: 4096, len: 10 }, MapEntry { skip: 90, len: 0 }];
    let sparse = ChunkKind::Sparse { offset: 0, len: 10, crc: 0, map: map.into(), map_crc: 0 };
    table.apply(&head("s", sparse)).unwrap();
    assert_eq!(table.open_files().collect::<Vec<_>>(), [(&name("s"), 4196)]);
    assert!(table.apply(&payload("s", 10, 1)).is_err());
    let ended = table.apply(&end("s")).unwrap();
    assert_eq!(ended, Change::Ended { id: FileId(0), size: 4196, only_chunk: false });
}

#[test]
fn nothing_comes_after_the_end_but_a_rewrite() {
    let mut table = FileTable::new();
    let empty = table.apply(&end("e")).unwrap();
    assert_eq!(empty, Change::Ended { id: FileId(0), size: 0, only_chunk: true });
    assert!(matches!(table.apply(&end("e")), Err(OrderError::AfterEnd { .. })));
    assert!(matches!(table.apply(&payload("e", 0, 1)), Err(OrderError::AfterEnd { .. })));
    let seek = head("e", ChunkKind::Seek { offset: 4 });
    assert!(matches!(table.apply(&seek), Err(OrderError::AfterEnd { .. })));
    let mut again = payload("e", 0, 1);
    again.flags = FLAG_REWRITE;
    let opened = table.apply(&again).unwrap();
    assert_eq!(opened, Change::Opened { id: FileId(1), replaces: Some(FileId(0)) });
    table.apply(&payload("e", 1, 1)).unwrap();
    table.apply(&end("e")).unwrap();
    assert_eq!(table.finished(), 1);
}

#[test]
fn a_seek_moves_and_does_not_grow() {
    let mut table = FileTable::new();
    table.apply(&payload("m", 0, 11)).unwrap();
    table.apply(&head("m", ChunkKind::Seek { offset: 4 })).unwrap();
    assert!(table.apply(&payload("m", 11, 1)).is_err());
    table.apply(&payload("m", 4, 2)).unwrap();
    table.apply(&head("m", ChunkKind::Seek { offset: 5000 })).unwrap();
    let ended = table.apply(&end("m")).unwrap();
    assert_eq!(ended, Change::Ended { id: FileId(0), size: 11, only_chunk: false });
}

#[test]
fn renames_and_removals_follow_the_names() {
    let mut table = FileTable::new();
    table.apply(&end("a")).unwrap();
    table.apply(&payload("b", 0, 1)).unwrap();
    let unknown = table.apply(&rename("nobody", "c")).unwrap_err();
    assert!(matches!(unknown, OrderError::RenameUnknown { .. }));
    assert!(unknown.to_string().ends_with("the data of c is missing"), "{unknown}");
    let error = table.apply(&rename("a", "b")).unwrap_err();
    assert!(matches!(error, OrderError::RenameTaken { .. }));
    for same in ["a", "b"] {
        assert_eq!(table.apply(&rename(same, same)).unwrap(), Change::Ignored);
    }
    let renamed = table.apply(&rename("a", "c")).unwrap();
    assert_eq!(renamed, Change::Renamed { id: FileId(0), open: false, replaces: None });
    // Two files swap names by way of a third, and a chunk arrives for a file renamed while open.
    let renamed = table.apply(&rename("b", "a")).unwrap();
    assert_eq!(renamed, Change::Renamed { id: FileId(1), open: true, replaces: None });
    table.apply(&payload("a", 1, 1)).unwrap();
    let removed = table.apply(&head("a", ChunkKind::Remove)).unwrap();
    assert_eq!(removed, Change::Removed { id: Some(FileId(1)), open: true });
    let removed = table.apply(&head("c", ChunkKind::Remove)).unwrap();
    assert_eq!(removed, Change::Removed { id: Some(FileId(0)), open: false });
    let removed = table.apply(&head("c", ChunkKind::Remove)).unwrap();
    assert_eq!(removed, Change::Removed { id: None, open: false });
    assert_eq!(table.finished(), 0);
    table.finish().unwrap();
    // The name is free again.
    table.apply(&payload("a", 0, 1)).unwrap();
}

/// mariadb-backup removes the folder of a database that was dropped while it ran.
#[test]
fn a_folder_is_removed_with_the_complete_files_in_it() {
    let mut table = FileTable::new();
    for path in ["d/b", "d/a", "d/moved", "d/below/a", "e/a", "d2"] {
        table.apply(&end(path)).unwrap();
    }
    table.apply(&payload("d/open", 0, 1)).unwrap();
    table.apply(&rename("d/moved", "e/moved")).unwrap();
    table.apply(&rename("e/a", "d/came")).unwrap();
    let ids = [0, 1, 4].map(FileId).to_vec();
    let remove = head("d", ChunkKind::Remove);
    assert_eq!(table.apply(&remove), Ok(Change::FolderRemoved { ids }));
    assert_eq!(table.apply(&remove), Ok(Change::Removed { id: None, open: false }));
    let left = ["e/moved", "d/below/a", "d2"].map(name);
    assert!(left.iter().all(|path| table.has_finished(path)));
    assert_eq!(table.finished(), 3);
    // The names are free again.
    table.apply(&end("d/a")).unwrap();
    table.apply(&end("d/open")).unwrap();
    table.finish().unwrap();
    // The folder is still there when its files were removed one by one.
    for path in ["d/a", "d/open"] {
        table.apply(&head(path, ChunkKind::Remove)).unwrap();
    }
    assert_eq!(table.apply(&remove), Ok(Change::FolderRemoved { ids: Vec::new() }));
}

#[test]
fn a_rename_replaces_a_finished_file() {
    for is_open in [false, true] {
        let mut table = FileTable::new();
        table.apply(&end("taken")).unwrap();
        table.apply(&payload("a", 0, 1)).unwrap();
        if !is_open {
            table.apply(&end("a")).unwrap();
        }
        let renamed = table.apply(&rename("a", "taken")).unwrap();
        let replaces = Some(FileId(0));
        assert_eq!(renamed, Change::Renamed { id: FileId(1), open: is_open, replaces });
        if is_open {
            let ended = table.apply(&end("taken")).unwrap();
            assert_eq!(ended, Change::Ended { id: FileId(1), size: 1, only_chunk: false });
        }
        assert_eq!(table.finished(), 1);
        table.finish().unwrap();
    }
}

#[test]
fn a_long_list_of_open_files_is_cut() {
    let mut table = FileTable::new();
    for n in 0..MAX_NAMES + 1 {
        table.apply(&payload(&format!("f{n}"), 0, 1)).unwrap();
    }
    let text = table.finish().unwrap_err().to_string();
    assert!(
        text.starts_with(
            "the stream is truncated: 9 files have no end chunk: f0 (at 1), f1 (at 1)"
        )
    );
    assert!(text.ends_with("f7 (at 1), ..."), "{text}");
}
