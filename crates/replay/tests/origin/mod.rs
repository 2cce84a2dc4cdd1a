//! A server with logs, its backups, and replays onto them.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xb_binlog::{
    AnyGtid, Event, GtidState, History, LogPosition, Reader, RelayPlan, ReplayStop,
    TransactionSummary,
};
use xb_replay::{Piece, Progress, ReplayError, ReplayReport, ReplayRequest, Watch, origin_options};
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::{MariaDb, prepare};
use xb_testkit::tools::find;

pub(crate) struct Origin {
    pub(crate) server: MariaDb,
    pub(crate) scratch: Scratch,
}

impl Origin {
    pub(crate) fn start(options: &[&str]) -> Self {
        let own = ["--log-bin=bin", "--server-id=1", "--binlog-format=ROW"];
        let server = MariaDb::start_with(&[&own, options].concat());
        Self { server, scratch: Scratch::new() }
    }

    /// Options with its values of the settings that logs lack. Each has to be known to the server.
    pub(crate) fn settings(&self) -> Vec<OsString> {
        let values = self.server.sql("SHOW GLOBAL VARIABLES");
        let values = values.lines().filter_map(|line| line.split_once('\t'));
        let options = origin_options(values).map(|option| option.into_string().unwrap());
        options.map(|option| option.replace("--loose-", "--").into()).collect()
    }

    pub(crate) fn gtids(&self) -> String {
        self.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned()
    }

    /// The end of the logs.
    pub(crate) fn position(&self) -> String {
        let status = self.server.sql("SHOW MASTER STATUS");
        status.split('\t').take(2).collect::<Vec<_>>().join(":")
    }

    /// The logs from a position on, in pieces of this size.
    fn pieces(&self, from: &LogPosition, piece: usize) -> Vec<Result<Piece, io::Error>> {
        pieces_in(self.server.datadir(), from, piece)
    }

    /// The logs from a position on, with changes of settings at these positions.
    pub(crate) fn changing(
        &self,
        from: &LogPosition,
        changes: &[(String, &str, &str)],
    ) -> Vec<Result<Piece, io::Error>> {
        let (mut pieces, mut at) = (Vec::new(), (String::new(), 0));
        for piece in self.pieces(from, usize::MAX) {
            let Ok(Piece::Bytes(bytes)) = piece else {
                if let Ok(Piece::Log { name, offset, .. }) = &piece {
                    at = (name.clone(), usize::try_from(*offset).unwrap());
                }
                pieces.push(piece);
                continue;
            };
            let mut rest = &bytes[..];
            for (position, name, value) in changes {
                let Some(offset) = position.strip_prefix(&format!("{}:", at.0)) else { continue };
                let offset: usize = offset.parse().unwrap();
                let (before, behind) = rest.split_at(offset - at.1);
                pieces.push(Ok(Piece::Bytes(before.to_vec())));
                let values = vec![((*name).to_owned(), (*value).to_owned())];
                pieces.push(Ok(Piece::Settings(values)));
                (rest, at.1) = (behind, offset);
            }
            pieces.push(Ok(Piece::Bytes(rest.to_vec())));
        }
        pieces
    }

    /// The ends of all transactions from a position on, as `LOG:OFFSET`.
    pub(crate) fn ends(&self, from: &LogPosition) -> Vec<String> {
        let (mut found, mut offset) = (Vec::new(), from.offset());
        for path in logs_in(self.server.datadir(), from.log()) {
            let log = std::fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let (mut reader, mut history) = (Reader::new(), History::new(name, None));
            let mut input = &log[..];
            while let Some(entry) = reader.next(&mut input).unwrap() {
                let is_before = entry.begin < offset && !matches!(entry.event, Event::Format(_));
                if !is_before && let Some(ended) = history.push(&entry).unwrap().ended {
                    found.push(format!("{name}:{}", ended.end));
                }
            }
            offset = 4;
        }
        found
    }

    /// The transactions after a backup: GTID, end, and `TABLE (VALUES)` of their statement.
    pub(crate) fn commits(&self, backup: &Backup) -> Vec<(AnyGtid, LogPosition, String)> {
        let mut found = Vec::new();
        let mut offset = backup.position.offset();
        for path in logs_in(self.server.datadir(), backup.position.log()) {
            let log = std::fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let (mut reader, mut history) = (Reader::new(), History::new(name, None));
            let mut input = &log[..];
            while let Some(entry) = reader.next(&mut input).unwrap() {
                if entry.begin < offset && !matches!(entry.event, Event::Format(_)) {
                    continue;
                }
                if let Some(ended) = history.push(&entry).unwrap().ended {
                    let place =
                        usize::try_from(ended.begin).unwrap()..usize::try_from(ended.end).unwrap();
                    let summary = TransactionSummary::read(&log, &log[place]).unwrap();
                    let statement = summary.statement.unwrap();
                    let row =
                        statement.strip_prefix("INSERT INTO x.").unwrap().replace("VALUES ", "");
                    found.push((summary.gtid, LogPosition::new(name, ended.end).unwrap(), row));
                }
            }
            offset = 4;
        }
        found
    }
}

/// The logs of a data directory from this one on.
fn logs_in(dir: &Path, first: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with("bin.0") && name.as_str() >= first).collect();
    names.sort();
    names.iter().map(|name| dir.join(name)).collect()
}

