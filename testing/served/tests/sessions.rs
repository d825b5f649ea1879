//! Sessions over a wire: what a program gets, and what it cannot have.

use siftfs::{Volume, commit_all};
use siftfs_base::{Error, SystemClock};
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Credentials, FileService, Handle, LockAsk, LockKind, LockPlace, LockRange, LockWait, ROOT_INO,
    Reply, Request, Rights, SetAttr, Target, WaitUntil,
};
use siftfs_remote::Claim;
use siftfs_served::{Setup, Way};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(60);

fn device() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone() as Arc<dyn siftfs_device::Device>, &MkfsOptions::default()).unwrap();
    device
}

fn opened(device: &Arc<MemDevice>) -> LocalVolume {
    let (device, clock) =
        (device.clone() as Arc<dyn siftfs_device::Device>, Arc::new(SystemClock::default()));
    LocalVolume::open_on(device, clock, &OpenOptions::default(), Threads::Real).unwrap()
}

fn connected(setup: &Setup) -> Volume {
    Volume::connect_with(
        &setup.address,
        (&setup.options, setup.secured.as_ref()),
        "volume",
        Claim::Owner,
    )
    .unwrap()
}

fn user(uid: u32) -> Claim {
    Claim::User { uid, gid: uid, rights: Rights::default() }
}

fn ask(service: &dyn FileService, req: Request) -> siftfs_base::Result<Reply> {
    service.call(&Credentials::default(), req)
}

fn errno_of<T>(result: siftfs_base::Result<T>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

/// What a client synced is there after the server's death, whatever the sizes of its pieces; what
/// it reads is what it wrote.
#[test]
fn what_a_client_synced_survives_the_server() {
    for way in Way::TRUSTED {
        let device = device();
        let local = opened(&device);
        let setup = Setup::new(&local, way);
        let volume = connected(&setup);
        volume.create_dir("/d", 0o755).unwrap();
        let sizes = [0usize, 1, 4095, 4096, 4097, 65_536, 70_001, 1 << 20, (3 << 20) + 17];
        for (n, size) in sizes.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..size).map(|i| (i * 31 + n) as u8).collect();
            let file = volume.create(&format!("/d/{n}"), 0o600).unwrap();
            file.write_at(0, &bytes).unwrap();
            assert_eq!(file.read_at(0, size + 5).unwrap(), bytes, "{way:?}, {size} bytes");
            file.sync_all().unwrap();
        }
        drop(volume);
        drop(setup);
        local.abandon();
        let volume = Volume::from_local(opened(&device)).unwrap();
        for (n, size) in sizes.into_iter().enumerate() {
            let file = volume.open_file(&format!("/d/{n}")).unwrap();
            let found = file.read_at(0, size + 5).unwrap();
            assert!(
                found.len() == size
                    && found.iter().enumerate().all(|(i, b)| *b == (i * 31 + n) as u8)
            );
        }
        volume.close().unwrap();
    }
}

/// Tickets, sections and an administrator's requests, as in process.
#[test]
fn all_of_an_embedded_volume_is_to_be_had() {
    let device = device();
    let local = opened(&device);
    let setup = Setup::new(&local, Way::Shared);
    let volume = connected(&setup);
    let file = volume.create("/f", 0o600).unwrap();
    file.write_at(0, &[1; 5000]).unwrap();
    let ticket = file.stage().unwrap();
    ticket.wait().unwrap();
    assert!(ticket.is_durable().unwrap());
    let (sent, received) = channel();
    file.write_at(0, &[2; 5000]).unwrap();
    file.stage().unwrap().when_durable(move |durable| sent.send(durable).unwrap());
    received.recv_timeout(LIMIT).unwrap().unwrap();
    let section = file.section().unwrap();
    section.write_at(100, &[9; 10]).unwrap();
    assert_eq!(file.read_at(100, 1).unwrap(), [2]);
    commit_all(vec![section]).unwrap();
    assert_eq!(file.read_at(100, 1).unwrap(), [9]);
    volume.rename("/f", "/g", siftfs::RenameMode::Replace).unwrap();
    assert_eq!(volume.read_dir("/").unwrap().iter().filter(|entry| entry.name == b"g").count(), 1);
    volume.sync().unwrap();
    volume.checkpoint().unwrap();
    assert_eq!(volume.status().unwrap().failed, None);
    assert!(volume.statfs().unwrap().free > 0);
    drop(file);
    volume.close().unwrap();
    drop(setup);
    local.close().unwrap();
}

