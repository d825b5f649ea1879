//! Programs that read blocks of one file at the target by themselves, several at once.

use super::direct::{ask, blocks, bytes_of, direct, home, lease, make, open, program};
use super::forger::attach;
use super::machine::{Machine, Way};
use super::{WAYS, data, host, volume};
use siftfs_base::{BLOCK_SIZE, Error, Rng};
use siftfs_device_target::Queue;
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn user(v: &LocalVolume) -> Arc<dyn FileService> {
    v.session(Opening::user(0, 0, Rights::all())).unwrap()
}

fn to_read(session: &Arc<dyn FileService>, name: &str) -> Handle {
    let found = ask(session, Request::Lookup { parent: ROOT_INO, name: name.into() });
    let ino = found.unwrap().attr().unwrap().ino;
    let opened = ask(session, Request::open(ino, Access::Read)).unwrap().opened().unwrap();
    // The handle alone refers to it.
    ask(session, Request::Forget { ino, count: 1 }).unwrap();
    opened
}

fn read_direct(session: &Arc<dyn FileService>, handle: Handle) -> Result<Direct, i32> {
    let asked = Request::ReadDirect { file: handle.into() };
    ask(session, asked).map(|reply| reply.direct().unwrap())
}

/// As [`read_direct`], once the file is not left quiet any more.
fn granted(session: &Arc<dyn FileService>, handle: Handle) -> Direct {
    let begun = Instant::now();
    loop {
        match read_direct(session, handle) {
            Ok(direct) => return direct,
            Err(error) => assert_eq!(error, libc::EAGAIN),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is granted");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A program that reads.
struct Reading {
    session: Arc<dyn FileService>,
    handle: Handle,
    direct: Direct,
    attached: Queue,
}

fn reading(machine: &Machine, v: &LocalVolume, name: &str) -> Reading {
    let session = user(v);
    let handle = to_read(&session, name);
    let direct = granted(&session, handle);
    let attached = attach(machine, direct.token).unwrap();
    Reading { session, handle, direct, attached }
}

impl Reading {
    fn read(&self, offset: u64, len: usize) -> siftfs_base::Result<Vec<u8>> {
        let mut found = vec![0; len];
        self.attached.read_at(home(&self.direct, offset), &mut found)?;
        Ok(found)
    }
}

/// Several read the same blocks, on every transport, until somebody changes the file: then none
/// does any more, and what was written is read by all.
#[test]
fn several_read_until_one_writes() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(32 << 20), way, dir.path());
        let v = host(&machine).unwrap();
        let (other, mut rng) = (user(&v), Rng::new(3));
        let model = data(&mut rng, 100 * BLOCK_SIZE + 1000);
        let (_, writing) = make(&other, "f", &model);
        let all: Vec<_> = (0..3).map(|_| reading(&machine, &v, "f")).collect();
        for _ in 0..40 {
            let reader = &all[rng.below(3) as usize];
            assert_eq!(blocks(&reader.direct), (0..100).collect::<Vec<_>>(), "all whole blocks");
            let len = [1, 100, 4096, 5000, 300_000][rng.below(5) as usize];
            let at = rng.below(100 * BLOCK - len as u64) as usize;
            assert!(reader.read(at as u64, len).unwrap() == model[at..at + len], "{way:?}");
            // What only looks at the file takes nothing back: attributes, bytes, and an fsync.
            let file = writing.into();
            match rng.below(3) {
                0 => drop(ask(&other, Request::GetAttr { file }).unwrap()),
                1 => assert!(bytes_of(&other, file, at as u64, 1) == model[at..=at]),
                _ => drop(ask(&other, Request::Fsync { file, datasync: false }).unwrap()),
            }
        }
        ask(&other, Request::write(writing, 5 * BLOCK + 7, vec![0xee; 9])).unwrap();
        for reader in &all {
            let late = reader.read(0, 4096);
            assert!(late.is_err(), "{way:?}: {late:?}");
            let found = bytes_of(&reader.session, reader.handle.into(), 5 * BLOCK, 20);
            assert_eq!(found[7..16], [0xee; 9]);
            assert_eq!(read_direct(&reader.session, reader.handle).unwrap_err(), libc::EAGAIN);
        }
        let again = reading(&machine, &v, "f");
        assert_eq!(again.read(5 * BLOCK + 7, 9).unwrap(), [0xee; 9]);
        v.close().unwrap();
    }
}

