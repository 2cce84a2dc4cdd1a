//! A server on a Unix socket that answers statements as a test says: for answers that a real one
//! gives only in a cluster. It lets every account in.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Rows of an answer. Without a row, the statement has no result.
pub type Rows = Vec<Vec<String>>;

type Script = dyn Fn(&str) -> Result<Rows, String> + Send + Sync;
/// Answers the request to turn a connection into one for a clone, and serves that.
pub(super) type Clones = Arc<dyn Fn(&UnixStream) + Send + Sync>;

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Scripted {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts a server of this version on `socket`. `script` answers statements; its error is
    /// the server's.
    ///
    /// # Panics
    /// If it cannot listen there.
    #[must_use]
    pub fn start(
        socket: &Path,
        version: &str,
        script: impl Fn(&str) -> Result<Rows, String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_clones(socket, version, script, Arc::new(|_| ()))
    }

    /// Like [`start`](Self::start), for a server that can be cloned.
    pub(super) fn with_clones(
        socket: &Path,
        version: &str,
        script: impl Fn(&str) -> Result<Rows, String> + Send + Sync + 'static,
        clones: Clones,
    ) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, version, script) = (Arc::clone(&is_over), version.to_owned(), Arc::new(script));
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (version, script) = (version.clone(), Arc::clone(&script));
                let clones = Arc::clone(&clones);
                // It ends when the client closes the connection.
                std::thread::spawn(move || serve(&stream, &version, &*script, &*clones));
            }
        };
        let thread = Some(std::thread::spawn(accept));
        Self { socket: socket.to_owned(), is_over, thread }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Without its socket, the thread cannot be woken; it ends with the test process.
        if UnixStream::connect(&self.socket).is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

/// Serves one client; `None` when it has left.
fn serve(
    stream: &UnixStream,
    version: &str,
    script: &Script,
    clones: &dyn Fn(&UnixStream),
) -> Option<()> {
    let (mut input, mut output) = (BufReader::new(stream), stream);
    let mut send = |packets: &[Vec<u8>], first: u8| output.write_all(&framed(packets, first)).ok();
    send(&[greeting(version)], 0)?;
    receive(&mut input)?;
    send(&[done()], 2)?;
    loop {
        let command = receive(&mut input)?;
        let packets = match command.split_first()? {
            // The client's own settings.
            (3, sql) if sql.starts_with(b"SET sql_select_limit") => vec![done()],
            (3, sql) => match script(&String::from_utf8_lossy(sql)) {
                Ok(rows) => result(&rows),
                Err(text) => vec![[b"\xff\x15\x04#HY000", text.as_bytes()].concat()],
            },
            (1, _) => return None,
            (0x20, _) => {
                // Nothing is in the buffer: a client waits for the answer.
                clones(stream);
                return None;
            }
            _ => vec![done()],
        };
        send(&packets, 1)?;
    }
}

/// Packets with their heads, numbered from `first`.
pub(super) fn framed(packets: &[Vec<u8>], first: u8) -> Vec<u8> {
    let mut framed = Vec::new();
    for (packet, number) in packets.iter().zip(first..) {
        framed.extend_from_slice(&packet.len().to_le_bytes()[..3]);
        framed.push(number);
        // Whole: byte by byte, a clone of 79 MB takes half a second.
        framed.extend_from_slice(packet);
    }
    framed
}

pub(super) fn receive(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut header = [0; 4];
    input.read_exact(&mut header).ok()?;
    let [a, b, c, _] = header.map(usize::from);
    let mut packet = vec![0; a | b << 8 | c << 16];
    input.read_exact(&mut packet).ok()?;
    Some(packet)
}

/// Protocol 4.1 with plugins, and nothing newer.
fn greeting(version: &str) -> Vec<u8> {
    const CAPABILITIES: u32 = 1 | 1 << 2 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 19;
    let [low, low2, high, high2] = CAPABILITIES.to_le_bytes();
    [
        &[10],
        version.as_bytes(),
        b"\0\x01\0\0\0challeng\0",
        &[low, low2, 45, 2, 0, high, high2, 21],
        &[0; 10],
        b"twelve bytes\0mysql_native_password\0",
    ]
    .concat()
}

pub(super) fn done() -> Vec<u8> {
    vec![0, 0, 0, 2, 0, 0, 0]
}

fn result(rows: &[Vec<String>]) -> Vec<Vec<u8>> {
    const END: [u8; 5] = [0xfe, 0, 0, 2, 0];
    let Some(first) = rows.first() else { return vec![done()] };
    let string = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        [&[0xfc], &length[..], text.as_bytes()].concat()
    };
    let column = || {
        let names = ["def", "", "", "", "c", ""].map(string).concat();
        [&names[..], &[12, 45, 0], &1024_u32.to_le_bytes(), &[253, 0, 0, 0, 0, 0]].concat()
    };
    let mut packets = vec![vec![u8::try_from(first.len()).unwrap()]];
    packets.extend(first.iter().map(|_| column()));
    packets.push(END.to_vec());
    packets.extend(rows.iter().map(|row| row.iter().flat_map(|text| string(text)).collect()));
    packets.push(END.to_vec());
    packets
}
