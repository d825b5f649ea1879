//! Grants that grow while they last: what is added is reached by the queue that there is.

use super::appends::{Appender, all, e2fsck, everything_dies, free, soiled};
use super::direct::{ask, bytes_of, put, user};
use super::machine::{Machine, Way};
use super::{WAYS, data, host, volume};
use siftfs_base::{BLOCK_SIZE, Rng};
use siftfs_proto::*;
use std::thread;
use std::time::Duration;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Asks for blocks from this one on, and for room up to this byte. How many were added.
fn extend(own: &mut Appender, (first, end): (u64, u64)) -> Result<u64, i32> {
    let (lease, file) = (own.lease, own.handle.into());
    let asked = Request::LeaseExtend { lease, file, first, end };
    let runs = ask(&own.program.session, asked)?.extended().unwrap();
    let added = runs.iter().map(|run| run.count).sum();
    own.granted.runs.extend(runs);
    Ok(added)
}

/// Rule R30: a stream of appends goes on in room that is set aside while the last is in use; what
/// was written before an fsync is the file's, over a power cut, in whatever room it lies.
#[test]
fn a_stream_goes_on_in_one_grant() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(soiled(48 << 20), way, dir.path());
        let v = host(&machine).unwrap();
        let (mut rng, mut model) = (Rng::new(5), vec![1; 3 * BLOCK_SIZE + 10]);
        let mut own = Appender::new(&machine, &v, &model, 4 * BLOCK);
        assert_eq!(own.fresh(), (4..8).collect::<Vec<_>>(), "{way:?}");
        own.write(4 * BLOCK, &[2; 1000]);
        model.resize(4 * BLOCK_SIZE, 0);
        model.extend([2; 1000]);
        for round in 1..6 {
            let end = (8 + 4 * round) * BLOCK;
            assert_eq!(extend(&mut own, (end / BLOCK - 4, end)), Ok(4), "{way:?}");
            assert_eq!(extend(&mut own, (end / BLOCK - 4, end)), Ok(0), "{way:?}: a block once");
            assert_eq!(own.read(end - BLOCK, BLOCK_SIZE), [0; BLOCK_SIZE], "{way:?}");
            let len = end as usize - model.len() - rng.below(5000) as usize;
            let more = data(&mut rng, len);
            own.write(model.len() as u64, &more);
            model.extend(&more);
            if round == 3 {
                own.fsync(true).unwrap();
            }
        }
        own.fsync(false).unwrap();
        own.write(model.len() as u64, &[3; 100]);
        let (v, machine) = everything_dies(v, machine, 7);
        assert!(all(&v, "f") == model, "{way:?}: what was synced, and no more");
        v.close().unwrap();
        e2fsck(&machine);
    }
}

/// What the file has got by the host since the grant is added when it is home, from the place on
/// where it is asked for; what was granted is not taken back for that.
#[test]
fn what_the_file_has_got_since_is_added() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let mut model = vec![1; 4 * BLOCK_SIZE];
    let mut own = Appender::new(&machine, &v, &model, 0);
    own.write(BLOCK, &[2; BLOCK_SIZE]);
    model[BLOCK_SIZE..][..BLOCK_SIZE].fill(2);
    let beside = [3; 8 * BLOCK_SIZE + 5];
    put(&own.program.session, own.lease, (4 * BLOCK, &beside)).unwrap();
    model.extend(beside);
    // What is pending is brought home ten times a second at most.
    thread::sleep(Duration::from_millis(120));
    assert_eq!(extend(&mut own, (8, 0)), Ok(4), "from the eighth block on, whole ones");
    own.write(10 * BLOCK + 9, b"direct");
    model[10 * BLOCK_SIZE + 9..][..6].copy_from_slice(b"direct");
    assert_eq!(own.read(BLOCK, BLOCK_SIZE), [2; BLOCK_SIZE]);
    assert_eq!(own.read(10 * BLOCK, BLOCK_SIZE), model[10 * BLOCK_SIZE..][..BLOCK_SIZE]);
    // A granted block that the host is asked for takes all of it back.
    let file = own.handle.into();
    let seen = bytes_of(&own.program.session, file, 10 * BLOCK, BLOCK_SIZE as u32);
    assert_eq!(seen, model[10 * BLOCK_SIZE..][..BLOCK_SIZE]);
    assert_eq!(extend(&mut own, (0, 0)), Err(libc::ESTALE), "nothing is granted any more");
    own.give_back();
    assert!(all(&v, "f") == model);
    v.close().unwrap();
    e2fsck(&machine);
}

