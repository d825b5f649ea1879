//! Sessions that lend, as the process of a mount has them for programs with private logs: what they
//! may do, what they are told, and what an agent gets that breaks the rules.

use siftfs_base::{BLOCK_SIZE, Error, InodeNr, Result, SharedBlock, SystemClock};
use siftfs_calls::{Claim, FileProtocol, FromServer, Leases, Opening, Returning, ToServer};
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Cache, Credentials, FileService, Handle, Holder, LeaseId, MAX_FILE_SIZE, Notice, ROOT_INO,
    Reply, Request, WriteData,
};
use siftfs_remote::{Client, TransportOptions};
use siftfs_served::{Setup, Way};
use siftfs_transport::{CallerEnd, Received, reach};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn volume() -> LocalVolume {
    let device = Arc::new(MemDevice::new(256 << 20));
    let device = device as Arc<dyn siftfs_device::Device>;
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions::default();
    LocalVolume::open_on(device, Arc::new(SystemClock::default()), &options, Threads::Real).unwrap()
}

/// What a holder is told: a lease to return, or that the session is lost.
struct Told(Mutex<Sender<Option<LeaseId>>>);

impl Holder for Told {
    fn recall(&self, lease: LeaseId) {
        let _ = self.0.lock().unwrap().send(Some(lease));
    }

    fn lost(&self) {
        let _ = self.0.lock().unwrap().send(None);
    }
}

type Recalls = Receiver<Option<LeaseId>>;

fn lender(setup: &Setup) -> (Client, Recalls) {
    let (tell, told) = channel();
    let holder = Arc::new(Told(Mutex::new(tell)));
    (Client::lend(&setup.address, &setup.options, "", holder).unwrap(), told)
}

fn ask(service: &dyn FileService, req: Request) -> Result<Reply> {
    service.call(&Credentials::default(), req)
}

fn errno_of<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.unwrap_err().errno()
}

fn made(setup: &Setup, name: &str) -> InodeNr {
    let owner = setup.client(Claim::Owner).unwrap();
    let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o600 };
    match ask(&owner, create).unwrap() {
        Reply::Created { attr, .. } => attr.ino,
        other => panic!("{other:?}"),
    }
}

fn leased(client: &dyn FileService, ino: InodeNr) -> (Handle, LeaseId) {
    let handle = ask(client, Request::open(ino, Access::Both)).unwrap().opened().unwrap();
    let lease = Request::Lease { file: handle.into(), writers: Some(0), direct: None };
    (handle, ask(client, lease).unwrap().leased().unwrap().0)
}

fn write(lease: LeaseId, offset: u64, data: impl Into<WriteData>) -> Request {
    Request::LeaseWrite { lease, offset, data: data.into(), time: None, durable: false }
}

/// What is lent arrives, wherever it begins and ends; and its bytes are in no message.
///
/// Seen to fail when the server keeps what was lent: then the shared memory is used up after 2 MiB,
/// and the data travel in messages.
#[test]
fn what_is_lent_arrives() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let (client, _told) = lender(&setup);
    let (handle, lease) = leased(&client, made(&setup, "f"));
    let mut wanted = vec![0; 12 << 20];
    let mut seed = 7u64;
    let before = client.crossed();
    let (mut calls, mut bytes) = (0, 0);
    for n in 0..400u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (mut at, mut len) = ((seed >> 20) % (11 << 20), (seed >> 45) % 200_000 + 1);
        if n % 3 == 0 {
            (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096));
        }
        let data: Vec<u8> = (0..len).map(|at| (at * 13 + n) as u8).collect();
        wanted[at as usize..][..len as usize].copy_from_slice(&data);
        let written = ask(&client, write(lease, at, WriteData::copy_of(at, &data)));
        assert_eq!(written.unwrap().written().unwrap(), len as u32);
        (calls, bytes) = (calls + 1, bytes + len);
    }
    let after = client.crossed();
    let (sent, lent) = (after.sent - before.sent, after.lent - before.lent);
    assert!(lent >= bytes, "{lent} of {bytes}");
    // A header, and a slot's number for each block.
    assert!(sent <= calls * 200 + lent / 4096 * 8, "{sent} bytes of {calls} calls");
    for at in (0..11 << 20).step_by(1 << 20) {
        let read = Request::Read { file: handle.into(), offset: at, len: 1 << 20 };
        let data = ask(&client, read).unwrap().data().unwrap();
        assert!(data == wanted[at as usize..][..data.len()], "at {at}");
    }
    drop((client, setup));
    local.close().unwrap();
}

