//! The transport of a state transfer compared to one plain TCP connection.
//!
//! ```text
//! cargo bench --bench wire -- near [MIB]      loopback: rate, and CPU of both ends together
//! cargo bench --bench wire -- far [MIB] [MS] [WINDOW_KIB]
//!                                             through a relay that delays every byte by half of MS
//!                                             and holds at most one window a connection
//! cargo bench --bench wire -- listen HOST:PORT
//! cargo bench --bench wire -- send ANNOUNCEMENT [MIB]
//!                                             two machines: what the first prints goes to the second
//! ```

#![allow(clippy::expect_used, missing_docs)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU8;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use xb_wire::{Announcement, Donor, Joiner, Listener, Observer, Security, connect};

const MIB: usize = 1 << 20;
/// Default window: what one connection may have in transit on a system without tuning.
const WINDOW_KIB: usize = 256;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number = |at: usize, or: usize| words.get(at).and_then(|n| n.parse().ok()).unwrap_or(or);
    match words.first().map(String::as_str) {
        Some("near") => near(number(1, 2048)),
        Some("far") => far(number(1, 64), number(2, 100), number(3, WINDOW_KIB)),
        Some("listen") => listen(&words[1..]),
        Some("send") => send(&words[1..]),
        _ => println!("say `near`, `far`, `listen` or `send`, as the head of this file has it"),
    }
}

fn near(mib: usize) {
    println!("{mib} MiB over loopback");
    println!("{:<24} {:>9} {:>14}", "", "MiB/s", "CPU s per GiB");
    report("one plain connection", mib, || plain(mib, None));
    for (name, security) in [("ours, plain", Security::Plain), ("ours, TLS", Security::OneTime)] {
        for connections in [1, 2, 4] {
            let name = format!("{name}, {connections}");
            report(&name, mib, || ours(mib, &security, NonZeroU8::new(connections), None));
        }
    }
}

fn far(mib: usize, millis: usize, window_kib: usize) {
    println!("{mib} MiB, {millis} ms round trip, {window_kib} KiB a connection and direction");
    println!("{:<24} {:>9} {:>14}", "", "MiB/s", "CPU s per GiB");
    let way = Some((Duration::from_millis(millis as u64) / 2, window_kib << 10));
    report("one plain connection", mib, || plain(mib, way));
    report("ours, TLS, 1", mib, || ours(mib, &Security::OneTime, NonZeroU8::new(1), way));
    report("ours, TLS, as chosen", mib, || ours(mib, &Security::OneTime, None, way));
}

fn listen(words: &[String]) {
    let [address] = words else { return println!("where?") };
    let joiner = Joiner { observer: Observer::new(|e| eprintln!("{e}")), ..Joiner::default() };
    let listener = Listener::bind(&address.parse().expect("an address"), joiner).expect("a port");
    println!("{}", *listener.announcement().text());
    let offered = listener.accept(Duration::from_secs(600)).expect("a donor");
    let mut incoming = offered.accept(b"").expect("it waits");
    while incoming.next_block().expect("a stream").is_some() {}
    let counters = incoming.counters();
    incoming.confirm().expect("a donor");
    println!("{:?}", counters.snapshot());
}

fn send(words: &[String]) {
    let [announcement, rest @ ..] = words else { return println!("to whom?") };
    let mib: usize = rest.first().and_then(|n| n.parse().ok()).unwrap_or(1024);
    let donor = Donor { observer: Observer::new(|e| eprintln!("{e}")), ..Donor::default() };
    let announcement = Announcement::parse(announcement, None).expect("what the joiner printed");
    let mut outgoing = connect(&announcement, b"", donor).expect("a joiner");
    let counters = outgoing.counters();
    report("ours", mib, move || {
        let block = Bytes::from(vec![1; MIB]);
        (0..mib).for_each(|_| outgoing.send(block.clone()).expect("it is read"));
        outgoing.finish().expect("a confirmation");
    });
    println!("{:?}", counters.snapshot());
}

fn report(name: &str, mib: usize, run: impl FnOnce()) {
    let (wall, cpu) = (Instant::now(), cpu());
    run();
    let cpu = (self::cpu() - cpu).as_secs_f64() * 1024.0 / mib as f64;
    let rate = mib as f64 / wall.elapsed().as_secs_f64();
    println!("{name:<24} {rate:>9.1} {cpu:>14.2}");
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).expect("a time"),
        u32::try_from(time.tv_nsec).expect("a time"),
    )
}

type Way = Option<(Duration, usize)>;