/// Others that want the file while its grant grows get it, as it is then, and soon.
#[test]
fn others_get_a_file_whose_grant_grows() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(soiled(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let before = free(&v);
    let mut own = Appender::new(&machine, &v, &[1; BLOCK_SIZE], 0);
    let session = own.program.session.clone();
    thread::scope(|scope| {
        let grows = scope.spawn(|| {
            let mut written = BLOCK;
            loop {
                match extend(&mut own, (written / BLOCK, written + BLOCK)) {
                    Ok(1) => own.write(written, &[1; BLOCK_SIZE]),
                    Ok(added) => panic!("{added} blocks of room for one"),
                    Err(error) => return (own, written, error),
                }
                written += BLOCK;
                let recalled = own.program.told.try_recv();
                recalled.into_iter().for_each(|lease| {
                    ask(&session, Request::LeaseReturn { lease }).unwrap();
                });
            }
        });
        thread::sleep(Duration::from_millis(300));
        let found = all(&v, "f");
        assert!(found.iter().all(|byte| *byte == 1), "zeros, or another file's bytes");
        let (_own, written, error) = grows.join().unwrap();
        assert_eq!((error, written), (libc::ESTALE, found.len() as u64));
        assert!(written > 2 * BLOCK);
        let used = before - free(&v);
        assert!((written / BLOCK..written / BLOCK + 3).contains(&used), "{used} blocks are used");
    });
    v.close().unwrap();
    e2fsck(&machine);
}

/// A target that has died knows nothing of the grant: nothing is added, and what was not durable is
/// told as lost, once.
#[test]
fn a_grant_that_has_died_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let mut own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], 4 * BLOCK);
    own.write(2 * BLOCK, &[2; BLOCK_SIZE]);
    let machine = machine.power_fails(Way::SharedMemory, 3);
    assert_eq!(extend(&mut own, (6, 8 * BLOCK)), Err(libc::ESTALE));
    assert_eq!(own.fsync(true), Err(libc::EIO));
    assert_eq!(own.fsync(true), Ok(()));
    assert_eq!(extend(&mut own, (6, 8 * BLOCK)), Err(libc::ESTALE));
    own.give_back();
    assert!(all(&v, "f") == [1; 2 * BLOCK_SIZE]);
    v.close().unwrap();
    e2fsck(&machine);
}

/// Only the holder of the lease may ask, by a handle that reads and writes, and within the file.
#[test]
fn who_may_not_have_a_grant_does_not_extend_it() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let mut own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], 0);
    let other = user(&v);
    let asked =
        Request::LeaseExtend { lease: own.lease, file: own.handle.into(), first: 0, end: 0 };
    assert_eq!(ask(&other, asked), Err(libc::ESTALE));
    for far in [u64::MAX, u64::MAX / BLOCK, 1 << 44] {
        assert_eq!(extend(&mut own, (far, 0)), Ok(0), "{far}");
    }
    let most = ROOM_MOST / BLOCK;
    let added = extend(&mut own, (0, u64::MAX)).unwrap();
    assert!((1..=most).contains(&added), "{added} blocks of room");
    let right = own.lease;
    own.lease = LeaseId(right.0 + 1);
    assert_eq!(extend(&mut own, (0, 0)), Err(libc::ESTALE));
    own.lease = right;
    own.give_back();
    assert_eq!(extend(&mut own, (0, 0)), Err(libc::ESTALE));
    v.close().unwrap();
    e2fsck(&machine);
}
