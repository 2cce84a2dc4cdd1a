//! A MariaDB server whose binary log is archived beside its backups.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xb_backup::{
    ArchiveSettings, CancelToken, KeySlots, Notice, ReceiveRequest, Resources, Session, receive,
};
use xb_encryptor::KeyBytes;
use xb_mysql::{Access, Account, Target};
use xb_repo::root::Root;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

pub(crate) const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// Number of looks, 20 a second, after which what is waited for does not come.
const WAITS: usize = 12_000;

/// A server with its backups, and the archive of its log.
pub(crate) struct Shop {
    pub(crate) server: MariaDb,
    pub(crate) scratch: Scratch,
    pub(crate) sealed: bool,
}

/// A receiver in a thread.
pub(crate) struct Receiver {
    canceller: CancelToken,
    thread: std::thread::JoinHandle<()>,
    stored: Arc<Mutex<Option<String>>>,
    notices: Arc<Mutex<Vec<Notice>>>,
}

impl Receiver {
    /// Receives from one of the servers with these sockets.
    pub(crate) fn start(scratch: &Scratch, sockets: &[&Path], is_sealed: bool) -> Self {
        let of = |socket: &&Path| Access {
            target: Target::Socket((*socket).to_owned()),
            account: Account { user: b"root".to_vec(), ..Account::default() },
        };
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let session = Session { cancel, ..session(scratch) };
        let key = is_sealed.then(|| KeyBytes::new(KEY).unwrap());
        let key_slots = KeySlots { key, ..KeySlots::default() };
        let request = ReceiveRequest {
            servers: sockets.iter().map(of).collect(),
            patience: Duration::from_secs(1),
            archive: ArchiveSettings {
                server: "shop".to_owned(),
                key_slots,
                compress: "zstd".parse().unwrap(),
                rpo: Duration::from_millis(200),
                state: None,
                accept_no_crc: false,
            },
            acknowledge: None,
        };
        let stored = Arc::new(Mutex::new(None));
        let told = Arc::clone(&stored);
        let notices = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&notices);
        let tell = move |notice| match notice {
            Notice::Stored { position, .. } => *told.lock().unwrap() = Some(position),
            Notice::Alive => {}
            notice => list.lock().unwrap().push(notice),
        };
        let thread = std::thread::spawn(move || {
            block_on(receive(&session, &request, tell)).unwrap();
        });
        Self { canceller, thread, stored, notices }
    }

    pub(crate) fn stop(self) {
        self.canceller.cancel(15);
        self.thread.join().unwrap();
    }

    /// Everything that it has told, but for what it does all the time.
    pub(crate) fn told(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }

    /// Waits until it has told what `find` looks for. Returns the last of that.
    pub(crate) fn wait_to_tell<T>(&self, find: impl Fn(Notice) -> Option<T>) -> T {
        for _ in 0..WAITS {
            if let Some(told) = self.told().into_iter().rev().find_map(&find) {
                return told;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("this was not told: {:?}", self.told());
    }
}

fn session(scratch: &Scratch) -> Session {
    let path = scratch.join("shop").to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), Policy::default(), true);
    Session::new(root.unwrap(), Resources { memory: 1 << 30, threads: 2, parallel: 4 })
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self::with_options(&[])
    }

    pub(crate) fn with_options(more: &[&str]) -> Self {
        let options = ["--log-bin=bin", "--server-id=3", "--max-allowed-packet=128M"];
        let server = MariaDb::start_with(&[&options[..], more].concat());
        server.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT);
             CREATE TABLE d.m (id INT) ENGINE=MyISAM",
        );
        let scratch = Scratch::new();
        std::fs::write(scratch.join("key"), KEY).unwrap();
        std::fs::create_dir(scratch.join("shop")).unwrap();
        Self { server, scratch, sealed: true }
    }

    pub(crate) fn place(&self, name: &str) -> String {
        format!("file://{}/{name}", self.scratch.join("shop").display())
    }

    /// The option that seals, or opens.
    pub(crate) fn key(&self) -> Option<String> {
        self.sealed.then(|| format!("--encrypt-key-file={}", self.scratch.join("key").display()))
    }

    pub(crate) fn session(&self) -> Session {
        session(&self.scratch)
    }

    pub(crate) fn receive(&self) -> Receiver {
        self.receive_from(self.server.socket())
    }

    /// Receives from the server with this socket.
    pub(crate) fn receive_from(&self, socket: &Path) -> Receiver {
        self.receive_from_any(&[socket])
    }

    /// Receives from one of the servers with these sockets.
    pub(crate) fn receive_from_any(&self, sockets: &[&Path]) -> Receiver {
        Receiver::start(&self.scratch, sockets, self.sealed)
    }

    /// Waits until everything that the server has is archived.
    pub(crate) fn wait_for(&self, receiver: &Receiver) {
        wait_until(receiver, &self.position());
    }

    pub(crate) fn back_up(&self, name: &str, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", "--quiet", &self.place(name), "--server=shop"])
            .arg(format!("--state-dir={}", self.scratch.join("state").display()))
            .args(self.key())
            .args(options)
            .arg("--")
            .args(self.server.backup_command())
            .run()
            .expect(0)
    }

    pub(crate) fn restore(&self, name: &str, stop: &str, options: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "restore", &self.place(name)])
            .env("STATE_DIRECTORY", self.scratch.join("nothing"))
            .args(self.key())
            .arg(format!("--until={stop}"))
            .args(options)
    }

    /// Restores into a new directory, starts a server there, and returns what it has.
    pub(crate) fn restored(&self, name: &str, stop: &str, options: &[&str]) -> (String, Ran) {
        let target = tempfile::tempdir_in(self.scratch.path()).unwrap();
        let ran = self.restore(name, stop, options).arg(into(target.path())).run().expect(0);
        let server = MariaDb::start_on_with(target.path(), &["--server-id=99"]);
        let rows = server.sql(ROWS);
        server.check_tables("d");
        (rows, ran)
    }

    #[track_caller]
    pub(crate) fn refused(&self, name: &str, stop: &str, options: &[&str]) -> String {
        let target = self.scratch.join("refused");
        let ran = self.restore(name, stop, options).arg(into(&target)).run();
        assert_ne!(ran.code(), 0, "{stop}: {}", ran.stderr_text());
        assert!(!target.exists(), "{stop} has left something: {}", ran.stderr_text());
        ran.stderr_text()
    }

    pub(crate) fn gtid(&self) -> String {
        self.server.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim().to_owned()
    }

    pub(crate) fn position(&self) -> String {
        let status = self.server.sql("SHOW MASTER STATUS");
        let mut columns = status.trim().split('\t');
        format!("{}:{}", columns.next().unwrap(), columns.next().unwrap())
    }

    pub(crate) fn now(&self) -> i64 {
        self.server.sql("SELECT UNIX_TIMESTAMP()").trim().parse().unwrap()
    }

    pub(crate) fn rows(&self) -> String {
        self.server.sql(ROWS)
    }
}

