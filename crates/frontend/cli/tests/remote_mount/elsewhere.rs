//! Mounts and programs that name several servers: the volume is served at one of the addresses, and
//! then at another one.

use crate::support::Setup;
use crate::support::keys::Keys;
use crate::support::served::Served as Server;
use crate::{Mount, errno, siftfs};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Signal;
use siftfs::{ConnectOptions, Volume};
use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(300);

/// A volume, its keys, and two ports of this machine.
struct Pair {
    setup: Setup,
    keys: Keys,
    ports: [u16; 2],
}

impl Pair {
    fn new() -> Self {
        let setup = Setup::new();
        let keys = Keys::new(setup.tmp.path(), "role=admin squash=none volumes=volume");
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.each_ref().map(|port| port.local_addr().unwrap().port());
        Self { setup, keys, ports }
    }

    fn address(&self, at: usize) -> String {
        format!("tcp:127.0.0.1:{}", self.ports[at])
    }

    /// A server of the volume at one of the ports.
    fn serve(&self, at: usize) -> Server {
        let admits = self.keys.admits();
        let more: Vec<&str> = admits.iter().map(String::as_str).collect();
        Server::at(&self.setup, &self.address(at), &more)
    }

    /// As a mount names them.
    fn both(&self) -> String {
        format!("127.0.0.1:{},127.0.0.1:{}:/volume", self.ports[0], self.ports[1])
    }

    fn mount_of(&self, named: &str, name: &str, more: &str) -> Mount {
        let mount = Mount(self.setup.tmp.path().join(name));
        std::fs::create_dir_all(&mount.0).unwrap();
        let options = format!("{},{more}", self.keys.option());
        let log = self.setup.tmp.path().join(format!("{name}.log")).display().to_string();
        siftfs(&["mount", named, mount.dir(), "-o", &options, "--log-file", &log]).ok();
        mount
    }

    fn mount(&self, name: &str, more: &str) -> Mount {
        self.mount_of(&self.both(), name, more)
    }

    fn end(self, server: Server) {
        assert!(server.end(Signal::TERM).success());
        self.setup.assert_plain_ext4();
    }
}

