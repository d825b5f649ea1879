//! Pools of free blocks: where the files of sessions that lend get their blocks from, and what
//! everybody else sees of that, which is nothing.

use crate::holders::*;
use crate::support::World;
use siftfs_base::Rng;
use siftfs_placement::{LocalVolume, OpenOptions, Pools};
use siftfs_proto::*;
use siftfs_status::Allocation;
use std::process::Command;
use std::sync::mpsc::Receiver;

const BLOCK: u64 = 4096;
const ALL: [Pools; 3] = [Pools::None, Pools::Shared, Pools::PerSession];

/// A session that lends, with the lease of one file.
struct Lender {
    session: Session,
    _told: Receiver<LeaseId>,
    handle: Handle,
    lease: LeaseId,
}

impl Lender {
    fn of(v: &LocalVolume, ino: u32) -> Self {
        let (session, told, _) = lender(v);
        let handle = ask(&session, opening(ino)).expect("open").opened().expect("a handle");
        let lease = lease_beside(&session, handle, 0).expect("a lease");
        Self { session, _told: told, handle, lease }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        put(&self.session, self.lease, offset, data).map(drop)
    }

    fn fsync(&self) {
        let fsync = Request::Fsync { file: self.handle.into(), datasync: false };
        ask(&self.session, fsync).expect("fsync");
    }
}

fn opened(world: &World, pools: Pools) -> (LocalVolume, Session) {
    let v = world.open_with(&OpenOptions { pools, ..OpenOptions::default() });
    let kernel = v.session(Opening::kernel()).expect("a session");
    (v, kernel)
}

/// A new file that nobody has open.
fn file(kernel: &Session, name: &str) -> u32 {
    let handle = create(kernel, name);
    ask(kernel, Request::Release { handle }).expect("close");
    look_up(kernel, name).ino
}

fn allocation(kernel: &Session) -> Allocation {
    match ask(kernel, Request::Status) {
        Ok(Reply::Status(status)) => status.allocation,
        other => panic!("{other:?}"),
    }
}

fn statfs(session: &Session) -> StatFs {
    ask(session, Request::StatFs).unwrap().space().unwrap()
}

/// Extents of files, in order, on a volume that is closed.
fn extents(world: &World, names: &[&str]) -> Vec<usize> {
    let file = tempfile::NamedTempFile::new().expect("temp file");
    world.dev.snapshot().save(file.path()).expect("save");
    let of = |name: &&str| {
        let ask = format!("dump_extents -l /{name}");
        let out = Command::new("debugfs").args(["-R", &ask]).arg(file.path()).output();
        let out = String::from_utf8(out.expect("debugfs runs").stdout).expect("text");
        out.lines()
            .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
            .count()
    };
    names.iter().map(of).collect()
}

/// Two sessions append turn by turn, and each turn is cut. With a pool for each the files are in
/// one piece; without pools each turn is an extent, and a list that both share changes nothing.
#[test]
fn files_of_two_sessions_do_not_interleave() {
    const TURNS: usize = 20;
    for pools in ALL {
        let world = roomy(1);
        let (v, kernel) = opened(&world, pools);
        let lenders = ["f", "g"].map(|name| Lender::of(&v, file(&kernel, name)));
        for turn in 0..TURNS as u64 {
            for lender in &lenders {
                lender.write(turn * 3 * BLOCK, &[7; 3 * BLOCK as usize]).expect("written");
            }
            v.commit(true).expect("commit");
        }
        let told = allocation(&kernel);
        drop((lenders, kernel));
        v.close().expect("close");
        world.e2fsck();
        let found = extents(&world, &["f", "g"]);
        match pools {
            Pools::None => assert_eq!((told.pooled_runs, told.pools), (0, 0)),
            Pools::Shared => assert_eq!((told.pooled_runs, told.pools), (2 * TURNS as u64, 1)),
            Pools::PerSession => assert_eq!((told.pooled_runs, told.pools), (2 * TURNS as u64, 2)),
        }
        match pools {
            Pools::PerSession => assert_eq!(found, [1, 1]),
            _ => assert!(found.iter().all(|extents| *extents >= TURNS - 1), "{found:?}"),
        }
    }
}