/// A program whose grant is to read can neither write nor have the target flush, for which others
/// would wait.
#[test]
fn a_reader_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    make(&user(&v), "f", &[1; 8 * BLOCK_SIZE]);
    let reader = reading(&machine, &v, "f");
    let before = machine.disk.contents();
    for durable in [false, true] {
        let at = home(&reader.direct, 0);
        let written = reader.attached.write_at(at, &[2; 4096], durable);
        assert!(matches!(written, Err(Error::Refused(_))), "{written:?}");
    }
    let flushed = reader.attached.flush();
    assert!(matches!(flushed, Err(Error::Refused(_))), "{flushed:?}");
    assert_eq!(reader.read(0, 4096).unwrap(), [1; 4096]);
    assert!(machine.disk.contents() == before);
    let home = Queue::read_at(&reader.attached, 0, &mut [0; 4096]);
    assert!(matches!(home, Err(Error::Refused(_))), "the superblock: {home:?}");
    v.close().unwrap();
}

#[test]
fn who_gets_nothing_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let session = &program.session;
    let (attr, both) = make(session, "f", &[1; 2 * BLOCK_SIZE]);
    let writing = ask(session, Request::open(attr.ino, Access::Write)).unwrap().opened().unwrap();
    assert_eq!(read_direct(session, writing).unwrap_err(), libc::EBADF);
    assert_eq!(read_direct(&user(&v), both).unwrap_err(), libc::EBADF, "another's handle");
    let by_number = Request::ReadDirect { file: Target::Inode(attr.ino) };
    let refused = v.endpoint().call(&Credentials::default(), by_number).unwrap_err();
    assert_eq!(refused.errno(), libc::EINVAL);
    // Its own lease: what it writes under that nobody else reads.
    let held = lease(session, both).unwrap();
    assert_eq!(read_direct(session, both).unwrap_err(), libc::EAGAIN);
    ask(session, Request::LeaseReturn { lease: held }).unwrap();
    let file = both.into();
    let section = ask(session, Request::SectionStart { file }).unwrap().section().unwrap();
    assert_eq!(read_direct(session, both).unwrap_err(), libc::EAGAIN);
    ask(session, Request::SectionAbort { section }).unwrap();
    granted(session, both);
    v.close().unwrap();
}

/// Nobody's lease is granted while somebody reads at the target, nor the other way round.
#[test]
fn a_lease_takes_back_what_is_read_and_is_recalled_by_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let (_, handle) = make(&program.session, "f", &[1; 8 * BLOCK_SIZE]);
    let reader = reading(&machine, &v, "f");
    let held = lease(&program.session, handle).unwrap();
    assert!(reader.read(0, 1).is_err(), "the lease's holder may write now");
    let alone = direct(&program.session, held, handle).unwrap();
    let attached = attach(&machine, alone.token).unwrap();
    attached.write_at(home(&alone, 0), &[2; 4096], false).unwrap();
    let session = program.session.clone();
    let returning = thread::spawn(move || {
        let recalled = program.told.recv_timeout(Duration::from_secs(20)).unwrap();
        ask(&session, Request::LeaseReturn { lease: recalled }).unwrap();
    });
    let direct = granted(&reader.session, reader.handle);
    returning.join().unwrap();
    assert!(attached.write_at(home(&alone, 0), &[3; 4096], false).is_err());
    let again = attach(&machine, direct.token).unwrap();
    let mut found = vec![0; 4096];
    again.read_at(home(&direct, 0), &mut found).unwrap();
    assert_eq!(found, [2; 4096]);
    v.close().unwrap();
}

/// A grant ends with its handle, its session and its host, and with the next one of its handle.
#[test]
fn how_a_readers_grant_ends() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    make(&user(&v), "f", &[1; 8 * BLOCK_SIZE]);
    let [kept, asks, closes, ends] = [(); 4].map(|()| reading(&machine, &v, "f"));
    granted(&asks.session, asks.handle);
    ask(&closes.session, Request::Release { handle: closes.handle }).unwrap();
    ask(&ends.session, Request::EndSession).unwrap();
    for over in [&asks, &closes, &ends] {
        assert!(over.read(0, 1).is_err());
        let again = attach(&machine, over.direct.token).map(drop);
        assert!(matches!(again, Err(Error::Posix(libc::ESTALE))), "{again:?}");
    }
    assert_eq!(kept.read(0, 1).unwrap(), [1], "and the others' stay");
    v.close().unwrap();
    // The target hears of it.
    let begun = Instant::now();
    while kept.read(0, 1).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it outlives its host");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Rules R29 and R30: what was a file's is read by nobody who had it when it is another's, whether