/// Another session's request has the lease returned, and sees what was given before that.
#[test]
fn a_recall_is_a_message() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let (client, told) = lender(&setup);
    let ino = made(&setup, "f");
    let (_, lease) = leased(&client, ino);
    let theirs = setup.client(Claim::Kernel).unwrap();
    let file = siftfs_proto::Target::Inode(ino);
    for (n, request) in [Request::GetAttr { file }, Request::Read { file, offset: 0, len: 100 }]
        .into_iter()
        .enumerate()
    {
        let lease = if n == 0 { lease } else { leased(&client, ino).1 };
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&theirs, request));
            assert_eq!(told.recv_timeout(LIMIT), Ok(Some(lease)));
            let text = if n == 0 { "some" } else { "more" };
            ask(&client, write(lease, 4 * n as u64, text.as_bytes().to_vec())).unwrap();
            ask(&client, Request::LeaseReturn { lease }).unwrap();
            match asked.join().unwrap().unwrap() {
                Reply::Attr(attr) => assert_eq!(attr.size, 4),
                reply => assert_eq!(reply.data().unwrap(), b"somemore"),
            }
        });
        assert_eq!(errno_of(ask(&client, write(lease, 0, b"x".to_vec()))), libc::ESTALE);
    }
    drop((client, theirs, setup));
    local.close().unwrap();
}

/// It does what is about its leases and nothing else; a lease of another session is none.
#[test]
fn an_agent_that_asks_for_more() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let ((one, _), (other, _)) = (lender(&setup), lender(&setup));
    let (f, g) = (made(&setup, "f"), made(&setup, "g"));
    let (handle, own) = leased(&one, f);
    let (_, theirs) = leased(&other, g);
    for lease in [theirs, LeaseId(0), LeaseId(u64::MAX)] {
        for data in [vec![7; 10], vec![7; BLOCK_SIZE]] {
            assert_eq!(errno_of(ask(&one, write(lease, 0, data))), libc::ESTALE);
        }
        assert_eq!(errno_of(ask(&one, Request::LeaseReturn { lease })), libc::ESTALE);
        let locate = Request::LeaseLocate { lease, first: 0, count: 64, bring: u64::MAX };
        assert_eq!(errno_of(ask(&one, locate)), libc::ESTALE);
    }
    let far = |offset, len: usize| errno_of(ask(&one, write(own, offset, vec![1; len])));
    assert_eq!(far(1 << 63, 1), libc::EINVAL);
    assert_eq!(far(u64::MAX, 8), libc::EINVAL);
    assert_eq!(far(u64::MAX - 4095, BLOCK_SIZE), libc::EINVAL);
    assert_eq!(far(MAX_FILE_SIZE, 1), libc::EFBIG);
    // As pwrite(2): what is beyond the largest file is left out.
    let part = ask(&one, write(own, MAX_FILE_SIZE - 1, vec![1; BLOCK_SIZE]));
    assert_eq!(part.unwrap().written().unwrap(), 1);
    let first = u64::MAX / 4096;
    let locate = Request::LeaseLocate { lease: own, first, count: 64, bring: 0 };
    assert_eq!(errno_of(ask(&one, locate)), libc::EINVAL);
    for request in [
        Request::Unlink { parent: ROOT_INO, name: b"g".to_vec() },
        Request::write(handle, 0, b"by another way".to_vec()),
        Request::Create { parent: ROOT_INO, name: b"h".to_vec(), perm: 0o600 },
        Request::SyncAll,
        Request::Status,
    ] {
        assert_eq!(errno_of(ask(&one, request.clone())), libc::EPERM, "{request:?}");
    }
    ask(&one, write(own, 0, b"own".to_vec())).unwrap();
    ask(&other, write(theirs, 0, b"theirs".to_vec())).unwrap();
    drop((one, other, setup));
    local.close().unwrap();
}

fn raw(setup: &Setup, opening: Opening) -> CallerEnd<FileProtocol> {
    let end =
        reach::<FileProtocol>(&setup.address, &setup.options, setup.secured.as_ref()).unwrap();
    end.sender.send(ToServer::Open(Box::new(opening))).unwrap();
    end
}

