//! A blocking client: connect, query, read the results.

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::retry_on_intr;
use socket2::{SockRef, TcpKeepalive};

use crate::auth::{Account, Channel};
use crate::capabilities::TLS;
use crate::connection::Connection;
use crate::dump::{DumpItem, DumpReply, Replica, Start, acknowledgement};
use crate::error::Error;
use crate::handshake::Greeting;
use crate::link::Link;
use crate::login::{Login, Step};
use crate::packet::{MAX_LOGIN_PACKET, MAX_PACKET, Packets};
use crate::reply::{Command, Reply};
use crate::response::Row;
use crate::results::{MAX_LIST, Results};
use crate::stream::{Socket, Stream};
use crate::tls::{self, ClientCertificate, Fingerprint, Trust};

const LOGIN: &str = "logging in";
const QUERY: &str = "running a statement";
const DUMP: &str = "reading the binary log";
const CLONE: &str = "receiving a clone";
/// Lifts the limits of a session on rows, on joins, and on the time of a statement. Which variable limits the time, the server
/// itself decides, by its version and fork: a proxy may greet as another one.
const LIFT_LIMITS: &str = "SET sql_select_limit = 18446744073709551615, sql_big_selects = 1 \
    /*!50708 , max_execution_time = 0 */ /*M!100101 , max_statement_time = 0 */";
/// The command after which a connection carries the messages of a clone.
const COM_CLONE: u8 = 0x20;
/// Most packets that a server sends during a login: a change of the plugin, a key, two messages of the plugin, and its
/// consent. Without a limit, one that sends ever more of them is never given up.
const MAX_LOGIN_PACKETS: u32 = 16;
/// Longest message of a clone, in bytes: data after one byte for its kind.
const MAX_CLONE_MESSAGE: usize = (16 << 20) + 1;

/// Address of a server, and the check of its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket; its directory's permissions say who can serve it.
    Socket(PathBuf),
    /// A TCP port, with TLS unless `trust` is [`Trust::Unproven`].
    Tcp {
        /// Host name or address.
        host: String,
        /// Port, usually 3306.
        port: u16,
        /// Proof of the server's identity.
        trust: Trust,
        /// Proof of the client's identity, if the account requires one.
        certificate: Option<ClientCertificate>,
    },
}

/// Ends a connection from another thread, whatever the client waits for.
#[derive(Debug)]
pub struct ConnectionCloser(Socket);

