//! The stream of a merged chain: the files of its directory, as a producer would write them.

use std::ffi::OsString;
use std::io::{self, BufWriter, PipeReader};
use std::path::Path;
use std::thread::JoinHandle;

use xb_pipeline::{CreateOptions, create};

use crate::error::BackupError;

/// Heads and small files are buffered up to this many bytes.
const BUFFER: usize = 64 << 10;
/// The files that a producer writes last, by which a stream counts as complete.
const LAST: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];
/// Names that begin with this in the directory are not files of the backup.
const OWN: &str = ".xb-";

/// Begins to write the files below `dir` into a stream, in another thread. The thread ends with the stream, or when its
/// reader is dropped.
pub(super) fn merged_stream(
    dir: &Path,
) -> Result<(PipeReader, JoinHandle<Result<(), String>>), BackupError> {
    let system = |what| move |source| BackupError::System { what, source };
    let files = files_of(dir).map_err(system("the files of the merged chain"))?;
    let (reader, writer) = io::pipe().map_err(system("a pipe"))?;
    xb_files::enlarge_pipe(&writer);
    let mut options = CreateOptions::default();
    options.dir = dir.to_owned();
    let write = move || {
        let output = BufWriter::with_capacity(BUFFER, writer);
        let written = create(output, &files, &options, |_| {});
        written.map(drop).map_err(|error| error.to_string())
    };
    let thread = std::thread::Builder::new().name("merged stream".into()).spawn(write);
    Ok((reader, thread.map_err(system("a thread"))?))
}

/// The files below a directory, by their paths from it, in order; that of the producer's end comes last.
fn files_of(dir: &Path) -> io::Result<Vec<OsString>> {
    let (mut files, mut folders) = (Vec::new(), vec![OsString::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(dir.join(&folder))? {
            let entry = entry?;
            let is_top = folder.is_empty();
            if is_top && entry.file_name().as_encoded_bytes().starts_with(OWN.as_bytes()) {
                continue;
            }
            let path = Path::new(&folder).join(entry.file_name()).into_os_string();
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort_by_key(|file| (LAST.iter().any(|last| file == last), file.clone()));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn all_files_but_our_own_are_in_the_stream_and_the_info_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["xtrabackup_info", "zz/t.ibd", "a/.xb-t.ibd", ".xb-partial/x", "ibdata1"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let files = files_of(dir.path()).unwrap();
        assert_eq!(files, ["a/.xb-t.ibd", "ibdata1", "zz/t.ibd", "xtrabackup_info"]);
        let (mut stream, thread) = merged_stream(dir.path()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        thread.join().unwrap().unwrap();
        assert!(bytes.windows(8).filter(|at| at == b"zz/t.ibd").count() >= 2);
        // A reader that goes away ends the thread.
        std::fs::write(dir.path().join("ibdata1"), vec![1; 4 << 20]).unwrap();
        let (stream, thread) = merged_stream(dir.path()).unwrap();
        drop(stream);
        assert!(thread.join().unwrap().unwrap_err().contains("cannot write"));
    }
}
