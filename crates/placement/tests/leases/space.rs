//! Space that a session which lends sets aside: what it has answered finds room, however full the
//! volume is by then, with pools of blocks and without.

use crate::holders::*;
use crate::support::World;
use siftfs_base::Rng;
use siftfs_placement::{LocalVolume, OpenOptions, Pools};
use siftfs_proto::*;
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// Each of these is a test without pools of blocks, and one with a pool for each session.
macro_rules! tests {
    ($($name:ident),*) => {
        mod without_pools {
            $(#[test] fn $name() { super::$name(super::Pools::None) })*
        }
        mod with_pools {
            $(#[test] fn $name() { super::$name(super::Pools::PerSession) })*
        }
    };
}

tests!(
    a_full_ring_is_taken_in_on_a_full_volume,
    trees_find_room_too,
    each_has_its_own,
    what_is_set_aside_comes_back,
    a_small_volume_has_no_space_for_it,
    what_was_answered_finds_room
);

fn opened(world: &World, pools: Pools) -> LocalVolume {
    world.open_with(&OpenOptions { pools, ..OpenOptions::default() })
}

const BLOCK: u64 = 4096;
/// A file that is all hole.
const SPARSE: u64 = 64 << 20;

fn statfs(session: &Session) -> StatFs {
    ask(session, Request::StatFs).unwrap().space().unwrap()
}

/// An empty file of this size, by its number.
fn sparse(session: &Session, name: &str, size: u64) -> u32 {
    let handle = create(session, name);
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    ask(session, Request::SetAttr { file: handle.into(), set, times: true }).expect("truncate");
    ask(session, Request::Release { handle }).expect("close");
    look_up(session, name).ino
}

/// Writes on until not a block is left.
fn fill(session: &Session, handle: Handle) {
    let mut at = 0;
    for len in [1 << 20, BLOCK] {
        while ask(session, Request::write(handle, at, vec![7; len as usize])).is_ok() {
            at += len;
        }
    }
}

/// A file that takes all there is, if there is space for its name.
fn hog(session: &Session, name: &str) -> Option<(u32, Handle)> {
    let create = Request::Create { parent: ROOT, name: name.into(), perm: 0o644 };
    let (attr, handle) = ask(session, create).ok()?.created().expect("a file");
    fill(session, handle);
    Some((attr.ino, handle))
}

/// It goes, and its space is free.
fn remove(v: &LocalVolume, session: &Session, name: &str, (ino, handle): (u32, Handle)) {
    unlink(session, name).expect("unlink");
    ask(session, Request::Release { handle }).expect("close");
    ask(session, Request::Forget { ino, count: 1 }).expect("forget");
    v.commit(true).expect("commit");
    v.checkpoint().expect("checkpoint");
}

/// A session that lends, with leases of these files.
fn lends(v: &LocalVolume, files: &[u32]) -> (Session, Receiver<LeaseId>, Vec<LeaseId>) {
    let (session, told, _) = lender(v);
    let held = files.iter().map(|ino| take(&session, *ino).expect("a lease")).collect();
    (session, told, held)
}

fn take(session: &Session, ino: u32) -> Result<LeaseId, i32> {
    let handle = ask(session, opening(ino))?.opened().expect("a handle");
    let held = lease_beside(session, handle, 0);
    ask(session, Request::Release { handle })?;
    held
}

/// One write that was answered before. Was it the last one for which there is room?
fn give(session: &Session, lease: LeaseId, offset: u64, data: &[u8]) -> Result<bool, i32> {
    let data = WriteData::copy_of(offset, data);
    match ask(session, Request::LeaseWrite { lease, offset, data, time: None, durable: false })? {
        Reply::Written { .. } => Ok(false),
        Reply::WrittenLast { .. } => Ok(true),
        other => panic!("{other:?}"),
    }
}

/// Two bytes in two blocks that nobody has written, the `nr`th such place.
fn across(nr: u64) -> u64 {
    (2 * nr + 1) * BLOCK - 1
}

/// The worst that a ring may hold, and the write before it, after others have taken all there is:
/// every write costs two blocks, and a long one the most that it may.
fn a_full_ring_is_taken_in_on_a_full_volume(pools: Pools) {
    let world = roomy(2);
    let v = opened(&world, pools);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (f, g) = (sparse(&kernel, "f", SPARSE), sparse(&kernel, "g", SPARSE));
    let (session, told, held) = lends(&v, &[f, g]);
    let big = hog(&kernel, "big").expect("a file");
    let full = |what: &str| {
        let write = Request::write(big.1, 1 << 40, vec![7; 4096]);
        assert_eq!(ask(&kernel, write).map(drop), Err(libc::ENOSPC), "{what}");
    };
    full("the volume");
    assert_eq!(statfs(&kernel).available, 0);
    let long = vec![9; LENT_WRITE_BYTES as usize];
    assert_eq!(give(&session, held[0], 1, &long), Ok(true), "what was set aside is used");
    let mut recalled: Vec<LeaseId> = told.try_iter().collect();
    recalled.sort_by_key(|lease| held.iter().position(|one| one == lease));
    assert_eq!(recalled, held, "all leases are to end");
    let waiting = LENT_WRITES - 4;
    for nr in 0..waiting {
        assert_eq!(give(&session, held[1], across(nr), b"xy"), Ok(true), "write {nr}");
        if nr % 200 == 0 {
            full("what is set aside is nobody else's");
        }
    }
    let piece = (LENT_BYTES - 2 * waiting) / 4;
    for nr in 0..4 {
        let at = (2 << 20) * (nr + 1) + 1;
        assert_eq!(give(&session, held[0], at, &long[..piece as usize]), Ok(true), "long {nr}");
    }
    assert!(told.try_recv().is_err(), "they were told once");
    held.iter().for_each(|lease| give_back(&session, *lease).expect("given back"));
    // Nobody gets a lease while there is no space.
    assert_eq!(take(&session, f), Err(libc::ENOSPC));
    v.commit(true).expect("all of it finds its place");
    v.checkpoint().expect("checkpoint");
    assert_eq!(take(&session, f), Err(libc::ENOSPC));
    remove(&v, &kernel, "big", big);
    give_back(&session, take(&session, f).expect("there is space again")).expect("given back");
    let read = |ino: u32, offset, len| {
        let read = Request::Read { file: ino.into(), offset, len };
        ask(&kernel, read).expect("read").data().expect("bytes")
    };
    assert!((0..waiting).all(|nr| read(g, across(nr), 2) == b"xy"));
    assert_eq!(read(f, 1, LENT_WRITE_BYTES as u32), long);
    drop((kernel, session));
    v.close().expect("close");
    world.e2fsck();
}

/// Each write is in a file of its own whose tree grows for it.
fn trees_find_room_too(pools: Pools) {
    const FILES: u64 = 300;
    let world = roomy(1);
    let v = opened(&world, pools);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let mut files = Vec::new();
    for nr in 0..FILES {
        let ino = sparse(&kernel, &format!("f{nr}"), 64 * BLOCK);
        let handle = ask(&kernel, opening(ino)).expect("open").opened().expect("a handle");
        for place in 0..4 {
            let write = Request::write(handle, place * 4 * BLOCK, vec![3; 4096]);
            ask(&kernel, write).expect("written");
        }
        ask(&kernel, Request::Release { handle }).expect("close");
        files.push(ino);
    }
    v.commit(true).expect("commit");
    v.checkpoint().expect("checkpoint");
    let (session, _told, held) = lends(&v, &files);
    let (_, big) = hog(&kernel, "big").expect("a file");
    v.commit(true).expect("commit");
    v.checkpoint().expect("checkpoint");
    fill(&kernel, big);
    for lease in &held {
        assert_eq!(give(&session, *lease, 40 * BLOCK - 1, b"xy"), Ok(true));
    }
    v.commit(true).expect("all of it finds its place");
    drop((kernel, session));
    v.close().expect("close");
    world.e2fsck();
}

/// What one session uses is not what another one has set aside, and both are whole again together.
fn each_has_its_own(pools: Pools) {
    let world = roomy(1);
    let v = opened(&world, pools);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let files: Vec<u32> = (0..3).map(|nr| sparse(&kernel, &format!("f{nr}"), SPARSE)).collect();
    let (one, _told, of_one) = lends(&v, &files[..1]);
    let (two, told, of_two) = lends(&v, &files[1..2]);
    let big = hog(&kernel, "big").expect("a file");
    for nr in 0..=LENT_WRITES {
        assert_eq!(give(&one, of_one[0], across(nr), b"xy"), Ok(true), "write {nr}");
    }
    assert_eq!(take(&one, files[2]), Err(libc::ENOSPC));
    assert!(told.try_recv().is_err(), "the other one's is whole");
    let third = take(&two, files[2]).expect("a lease");
    give_back(&two, third).expect("given back");
    for nr in 0..=LENT_WRITES {
        assert_eq!(give(&two, of_two[0], across(nr), b"xy"), Ok(true), "write {nr}");
    }
    assert_eq!(take(&two, files[2]), Err(libc::ENOSPC));
    let (late, ..) = lender(&v);
    assert_eq!(take(&late, files[2]), Err(libc::ENOSPC));
    remove(&v, &kernel, "big", big);
    for session in [&one, &two, &late] {
        give_back(session, take(session, files[2]).expect("a lease")).expect("given back");
    }
}

/// It is there while the session has a lease, however that ends, and no longer.
fn what_is_set_aside_comes_back(pools: Pools) {
    let world = roomy(1);
    let v = opened(&world, pools);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let files = ["f", "g"].map(|name| sparse(&kernel, name, SPARSE));
    v.commit(true).expect("commit");
    let space = || statfs(&kernel);
    let before = space();
    let (session, _told, held) = lends(&v, &files);
    let during = space();
    assert!(during.available + 4 * LENT_WRITES < before.available, "{during:?}");
    assert_eq!(StatFs { available: before.available, ..during }, before, "nothing is used");
    give_back(&session, held[0]).expect("given back");
    assert_eq!(space(), during);
    give_back(&session, held[1]).expect("given back");
    assert_eq!(space(), before, "with the last lease");
    take(&session, files[0]).expect("a lease");
    assert_eq!(space(), during);
    end(&session);
    assert_eq!(space(), before, "with the session");
    let (session, ..) = lends(&v, &files);
    assert_eq!(space(), during);
    world.clock.advance(3_000_000_000);
    v.tick().expect("tick");
    assert_eq!(space(), during, "not with the term");
    end(&session);
    assert_eq!(space(), before);
    let (session, ..) = lender(&v);
    // One that is not granted.
    let handle = ask(&session, opening(files[0])).expect("open").opened().expect("a handle");
    assert_eq!(lease_beside(&session, handle, 5), Err(libc::EAGAIN));
    let writes = ask(&kernel, opening(files[0])).expect("open").opened().expect("a handle");
    assert_eq!(lease_beside(&session, handle, 0), Err(libc::EAGAIN));
    assert_eq!(space(), before, "without a lease");
    ask(&kernel, Request::Release { handle: writes }).expect("close");
    // A session that is a front end of its own answers nothing before it has written it.
    let (holder, _) = holder(&v);
    lease(&holder, open(&holder, "g")).expect("a lease");
    assert_eq!(space(), before);
}

fn a_small_volume_has_no_space_for_it(pools: Pools) {
    let world = World::new(1);
    let v = opened(&world, pools);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let ino = sparse(&kernel, "f", SPARSE);
    let before = statfs(&kernel);
    let (session, ..) = lender(&v);
    assert_eq!(take(&session, ino), Err(libc::ENOSPC));
    assert_eq!(statfs(&kernel), before);
}

/// A session that writes into a ring: what it has answered, and not given yet.
struct Ring {
    session: Session,
    told: Receiver<LeaseId>,
    ino: u32,
    lease: Option<LeaseId>,
    /// Where, and how long.
    waiting: VecDeque<(u64, u64)>,
}

impl Ring {
    /// Answers a write, if there is a lease and room in the ring.
    fn publish(&mut self, rng: &mut Rng) {
        let len = [2, 2, 4096, 9000, 1 << 20][rng.below(5) as usize];
        let bytes: u64 = self.waiting.iter().map(|(_, len)| len).sum();
        let room = (self.waiting.len() as u64) < LENT_WRITES && bytes + len <= LENT_BYTES;
        if self.lease.is_some() && room {
            self.waiting.push_back((rng.below(SPARSE - len), len));
        }
    }

    /// Takes that many in. All must find room; after the last one the lease ends.
    fn take_in(&mut self, many: u64) {
        let Some(lease) = self.lease else { return };
        for _ in 0..many {
            let Some((at, len)) = self.waiting.pop_front() else { break };
            match give(&self.session, lease, at, &vec![5; len as usize]) {
                Ok(false) => {}
                Ok(true) => return self.end(),
                Err(e) => panic!("errno {e}: {} more wait", self.waiting.len()),
            }
        }
    }

    /// Takes in all that waits, and gives the lease back.
    fn end(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        while let Some((at, len)) = self.waiting.pop_front() {
            give(&self.session, lease, at, &vec![5; len as usize]).expect("there is room");
        }
        give_back(&self.session, lease).expect("given back");
        self.told.try_iter().for_each(drop);
    }
}

/// Sessions that lend beside one that fills the volume and removes files again, in any order: what
/// was answered always finds room.
fn what_was_answered_finds_room(pools: Pools) {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let world = roomy(1);
        let v = opened(&world, pools);
        let kernel = v.session(Opening::kernel()).expect("a session");
        let mut rings: Vec<Ring> = (0..3)
            .map(|nr| {
                let ino = sparse(&kernel, &format!("f{nr}"), SPARSE);
                let (session, told, _) = lender(&v);
                Ring { session, told, ino, lease: None, waiting: VecDeque::new() }
            })
            .collect();
        let mut hogs = Vec::new();
        let (mut refused, mut granted, mut used) = (0, 0, 0);
        for turn in 0..600 {
            let (which, mut seconds) = (rng.below(3) as usize, 1);
            let ring = &mut rings[which];
            match rng.below(12) {
                0 | 1 if ring.lease.is_none() => match take(&ring.session, ring.ino) {
                    Ok(lease) => {
                        ring.lease = Some(lease);
                        granted += 1;
                    }
                    Err(libc::ENOSPC) => refused += 1,
                    // Recalled often.
                    Err(libc::EAGAIN) => seconds = 10,
                    Err(other) => panic!("errno {other}"),
                },
                0..4 => (0..40).for_each(|_| ring.publish(&mut rng)),
                4..6 => {
                    let had = ring.lease.is_some();
                    ring.take_in(1 + rng.below(60));
                    used += u64::from(had && ring.lease.is_none());
                }
                6 => ring.end(),
                7 | 8 => {
                    let name = format!("b{turn}");
                    hogs.extend(hog(&kernel, &name).map(|file| (name, file)));
                }
                9 => match hogs.pop() {
                    Some((name, file)) => remove(&v, &kernel, &name, file),
                    None if ring.lease.is_none() => {
                        let set = SetAttr { size: Some(0), ..SetAttr::default() };
                        let file = ring.ino.into();
                        ask(&kernel, Request::SetAttr { file, set, times: true }).expect("empty");
                    }
                    None => {}
                },
                10 => v.commit(true).expect("commit"),
                _ => v.checkpoint().expect("checkpoint"),
            }
            // The grantor's own thread uses each lease within its term.
            for _ in 0..seconds {
                world.clock.advance(1_000_000_000);
                for ring in &rings {
                    if let Some(lease) = ring.lease {
                        keep(&ring.session, lease).expect("it lasts");
                    }
                }
            }
        }
        assert!(refused > 0 && granted > 0 && used > 0, "{seed}: {refused} {granted} {used}");
        rings.iter_mut().for_each(Ring::end);
        drop((rings, kernel));
        v.close().expect("close");
        world.e2fsck();
    }
}
