//! Several streams over FIFOs, through all programs.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::{noise, pages};
use xb_testkit::files::assert_same_tree;

/// One of our programs, built beside the program under test.
fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: cargo build --workspace");
    path
}

/// Creates the FIFOs and writes two streams into them, as xtrabackup does: the last file after
/// everything else, in the first FIFO.
const PRODUCER: &str = r#"
mkfifo -m 600 "$FIFOS/thread_0" "$FIFOS/thread_1"
exec 3>"$FIFOS/thread_0" 4>"$FIFOS/thread_1"
printf '\0' >&3
printf '\0' >&4
cd "$DATA"
"$XBSTREAM" -c db/noise.ibd ibdata1 >&3 4>&- &
"$XBSTREAM" -c db/pages.ibd db/small.frm >&4 3>&-
wait $!
"$XBSTREAM" -c xtrabackup_info >&3
"#;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        std::fs::create_dir_all(place.path("data/db")).unwrap();
        std::fs::create_dir(place.path("fifos")).unwrap();
        std::fs::create_dir(place.path("out")).unwrap();
        std::fs::write(place.path("data/db/noise.ibd"), noise(1, 3_000_001)).unwrap();
        std::fs::write(place.path("data/db/pages.ibd"), pages(2, 25_000_000)).unwrap();
        std::fs::write(place.path("data/db/small.frm"), "small").unwrap();
        std::fs::write(place.path("data/ibdata1"), pages(3, 1_000_000)).unwrap();
        std::fs::write(place.path("data/xtrabackup_info"), "tool_name = mariadb-backup\n").unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path("root").join(name).display())
    }

    /// A program with the options for two streams.
    fn fifo(&self, name: &str, words: &[&str]) -> Cmd {
        let dir = format!("--fifo-dir={}", self.path("fifos").display());
        Cmd::new(program(name)).args(words).args(["--fifo-streams=2", &dir])
    }

    /// `sh -c SCRIPT`, with the places in its environment.
    fn shell(&self, script: &str) -> Cmd {
        self.with_places(Cmd::new("sh").args(["-ec", script]))
    }

    fn with_places(&self, cmd: Cmd) -> Cmd {
        cmd.env("FIFOS", self.path("fifos"))
            .env("DATA", self.path("data"))
            .env("XBSTREAM", program("xbstream-rs"))
    }

    fn backup(&self, name: &str, script: &str) -> Ran {
        let url = self.url(name);
        let words = ["backup", &url, "--spool-dir=none"];
        self.with_places(self.fifo("xbcloud-rs", &words).args(["--", "sh", "-ec", script])).run()
    }

    #[track_caller]
    fn has_no_fifo(&self) {
        assert_eq!(std::fs::read_dir(self.path("fifos")).unwrap().count(), 0);
    }

    fn is_stored(&self, name: &str) -> bool {
        self.path("root/.xb-catalog").join(name).exists()
    }
}

#[track_caller]
fn says(ran: &Ran, what: &str) {
    assert!(ran.stderr_text().contains(what), "{ran:?}");
}

#[test]
fn a_backup_of_several_streams_is_stored_and_read_as_several() {
    let place = Place::new();
    for layout in ["packed", "classic"] {
        let (url, layout_option) = (place.url(layout), format!("--layout={layout}"));
        let put = place.fifo("xbcloud-rs", &["put", &layout_option, &url]).spawn();
        let _ = place.shell(PRODUCER).run().expect(0);
        let _ = put.wait().expect(0);
        place.has_no_fifo();
        let _ = Cmd::new(program("xbcloud-rs"))
            .args(["verify", "--level=decrypt", &url])
            .run()
            .expect(0);

        let get = place.fifo("xbcloud-rs", &["get", &url]).spawn();
        let out = place.path(&format!("out/{layout}"));
        std::fs::create_dir(&out).unwrap();
        let extract = place.fifo("xbstream-rs", &["-x"]).arg("-C").arg(&out);
        let _ = extract.run().expect(0);
        let _ = get.wait().expect(0);
        assert_same_tree(&place.path("data"), &out);
        place.has_no_fifo();
        // As one stream, too.
        let get = Cmd::new(program("xbcloud-rs")).args(["get", &url]).run().expect(0);
        let list = Cmd::new(program("xbstream-rs")).arg("-t").stdin_bytes(get.stdout).run();
        assert_eq!(list.expect(0).stdout_text().lines().count(), 5);
    }
    // From the FIFOs of one to those of the other.
    let (from, to) = (place.url("packed"), place.url("again"));
    let get = place.fifo("xbcloud-rs", &["get", &from]).spawn();
    let _ = place.fifo("xbcloud-rs", &["put", &to]).run().expect(0);
    let _ = get.wait().expect(0);
    assert!(place.is_stored("again"));
}

