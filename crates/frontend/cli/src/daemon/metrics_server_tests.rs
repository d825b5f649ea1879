use super::*;

use siftfs_status::{State, Status};

/// Serves a board that has a volume.
fn served(address: &Address) -> (Listener, Option<SocketAddr>) {
    let board = Arc::new(Board::default());
    board.show(|| Ok(Status::default()));
    board.state().set(State::Serving);
    served_by(address, board)
}

fn served_by(address: &Address, board: Arc<Board>) -> (Listener, Option<SocketAddr>) {
    let listener = address.listen().unwrap();
    let bound = match &listener.socket {
        Socket::Port(l) => Some(l.local_addr().unwrap()),
        Socket::Unix(_) => None,
    };
    serve(&listener, board).unwrap();
    (listener, bound)
}

fn asked(to: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    let _ = stream.write_all(request);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn requests() {
    let (_listener, bound) = served(&Address::parse("127.0.0.1:0").unwrap());
    let to = bound.unwrap();
    let page = asked(to, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(crate::daemon::metrics::tests::parse(body).contains_key("siftfs_failed"));
    for (request, status) in [
        (&b"GET /healthz HTTP/1.1\r\n\r\n"[..], "200"),
        (b"GET /readyz?verbose HTTP/1.1\r\n\r\n", "200"),
        (b"GET /healthzz HTTP/1.1\r\n\r\n", "404"),
        (b"GET /secret HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"\0\xff \xfe SSH-2.0\r\n\r\n", "400"),
        (&[b'x'; MAX_REQUEST], "431"),
    ] {
        assert!(asked(to, request).starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
    }
}

/// A process that does not serve its volume is alive all the same, and says why it is not ready.
#[test]
fn a_process_is_alive_before_it_is_ready() {
    let board = Arc::new(Board::default());
    let (_listener, bound) = served_by(&Address::parse("127.0.0.1:0").unwrap(), board.clone());
    let said =
        |path: &str| asked(bound.unwrap(), format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
    for (state, ready) in [
        (State::Recovering, "503 Service Unavailable"),
        (State::Standby, "503 Service Unavailable"),
        (State::Serving, "200 OK"),
        (State::Fenced, "503 Service Unavailable"),
        (State::Closing, "503 Service Unavailable"),
    ] {
        if state == State::Serving {
            board.show(|| Ok(Status::default()));
        }
        board.state().set(state);
        let page = said("/readyz");
        assert!(page.starts_with(&format!("HTTP/1.1 {ready}\r\n")), "{state:?}: {page}");
        assert!(page.contains(&format!("\r\n\r\n{}", state.name())), "{state:?}: {page}");
        assert!(said("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

/// Connections that say nothing are bounded in number, and do not keep others out for longer than
/// they may live.
#[test]
fn silent_connections() {
    let (_listener, bound) = served(&Address::parse("127.0.0.1:0").unwrap());
    let to = bound.unwrap();
    let silent: Vec<_> = (0..4 * MAX_CLIENTS).map(|_| TcpStream::connect(to).unwrap()).collect();
    let end = Instant::now() + 4 * PATIENCE;
    while !asked(to, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < end, "kept out");
        thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
}

#[test]
fn a_unix_socket_is_replaced_when_dead_and_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead socket");
    let address = Address::parse(path.to_str().unwrap()).unwrap();
    let listener = address.listen().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let taken = address.listen().unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, b"a file of somebody's").unwrap();
    assert!(address.listen().is_err());
    assert!(path.exists());
}

#[test]
fn addresses() {
    assert!(matches!(Address::parse("127.0.0.1:9100"), Ok(Address::Port(_))));
    assert!(matches!(Address::parse("[::1]:9100"), Ok(Address::Port(_))));
    for wrong in ["0.0.0.0:9100", "192.168.1.1:80", "[::]:1", "9100", "localhost", "", "a/b"] {
        assert!(Address::parse(wrong).unwrap_err().contains("127.0.0.1"), "{wrong}");
    }
}