impl ConnectionCloser {
    /// Closes the connection: the client's call fails, and the server ends the statement when it
    /// notices.
    pub fn now(&self) {
        // It fails only if the connection is closed already.
        let _ = match &self.0 {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Closes the connection like [`now`](Self::now), and has the system refuse what the server still sends. Otherwise, a
    /// server that waits for room at a client that has read nothing for long would wait until its own time limit: the
    /// client's system says that there is room only if something is sent to it.
    pub fn abort(&self) {
        let Socket::Tcp(stream) = &self.0 else { return self.now() };
        // Each fails only if the connection is closed already. What comes after it is closed is refused.
        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        let _ = stream.shutdown(Shutdown::Read);
        // The end that is sent says how much room there is: more than none, so that the server sends on, and is refused.
        self.0.drop_unread();
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Time limit of one read or write of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// While connecting and logging in.
    pub login: Duration,
    /// After that; `None` waits without limit, because a statement may take hours before its first
    /// row.
    pub reply: Option<Duration>,
}

/// A connection that is logged in.
///
/// ```no_run
/// use std::time::Duration;
/// use xb_mysql::{Account, Client, Target, Timeouts};
///
/// let target = Target::Socket("/run/mysqld/mysqld.sock".into());
/// let account = Account { user: b"root".to_vec(), ..Account::default() };
/// let timeouts = Timeouts { login: Duration::from_secs(30), reply: None };
/// let mut client = Client::connect(&target, &account, timeouts)?;
/// for row in client.rows("SHOW DATABASES")? {
///     println!("{:?}", row.get(0).map(String::from_utf8_lossy));
/// }
/// # Ok::<(), xb_mysql::Error>(())
/// ```
///
/// Several results of one query are read in order; to skip the rest of a result, drop the client.
///
/// Dropped between two commands, it tells the server that it leaves.
pub struct Client {
    connection: Connection,
    greeting: Greeting,
    capabilities: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.greeting.version).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, logs in, and lifts what the server's settings allow a statement to read: nothing shows that a result was
    /// cut off (`sql_select_limit`).
    ///
    /// # Errors
    /// All of [`Error`] that concern the connection, TLS and the account.
    pub fn connect(target: &Target, account: &Account, timeouts: Timeouts) -> Result<Self, Error> {
        let packets = Packets::new(MAX_LOGIN_PACKET);
        let (mut link, greeting, channel) = match target {
            Target::Socket(path) => {
                // Which socket is used, only the option files show.
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                };
                let stream = UnixStream::connect(path).map_err(named).map_err(connecting)?;
                let mut link = Link::new(boxed(stream, timeouts)?, packets);
                let greeting = Greeting::parse(&link.receive(LOGIN)?)?;
                (link, greeting, Channel::Socket)
            }
            Target::Tcp { host, port, trust, certificate } => {
                let stream = dial(host, *port, timeouts.login).map_err(connecting)?;
                limit(&stream, timeouts)?;
                let is_here = stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
                let mut link = Link::new(stream, packets);
                let greeting = Greeting::parse(&link.receive(LOGIN)?)?;
                let plain = *trust == Trust::Unproven && greeting.capabilities & TLS == 0;
                if !plain {
                    link.send(&greeting.tls_request(account)?, LOGIN)?;
                }
                let (stream, packets) = link.into_parts()?;
                let (stream, channel): (Box<dyn Stream>, _) = match plain {
                    true => (Box::new(stream), Channel::Plain),
                    false => {
                        let stream = tls::connect(stream, host, trust, certificate.as_ref())?;
                        let private = *trust != Trust::Unproven || is_here;
                        let channel = if private { Channel::Tls } else { Channel::Unproven };
                        (Box::new(stream), channel)
                    }
                };
                (Link::new(stream, packets), greeting, channel)
            }
        };
        let (mut login, first) = Login::begin(&greeting, account, channel)?;
        link.send(&first, LOGIN)?;
        let mut left = MAX_LOGIN_PACKETS;
        loop {
            left =
                left.checked_sub(1).ok_or(Error::Malformed { packet: "login without an end" })?;
            match login.receive(&link.receive(LOGIN)?)? {
                Step::Send(payload) => link.send(&payload, LOGIN)?,
                Step::Wait => {}
                Step::Done => break,
            }
        }
        let capabilities = login.capabilities();
        let mut client = Self { connection: Connection::new(link), greeting, capabilities };
        client.run(LIFT_LIMITS)?;
        client.connection.link.stream().set_timeouts(timeouts.reply).map_err(connecting)?;
        Ok(client)
    }

    /// Returns a handle that can end the connection from another thread.
    ///
    /// # Errors
    /// The error of the system call that copies the socket.
    pub fn hang_up(&self) -> Result<ConnectionCloser, Error> {
        self.connection.hang_up()
    }

    /// Returns the first message of the server.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Runs statements and returns their results, to be read to the end before the next query.
    ///
    /// # Errors
    /// [`Error::Unusable`], and errors of the connection. Those of the statements come with the
    /// results.
    pub fn query(&mut self, sql: impl AsRef<[u8]>) -> Result<Results<'_>, Error> {
        self.command(Command::Query(sql.as_ref()))
    }

    /// Runs statements about one thing, such as a variable or the definition of a table, and returns the rows of all their
    /// results together.
    ///
    /// # Errors
    /// Any error of [`Client::query`] and of the statements; [`Error::LongAnswer`] above 64 MiB of memory.
    pub fn rows(&mut self, sql: impl AsRef<[u8]>) -> Result<Vec<Row>, Error> {
        Ok(self.query(sql)?.collect()?.into_iter().flat_map(|result| result.rows).collect())
    }