/// Waits until a position is archived. A server adds checkpoints at any time.
pub(crate) fn wait_until(receiver: &Receiver, position: &str) {
    let place = |position: &str| {
        let (log, offset) = position.rsplit_once(':').unwrap();
        (log.to_owned(), offset.parse::<u64>().unwrap())
    };
    let end = place(position);
    for _ in 0..WAITS {
        if receiver.stored.lock().unwrap().as_deref().is_some_and(|at| place(at) >= end) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!(
        "{end:?} is not archived, only {:?}: {:?}",
        receiver.stored.lock().unwrap(),
        receiver.told()
    );
}

pub(crate) const ROWS: &str = "SELECT id, v FROM d.t ORDER BY id; SELECT id FROM d.m ORDER BY id";

pub(crate) fn into(target: &Path) -> String {
    format!("--target-dir={}", target.display())
}

pub(crate) fn segments(shop: &Shop) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for stream in std::fs::read_dir(shop.scratch.join("shop/.xb-binlog/shop")).unwrap() {
        let files = std::fs::read_dir(stream.unwrap().path()).unwrap();
        found.extend(files.map(|file| file.unwrap().path()).filter(|path| {
            path.file_name().unwrap().to_str().unwrap().bytes().all(|b| b.is_ascii_digit())
        }));
    }
    found.sort();
    found
}

/// The folder of the newest stream.
pub(crate) fn newest_stream(shop: &Shop) -> PathBuf {
    segments(shop).last().unwrap().parent().unwrap().to_owned()
}

/// Makes the segments of an unsealed archive, but for the last `recent` ones of each stream, older by two hours, as if
/// they had been received then. Returns the folder and the heads of each stream.
pub(crate) fn age(shop: &Shop, recent: usize) -> Vec<(PathBuf, Vec<Vec<u8>>)> {
    use xb_repo::archive::record::{Record, digest, front};
    use xb_repo::archive::segment::SegmentHead;
    use xb_repo::archive::stream::{Alive, End};

    let mut aged = Vec::new();
    for stream in std::fs::read_dir(shop.scratch.join("shop/.xb-binlog/shop")).unwrap() {
        let folder = stream.unwrap().path();
        let mut heads = Vec::new();
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
        let is_segment = |name: &std::ffi::OsString| name.to_str().unwrap().parse::<u64>().is_ok();
        let aged_ones = files.filter(is_segment).count().saturating_sub(recent) as u64;
        let mut previous = digest(&std::fs::read(folder.join("head")).unwrap());
        for number in 0_u64.. {
            let path = folder.join(format!("{number:012}"));
            let Ok(bytes) = std::fs::read(&path) else { break };
            let len = front(&bytes).unwrap();
            let mut head = Record::<SegmentHead>::decode(&bytes[..len]).unwrap().content;
            head.previous = previous;
            if number < aged_ones {
                head.received = head.received.map(|at| at - jiff::SignedDuration::from_hours(2));
            }
            let text = Record::encode(&head, None).unwrap();
            previous = digest(&text);
            std::fs::write(&path, [&text, &bytes[len..]].concat()).unwrap();
            heads.push(text);
        }
        let alive = folder.join("alive");
        let mut content = Record::<Alive>::decode(&std::fs::read(&alive).unwrap()).unwrap().content;
        content.head.clone_from(&previous);
        std::fs::write(&alive, Record::encode(&content, None).unwrap()).unwrap();
        let end = folder.join("end");
        let mut content = Record::<End>::decode(&std::fs::read(&end).unwrap()).unwrap().content;
        content.head = previous;
        std::fs::write(&end, Record::encode(&content, None).unwrap()).unwrap();
        for file in std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
            if file.file_name().unwrap().to_str().unwrap().starts_with(".heads-") {
                std::fs::remove_file(file).unwrap();
            }
        }
        aged.push((folder, heads));
    }
    aged
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let into = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &into),
            false => drop(std::fs::copy(entry.path(), into).unwrap()),
        }
    }
}
