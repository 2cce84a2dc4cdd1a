//! What a server can make the client hold, and how the client leaves it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Duration;

use xb_mysql::{Account, Client, Error, Target, Timeouts};
use xb_testkit::daemon::Scratch;

const LIMIT: Duration = Duration::from_secs(60);
const TIMEOUTS: Timeouts = Timeouts { login: LIMIT, reply: Some(LIMIT) };
/// Header of a piece of 16 MiB - 1, without its number: another one follows it.
const FULL: [u8; 3] = [0xff; 3];
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
const COLUMN: &[u8] =
    b"\x03def\x00\x00\x00\x01a\x00\x0c\x2d\x00\x00\x00\x00\x00\xfd\x00\x00\x00\x00\x00";

/// Protocol 4.1 with plugins, and nothing newer.
fn greeting() -> Vec<u8> {
    const CAPABILITIES: u32 = 1 | 1 << 2 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 19;
    let [low, low2, high, high2] = CAPABILITIES.to_le_bytes();
    [
        &b"\x0a8.4.0\0\x01\0\0\0challeng\0"[..],
        &[low, low2, 45, 2, 0, high, high2, 21],
        &[0; 10],
        b"twelve bytes\0mysql_native_password\0",
    ]
    .concat()
}

/// The server's end of a connection.
struct Peer {
    stream: UnixStream,
    /// Number of its next packet.
    next: u8,
}

impl Peer {
    /// Sends a packet; false once the client is gone.
    fn send(&mut self, payload: &[u8]) -> bool {
        let [a, b, c, _] = u32::try_from(payload.len()).unwrap().to_le_bytes();
        self.send_raw(&[&[a, b, c, self.next], payload].concat())
    }

    /// Sends one piece.
    fn send_raw(&mut self, bytes: &[u8]) -> bool {
        self.next = self.next.wrapping_add(1);
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends pieces of one packet for as long as the client takes them, and returns their bytes: up to 335 MB.
    fn send_long(&mut self) -> u64 {
        let (body, mut sent) = (vec![b'x'; 0xff_ffff], 0);
        for _ in 0..20 {
            let [a, b, c] = FULL;
            if !self.send_raw(&[&[a, b, c, self.next][..], &body].concat()) {
                break;
            }
            sent += 0xff_ffff;
        }
        sent
    }

    /// The next command; `None` after the last one.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).ok()?;
        self.next = header[3].wrapping_add(1);
        let mut payload = vec![0; usize::from(header[0]) | usize::from(header[1]) << 8];
        self.stream.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    /// Accepts the account, and answers its settings.
    fn accepted(mut self) -> Self {
        assert!(self.send(&greeting()));
        assert!(self.receive().is_some() && self.send(OK));
        assert!(self.receive().is_some() && self.send(OK));
        self
    }
}

/// Runs a server for one client.
fn serve<T: Send + 'static>(
    scratch: &Scratch,
    serve: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Target, JoinHandle<T>) {
    let path = scratch.join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve(Peer { stream, next: 0 })
    });
    (Target::Socket(path), server)
}

fn connect(target: &Target) -> Result<Client, Error> {
    Client::connect(target, &Account::default(), TIMEOUTS)
}

#[test]
fn before_the_login_a_server_sends_only_short_packets() {
    for greets in [false, true] {
        let scratch = Scratch::new();
        let (target, server) = serve(&scratch, move |mut peer| {
            if greets {
                assert!(peer.send(&greeting()) && peer.receive().is_some());
            }
            peer.send_long()
        });
        let error = connect(&target).unwrap_err();
        assert!(matches!(error, Error::TooLong { limit: 16384 }), "{error}");
        assert_eq!(server.join().unwrap(), 0);
    }
}