    /// Like [`rows`](Self::rows), for lists of everything that a server has, such as its tables.
    ///
    /// # Errors
    /// Any error of [`Client::query`] and of the statements; [`Error::LongAnswer`] above 1 GiB of memory.
    pub fn list(&mut self, sql: impl AsRef<[u8]>) -> Result<Vec<Row>, Error> {
        let results = self.query(sql)?.collect_within(MAX_LIST)?;
        Ok(results.into_iter().flat_map(|result| result.rows).collect())
    }

    /// Runs statements, and drops the rows of their results as they come.
    ///
    /// # Errors
    /// Any error of [`Client::query`] and of the statements.
    pub fn run(&mut self, sql: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut results = self.query(sql)?;
        while results.next()?.is_some() {}
        Ok(())
    }

    /// Runs statements, and returns the first `limit` rows of their results; drops the others as they come.
    ///
    /// # Errors
    /// Any error of [`Client::query`] and of the statements.
    pub fn first_rows(&mut self, sql: impl AsRef<[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        self.query(sql)?.first(limit)
    }

    /// Asks the server for a sign of life.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn ping(&mut self) -> Result<(), Error> {
        self.command(Command::Ping)?.collect().map(drop)
    }

    /// Becomes a replica, and asks for the binary log from `start` on. The connection serves nothing else after
    /// that; `silence` ends it if the server sends nothing for so long.
    ///
    /// # Errors
    /// [`Error::Server`], such as of an account without `REPLICATION SLAVE`; errors of the connection. That
    /// the server does not have the log shows when it is read.
    pub fn dump(
        mut self,
        replica: &Replica,
        start: &Start,
        silence: Duration,
    ) -> Result<Dump, Error> {
        self.run(replica.settings(start))?;
        let sums = self.rows("SELECT @master_binlog_checksum")?;
        let sums = sums.first().and_then(|row| row.get(0)).ok_or(Error::Unexpected)?;
        let has_checksums = match sums {
            b"CRC32" => true,
            b"NONE" => false,
            _ => return Err(Error::Unexpected),
        };
        // From here on, the connection serves nothing else.
        self.connection.is_ready = false;
        self.send(&replica.register())?;
        let mut reply = Reply::new(self.capabilities);
        while !reply.is_complete() {
            self.connection.link.packets.set_limit(reply.max_packet());
            reply.receive(self.connection.link.receive(DUMP)?)?;
        }
        self.connection.link.packets.set_limit(MAX_PACKET);
        self.send(&replica.dump(start))?;
        self.connection.link.stream().set_timeouts(Some(silence)).map_err(connecting)?;
        let reply = match replica.acknowledges {
            true => DumpReply::semi_sync(),
            false => DumpReply::new(),
        };
        Ok(Dump { connection: self.connection, reply, has_checksums, silence })
    }

    /// Changes to the messages of a clone; see [`Recipient`](crate::clone::Recipient). `silence` ends the
    /// connection if the server sends nothing for so long, and `absence` if its host does not even answer the
    /// system's probes.
    ///
    /// # Errors
    /// [`Error::Server`], such as 1524 of a server without the plugin, and 1227 of an account without
    /// `BACKUP_ADMIN`; errors of the connection.
    pub fn into_clone(mut self, silence: Duration, absence: Duration) -> Result<CloneLink, Error> {
        self.command(Command::Other(COM_CLONE, &[]))?.collect()?;
        let mut connection = self.connection;
        connection.is_ready = false;
        let link = &mut connection.link;
        link.packets.set_limit(MAX_CLONE_MESSAGE);
        link.stream().set_timeouts(Some(silence)).map_err(connecting)?;
        if let Socket::Tcp(stream) = link.stream().socket().map_err(connecting)? {
            probe(&stream, absence).map_err(connecting)?;
        }
        Ok(CloneLink { connection })
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.connection.link.packets.begin_command();
        self.connection.link.send(payload, DUMP)
    }