fn opening(claim: Claim, caches: bool, lends: bool) -> Opening {
    let leases = if lends { Leases::Lent } else { Leases::None };
    Opening { volume: String::new(), claim, caches, leases, returning: None }
}

/// What the server says before it ends the connection.
fn last_word(mut end: CallerEnd<FileProtocol>) -> String {
    let mut last = String::new();
    loop {
        match end.receiver.recv(Some(LIMIT)) {
            Ok(Received::Message(
                FromServer::Ended { reason, .. } | FromServer::Refused { reason },
            )) => last = reason,
            Ok(Received::Message(_)) => {}
            Ok(Received::Timeout) => panic!("the connection does not end"),
            Ok(Received::Closed) | Err(_) => return last,
        }
    }
}

fn lent(offset: u64, len: u32, blocks: usize) -> ToServer {
    let (slot, number, time) = (0, 0, None);
    let (credentials, lease) = (Credentials::default(), LeaseId(1));
    let blocks = vec![SharedBlock::from([1; BLOCK_SIZE]); blocks];
    ToServer::Lent { slot, number, credentials, lease, offset, len, time, blocks }
}

/// Data that do not lie in their blocks, and data in a session that does not lend,
/// end that session; nobody else notices.
#[test]
fn an_agent_that_breaks_a_rule_loses_its_session() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    for (lends, len, why) in [
        (true, 5000, "1 blocks for 5000 bytes"),
        (true, 0, "for 0 bytes"),
        (true, u32::MAX, "1 blocks"),
        (false, 10, "has no leases"),
    ] {
        let end = raw(&setup, opening(Claim::Kernel, false, lends));
        end.sender.send(lent(0, len, 1)).unwrap();
        let said = last_word(end);
        assert!(said.contains(why), "{said}");
    }
    // A session without any lease is told so, and goes on.
    let mut end = raw(&setup, opening(Claim::Kernel, false, true));
    end.sender.send(lent(4096 + 7, 10, 1)).unwrap();
    let answer = loop {
        match end.receiver.recv(Some(LIMIT)).unwrap() {
            Received::Message(FromServer::Answer { result, .. }) => break result,
            Received::Message(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(errno_of(answer), libc::ESTALE);
    setup.client(Claim::Owner).unwrap();
    assert_eq!(setup.server.counts().ended, 4);
    drop((end, setup));
    local.close().unwrap();
}

/// Where nothing is shared, and where it is not the local kernel that asks, there is no such
/// session, and the reason is said.
#[test]
fn who_gets_no_such_session() {
    let local = volume();
    for way in [Way::Unix, Way::Tcp, Way::Secret] {
        let setup = Setup::new(&local, way);
        // Who may claim nothing over TCP without keys is told that, if nothing else is lacking.
        let end = raw(&setup, opening(Claim::Kernel, false, true));
        let said = last_word(end);
        let why = if way == Way::Tcp { "speaks for a kernel" } else { "memory that both" };
        assert!(said.contains(why), "{way:?}: {said}");
    }
    let setup = Setup::new(&local, Way::Secret);
    let holder = Arc::new(Told(Mutex::new(channel().0)));
    let refused = Client::lend(&setup.address, &setup.options, "", holder).unwrap_err().to_string();
    assert!(refused.contains("private logs") && refused.contains("tcp:"), "{refused}");
    let setup = Setup::new(&local, Way::Shared);
    for (claim, caches) in [(Claim::Owner, false), (Claim::Kernel, true)] {
        let said = last_word(raw(&setup, opening(claim, caches, true)));
        assert!(said.contains("is the local kernel's, and caches nothing"), "{said}");
    }
    // It goes with a mount that there is.
    let back = Some(Returning { client: 7, instance: 0 });
    let said =
        last_word(raw(&setup, Opening { returning: back, ..opening(Claim::Kernel, false, true) }));
    assert!(said.contains("a mount that is not there"), "{said}");
    drop(setup);
    local.close().unwrap();
}

/// A kernel that has nothing in its cache.
struct Cached;

impl Cache for Cached {
    fn take_back(&self, _: Notice) {}
    fn forget_all(&self, _: Notice) {}
}

/// What is written by a lease is kept by the session of the mount beside, until it is durable. The
/// bytes are those that were written, from where they were written on.
#[test]
fn a_mount_keeps_what_is_lent() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let ino = made(&setup, "f");
    let mount = setup.lasting(Arc::new(Cached)).unwrap();
    let holder = Arc::new(Told(Mutex::new(channel().0)));
    let lender = mount.lend(&setup.address, &setup.options, holder).unwrap();
    let (handle, lease) = leased(&*lender, ino);
    ask(&*lender, Request::GetAttr { file: handle.into() }).unwrap();
    let mut kept = 0;
    for at in 0..50 {
        ask(&*lender, write(lease, at * 1000, vec![at as u8; 1000])).unwrap();
        // All is made durable now and then by itself.
        kept = kept.max(mount.kept());
    }
    assert!(kept > 5, "{kept} of 50");
    ask(&*lender, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
    assert_eq!(mount.kept(), 0);
    let crossed = lender.crossed();
    assert!(crossed.lent >= 50_000 && crossed.sent < 20_000, "{crossed:?}");
    let len = 50_000;
    let read = ask(&*lender, Request::Read { file: handle.into(), offset: 0, len }).unwrap();
    let wanted: Vec<u8> = (0..50).flat_map(|at| [at; 1000]).collect();
    assert!(read.data().unwrap() == wanted);
    ask(&*lender, Request::LeaseReturn { lease }).unwrap();
    ask(&*lender, Request::Release { handle }).unwrap();
    assert_eq!(errno_of(ask(&*lender, Request::Release { handle })), libc::EBADF);
    drop((lender, mount, setup));
    local.close().unwrap();
}

/// An agent that goes keeps no file; one that is told that its server ends may give what it has.
#[test]
fn both_ends_go() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let ino = made(&setup, "f");
    let (client, _told) = lender(&setup);
    leased(&client, ino);
    drop(client);
    let since = Instant::now();
    let (client, told) = lender(&setup);
    let (_, lease) = loop {
        let handle = ask(&client, Request::open(ino, Access::Both)).unwrap();
        let file = handle.opened().unwrap();
        match ask(&client, Request::Lease { file: file.into(), writers: Some(0), direct: None }) {
            Ok(reply) => break (file, reply.leased().unwrap().0),
            Err(error) => assert!(since.elapsed() < LIMIT, "{error}"),
        }
    };
    setup.server.stop();
    assert_eq!(told.recv_timeout(LIMIT), Ok(Some(lease)));
    ask(&client, write(lease, 0, b"in time".to_vec())).unwrap();
    let more = ask(&client, Request::Lease { file: ino_target(ino), writers: None, direct: None });
    assert_eq!(errno_of(more), libc::EAGAIN);
    ask(&client, Request::LeaseReturn { lease }).unwrap();
    assert_eq!(told.recv_timeout(LIMIT), Ok(None), "the session is lost");
    assert!(matches!(ask(&client, Request::LeaseKeep { lease }), Err(Error::Link(_))));
    drop((client, setup));
    let owner = local.sessions().open(siftfs_proto::Opening::kernel()).unwrap();
    let read = Request::Read { file: ino_target(ino), offset: 0, len: 100 };
    assert_eq!(ask(&*owner, read).unwrap().data().unwrap(), b"in time");
    drop(owner);
    local.close().unwrap();
}

fn ino_target(ino: InodeNr) -> siftfs_proto::Target {
    siftfs_proto::Target::Inode(ino)
}

/// They are bounded, so that mounts and programs find a connection beside them.
#[test]
fn sessions_that_lend_are_bounded() {
    let local = volume();
    let mut setup = Setup::new(&local, Way::Shared);
    setup.options = TransportOptions { shared_memory: 64 << 10, ..setup.options.clone() };
    let mut all = Vec::new();
    let refused = loop {
        let holder = Arc::new(Told(Mutex::new(channel().0)));
        match Client::lend(&setup.address, &setup.options, "", holder) {
            Ok(client) => all.push(client),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("too many sessions"), "{refused}");
    assert_eq!(all.len(), 128);
    setup.client(Claim::Owner).unwrap();
    all.pop();
    let since = Instant::now();
    let holder = Arc::new(Told(Mutex::new(channel().0)));
    while Client::lend(&setup.address, &setup.options, "", holder.clone()).is_err() {
        assert!(since.elapsed() < LIMIT, "the one that has gone counts");
    }
    drop((all, setup));
    local.close().unwrap();
}
