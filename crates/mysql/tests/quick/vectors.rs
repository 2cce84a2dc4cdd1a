//! Recorded connections of stock clients and servers: the answers are those of the stock client, and
//! every reply is read as it was meant, wherever the bytes are split.

use xb_mysql::{
    Account, Channel, Error, Event, Greeting, Login, MAX_PACKET, Packets, Reply, Row, Step,
};
use xb_testkit::vectors;

/// One side of a recording, in pieces of some size.
struct Recording {
    packets: Packets,
    pieces: Vec<Vec<u8>>,
}

impl Recording {
    fn open(name: &str, piece: usize) -> Self {
        let bytes = vectors::read(&format!("mysql/{name}"));
        let pieces = bytes.chunks(piece).rev().map(<[u8]>::to_vec).collect();
        Self { packets: Packets::new(MAX_PACKET), pieces }
    }

    /// The next packet; `None` at the end.
    fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(piece) = self.pieces.pop() {
            let mut input = &piece[..];
            let packet = self.packets.take(&mut input).unwrap();
            if !input.is_empty() {
                self.pieces.push(input.to_vec());
            }
            if packet.is_some() {
                return packet;
            }
        }
        None
    }
}

/// The replies of a recorded server after the login, or the failure of the login.
fn replay(name: &str, user: &str, password: &str, piece: usize) -> Vec<String> {
    let mut server = Recording::open(&format!("{name}.server"), piece);
    let greeting = Greeting::parse(&server.next().unwrap()).unwrap();
    let account = Account {
        user: user.into(),
        password: password.as_bytes().to_vec().into(),
        database: b"d".to_vec(),
    };
    let client = vectors::read(&format!("mysql/{name}.client"));
    // The stock client asks for more than ours: read what it got with what it asked for.
    let asked = |at: usize| u64::from(u32::from_le_bytes(client[at..at + 4].try_into().unwrap()));
    let capabilities = greeting.capabilities & (asked(4) | asked(32) << 32);

    let (mut login, first) = Login::begin(&greeting, &account, Channel::Socket).unwrap();
    assert_sent(&client, &first[32..][..user.len() + 30]);
    let _ = server.packets.frame(&first);
    loop {
        match login.receive(&server.next().unwrap()) {
            Ok(Step::Send(answer)) => {
                assert_sent(&client, &answer);
                let _ = server.packets.frame(&answer);
            }
            Ok(Step::Wait) => {}
            Ok(Step::Done) => break,
            Err(error) => return vec![error.to_string()],
        }
    }
    let mut said = Vec::new();
    while !server.pieces.is_empty() {
        server.packets.begin_command();
        let _ = server.packets.frame(&[]);
        let mut reply = Reply::new(capabilities);
        while !reply.is_complete() {
            // The stock client leaves without reading an answer.
            let Some(packet) = server.next() else { break };
            match reply.receive(packet) {
                Ok(Some(event)) => said.push(show(&event)),
                Ok(None) => {}
                Err(Error::Server(error)) => said.push(format!("{} {}", error.code, error.state)),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    said
}

fn assert_sent(client: &[u8], part: &[u8]) {
    assert!(client.windows(part.len()).any(|bytes| bytes == part), "not as sent: {part:x?}");
}

fn show(event: &Event) -> String {
    match event {
        Event::Columns(columns) => {
            let names = columns.iter().map(|c| String::from_utf8_lossy(&c.name).into_owned());
            format!("columns {}", names.collect::<Vec<_>>().join(","))
        }
        Event::Row(row) => format!("row {}", values(row)),
        Event::Complete(done) => format!("changed {}", done.affected_rows),
    }
}

fn values(row: &Row) -> String {
    let shown = row.iter().map(|value| match value {
        Some(value) => value.escape_ascii().to_string(),
        None => "NULL".to_owned(),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[test]
fn a_connection_with_mariadb_is_read_as_it_was_meant() {
    for piece in [1, 7, 4096] {
        let said = replay("mariadb-10.11-native", "native", "secret", piece);
        let first_row =
            r"row 1,\xc3\xa4\t\n,\x00\xff,NULL,123e4567-e89b-12d3-a456-426655440000,::1";
        assert_eq!(
            said,
            [
                "columns id,v,b,j,u,i",
                first_row,
                "changed 0",
                "changed 2",
                "columns DATABASE()",
                "row d",
                "changed 0",
                "changed 0",
                "changed 0",
                "columns 1",
                "changed 0",
                "columns Table,Op,Msg_type,Msg_text",
                "row d.t,check,status,OK",
                "changed 0",
                "1146 42S02",
            ]
        );
        let said = replay("mariadb-10.11-ed25519", "ed", "secret", piece);
        assert_eq!(said, ["columns NULL,", "row NULL,", "changed 0"]);
    }
}

#[test]
fn a_connection_with_mysql_is_read_as_it_was_meant() {
    for piece in [1, 7, 4096] {
        // Its client asks for more than was told to it: a comment, and whether `$$` is syntax.
        let said = replay("mysql-9.7-full", "sha", "secret", piece);
        let own = ["columns @@version_comment", "row (Debian)", "changed 0", "1064 42000"];
        assert_eq!(said[..4], own);
        assert_eq!(
            said[4..],
            [
                "columns id,v,b,j",
                r"row 1,\xc3\xa4\t\n,\x00\xff,NULL",
                "changed 0",
                "changed 2",
                "changed 0",
                "changed 0",
                "columns 1",
                "changed 0",
                "columns Table,Op,Msg_type,Msg_text",
                "row d.t,check,status,OK",
                "changed 0",
                "1146 42S02",
            ]
        );
        let said = replay("mysql-9.7-fast", "sha", "secret", piece);
        assert_eq!(said[4..], ["columns NULL,", "row NULL,", "changed 0"]);
    }
}

#[test]
fn a_refused_login_names_the_account() {
    for (name, user) in [("mariadb-10.11-refused", "native"), ("mysql-9.7-refused", "sha")] {
        let said = replay(name, user, "wrong", 4096);
        let expected = format!(
            "error 1045 (28000): Access denied for user '{user}'@'localhost' (using password: YES)"
        );
        assert_eq!(said, [expected]);
    }
}

#[test]
fn greetings_of_both_forks_are_distinguished() {
    let greeting = |name: &str| {
        Greeting::parse(&Recording::open(&format!("{name}.server"), 4096).next().unwrap()).unwrap()
    };
    let mariadb = greeting("mariadb-10.11-native");
    assert_eq!(mariadb.version, "10.11.19-MariaDB-0+deb12u1");
    assert_eq!(mariadb.capabilities >> 32, 0x1d);
    assert!(mariadb.is_mariadb());
    let mysql = greeting("mysql-9.7-full");
    assert_eq!((&mysql.version[..], mysql.capabilities >> 32), ("9.7.4-2", 0));
    assert!(!mysql.is_mariadb());
}