    fn command(&mut self, command: Command<'_>) -> Result<Results<'_>, Error> {
        self.connection.send(&command, QUERY)?;
        Ok(Results::new(&mut self.connection, self.capabilities))
    }
}

/// A binary log that the server sends, and continues to send as it is written.
pub struct Dump {
    connection: Connection,
    reply: DumpReply,
    has_checksums: bool,
    silence: Duration,
}

/// Wakes a thread that waits for a [`Dump`], now and whenever it waits again.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes one that wakes nothing yet.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> Result<Self, Error> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self).map_err(|error| Error::io(DUMP, error.into()))
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // It fails only if the count, which nothing reads, is full: then the thread is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dump").field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Dump {
    /// Returns whether events before the first format description have checksums.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.has_checksums
    }

    /// Waits for the next bytes, and passes them on. Memory is that of one read, whatever the size of an
    /// event.
    ///
    /// # Errors
    /// [`Error::Server`], such as 1236 for a log that the server does not have; [`Error::Timeout`] after
    /// the silence, and other errors of the connection.
    pub fn next<R>(&mut self, pass: impl FnMut(DumpItem<'_>) -> R) -> Result<R, Error> {
        self.connection.link.dumped(&mut self.reply, DUMP, pass)
    }

    /// As [`Dump::next`], for all bytes that were read at once: until `pass` returns something, or the server asks for an
    /// acknowledgement.
    ///
    /// # Errors
    /// As [`Dump::next`].
    pub fn next_together<R>(
        &mut self,
        pass: impl FnMut(DumpItem<'_>) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        self.connection.link.dumped_together(&mut self.reply, DUMP, pass)
    }

    /// Returns whether the server has asked for an acknowledgement of what it has sent, since the last call.
    pub fn take_request(&mut self) -> bool {
        self.reply.take_request()
    }

    /// Returns whether the replica has offered to acknowledge, and the server does not ask it to: its first event shows it.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        self.reply.is_declined()
    }

    /// Returns whether more has arrived.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.holds_bytes()
            || self.connection.link.stream().socket().is_ok_and(|socket| socket.has_more())
    }

    /// Returns whether bytes were read from the socket that nothing has taken.
    fn holds_bytes(&self) -> bool {
        self.connection.link.has_more() || self.connection.link.stream().holds_bytes()
    }

    /// Waits until [`next`](Self::next) has something to read, or until `waker` wakes it; false if that woke it, and
    /// nothing has arrived. The end of the connection is something to read.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the silence.
    pub fn wait(&self, waker: &Waker) -> Result<bool, Error> {
        if self.holds_bytes() {
            return Ok(true);
        }
        let waiting = |source| Error::io(DUMP, source);
        let mut ends = [
            PollFd::from_borrowed_fd(self.connection.link.stream().fd(), PollFlags::IN),
            PollFd::new(&waker.0, PollFlags::IN),
        ];
        let limit = Timespec::try_from(self.silence).ok();
        let arrived = retry_on_intr(|| poll(&mut ends, limit.as_ref()));
        match arrived.map_err(|error| waiting(error.into()))? {
            0 => Err(waiting(io::ErrorKind::TimedOut.into())),
            _ => Ok(!ends[0].revents().is_empty()),
        }
    }

    /// Acknowledges everything up to an offset of a log.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn acknowledge(&mut self, log: &str, offset: u64) -> Result<(), Error> {
        self.connection.link.send_apart(&acknowledgement(log, offset), DUMP)
    }

    /// Returns a handle that can end the connection from another thread.
    ///
    /// # Errors
    /// The error of the system call that copies the socket.
    pub fn hang_up(&self) -> Result<ConnectionCloser, Error> {
        self.connection.hang_up()
    }
}

/// A connection that carries the messages of a clone.
pub struct CloneLink {
    connection: Connection,
}