/// The logs of a data directory from a position on, in pieces of this size.
pub(crate) fn pieces_in(
    dir: &Path,
    from: &LogPosition,
    piece: usize,
) -> Vec<Result<Piece, io::Error>> {
    let mut pieces = Vec::new();
    let mut offset = from.offset();
    for path in logs_in(dir, from.log()) {
        let log = std::fs::read(&path).unwrap();
        let length = u32::from_le_bytes(log[13..17].try_into().unwrap());
        let format = log[4..4 + length as usize].to_vec();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        pieces.push(Ok(Piece::Log { name, format, offset }));
        let rest = &log[usize::try_from(offset).unwrap()..];
        pieces.extend(rest.chunks(piece).map(|bytes| Ok(Piece::Bytes(bytes.to_vec()))));
        offset = 4;
    }
    pieces
}

/// A prepared backup.
pub(crate) struct Backup {
    dir: Scratch,
    pub(crate) position: LogPosition,
    pub(crate) gtids: GtidState,
}

impl Backup {
    pub(crate) fn of(origin: &Origin) -> Self {
        let dir = Scratch::new();
        let (stream, files) = (dir.join("stream"), dir.dir("files"));
        origin.server.save_stream(&stream);
        let unpack = Cmd::new(find("mbstream")).args(["-x", "-C"]).arg(&files);
        let _ = unpack.stdin_file(&stream).run().expect(0);
        prepare(&files);
        let info = std::fs::read_to_string(files.join("xtrabackup_binlog_info")).unwrap();
        let mut words = info.split_whitespace();
        let mut next = || words.next().unwrap_or_default();
        let position = LogPosition::new(next(), next().parse().unwrap()).unwrap();
        Self { dir, position, gtids: next().parse().unwrap() }
    }

    /// A copy of the data, and a request to replay onto it.
    pub(crate) fn request(&self, stop: ReplayStop) -> (Scratch, ReplayRequest) {
        let copy = Scratch::new();
        let from = self.dir.join("files/.");
        let _ = Cmd::new("cp").arg("-a").arg(&from).arg(copy.path()).run().expect(0);
        let request = request(copy.path(), self.position.clone(), self.gtids.clone(), stop);
        (copy, request)
    }

    /// The files of the data, with their lengths.
    pub(crate) fn listing(&self) -> Vec<String> {
        Self::listing_of(&self.dir.join("files"))
    }

    pub(crate) fn listing_of(dir: &Path) -> Vec<String> {
        let list = "find . -type f -printf '%P %s %T@\\n' | sort";
        let found = Cmd::new("sh").args(["-c", list]).cwd(dir).run().expect(0).stdout_text();
        found.lines().map(str::to_owned).collect()
    }
}

pub(crate) fn request(
    data: &Path,
    position: LogPosition,
    start: GtidState,
    stop: ReplayStop,
) -> ReplayRequest {
    ReplayRequest {
        data: data.to_owned(),
        programs: vec![find("mariadbd")],
        settings: vec!["--character-set-server=utf8mb4".into()],
        system_zone: None,
        engines: Vec::new(),
        writable: Vec::new(),
        position,
        plan: RelayPlan {
            start,
            stop,
            servers: 0,
            leave_out: BTreeSet::new(),
            may_leave_out_ddl: false,
            never_ended: BTreeSet::new(),
            outside: Default::default(),
        },
        memory: 256 << 20,
        threads: 4,
        patience: Duration::from_secs(300),
    }
}

pub(crate) fn replay(
    origin: &Origin,
    request: &ReplayRequest,
    piece: usize,
    mut progress: impl FnMut(Progress),
) -> Result<ReplayReport, ReplayError> {
    replay_pieces(request, origin.pieces(&request.position, piece), |now| {
        progress(now);
        true
    })
}

/// Like [`replay`], with logs from another position on.
pub(crate) fn replay_from(
    origin: &Origin,
    from: &LogPosition,
    request: &ReplayRequest,
) -> Result<ReplayReport, ReplayError> {
    replay_pieces(request, origin.pieces(from, 1000), |_| true)
}

/// Like [`replay`], until `goes_on` is false.
pub(crate) fn replay_while(
    origin: &Origin,
    request: &ReplayRequest,
    goes_on: impl FnMut(Progress) -> bool,
) -> Result<ReplayReport, ReplayError> {
    replay_pieces(request, origin.pieces(&request.position, 1000), goes_on)
}

pub(crate) fn replay_pieces(
    request: &ReplayRequest,
    pieces: Vec<Result<Piece, io::Error>>,
    mut goes_on: impl FnMut(Progress) -> bool,
) -> Result<ReplayReport, ReplayError> {
    let cancelled = std::cell::Cell::new(false);
    let mut progress = |now| cancelled.set(cancelled.get() || !goes_on(now));
    let note = |report: &ReplayReport| report.gtids.to_string().into_bytes();
    let is_cancelled = || cancelled.get();
    let mut watch = Watch { progress: &mut progress, is_cancelled: &is_cancelled, note: &note };
    let report = xb_replay::replay(request, pieces, &mut watch)?;
    // Whoever is killed here finds what was done.
    assert_eq!(xb_replay::noted_end(&request.data)?, Some(note(&report)));
    xb_replay::remove_note(&request.data)?;
    assert_eq!(xb_replay::noted_end(&request.data)?, None);
    Ok(report)
}
