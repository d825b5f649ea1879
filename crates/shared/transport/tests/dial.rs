//! How long a connection may take to be made to a machine that takes none.

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use siftfs_transport::{Address, TransportOptions, connect};
use siftfs_wire::BlockProtocol;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A port whose queue of connections is full answers no segment, as a machine that is gone.
#[test]
fn a_machine_that_is_gone_costs_the_time_of_a_dial_and_not_that_of_a_greeting() {
    let queue = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&queue, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&queue, 0).unwrap();
    let at = SocketAddr::try_from(getsockname(&queue).unwrap()).unwrap();
    let connects = || TcpStream::connect_timeout(&at, Duration::from_millis(300)).ok();
    let held: Vec<TcpStream> = std::iter::from_fn(connects).take(16).collect();
    assert!(held.len() < 16, "it takes connections without an end");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: at.port() };
    let (dial, handshake) = (Duration::from_millis(500), Duration::from_secs(30));
    for (dial, handshake) in [(dial, handshake), (handshake, dial)] {
        let options = TransportOptions { dial, handshake, ..TransportOptions::default() };
        let begun = Instant::now();
        let said = connect::<BlockProtocol>(&address, &options).map(drop).unwrap_err().to_string();
        assert!(said.contains(&address.to_string()) && said.contains("does not answer"), "{said}");
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(15), "{took:?}");
    }
}