/// A plain connection with large buffers, like `socat`.
fn plain(mib: usize, way: Way) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let to = way.map_or(to, |way| relay(to, way));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = TcpStream::connect(to).expect("a connection");
            let block = vec![1; 256 << 10];
            (0..mib * 4).for_each(|_| socket.write_all(&block).expect("it is read"));
            socket.shutdown(Shutdown::Write).expect("it is open");
            let _ = socket.read(&mut [0]);
        });
        let (mut socket, _) = listener.accept().expect("a connection");
        let (mut buffer, mut got) = (vec![0; 256 << 10], 0);
        loop {
            match socket.read(&mut buffer).expect("it is open") {
                0 => break,
                n => got += n,
            }
        }
        assert_eq!(got, mib * MIB);
    });
}

fn ours(mib: usize, security: &Security, connections: Option<NonZeroU8>, way: Way) {
    let joiner = Joiner { security: security.clone(), ..Joiner::default() };
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&address, joiner).expect("a port");
    let announcement = listener.announcement();
    let announcement = match way {
        None => announcement.clone(),
        Some(way) => {
            let port = relay(listener.local_addr(), way).port();
            let there = announcement.address().clone().with_port(port).to_string();
            let text = announcement.text().replace(&announcement.address().to_string(), &there);
            Announcement::parse(&text, None).expect("as it was")
        }
    };
    let mut donor = Donor { security: security.clone(), ..Donor::default() };
    donor.limits.connections = connections;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut outgoing = connect(&announcement, b"", donor).expect("a joiner");
            let block = Bytes::from(vec![1; MIB]);
            (0..mib).for_each(|_| outgoing.send(block.clone()).expect("it is read"));
            outgoing.finish().expect("a confirmation");
        });
        let offered = listener.accept(Duration::from_secs(30)).expect("a donor");
        let mut incoming = offered.accept(b"").expect("it waits");
        let mut got = 0;
        while let Some(block) = incoming.next_block().expect("a stream") {
            got += block.len();
        }
        assert_eq!(got, mib * MIB);
        incoming.confirm().expect("a donor");
    });
}

/// A relay that delays every byte by `way.0`, and holds at most `way.1` bytes per direction. Its
/// threads end with their connections; the accepting thread ends with the program.
fn relay(to: SocketAddr, way: (Duration, usize)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for donor in listener.incoming() {
            let donor = donor.expect("a connection");
            let Ok(joiner) = TcpStream::connect(to) else { continue };
            for socket in [&donor, &joiner] {
                socket.set_nodelay(true).expect("it is open");
            }
            let back = (joiner.try_clone().expect("a copy"), donor.try_clone().expect("a copy"));
            carry(donor, joiner, way);
            carry(back.0, back.1, way);
        }
    });
    address
}

/// Bytes in transit.
#[derive(Default)]
struct Held {
    way: Mutex<UnderWay>,
    changed: Condvar,
}

#[derive(Default)]
struct UnderWay {
    /// Each piece with the time at which it leaves the relay.
    pieces: VecDeque<(Instant, Vec<u8>)>,
    /// When the acknowledgement of a piece returns, and how many bytes of the window it frees.
    owed: VecDeque<(Instant, usize)>,
    bytes: usize,
}

fn carry(mut from: TcpStream, mut to: TcpStream, (delay, most): (Duration, usize)) {
    let held = Arc::new(Held::default());
    let there = Arc::clone(&held);
    std::thread::spawn(move || {
        loop {
            let mut piece = vec![0; there.room(most).min(16 << 10)];
            let n = from.read(&mut piece).unwrap_or(0);
            piece.truncate(n);
            let now = Instant::now();
            let mut way = there.way.lock().expect("no panic");
            way.pieces.push_back((now + delay, piece));
            way.owed.push_back((now + 2 * delay, n));
            way.bytes += n;
            there.changed.notify_all();
            if n == 0 {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        loop {
            let mut way = held.way.lock().expect("no panic");
            while way.pieces.is_empty() {
                way = held.changed.wait(way).expect("no panic");
            }
            let (at, piece) = way.pieces.pop_front().expect("it is not empty");
            drop(way);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if piece.is_empty() || to.write_all(&piece).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                break;
            }
        }
    });
}

impl Held {
    /// Waits until part of the window is free.
    fn room(&self, most: usize) -> usize {
        let mut way = self.way.lock().expect("no panic");
        loop {
            let now = Instant::now();
            while let Some(&(at, n)) = way.owed.front().filter(|(at, _)| *at <= now) {
                let _ = at;
                way.owed.pop_front();
                way.bytes -= n;
            }
            if way.bytes < most {
                return most - way.bytes;
            }
            let next = way.owed.front().map_or(now, |(at, _)| *at);
            way = self.changed.wait_timeout(way, next - now).expect("no panic").0;
        }
    }
}
