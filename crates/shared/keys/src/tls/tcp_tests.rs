//! Over TCP on loopback.

use super::*;
use siftfs_base::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(20);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (there, listener.accept().unwrap().0)
}

/// Both ends at once.
fn both<A: Send, B>(
    server: impl FnOnce(TcpStream) -> A + Send,
    client: impl FnOnce(TcpStream) -> B,
) -> (A, B) {
    let (here, there) = pair();
    thread::scope(|s| {
        let server = s.spawn(move || server(there));
        let done = client(here);
        (server.join().unwrap(), done)
    })
}

#[test]
fn a_connection_carries_bytes_both_ways() {
    let site = Site::new();
    let (served, answer) = both(
        |mut stream| {
            let (mut tls, peer) = site.server.accept(&stream, WITHIN).unwrap();
            assert_eq!(stream.read_timeout().unwrap(), None);
            let mut link = rustls::Stream::new(&mut tls, &mut stream);
            let mut asked = [0; 5];
            link.read_exact(&mut asked).unwrap();
            link.write_all(&[&asked[..], b"!"].concat()).unwrap();
            peer.line.key
        },
        |mut stream| {
            let mut tls = site.client().connect(&site.known(), &stream, WITHIN).unwrap();
            let mut link = rustls::Stream::new(&mut tls, &mut stream);
            link.write_all(b"hello").unwrap();
            let mut answer = [0; 6];
            link.read_exact(&mut answer).unwrap();
            answer
        },
    );
    assert_eq!((served, &answer), (site.client_key.public(), b"hello!"));
}

/// The client is told before it sends anything, and the server goes on.
#[test]
fn a_refused_key_is_told_at_once() {
    let site = Site::new();
    let stranger = KeyPair::generate("who@where").unwrap();
    let tls = ClientTls::new(&stranger).unwrap();
    let (server, client) = both(
        |stream| site.server.accept(&stream, WITHIN).map(drop),
        |stream| tls.connect(&site.known(), &stream, WITHIN).map(drop),
    );
    let (server, client) = (server.unwrap_err(), client.unwrap_err());
    assert!(matches!((&server, &client), (Error::Refused(_), Error::Refused(_))));
    assert!(server.to_string().contains("does not list it"), "{server}");
    assert!(client.to_string().contains("does not admit the key SHA256:"), "{client}");
    let (server, client) = both(
        |stream| site.server.accept(&stream, WITHIN).map(drop),
        |stream| site.client().connect(&site.known(), &stream, WITHIN).map(drop),
    );
    assert_eq!((server, client), (Ok(()), Ok(())));
}

/// A first connection shows the server's key and nothing of the client.
#[test]
fn the_servers_key_is_proved_without_showing_ours() {
    let site = Site::new();
    let (server, key) = both(
        |stream| site.server.accept(&stream, WITHIN).map(drop),
        |stream| site.client().server_key("storage:7070", &stream, WITHIN),
    );
    assert_eq!(key.unwrap(), site.server_key.public());
    let ended = server.unwrap_err().to_string();
    assert!(ended.contains("the other side ended the handshake"), "{ended}");
    assert_eq!(site.server.refused(), 0, "no key was shown");
}

fn late(e: &Error, began: Instant) {
    let text = e.to_string();
    assert!(matches!(e, Error::Link(_)) && text.contains("more than 0.3 s"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Silence ends at the deadline, on both sides, also when a byte comes now and then.
#[test]
fn silence_ends() {
    let site = Site::new();
    let short = Duration::from_millis(300);
    let (mut here, there) = pair();
    let began = Instant::now();
    late(&site.server.accept(&there, short).unwrap_err(), began);
    let began = Instant::now();
    late(&site.client().connect(&site.known(), &there, short).unwrap_err(), began);
    let (mut drip, there) = pair();
    let began = Instant::now();
    thread::scope(|s| {
        s.spawn(move || {
            for byte in [22, 3, 1, 0x40, 0, 1, 0, 0x10, 0, 3, 3].into_iter().chain([0; 60]) {
                if drip.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        late(&site.server.accept(&there, short).unwrap_err(), began);
        drop(there);
    });
    here.write_all(b"x").unwrap();
}

#[test]
fn ends_and_other_protocols_are_told() {
    let site = Site::new();
    let (server, _) = both(
        |stream| site.server.accept(&stream, WITHIN).map(drop),
        |stream| stream.shutdown(Shutdown::Both).unwrap(),
    );
    let server = server.unwrap_err().to_string();
    assert!(server.contains("the other side ended the handshake"), "{server}");
    for (sends, what) in [(&b"220 mail ready\r\n"[..], "does not speak TLS"), (b"", "ended")] {
        let ((), client) = both(
            |mut stream| {
                stream.write_all(sends).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            },
            |stream| site.client().connect(&site.known(), &stream, WITHIN).map(drop),
        );
        let client = client.unwrap_err().to_string();
        assert!(client.contains("storage:7070: ") && client.contains(what), "{client}");
    }
}