#[test]
fn a_producer_with_several_streams_is_run_and_its_failure_counts() {
    let place = Place::new();
    let _ = place.backup("good", PRODUCER).expect(0);
    assert!(place.is_stored("good"));
    place.has_no_fifo();

    let failed = place.backup("b1", "echo no access to the server >&2; exit 7").expect(6);
    says(&failed, "sh failed with exit status 7");
    let failed = place.backup("b2", &format!("{PRODUCER}\nexit 3")).expect(6);
    says(&failed, "sh failed with exit status 3");
    // One stream whole, the other cut between two chunks of a file.
    let cut = PRODUCER.replace(
        "db/pages.ibd db/small.frm >&4",
        "db/pages.ibd db/small.frm | head -c 10485806 >&4",
    );
    let failed = place.backup("b3", &format!("set +e\n{cut}\nexit 0")).expect(6);
    says(&failed, "thread_1: the stream is truncated: 1 file has no end chunk: db/pages.ibd");
    let failed = place.backup("b4", "echo MySQL says hello; exec sleep 1000").expect(6);
    says(&failed, "the producer writes to its standard output");
    // In the middle, more than its pipe holds.
    let noisy = PRODUCER.replace("wait $!", "head -c 3000000 /dev/zero; wait $!");
    let failed = place.backup("b5", &noisy).expect(6);
    says(&failed, "the producer writes to its standard output");
    for name in ["b1", "b2", "b3", "b4", "b5"] {
        assert!(!place.is_stored(name), "{name}");
    }
    place.has_no_fifo();
}

#[test]
fn the_other_end_that_never_comes_is_named() {
    let place = Place::new();
    let _ = place.backup("good", PRODUCER).expect(0);
    let url = place.url("n");
    let alone = |cmd: Cmd| cmd.arg("--fifo-timeout=1").run().expect_failure();
    let put = alone(place.fifo("xbcloud-rs", &["put", &url]));
    says(&put, "thread_0: no program created it within 1 s");
    assert!(!place.is_stored("n"));
    let out = place.path("out").display().to_string();
    let extract = place.fifo("xbstream-rs", &["-x", "-C", &out]);
    says(&alone(extract), "thread_0: no program created it within 1 s");
    let get = alone(place.fifo("xbcloud-rs", &["get", &place.url("good")]));
    says(&get, "thread_0: no program opened it for reading within 1 s");
    place.has_no_fifo();
    // A reader that leaves.
    let get = place.fifo("xbcloud-rs", &["get", &place.url("good")]).spawn();
    let leave = "while ! test -p $FIFOS/thread_1; do :; done
        cat $FIFOS/thread_0 >/dev/null & head -c 1 $FIFOS/thread_1 >/dev/null; wait";
    let _ = place.shell(leave).run().expect(0);
    says(&get.wait().expect_failure(), "thread_1: its reader ended before the end of the stream");
    place.has_no_fifo();
}

#[test]
fn a_signal_ends_the_wait_and_leaves_no_fifo() {
    let place = Place::new();
    let _ = place.backup("good", PRODUCER).expect(0);
    let mut get = place.fifo("xbcloud-rs", &["get", &place.url("good")]).spawn();
    let made = place.path("fifos/thread_1");
    get.until("its FIFOs", || made.exists());
    get.signal(rustix::process::Signal::TERM);
    let _ = get.wait().expect(143);
    place.has_no_fifo();

    for (name, words) in [("xbcloud-rs", ["put", &place.url("n")]), ("xbstream-rs", ["-x", "-v"])] {
        // This FIFO has a writer, the other one does not exist.
        let fifo = place.path("fifos/thread_0");
        let _ = Cmd::new("mkfifo").arg(&fifo).run().expect(0);
        let run = place.fifo(name, &words).cwd(place.path("out")).spawn();
        let feed = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::write(fifo, [0])
        });
        // The FIFO is open, so signals are handled.
        feed.join().unwrap().unwrap();
        run.signal(rustix::process::Signal::TERM);
        let _ = run.wait().expect(143);
        place.has_no_fifo();
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let place = Place::new();
    let url = place.url("n");
    for (words, what) in [
        (&["put", &url, "--fifo-streams=2"][..], "--fifo-streams requires --fifo-dir"),
        (&["put", &url, "--fifo-dir=/x"], "--fifo-dir requires --fifo-streams"),
        (&["put", &url, "--fifo-dir=/x", "--fifo-streams=257"], "at most 256"),
        (&["put", &url, "--fifo-dir=/x", "--fifo-streams=2", "--raw"], "--raw works only"),
        (&["get", &url, "--fifo-dir=/x", "--fifo-streams=2", "--as-stored"], "--as-stored works"),
        (&["list", &url, "--fifo-dir=/x", "--fifo-streams=2"], "work only with put"),
        (&["restore", &url, "--target-dir=/x", "--fifo-streams=2"], "work only with put"),
    ] {
        let refused = Cmd::new(program("xbcloud-rs")).args(words).run().expect(2);
        says(&refused, what);
    }
}