/// What comes through a mount has no pool, and no session's file has one whose session has ended.
#[test]
fn a_pool_ends_with_its_session() {
    let world = roomy(1);
    let (v, kernel) = opened(&world, Pools::PerSession);
    let handle = create(&kernel, "plain");
    ask(&kernel, Request::write(handle, 0, vec![7; 9000])).expect("written");
    v.commit(true).expect("commit");
    assert_eq!(allocation(&kernel).pools, 0, "of a session that does not lend");
    let [one, two] = ["f", "g"].map(|name| Lender::of(&v, file(&kernel, name)));
    for lender in [&one, &two] {
        lender.write(0, &[7; 9000]).expect("written");
    }
    v.commit(true).expect("commit");
    let told = allocation(&kernel);
    assert_eq!((told.pools, told.pooled_runs), (2, 2));
    assert!(told.pooled_blocks > 0);
    // Its data waits for the cut when its session ends.
    one.write(3 * BLOCK, &[8; 9000]).expect("written");
    end(&one.session);
    assert_eq!(allocation(&kernel).pools, 1);
    v.commit(true).expect("commit");
    let told = allocation(&kernel);
    assert_eq!((told.pools, told.pooled_runs), (1, 2), "it has found its place without");
    end(&two.session);
    assert_eq!((allocation(&kernel).pools, allocation(&kernel).pooled_blocks), (0, 0));
    drop((one, two, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// With pools that have all that they may have, others write to the last byte as without them, and
/// statfs(2) says the same at each step; and all of it finds its place.
#[test]
fn a_full_volume_is_as_full_as_without() {
    let fill = |pools: Pools| {
        let world = roomy(1);
        let (v, kernel) = opened(&world, pools);
        let lenders: Vec<Lender> =
            (0..3).map(|nr| Lender::of(&v, file(&kernel, &format!("f{nr}")))).collect();
        for lender in &lenders {
            lender.write(0, &[7; 9000]).expect("written");
        }
        v.commit(true).expect("commit");
        let mut seen = vec![statfs(&kernel)];
        let told = allocation(&kernel);
        let (handle, mut at) = (create(&kernel, "big"), 0);
        for len in [1 << 20, BLOCK] {
            while ask(&kernel, Request::write(handle, at, vec![7; len as usize])).is_ok() {
                at += len;
                seen.push(statfs(&kernel));
            }
        }
        v.commit(true).expect("all of it finds its place");
        seen.push(statfs(&kernel));
        // What the sessions have set aside is theirs still.
        for lender in &lenders {
            lender.write(10 * BLOCK, &[9; 1 << 20]).expect("there is space for it");
        }
        v.commit(true).expect("and a place");
        let after = allocation(&kernel);
        assert!(after.pooled_blocks <= told.pooled_blocks);
        drop((lenders, kernel));
        v.close().expect("close");
        world.e2fsck();
        (at, seen, told.pooled_blocks)
    };
    let (at, seen, none) = fill(Pools::None);
    assert_eq!(none, 0);
    for pools in [Pools::Shared, Pools::PerSession] {
        let (at_with, seen_with, pooled) = fill(pools);
        assert!(pooled > 100, "{pooled} blocks in pools");
        assert_eq!((at_with, seen_with), (at, seen.clone()), "{pools:?}");
    }
}

/// Files of sessions with pools, and what is in them.
struct Files {
    rng: Rng,
    /// Their numbers. To look a leased file up would recall its lease.
    numbers: [u32; FILES],
    content: [Vec<u8>; FILES],
    lenders: [Option<Lender>; FILES],
}

const FILES: usize = 4;

impl Files {
    fn check(&mut self, kernel: &Session, about: u64) {
        self.numbers = std::array::from_fn(|nr| look_up(kernel, &format!("f{nr}")).ino);
        for (ino, bytes) in self.numbers.iter().zip(&self.content) {
            assert!(whole(kernel, *ino) == *bytes, "{about}: inode {ino}");
        }
    }

    /// Something happens to one of them, or beside them.
    fn step(&mut self, v: &LocalVolume, kernel: &Session, beside: &str) {
        let nr = self.rng.below(FILES as u64) as usize;
        let ino = self.numbers[nr];
        let (content, lender) = (&mut self.content[nr], &mut self.lenders[nr]);
        match self.rng.below(10) {
            0 => *lender = None,
            1 if lender.is_none() => {
                let size = self.rng.below(1 + content.len() as u64);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let cut = Request::SetAttr { file: ino.into(), set, times: true };
                ask(kernel, cut).expect("truncate");
                content.truncate(size as usize);
            }
            2 | 3 => v.commit(true).expect("commit"),
            4 => v.checkpoint().map(drop).expect("checkpoint"),
            5 => {
                let handle = create(kernel, beside);
                let data = vec![1; 1 + self.rng.below(200_000) as usize];
                ask(kernel, Request::write(handle, 0, data)).expect("written");
            }
            _ => {
                let lender = lender.get_or_insert_with(|| Lender::of(v, ino));
                let (old, len) = (content.len(), 1 + self.rng.below(60_000) as usize);
                let inside = self.rng.below(1 + old as u64) as usize;
                let at = if self.rng.below(3) == 0 { inside } else { old };
                let data = vec![self.rng.below(255) as u8 + 1; len];
                lender.write(at as u64, &data).expect("written");
                content.resize(old.max(at + len), 0);
                content[at..at + len].copy_from_slice(&data);
            }
        }
    }
}

/// Sessions with pools write, end, and come again; their files are cut, others write beside them;
/// and after an fsync the machine dies: what was synced is there, and no block has two owners.
#[test]
fn crashes_forget_pools_and_nothing_else() {
    for seed in 0..4 {
        let world = World::of_size(160 << 20, 1);
        let (rng, mut pooled) = (Rng::new(seed), 0);
        let (content, lenders) = Default::default();
        let mut files = Files { rng, numbers: [0; FILES], content, lenders };
        for round in 0..8 {
            let (v, kernel) = opened(&world, Pools::PerSession);
            if round == 0 {
                for nr in 0..FILES {
                    file(&kernel, &format!("f{nr}"));
                }
            }
            files.check(&kernel, seed);
            for step in 0..60 {
                files.step(&v, &kernel, &format!("beside-{round}-{step}"));
                world.clock.advance(100_000_000);
            }
            pooled += allocation(&kernel).pooled_runs;
            files.lenders.iter().flatten().for_each(Lender::fsync);
            for (ino, lender) in files.numbers.iter().zip(&files.lenders) {
                let fsync = Request::Fsync { file: (*ino).into(), datasync: false };
                if lender.is_none() {
                    ask(&kernel, fsync).expect("fsync");
                }
            }
            // Nothing is closed: the next round recovers.
            files.lenders = Default::default();
            drop((kernel, v));
        }
        let (v, kernel) = opened(&world, Pools::PerSession);
        files.check(&kernel, seed);
        drop(kernel);
        v.close().expect("close");
        world.e2fsck();
        assert!(pooled > 20, "{pooled} runs came from pools");
    }
}

/// All bytes of a file.
fn whole(session: &Session, ino: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let (offset, len) = (bytes.len() as u64, 1 << 16);
        let read = Request::Read { file: ino.into(), offset, len };
        let more = ask(session, read).expect("read").data().expect("bytes");
        if more.is_empty() {
            return bytes;
        }
        bytes.extend(more);
    }
}
