//! Two volumes that answer every call alike, and clients of them.

use super::*;
use crate::{Address, Claim, Client, TransportOptions, transport};
use siftfs_calls::{FromServer, Leases, Opening, Returning, ToServer};
use siftfs_proto::{Cache, Credentials, FileService, Reply, Request};
use siftfs_transport::{CallerEnd, Received, reach};
use std::time::Duration;

/// How long something may take that is about to happen.
const SOON: Duration = Duration::from_secs(30);

/// A volume of this number.
struct Volume(u8);

/// Says Done, whatever it is asked.
struct Session;

impl FileService for Session {
    fn call(&self, _: &Credentials, _: Request) -> Result<Reply> {
        Ok(Reply::Done)
    }
}

impl crate::Served for Volume {
    fn uuid(&self) -> [u8; 16] {
        [self.0; 16]
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.0.to_string()
    }

    fn open(
        &self,
        _: siftfs_proto::Opening,
        _: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<dyn FileService>> {
        Ok(Arc::new(Session))
    }
}

/// The servers of the volumes 0 and 1.
struct Two([Arc<Server>; 2]);

impl Directory for Two {
    fn find(&self, name: &str) -> Result<Visit> {
        let found = self.0.iter().find(|server| server.volume.is_called(name));
        found.map(Visit::at).ok_or_else(|| Error::Refused(format!("there is no {name:?}")))
    }
}

/// A reception of two volumes at a unix socket.
struct Desk {
    reception: Arc<Reception>,
    servers: [Arc<Server>; 2],
    address: Address,
    listens: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address: Address = format!("unix:{}", dir.path().join("s").display()).parse().unwrap();
        let listener = Listener::bind(&address, &Self::options()).unwrap();
        let servers = [0, 1].map(|nr| Server::new(Arc::new(Volume(nr))));
        servers.iter().for_each(Server::begin_serving);
        let reception = Reception::new(Arc::new(Two(servers.clone())));
        let desk = reception.clone();
        let listens = Some(std::thread::spawn(move || desk.serve(&listener)));
        Self { reception, servers, address, listens, _dir: dir }
    }

    fn options() -> TransportOptions {
        TransportOptions { shared_memory: 0, ..transport() }
    }

    fn client(&self, name: &str) -> Result<Client> {
        Client::connect(&self.address, (&Self::options(), None), name, Claim::Owner, None)
    }

    fn visits(&self, volume: usize) -> usize {
        self.servers[volume].visits.load(Ordering::SeqCst)
    }

    /// A connection of a client that comes back, which has its session.
    fn returning(&self, name: &str, client: u64) -> CallerEnd<FileProtocol> {
        let mut end = reach::<FileProtocol>(&self.address, &Self::options(), None).unwrap();
        let returning = Some(Returning { client, instance: 0 });
        let (volume, claim, leases) = (name.into(), Claim::Owner, Leases::None);
        let opening = Opening { volume, claim, caches: false, leases, returning };
        end.sender.send(ToServer::Open(Box::new(opening))).unwrap();
        let answer = end.receiver.recv(Some(SOON)).unwrap();
        assert!(matches!(answer, Received::Message(FromServer::Opened { .. })), "{answer:?}");
        end
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.reception.stop();
        self.servers.iter().for_each(|server| server.stop());
        self.listens.take().unwrap().join().unwrap();
        self.servers.iter().for_each(|server| server.end_serving());
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "waited until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_client_has_the_server_of_the_volume_that_it_names() {
    let desk = Desk::new();
    let (zero, one) = (desk.client("0").unwrap(), desk.client("1").unwrap());
    assert_eq!((zero.volume(), one.volume()), ([0; 16], [1; 16]));
    let asked = one.call(&Credentials::default(), Request::SyncAll).unwrap();
    assert!(matches!(asked, Reply::Done));
    let calls = |nr: usize| desk.servers[nr].counts().calls;
    assert!(calls(1) > 0 && calls(0) == 0, "{} and {}", calls(0), calls(1));
    let said = desk.client("2").err().unwrap().to_string();
    assert!(said.contains("there is no \"2\""), "{said}");
    assert_eq!(desk.reception.refused(), 1);
    assert_eq!((desk.visits(0), desk.visits(1)), (1, 1));
}

#[test]
fn a_volume_is_unused_when_its_last_connection_has_gone() {
    let desk = Desk::new();
    let unused = |nr: usize| desk.servers[nr].is_unused();
    assert!(unused(0) && unused(1));
    let both = [desk.client("0").unwrap(), desk.client("0").unwrap()];
    assert!(!unused(0) && unused(1));
    let [first, second] = both;
    drop(first);
    wait_until("one visit has ended", || desk.visits(0) == 1);
    assert!(!unused(0));
    drop(second);
    wait_until("nobody uses it", || unused(0));
    assert_eq!(desk.servers[0].counts().opened, 2);
}

#[test]
fn a_client_that_may_come_back_still_uses_its_volume() {
    let desk = Desk::new();
    let connection = desk.returning("1", 77);
    drop(connection);
    wait_until("its visit has ended", || desk.visits(1) == 0);
    assert!(!desk.servers[1].is_unused() && desk.servers[0].is_unused());
    // It is the same one that comes again, and leaves for good.
    let mut connection = desk.returning("1", 77);
    connection.sender.send(ToServer::Bye).unwrap();
    while !matches!(connection.receiver.recv(Some(SOON)), Ok(Received::Closed) | Err(_)) {}
    drop(connection);
    wait_until("nobody uses it", || desk.servers[1].is_unused());
}

#[test]
fn a_crowd_at_one_volume_keeps_nobody_out_of_the_other() {
    let desk = Desk::new();
    let mut crowd: Vec<Client> = (0..130).map(|_| desk.client("0").unwrap()).collect();
    let said = desk.client("0").err().unwrap().to_string();
    assert!(said.contains("too many connections: the volume has 130"), "{said}");
    let others = [desk.client("1").unwrap(), desk.client("1").unwrap()];
    assert!(desk.client("1").is_err());
    crowd.pop();
    wait_until("one has gone", || desk.visits(0) == 129);
    wait_until("its place is another's", || desk.client("1").is_ok());
    drop(others);
}