impl fmt::Debug for CloneLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloneLink").finish_non_exhaustive()
    }
}

impl CloneLink {
    /// Sends a message.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.connection.link.packets.begin_command();
        self.connection.link.send(message, CLONE)
    }

    /// Waits for a message of the donor. It has at most 16 MiB.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the silence, and other errors of the connection.
    pub fn receive(&mut self) -> Result<Vec<u8>, Error> {
        // Each message is a command of its own.
        self.connection.link.packets.begin_command();
        self.connection.link.receive(CLONE)
    }

    /// Returns a handle that can end the connection from another thread.
    ///
    /// # Errors
    /// The error of the system call that copies the socket.
    pub fn hang_up(&self) -> Result<ConnectionCloser, Error> {
        self.connection.hang_up()
    }
}

impl Connection {
    fn hang_up(&self) -> Result<ConnectionCloser, Error> {
        self.link.stream().socket().map(ConnectionCloser).map_err(connecting)
    }
}

fn boxed(stream: impl Stream + 'static, timeouts: Timeouts) -> Result<Box<dyn Stream>, Error> {
    limit(&stream, timeouts)?;
    Ok(Box::new(stream))
}

fn limit(stream: &impl Stream, timeouts: Timeouts) -> Result<(), Error> {
    stream.set_timeouts(Some(timeouts.login)).map_err(connecting)
}

fn connecting(source: io::Error) -> Error {
    Error::io("connecting", source)
}

/// Asks a server for its certificate, without logging in; `limit` for each step.
///
/// # Errors
/// [`Error::NoTls`]; errors of the connection and of TLS.
pub fn fingerprint(host: &str, port: u16, limit: Duration) -> Result<Fingerprint, Error> {
    let stream = dial(host, port, limit).map_err(connecting)?;
    stream.set_timeouts(Some(limit)).map_err(connecting)?;
    let mut link = Link::new(stream, Packets::new(MAX_LOGIN_PACKET));
    let greeting = Greeting::parse(&link.receive(LOGIN)?)?;
    link.send(&greeting.tls_request(&Account::default())?, LOGIN)?;
    let (stream, _) = link.into_parts()?;
    tls::fingerprint(&tls::connect(stream, host, &Trust::Unproven, None)?)
}

/// Has the system end a connection whose other host acknowledges nothing for this long, in whole seconds: neither
/// what was sent nor, while nothing is sent, probes.
fn probe(stream: &TcpStream, absence: Duration) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let probes = TcpKeepalive::new()
        .with_time((absence / 2).max(second))
        .with_interval((absence / 6).max(second))
        .with_retries(3);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(absence))
}

/// Connects to the first address of a host that accepts.
fn dial(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                // Commands are written whole.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn dump(silence: Duration) -> (Dump, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Link::new(Box::new(ours) as Box<dyn Stream>, Packets::new(MAX_PACKET));
        let mut connection = Connection::new(link);
        connection.is_ready = false;
        (Dump { connection, reply: DumpReply::new(), has_checksums: true, silence }, theirs)
    }

    #[test]
    fn a_replica_that_waits_is_woken_and_can_go_on_reading() {
        let (dump, mut server) = dump(Duration::from_secs(60));
        let waker = Waker::new().unwrap();
        let dump = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let woken = dump.wait(&waker);
                (woken, dump)
            });
            waker.wake();
            let (woken, dump) = waiting.join().unwrap();
            assert!(!woken.unwrap());
            dump
        });
        assert!(!dump.wait(&waker).unwrap());
        // The server notices nothing, and what it sends comes first.
        server.write_all(b"x").unwrap();
        assert!(dump.wait(&waker).unwrap());
        drop(server);
        assert!(dump.wait(&waker).unwrap());
    }

    #[test]
    fn the_silence_of_a_server_ends_a_wait() {
        let (dump, _server) = dump(Duration::from_millis(10));
        let waited = dump.wait(&Waker::new().unwrap());
        assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    }
}
