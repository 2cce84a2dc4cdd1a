//! Servers that do not keep to the protocol. Whatever they send is refused, and never a panic.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use proptest::prelude::*;
use xb_mysql::{
    Account, Channel, Client, Error, Event, Fingerprint, Greeting, Login, MAX_PACKET, Packets,
    Reply, Target, Timeouts, Trust, capabilities,
};
use xb_testkit::daemon::Scratch;
use xb_testkit::vectors;

const TIMEOUTS: Timeouts = Timeouts { login: Duration::from_secs(60), reply: None };

fn greeting() -> Vec<u8> {
    let bytes = vectors::read("mysql/mysql-9.7-full.server");
    Packets::new(MAX_PACKET).take(&mut &bytes[..]).unwrap().unwrap()
}

fn account() -> Account {
    Account { user: b"u".to_vec(), password: b"secret".to_vec().into(), database: Vec::new() }
}

/// The result of a login when the server sends `packet`.
fn login(packet: &[u8], channel: Channel) -> Result<xb_mysql::Step, Error> {
    let (greeting, account) = (Greeting::parse(&greeting()).unwrap(), account());
    Login::begin(&greeting, &account, channel).unwrap().0.receive(packet)
}

#[test]
fn the_password_itself_goes_only_over_a_private_channel() {
    assert!(matches!(login(&[1, 4], Channel::Plain), Err(Error::NotPrivate)));
    for channel in [Channel::Tls, Channel::Socket] {
        assert_eq!(login(&[1, 4], channel).unwrap(), xb_mysql::Step::Send(b"secret\0".to_vec()));
    }
}

#[test]
fn plugins_that_would_give_the_password_away_are_refused_by_name() {
    for (packet, name) in [
        (&b"\xfemysql_clear_password\0"[..], "mysql_clear_password"),
        (b"\xfe", "mysql_old_password"),
        (b"\xfedialog\0Password: ", "dialog"),
    ] {
        let error = login(packet, Channel::Tls).unwrap_err();
        assert!(error.to_string().contains(&format!("plugin {name}, ")), "{error}");
    }
}

#[test]
fn a_server_cannot_change_the_plugin_twice() {
    let (greeting, account) = (Greeting::parse(&greeting()).unwrap(), account());
    let (mut login, _) = Login::begin(&greeting, &account, Channel::Tls).unwrap();
    let change = b"\xfemysql_native_password\0abcdefghijklmnopqrst\0";
    assert!(login.receive(change).is_ok());
    assert!(matches!(login.receive(change), Err(Error::Malformed { .. })));
}

#[test]
fn a_name_with_nul_is_refused() {
    let greeting = Greeting::parse(&greeting()).unwrap();
    for account in [
        Account { user: b"u\0".to_vec(), ..account() },
        Account { database: b"\0d".to_vec(), ..account() },
    ] {
        let begun = Login::begin(&greeting, &account, Channel::Tls);
        assert!(matches!(begun, Err(Error::Nul)));
    }
}

#[test]
fn a_request_for_a_local_file_is_refused() {
    let mut reply = Reply::new(capabilities::WANTED);
    assert!(matches!(reply.receive(b"\xfb/etc/passwd".to_vec()), Err(Error::LocalFile)));
}

#[test]
fn a_row_with_a_value_more_or_less_is_refused() {
    let column =
        b"\x03def\x00\x00\x00\x01a\x00\x0c\x2d\x00\x00\x00\x00\x00\xfd\x00\x00\x00\x00\x00";
    for (row, fits) in [
        (&b"\x01x"[..], true),
        (b"\xfb", true),
        (b"\x01x\x01y", false),
        (b"", false),
        (b"\x02x", false),
    ] {
        let mut reply = Reply::new(capabilities::WANTED);
        assert!(reply.receive(vec![1]).unwrap().is_none());
        assert!(matches!(reply.receive(column.to_vec()), Ok(Some(Event::Columns(_)))));
        assert_eq!(reply.receive(row.to_vec()).is_ok(), fits, "{row:x?}");
        // A reply with a refused packet never completes.
        let end = reply.receive(b"\xfe\0\0\0\0\0\0".to_vec());
        assert_eq!((end.is_ok(), reply.is_complete()), (fits, fits), "{row:x?}");
    }
}

#[test]
fn a_server_that_is_too_old_or_something_else_is_refused() {
    let mut old = greeting();
    // The upper half of the capabilities, with that of plugins.
    let end = old.iter().position(|&byte| byte == 0).unwrap();
    old[end + 19..end + 21].fill(0);
    assert!(matches!(Greeting::parse(&old), Err(Error::TooOld)));
    for other in [&b"SSH-2.0-OpenSSH"[..], b"\x0a", b""] {
        assert!(Greeting::parse(other).is_err());
    }
    // Too many connections: no SQLSTATE yet.
    let error = Greeting::parse(b"\xff\x10\x04Too many connections").unwrap_err();
    assert_eq!(error.to_string(), "error 1040 (HY000): Too many connections");
}

/// Serves these bytes to one client, and returns what it makes of them.
fn served(bytes: Vec<u8>) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&bytes).unwrap();
        stream
    });
    let trust = Trust::Fingerprint(Fingerprint([0; 32]));
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port, trust, certificate: None };
    let error = Client::connect(&target, &account(), TIMEOUTS).unwrap_err();
    server.join().unwrap();
    error
}

#[test]
fn bytes_before_tls_are_not_taken_for_bytes_within_it() {
    let mut packets = Packets::new(MAX_PACKET);
    let bytes = [packets.frame(&greeting()), packets.frame(b"\0\0\0\x02\0\0\0")].concat();
    assert!(matches!(served(bytes), Error::Malformed { packet: "before TLS" }));
}

#[test]
fn a_server_without_tls_gets_no_login() {
    let mut without = greeting();
    let end = without.iter().position(|&byte| byte == 0).unwrap();
    // TLS is bit 11: bit 3 of the second byte of the capabilities.
    without[end + 15] &= !0x08;
    assert!(matches!(served(Packets::new(MAX_PACKET).frame(&without)), Error::NoTls));
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let scratch = Scratch::new();
    let path = scratch.join("sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let timeouts = Timeouts { login: Duration::from_millis(50), reply: None };
    let error = Client::connect(&Target::Socket(path), &account(), timeouts).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_fingerprint_is_read_in_every_common_form() {
    let hex = "0a".repeat(32);
    let colons = ["0A"; 32].join(":");
    for text in [&hex, &colons] {
        assert_eq!(text.parse(), Ok(Fingerprint([10; 32])));
    }
    assert_eq!(Fingerprint([10; 32]).to_string(), hex);
    for bad in ["", "0a", &hex[1..], &format!("{hex}0a"), &"0g".repeat(32)] {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(packets: Vec<Vec<u8>>, capabilities: u64, plain: bool) {
        let account = account();
        let channel = if plain { Channel::Plain } else { Channel::Tls };
        let greeting = packets.first().and_then(|packet| Greeting::parse(packet).ok());
        let greeting = greeting.unwrap_or_else(|| Greeting::parse(&self::greeting()).unwrap());
        if let Ok((mut login, _)) = Login::begin(&greeting, &account, channel) {
            for packet in &packets {
                let _ = login.receive(packet);
            }
        }
        let mut reply = Reply::new(capabilities);
        for packet in packets {
            let complete = reply.is_complete();
            prop_assert!(!(reply.receive(packet).is_ok() && complete));
        }
    }
}
