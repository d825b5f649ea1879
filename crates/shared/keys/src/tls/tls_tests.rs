use super::client::{self, ClientTls};
use super::server::{self, Peer, ServerTls};
use super::setup::ALPN;
use crate::known::{Expect, KnownServer};
use crate::pair::KeyPair;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

#[path = "foreign_tests.rs"]
mod foreign;
#[path = "hostile_tests.rs"]
mod hostile;
#[path = "tcp_tests.rs"]
mod tcp;

/// A server, and the key of a client that it admits.
struct Site {
    dir: tempfile::TempDir,
    server_key: KeyPair,
    client_key: KeyPair,
    server: Arc<ServerTls>,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server_key = KeyPair::generate("server").unwrap();
        let client_key = KeyPair::generate("root@client").unwrap();
        let authorized = dir.path().join("authorized");
        fs::write(&authorized, format!("role=client {}\n", client_key.line())).unwrap();
        let server = ServerTls::new(&server_key, &authorized).unwrap();
        Self { dir, server_key, client_key, server }
    }

    fn authorized(&self) -> PathBuf {
        self.dir.path().join("authorized")
    }

    /// What a client that knows the server expects.
    fn known(&self) -> Expect {
        let (address, key) = ("storage:7070".to_string(), self.server_key.public());
        Expect::Known(KnownServer { address, key, file: "/k/known_servers".into(), line: 3 })
    }

    fn client(&self) -> ClientTls {
        ClientTls::new(&self.client_key).unwrap()
    }

    /// A handshake in memory, of a client with this key that expects this.
    fn meet(&self, key: &KeyPair, expect: Expect) -> Meeting {
        let tls = ClientTls::new(key).unwrap();
        let (client, client_check) = tls.fresh(Some(expect)).unwrap();
        let (config, server_check) = self.server.fresh().unwrap();
        let server = ServerConnection::new(config).unwrap();
        let mut meeting =
            Meeting { tls, client, client_check, server, server_check, errors: [None, None] };
        meeting.talk(|_, bytes| bytes);
        meeting
    }
}

/// Both ends of a connection in memory.
struct Meeting {
    tls: ClientTls,
    client: ClientConnection,
    client_check: Arc<client::Check>,
    server: ServerConnection,
    server_check: Arc<server::Check>,
    /// The client's and the server's.
    errors: [Option<rustls::Error>; 2],
}

/// Takes bytes from one end to the other; false if there were none.
fn pass<S, T>(
    from: &mut impl AsConnection<S>,
    to: &mut impl AsConnection<T>,
    change: &mut dyn FnMut(Vec<u8>) -> Vec<u8>,
    error: &mut Option<rustls::Error>,
) -> bool {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes);
    }
    if bytes.is_empty() {
        return false;
    }
    let bytes = change(bytes);
    if error.is_none() {
        *error = to.take(&bytes).err();
    }
    true
}

/// What both kinds of connection can do.
trait AsConnection<Side> {
    fn wants_write(&self) -> bool;
    fn write_tls(&mut self, bytes: &mut Vec<u8>);
    fn take(&mut self, bytes: &[u8]) -> Result<(), rustls::Error>;
}

macro_rules! as_connection {
    ($($kind:ty),*) => {$(
        impl AsConnection<$kind> for $kind {
            fn wants_write(&self) -> bool {
                std::ops::Deref::deref(self).wants_write()
            }
            fn write_tls(&mut self, bytes: &mut Vec<u8>) {
                std::ops::DerefMut::deref_mut(self).write_tls(bytes).unwrap();
            }
            fn take(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
                while !bytes.is_empty() {
                    if std::ops::DerefMut::deref_mut(self).read_tls(&mut bytes).is_err() {
                        return Err(rustls::Error::General("its buffer is full".into()));
                    }
                    self.process_new_packets()?;
                }
                Ok(())
            }
        }
    )*};
}
as_connection!(ClientConnection, ServerConnection);

impl Meeting {
    /// Goes on until neither end has anything to say. What the client sends and what the server
    /// sends, 0 and 1, passes through `change`.
    fn talk(&mut self, mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>) {
        let [of_client, of_server] = &mut self.errors;
        loop {
            let there = pass(&mut self.client, &mut self.server, &mut |b| change(0, b), of_server);
            let back = pass(&mut self.server, &mut self.client, &mut |b| change(1, b), of_client);
            if !there && !back {
                return;
            }
        }
    }

    fn peer(&self) -> Option<Peer> {
        let over = !self.server.is_handshaking() && self.errors[1].is_none();
        self.server_check.peer().filter(|_| over)
    }

