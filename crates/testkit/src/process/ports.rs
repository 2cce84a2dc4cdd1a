//! Ports for servers that do not choose their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

/// Ports that this process has given out. A bound socket keeps the system from giving its port to anybody else, as the local end
/// of a connection, too; a server that sets `SO_REUSEADDR`, as all do, can still listen there.
static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

/// Returns a port of 127.0.0.1 on which nothing listens, and that no other process is given as long as this one runs.
///
/// # Panics
/// There is no such port.
#[must_use]
pub fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("address");
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    address.as_socket().expect("an address of IPv4").port()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_is_given_to_one_only_and_can_be_listened_on() {
        let ports: Vec<u16> = (0..200).map(|_| free_port()).collect();
        let others: Vec<_> =
            (0..200).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        for other in &others {
            assert!(!ports.contains(&other.local_addr().unwrap().port()));
        }
        let mut distinct = ports.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ports.len());
        // As a server does it that is started again, too.
        for _ in 0..2 {
            drop(TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).unwrap());
        }
        drop(TcpListener::bind((Ipv4Addr::UNSPECIFIED, ports[1])).unwrap());
    }
}