/// More threads than slots, each with a file of its own.
#[test]
fn threads_share_a_session() {
    let device = device();
    let local = opened(&device);
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        let volume = &connected(&setup);
        std::thread::scope(|scope| {
            for n in 0..100u8 {
                scope.spawn(move || {
                    let file = volume.create(&format!("/{way:?}-{n}"), 0o600).unwrap();
                    for round in 0..10 {
                        file.write_at(round * 4096, &[n; 4096]).unwrap();
                        file.sync_data().unwrap();
                    }
                    assert_eq!(file.read_at(0, 40_960).unwrap(), vec![n; 40_960]);
                });
            }
        });
    }
    local.close().unwrap();
}

/// A client's end is the end of all that it has: its locks are another one's.
#[test]
fn a_clients_end_is_its_sessions() {
    let device = device();
    let local = opened(&device);
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        let (first, second) = (setup.client(user(0)).unwrap(), setup.client(user(0)).unwrap());
        let create =
            Request::Create { parent: ROOT_INO, name: format!("{way:?}").into(), perm: 0o600 };
        let (attr, handle) = ask(&first, create).unwrap().created().unwrap();
        let lookup = Request::Lookup { parent: ROOT_INO, name: format!("{way:?}").into() };
        ask(&second, lookup).unwrap();
        let theirs = ask(&second, Request::open(attr.ino, Access::Both)).unwrap().opened().unwrap();
        let lock = |handle: Handle, wait| Request::SetLock {
            file: handle.into(),
            ask: LockAsk {
                owner: 1,
                pid: 1,
                place: LockPlace::Range(LockRange::ALL),
                kind: Some(LockKind::Write),
                wait,
            },
        };
        ask(&first, lock(handle, None)).unwrap();
        assert_eq!(errno_of(ask(&second, lock(theirs, None))), Some(libc::EAGAIN));
        let (sent, received) = channel();
        let wait = Some(LockWait { number: 1, until: WaitUntil::File });
        second.submit(
            &Credentials::default(),
            lock(theirs, wait),
            Box::new(move |result| sent.send(result).unwrap()),
        );
        assert!(received.recv_timeout(Duration::from_millis(100)).is_err());
        drop(first);
        received.recv_timeout(LIMIT).unwrap().unwrap();
    }
    local.close().unwrap();
}

