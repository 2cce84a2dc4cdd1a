//! Replays binary logs onto a backup that mariadb-backup has prepared, or a copy of the data of MySQL, up to their end.
//!
//! ```sh
//! cargo run --release -p xb-replay --example replay -- PREPARED THREADS /var/lib/mysql/bin.0000*
//! ```
//!
//! The position and the GTIDs are those in the backup's `xtrabackup_binlog_info` or
//! `mariadb_backup_binlog_info`; logs before that position are passed over. The last line of the output
//! has the bytes that were applied and the seconds that this took, without start and stop of the server.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use xb_binlog::{GtidState, LogPosition, RelayPlan, ReplayStop};
use xb_replay::{Piece, Progress, ReplayRequest, Watch};

type Failure = Box<dyn Error + Send + Sync>;

const INFO: [&str; 2] = ["mariadb_backup_binlog_info", "xtrabackup_binlog_info"];
/// Bytes of a piece.
const PIECE: usize = 1 << 20;

fn main() -> ExitCode {
    // Ends the server even if this process is killed.
    if let Some(status) = xb_process::serve_as_guardian() {
        return status;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [data, threads, logs @ ..] = &args[..] else {
        return Err("usage: replay PREPARED THREADS LOG...".into());
    };
    let threads =
        threads.to_str().and_then(|text| text.parse().ok()).ok_or("THREADS is a number")?;
    let info = INFO.iter().find_map(|name| std::fs::read_to_string(data.join(name)).ok());
    let info = info.ok_or("the backup has no position")?;
    let (position, start) = position(&info).ok_or("the backup's position is not understood")?;
    let server = match start {
        GtidState::MariaDb(_) => "mariadbd",
        GtidState::MySql(_) => "mysqld",
    };
    let request = ReplayRequest {
        data: data.clone(),
        programs: vec![server.into(), Path::new("/usr/sbin").join(server)],
        settings: Vec::new(),
        system_zone: None,
        engines: Vec::new(),
        writable: Vec::new(),
        position: position.clone(),
        plan: RelayPlan {
            start,
            stop: ReplayStop::End,
            servers: 0,
            leave_out: [].into(),
            may_leave_out_ddl: false,
            never_ended: Default::default(),
            outside: Default::default(),
        },
        memory: 1 << 30,
        threads,
        patience: Duration::from_secs(600),
    };
    let mut bytes = 0;
    let mut progress = |now| {
        if let Progress::Writing(written, _) = now {
            bytes = written;
        }
    };
    let mut watch =
        Watch { progress: &mut progress, is_cancelled: &|| false, note: &|_| Vec::new() };
    let report = xb_replay::replay(&request, Pieces::new(logs, position), &mut watch)?;
    println!("{report:#?}");
    println!("{bytes} {:.3}", report.applied_in.as_secs_f64());
    Ok(())
}

fn position(info: &str) -> Option<(LogPosition, GtidState)> {
    let mut words = info.split_whitespace();
    let position = LogPosition::new(words.next()?, words.next()?.parse().ok()?)?;
    Some((position, words.next().unwrap_or_default().parse().ok()?))
}

/// The logs from the position on.
struct Pieces {
    logs: VecDeque<PathBuf>,
    from: LogPosition,
    file: Option<File>,
    has_begun: bool,
}

impl Pieces {
    fn new(logs: &[PathBuf], from: LogPosition) -> Self {
        Self { logs: logs.iter().cloned().collect(), from, file: None, has_begun: false }
    }

    fn next_piece(&mut self) -> Result<Option<Piece>, Failure> {
        if let Some(file) = &mut self.file {
            let mut bytes = Vec::new();
            file.take(PIECE as u64).read_to_end(&mut bytes)?;
            if !bytes.is_empty() {
                return Ok(Some(Piece::Bytes(bytes)));
            }
        }
        let Some(path) = self.logs.pop_front() else { return Ok(None) };
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or("a log has a strange name")?;
        let offset = match (self.has_begun, name == self.from.log()) {
            (true, _) => 4,
            (false, true) => self.from.offset(),
            (false, false) => return self.next_piece(),
        };
        self.has_begun = true;
        let (format, file) = open(&path, offset)?;
        self.file = Some(file);
        Ok(Some(Piece::Log { name: name.to_owned(), format, offset }))
    }
}

/// The format description of a log, and the log at this offset.
fn open(path: &Path, offset: u64) -> Result<(Vec<u8>, File), Failure> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = File::open(path)?;
    let mut head = vec![0; 4 + 19];
    file.read_exact(&mut head)?;
    let length = head.get(13..17).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let mut format = head.split_off(4);
    format.resize(length.map_or(19, |length| length as usize).clamp(19, 1024), 0);
    file.read_exact(format.get_mut(19..).ok_or("a log is too short")?)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok((format, file))
}

impl Iterator for Pieces {
    type Item = Result<Piece, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_piece().transpose()
    }
}