/// The first server is killed, and the other one serves at its own port: the mounts go on there, as
/// at one server that is there again. Then the other way round, in order.
#[test]
fn a_mount_goes_on_at_the_other_address() {
    let pair = Pair::new();
    let first = pair.serve(0);
    let (mount, other) = (pair.mount("m", ""), pair.mount("other", ""));
    let server = mount.status()["server"].clone();
    assert_eq!(server["address"], *pair.address(0));
    assert_eq!(server["addresses"], serde_json::json!([pair.address(0), pair.address(1)]));
    let mut open = OpenOptions::new();
    open.read(true).write(true).create_new(true);
    let synced = open.open(mount.path("synced")).unwrap();
    synced.write_all_at(&[1; 5000], 0).unwrap();
    synced.sync_all().unwrap();
    let unsynced = open.open(mount.path("unsynced")).unwrap();
    unsynced.write_all_at(b"never synced", 0).unwrap();
    std::fs::rename(mount.path("unsynced"), mount.path("renamed")).unwrap();
    rustix::fs::flock(&unsynced, FlockOperation::LockExclusive).unwrap();
    let theirs = File::open(other.path("renamed")).unwrap();
    first.end(Signal::KILL);
    siftfs(&["status", mount.dir(), "--healthy"]).fails(1, &["the server is lost"]);
    std::thread::sleep(PAUSE);
    let second = pair.serve(1);
    synced.write_all_at(&[2; 100], 5000).unwrap();
    synced.sync_all().unwrap();
    unsynced.sync_all().unwrap();
    let refused = rustix::fs::flock(&theirs, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    assert_eq!(std::fs::read(mount.path("renamed")).unwrap(), b"never synced");
    assert_eq!(
        std::fs::read(other.path("synced")).unwrap(),
        [vec![1; 5000], vec![2; 100]].concat()
    );
    assert!(!other.path("unsynced").exists());
    let status = mount.status();
    assert_eq!(
        (&status["server"]["address"], &status["state"]),
        (&pair.address(1).into(), &"serving".into())
    );
    siftfs(&["status", mount.dir(), "--healthy"]).ok();
    // Back to the first one, which takes the volume in order.
    assert!(second.end(Signal::TERM).success());
    let first = pair.serve(0);
    synced.write_all_at(b"x", 0).unwrap();
    synced.sync_all().unwrap();
    assert_eq!(other.status()["server"]["address"], *pair.address(0));
    drop((synced, unsynced, theirs));
    mount.umount();
    other.umount();
    pair.end(first);
}

/// What is said of each address if none answers for the volume, and what does not hold a mount
/// back: a port without a process, one whose process says nothing, and one that takes no
/// connection.
#[test]
fn addresses_that_do_not_answer_are_passed_by() {
    let pair = Pair::new();
    let dir = Mount(pair.setup.tmp.path().join("none"));
    std::fs::create_dir_all(dir.dir()).unwrap();
    let options = pair.keys.option();
    let none = siftfs(&["mount", &pair.both(), dir.dir(), "-o", &options]);
    none.fails(
        1,
        &[&pair.address(0), &pair.address(1), "no server answers", "nobody listens there"],
    );
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (full, _held) = full();
    let server = pair.serve(0);
    let named = format!(
        "{full},{},127.0.0.1:{},127.0.0.1:{}:/volume",
        mute.local_addr().unwrap(),
        pair.ports[1],
        pair.ports[0]
    );
    let begun = Instant::now();
    let mount = pair.mount_of(&named, "m", "");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(mount.status()["server"]["address"], *pair.address(0));
    std::fs::write(mount.path("f"), "x").unwrap();
    mount.umount();
    let other = named.replace(":/volume", ":/other");
    let refused = siftfs(&["mount", &other, dir.dir(), "-o", &options]);
    refused.fails(1, &["no volume is called", "nobody listens there", "does not answer"]);
    assert!(!dir.is_there());
    pair.end(server);
}

/// Where the system takes no connection: its queue is full. What it is full of is kept.
fn full() -> (SocketAddr, (std::os::fd::OwnedFd, Vec<TcpStream>)) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let queue = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&queue, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&queue, 0).unwrap();
    let at = SocketAddr::try_from(getsockname(&queue).unwrap()).unwrap();
    let connects = || TcpStream::connect_timeout(&at, Duration::from_millis(200));
    let held: Vec<TcpStream> = std::iter::from_fn(|| connects().ok()).take(16).collect();
    assert!(held.len() < 16, "it takes connections without an end");
    (at, (queue, held))
}

/// `soft` and `timeo=` mean what they do with one server.
#[test]
fn soft_mounts_wait_no_longer_than_they_say() {
    let pair = Pair::new();
    let first = pair.serve(0);
    let mount = pair.mount("m", "soft,timeo=2");
    std::fs::write(mount.path("f"), "x").unwrap();
    first.end(Signal::KILL);
    let begun = Instant::now();
    assert_eq!(errno(std::fs::write(mount.path("g"), "y")), libc::EIO);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let second = pair.serve(1);
    let end = Instant::now() + Duration::from_secs(20);
    while std::fs::write(mount.path("h"), "z").is_err() {
        assert!(Instant::now() < end, "it does not come back");
        std::thread::sleep(PAUSE / 10);
    }
    assert_eq!(std::fs::read(mount.path("f")).unwrap(), b"x");
    assert_eq!(mount.status()["server"]["address"], *pair.address(1));
    mount.umount();
    pair.end(second);
}

/// A program's session, by sockets of one machine.
#[test]
fn a_program_goes_on_at_the_other_address() {
    let setup = Setup::new();
    let at = |name: &str| format!("unix:{}", setup.tmp.path().join(name).display());
    let first = Server::at(&setup, &at("a"), &[]);
    let volume = Volume::connect(&format!("{},{}", at("b"), at("a"))).unwrap();
    let once: ConnectOptions = "once".parse().unwrap();
    Volume::connect_by(&format!("{},{}", at("b"), at("a")), "volume", &once)
        .unwrap()
        .close()
        .unwrap();
    let file = volume.create("/f", 0o644).unwrap();
    file.write_at(0, b"before").unwrap();
    first.end(Signal::KILL);
    let second = Server::at(&setup, &at("b"), &[]);
    file.append(b" and after").unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"before and after");
    volume.close().unwrap();
    assert!(second.end(Signal::TERM).success());
    setup.assert_plain_ext4();
}