/// Rule R31: a number of one session means nothing in another, and a user may do what a user may.
#[test]
fn r31_a_session_has_its_own_and_no_more() {
    let device = device();
    let local = opened(&device);
    let setup = Setup::new(&local, Way::Shared);
    let (owner, other) = (setup.client(Claim::Owner).unwrap(), setup.client(user(7)).unwrap());
    let create = |name: &[u8]| Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o600 };
    let (attr, handle) = ask(&owner, create(b"secret")).unwrap().created().unwrap();
    let read = |file: Target| Request::Read { file, offset: 0, len: 10 };
    assert_eq!(errno_of(ask(&other, read(handle.into()))), Some(libc::EBADF));
    assert_eq!(errno_of(ask(&other, read(attr.ino.into()))), Some(libc::ESTALE));
    assert_eq!(errno_of(ask(&other, Request::open(attr.ino, Access::Read))), Some(libc::ESTALE));
    let lookup = Request::Lookup { parent: ROOT_INO, name: b"secret".into() };
    ask(&other, lookup).unwrap();
    assert_eq!(errno_of(ask(&other, Request::open(attr.ino, Access::Read))), Some(libc::EACCES));
    let set = SetAttr { perm: Some(0o666), ..SetAttr::default() };
    let hold = ask(&other, Request::Hold { ino: attr.ino }).unwrap().opened().unwrap();
    let chmod = Request::SetAttr { file: hold.into(), set, times: true };
    assert_eq!(errno_of(ask(&other, chmod)), Some(libc::EPERM));
    assert_eq!(errno_of(ask(&other, create(b"mine"))), Some(libc::EACCES));
    for administration in [Request::Status, Request::Checkpoint, Request::SyncAll] {
        assert_eq!(errno_of(ask(&other, administration)), Some(libc::EPERM));
    }
    for name in [&b"a/b"[..], b"..", b""] {
        assert_eq!(errno_of(ask(&owner, create(name))), Some(libc::EINVAL));
    }
    drop((owner, other));
    drop(setup);
    local.close().unwrap();
}

/// TCP says nothing of who connects: no kernel, no owner, no root.
#[test]
fn r31_over_tcp_nobody_is_believed() {
    let device = device();
    let local = opened(&device);
    let setup = Setup::new(&local, Way::Tcp);
    for claim in [Claim::Kernel, Claim::Owner, user(0)] {
        let error = setup.client(claim).unwrap_err().to_string();
        assert!(error.contains("its connection does not"), "{error}");
    }
    let rights = Rights::all();
    let claim = Claim::User { uid: 7, gid: 7, rights };
    let client = setup.client(claim).unwrap();
    let create = Request::Create { parent: ROOT_INO, name: b"x".into(), perm: 0o600 };
    assert_eq!(errno_of(ask(&client, create)), Some(libc::EACCES));
    drop(client);
    drop(setup);
    local.close().unwrap();
}

/// A client of a server that has ended is told so, at once and for good.
#[test]
fn a_servers_end_is_told() {
    let device = device();
    let local = opened(&device);
    for way in Way::ALL {
        let setup = Setup::new(&local, way);
        let client = setup.client(user(7)).unwrap();
        ask(&client, Request::StatFs).unwrap();
        let address = setup.address.clone();
        drop(setup);
        let ended = ask(&client, Request::StatFs).unwrap_err();
        assert!(matches!(ended, Error::Link(_)), "{ended}");
        assert_eq!(errno_of(ask(&client, Request::StatFs)), Some(libc::EIO));
        let gone =
            siftfs_remote::Client::connect(&address, (&way.options(), None), "", user(7), None);
        let gone = gone.unwrap_err().to_string();
        assert!(gone.contains("nobody listens there"), "{gone}");
    }
    local.close().unwrap();
}

/// A client that calls without a pause keeps no server from ending.
///
/// Seen to fail when a session looks for its end only where nothing comes.
#[test]
fn a_busy_client_keeps_no_server() {
    let local = opened(&device());
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        let client = setup.client(Claim::Owner).unwrap();
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let begun = Instant::now();
                while ask(&client, Request::StatFs).is_ok() {
                    assert!(begun.elapsed() < Duration::from_secs(30), "{way:?}: it goes on");
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            setup.server.stop();
            calls.join().unwrap();
        });
        drop(setup);
    }
    local.close().unwrap();
}

/// A volume of another name is refused with the name.
#[test]
fn another_volume_is_refused() {
    let device = device();
    let local = opened(&device);
    let setup = Setup::new(&local, Way::Unix);
    for (name, known) in [("", true), ("volume", true), ("other", false)] {
        let volume =
            Volume::connect_with(&setup.address, (&setup.options, None), name, Claim::Owner);
        assert_eq!(volume.is_ok(), known, "{name}");
        let error = volume.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(known || error.contains("no volume is called \"other\" here"), "{error}");
    }
    drop(setup);
    local.close().unwrap();
}