#[test]
fn a_login_has_an_end() {
    let scratch = Scratch::new();
    let (target, server) = serve(&scratch, |mut peer| {
        assert!(peer.send(&greeting()) && peer.receive().is_some());
        assert!(peer.send(b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0"));
        assert!(peer.receive().is_some());
        // "The server knows the password": its consent follows.
        (0..1_000_000).take_while(|_| peer.send(&[1, 3])).count()
    });
    let error = connect(&target).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
    assert!(server.join().unwrap() < 1_000_000);
}

/// The error of a client that asks a question, and how many packets of its answer the server got rid of.
fn asked(
    most: u64,
    ask: impl FnOnce(&mut Client) -> Result<(), Error>,
    mut answer: impl FnMut(&mut Peer) -> bool + Send + 'static,
) -> (String, u64) {
    let scratch = Scratch::new();
    let (target, server) = serve(&scratch, move |peer| {
        let mut peer = peer.accepted();
        peer.receive().unwrap();
        let mut sent = 0;
        while sent < most && answer(&mut peer) {
            sent += 1;
        }
        sent
    });
    let mut client = connect(&target).unwrap();
    let answer = ask(&mut client);
    drop(client);
    let sent = server.join().unwrap();
    let error = answer.expect_err("an answer without an end is read");
    assert!(sent < most, "an answer without an end is read");
    (error.to_string(), sent)
}

/// Begins a result of one column, and then sends `row` again and again.
fn rows(row: Vec<u8>) -> impl FnMut(&mut Peer) -> bool + Send + 'static {
    let mut begun = false;
    move |peer| {
        if std::mem::replace(&mut begun, true) {
            peer.send(&row)
        } else {
            peer.send(&[1]) && peer.send(COLUMN) && peer.send(EOF)
        }
    }
}

fn grants(client: &mut Client) -> Result<(), Error> {
    client.rows("SHOW GRANTS").map(drop)
}

#[test]
fn an_answer_takes_only_the_memory_that_its_question_needs() {
    // A row of no byte has its place in memory, too.
    let (error, sent) = asked(2_000_000, grants, rows(vec![0]));
    assert!(error.contains("more than 64 MiB of memory"), "{error}");
    assert!((300_000..700_000).contains(&sent), "{sent}");
    let long = [&[0xfd, 0, 0, 16][..], &vec![b'x'; 1 << 20]].concat();
    let (error, sent) = asked(300, grants, rows(long));
    assert!(error.contains("more than 64 MiB of memory"), "{error}");
    assert!((62..70).contains(&sent), "{sent}");
    // Results without rows, one after the other.
    let (error, _) = asked(2_000_000, grants, |peer| peer.send(&[0, 0, 0, 10, 0, 0, 0]));
    assert!(error.contains("more than 64 MiB of memory"), "{error}");
}

#[test]
fn one_long_row_is_refused_by_its_header() {
    let long = |peer: &mut Peer| {
        assert!(peer.send(&[1]) && peer.send(COLUMN) && peer.send(EOF));
        assert!(peer.send_long() < 80_000_000);
        false
    };
    let (error, _) = asked(1, grants, long);
    assert!(error.contains("more than 64 MiB of memory"), "{error}");
}

#[test]
fn the_description_of_a_result_is_short() {
    let stream = |client: &mut Client| client.run("SELECT 1");
    // A name of a megabyte for each of 4,096 columns.
    let name = vec![b'n'; 1 << 20];
    let column =
        [&b"\x03def\0\0\0\xfd\0\0\x10"[..], &name, b"\0\x0c-\0\0\0\0\0\xfd\0\0\0\0\0"].concat();
    let mut begun = false;
    let (error, sent) = asked(300, stream, move |peer| {
        if std::mem::replace(&mut begun, true) {
            peer.send(&column)
        } else {
            peer.send(&[0xfc, 0, 16])
        }
    });
    assert!(error.contains("a packet of more than"), "{error}");
    assert!(sent < 20, "{sent}");
    // More columns than servers have.
    let (error, _) = asked(300, stream, |peer| peer.send(&[0xfc, 1, 16]));
    assert!(error.contains("number of columns"), "{error}");
}

#[test]
fn a_million_tables_are_a_list() {
    const TABLES: usize = 1_000_000;
    let scratch = Scratch::new();
    let (target, server) = serve(&scratch, |peer| {
        let mut peer = peer.accepted();
        peer.receive().unwrap();
        assert!(peer.send(&[1]) && peer.send(COLUMN) && peer.send(EOF));
        let row = [&[200][..], &[b't'; 200]].concat();
        // Many at once: one by one, the test takes long.
        for _ in 0..TABLES / 1000 {
            let mut bytes = Vec::new();
            for _ in 0..1000 {
                bytes.extend([201, 0, 0, peer.next]);
                bytes.extend_from_slice(&row);
                peer.next = peer.next.wrapping_add(1);
            }
            peer.stream.write_all(&bytes).unwrap();
        }
        assert!(peer.send(EOF));
        peer.receive()
    });
    let mut client = connect(&target).unwrap();
    assert_eq!(client.list("SELECT all tables").unwrap().len(), TABLES);
    drop(client);
    assert_eq!(server.join().unwrap(), Some(vec![1]));
}

/// A server counts a connection that just closes as one that broke.
#[test]
fn a_client_says_that_it_leaves() {
    let scratch = Scratch::new();
    let (target, server) = serve(&scratch, |peer| {
        let mut peer = peer.accepted();
        [peer.receive(), peer.receive()]
    });
    drop(connect(&target).unwrap());
    assert_eq!(server.join().unwrap(), [Some(vec![1]), None]);
    // Within an answer, it can only go.
    let scratch = Scratch::new();
    let (target, server) = serve(&scratch, |peer| {
        let mut peer = peer.accepted();
        peer.receive().unwrap();
        assert!(peer.send(&[1]) && peer.send(COLUMN) && peer.send(EOF));
        peer.receive()
    });
    let mut client = connect(&target).unwrap();
    assert!(client.query("SELECT 1").unwrap().next().is_ok());
    drop(client);
    assert_eq!(server.join().unwrap(), None);
}
