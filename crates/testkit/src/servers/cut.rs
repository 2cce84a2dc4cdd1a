//! A line to a real server on a Unix socket that breaks at a statement of the test's choice.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The fate of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The server gets it, and the client its answer.
    Passes,
    /// The connection breaks, and the server does not get it.
    NotSent,
    /// The server runs it, and the connection breaks before the client has the answer.
    AnswerLost,
    /// The server runs it, and the client waits for the answer until it closes the connection itself.
    AnswerHeld,
}

type Judge = dyn Fn(&str) -> Fate + Send + Sync;

/// A socket in front of that of a server. When dropped, it waits until its clients have left, and the server has run what
/// they sent.
#[derive(Debug)]
pub struct CutLine {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CutLine {
    /// Listens on `socket`, and passes all that comes to `server`. `judge` decides about each statement before it is sent.
    ///
    /// # Panics
    /// If it cannot listen there.
    #[must_use]
    pub fn start(
        socket: &Path,
        server: &Path,
        judge: impl Fn(&str) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, server, judge) = (Arc::clone(&is_over), server.to_owned(), Arc::new(judge));
        let accept = move || {
            let mut served = Vec::new();
            for client in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                // Without a server, the client finds its connection closed.
                if let Ok(line) = UnixStream::connect(&server) {
                    let judge = Arc::clone(&judge);
                    served.push(std::thread::spawn(move || serve(&client, &line, &*judge)));
                }
            }
            served.into_iter().for_each(|each| drop(each.join()));
        };
        let thread = Some(std::thread::spawn(accept));
        Self { socket: socket.to_owned(), is_over, thread }
    }

    /// The socket for the client.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for CutLine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Without its socket, the thread cannot be woken; it ends with the test process.
        if UnixStream::connect(&self.socket).is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(client: &UnixStream, server: &UnixStream, judge: &Judge) {
    let (is_cut, is_held) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| answers(client, server, (&is_cut, &is_held)));
        let _ = statements(client, server, judge, (&is_cut, &is_held));
        // The server's statement goes on, as it does when a network breaks; it ends the connection after it.
        if !is_cut.load(Ordering::SeqCst) {
            let _ = server.shutdown(Shutdown::Both);
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Passes on what the client sends, until a statement is not to be sent or the client has left.
fn statements(
    mut client: &UnixStream,
    mut server: &UnixStream,
    judge: &Judge,
    (is_cut, is_held): (&AtomicBool, &AtomicBool),
) -> std::io::Result<()> {
    loop {
        let mut head = [0; 4];
        client.read_exact(&mut head)?;
        let [a, b, c, number] = head;
        let mut packet = vec![0; usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16];
        client.read_exact(&mut packet)?;
        // A command begins with packet 0, and 3 is that of a statement.
        if let (0, [3, sql @ ..]) = (number, &packet[..]) {
            match judge(&String::from_utf8_lossy(sql)) {
                Fate::Passes => {}
                Fate::NotSent => return Ok(()),
                Fate::AnswerLost => is_cut.store(true, Ordering::SeqCst),
                Fate::AnswerHeld => is_held.store(true, Ordering::SeqCst),
            }
        }
        server.write_all(&head)?;
        server.write_all(&packet)?;
    }
}

/// Passes on what the server sends, until an answer is to be lost or the server has left.
fn answers(
    mut client: &UnixStream,
    mut server: &UnixStream,
    (is_cut, is_held): (&AtomicBool, &AtomicBool),
) {
    let mut bytes = [0; 1 << 14];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        if is_held.load(Ordering::SeqCst) {
            continue;
        }
        if is_cut.load(Ordering::SeqCst) || client.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}