/// the file was cut off or removed.
#[test]
fn r29_r30_what_is_freed_is_read_by_nobody_who_had_it() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let other = user(&v);
    make(&other, "cut", &[1; 2000 * BLOCK_SIZE]);
    let (Attr { ino, .. }, handle) = make(&other, "removed", &[1; 2000 * BLOCK_SIZE]);
    ask(&other, Request::Release { handle }).unwrap();
    ask(&other, Request::Forget { ino, count: 1 }).unwrap();
    v.endpoint().call(&Credentials::default(), Request::Checkpoint).unwrap();
    let readers = ["cut", "removed"].map(|name| reading(&machine, &v, name));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reads = |reader: &Reading| {
            let mut rng = Rng::new(9);
            while !stop.load(Ordering::SeqCst) {
                match reader.read(rng.below(1990) * BLOCK, 5000) {
                    Ok(found) => assert!(found.iter().all(|byte| *byte == 1), "another's bytes"),
                    Err(_) => return,
                }
            }
        };
        let reading: Vec<_> = readers.iter().map(|r| scope.spawn(move || reads(r))).collect();
        thread::sleep(Duration::from_millis(50));
        let handle = open(&other, "cut");
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        ask(&other, Request::SetAttr { file: handle.into(), set, times: true }).unwrap();
        let unlink = Request::Unlink { parent: ROOT_INO, name: "removed".into() };
        ask(&other, unlink).unwrap();
        let Reading { session, handle, .. } = &readers[1];
        ask(session, Request::Release { handle: *handle }).unwrap();
        v.checkpoint().unwrap();
        let (_, handle) = make(&other, "new", &vec![0x11; 4500 * BLOCK_SIZE]);
        ask(&other, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
        v.checkpoint().unwrap();
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::SeqCst);
        reading.into_iter().for_each(|thread| thread.join().unwrap());
    });
    v.close().unwrap();
}

/// Many readers that ask again at once, and two that write: a read shows what was answered before
/// it began, or what was written meanwhile; nobody waits for ever; and some reads are direct.
#[test]
fn readers_beside_writers() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let other = user(&v);
    let (_, writing) = make(&other, "f", &[0; 8 * BLOCK_SIZE]);
    let (answered, begun, stop) = (AtomicU8::new(0), AtomicU8::new(0), AtomicBool::new(false));
    let by_target = AtomicU64::new(0);
    let reads = |at: u64| {
        let session = user(&v);
        let handle = to_read(&session, "f");
        let mut way: Option<(Direct, Queue)> = None;
        let mut rng = Rng::new(at);
        while !stop.load(Ordering::SeqCst) {
            let least = answered.load(Ordering::SeqCst);
            let block = rng.below(8);
            let mut found = vec![0; 1];
            let by_way = way.as_ref().is_some_and(|(direct, attached)| {
                blocks(direct).contains(&block)
                    && attached.read_at(home(direct, block * BLOCK), &mut found).is_ok()
            });
            if by_way {
                by_target.fetch_add(1, Ordering::Relaxed);
            } else {
                found = bytes_of(&session, handle.into(), block * BLOCK, 1);
            }
            let most = begun.load(Ordering::SeqCst);
            assert!((least..=most).contains(&found[0]), "{} of {least} to {most}", found[0]);
            if !by_way {
                let granted = read_direct(&session, handle).ok();
                let attach = |direct: Direct| {
                    let attached = attach(&machine, direct.token).ok()?;
                    Some((direct, attached))
                };
                way = granted.and_then(attach);
            }
        }
    };
    thread::scope(|scope| {
        (0..4).for_each(|at| drop(scope.spawn(move || reads(at))));
        for round in 1..=30u8 {
            begun.store(round, Ordering::SeqCst);
            let began = Instant::now();
            let bytes = vec![round; 8 * BLOCK_SIZE];
            ask(&other, Request::write(writing, 0, bytes)).unwrap();
            assert!(began.elapsed() < Duration::from_secs(5), "a writer waits for readers");
            answered.store(round, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(if round % 5 == 0 { 300 } else { 10 }));
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(by_target.load(Ordering::Relaxed) > 100, "{by_target:?} reads at the target");
    v.close().unwrap();
}