    /// What the client is told.
    fn client_says(&self) -> String {
        let e = self.errors[0].clone().expect("the client is refused");
        let e = std::io::Error::new(std::io::ErrorKind::InvalidData, e);
        self.tls.explain("storage:7070", &e, &self.client_check).to_string()
    }

    fn server_says(&self) -> String {
        self.server_check.refusal().expect("the key was refused").to_string()
    }
}

#[test]
fn the_right_keys_meet() {
    let site = Site::new();
    for _ in 0..2 {
        let meeting = site.meet(&site.client_key, site.known());
        assert!(meeting.errors.iter().all(Option::is_none), "{:?}", meeting.errors);
        let line = meeting.peer().unwrap().line;
        assert_eq!((line.key, &*line.comment), (site.client_key.public(), "root@client"));
        for side in [Connection::from(meeting.client), Connection::from(meeting.server)] {
            assert_eq!(side.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
            assert_eq!(side.alpn_protocol(), Some(ALPN));
            assert_eq!(side.handshake_kind(), Some(rustls::HandshakeKind::Full));
            let presented = side.peer_certificates().unwrap();
            assert_eq!(presented.len(), 1);
        }
    }
    let print = site.server_key.public().fingerprint();
    let told = Expect::Fingerprint { address: "storage:7070".into(), fingerprint: print };
    assert!(site.meet(&site.client_key, told).peer().is_some());
    assert_eq!(site.server.refused(), 0);
}

/// No ticket is given, no early data is taken: a key is looked up for each connection.
#[test]
fn nothing_is_resumed() {
    let site = Site::new();
    let meeting = site.meet(&site.client_key, site.known());
    assert_eq!(meeting.client.tls13_tickets_received(), 0);
    let (config, _) = site.server.fresh().unwrap();
    assert!(!config.session_storage.can_cache() && !config.ticketer.enabled());
    assert_eq!((config.send_tls13_tickets, config.max_early_data_size), (0, 0));
    let (mut client, _) = site.client().fresh(Some(site.known())).unwrap();
    assert!(client.early_data().is_none());
}

#[test]
fn an_unknown_client_is_refused() {
    let site = Site::new();
    let stranger = KeyPair::generate("who@where").unwrap();
    let meeting = site.meet(&stranger, site.known());
    assert!(meeting.peer().is_none());
    let print = stranger.public().fingerprint().to_string();
    let (server, client) = (meeting.server_says(), meeting.client_says());
    let file = site.authorized().display().to_string();
    for part in [&*print, "does not list it", &file, &stranger.public().line("")] {
        assert!(server.contains(part), "{part}: {server}");
    }
    for part in ["storage:7070: the server does not admit", &*print, &stranger.line()] {
        assert!(client.contains(part), "{part}: {client}");
    }
    assert_eq!(site.server.refused(), 1);
}

/// The client says nothing of itself to another server.
#[test]
fn another_server_is_refused() {
    let site = Site::new();
    let other = KeyPair::generate("").unwrap().public();
    let file = PathBuf::from("/k/known_servers");
    let known = KnownServer { address: "storage:7070".into(), key: other, file, line: 3 };
    let (here, there) = (site.server_key.public().fingerprint(), other.fingerprint());
    let told = Expect::Fingerprint { address: "storage:7070".into(), fingerprint: there };
    for (expect, place) in
        [(Expect::Known(known), "line 3 of /k/known_servers"), (told, "was told")]
    {
        let meeting = site.meet(&site.client_key, expect);
        assert!(meeting.peer().is_none() && meeting.server_check.peer().is_none());
        assert!(meeting.server.peer_certificates().is_none());
        let said = meeting.client_says();
        for part in ["storage:7070: the server has", &here.to_string(), &there.to_string(), place] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_revoked_key_is_refused_at_the_next_handshake() {
    let site = Site::new();
    assert!(site.meet(&site.client_key, site.known()).peer().is_some());
    let other = KeyPair::generate("").unwrap();
    fs::write(site.authorized(), format!("role=client {}\n", other.line())).unwrap();
    let meeting = site.meet(&site.client_key, site.known());
    assert!(meeting.peer().is_none());
    assert!(meeting.server_says().contains("does not list it"));
    assert!(site.meet(&other, site.known()).peer().is_some());
}

/// A file with an error admits nobody: the key that the error took out is not let in.
#[test]
fn a_broken_file_admits_nobody() {
    let site = Site::new();
    fs::write(site.authorized(), format!("role=clint {}\n", site.client_key.line())).unwrap();
    let meeting = site.meet(&site.client_key, site.known());
    assert!(meeting.peer().is_none());
    let said = meeting.server_says();
    assert!(said.contains("authorized, line 1: role=`clint`"), "{said}");
    assert!(meeting.client_says().contains("does not admit"));
    assert!(ServerTls::new(&site.server_key, &site.authorized()).is_err());
}
