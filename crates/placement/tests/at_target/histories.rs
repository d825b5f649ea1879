//! Random histories of a file that is written by both ways, with power cuts of target and host
//! together: what was made durable by either is there afterwards, and nothing older over it (R42).
use super::direct::{self, *};
use super::forger::attach;
use super::machine::{Machine, Way};
use super::{host, volume};
use siftfs_base::{BLOCK_SIZE, Rng};
use siftfs_device_target::Queue;
use siftfs_placement::LocalVolume;
use siftfs_proto::*;

const BLOCK: u64 = BLOCK_SIZE as u64;
const BLOCKS: usize = 24;
const SECTOR: usize = 512;

/// What a block may hold after a power cut: one of these versions in each of its sectors.
#[derive(Clone)]
struct Block {
    /// In the order of the writes; the first is durable.
    versions: Vec<u64>,
    /// The newest was written at the target, and not flushed there.
    unflushed: bool,
}

impl Block {
    fn wrote(&mut self, version: u64, unflushed: bool) {
        self.versions.push(version);
        self.unflushed = unflushed;
    }

    fn durable(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
        self.unflushed = false;
    }

    fn newest(&self) -> u64 {
        *self.versions.last().unwrap()
    }
}

fn image(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK_SIZE / 8)
}

fn versions(bytes: &[u8]) -> Vec<u64> {
    let sectors = bytes.chunks(SECTOR).map(|sector| {
        let first = u64::from_le_bytes(*sector.first_chunk().unwrap());
        assert!(sector.chunks(8).all(|word| word == first.to_le_bytes()), "a torn sector");
        first
    });
    sectors.collect()
}

/// A program that has the file, and what it may be found with.
struct World {
    program: Program,
    handle: Handle,
    lease: LeaseId,
    way: Option<(siftfs_proto::Direct, Queue)>,
    blocks: Vec<Block>,
    version: u64,
}

impl World {
    fn at(v: &LocalVolume, blocks: Vec<Block>, version: u64) -> Self {
        let program = program(v);
        let handle = open(&program.session, "f");
        let lease = lease(&program.session, handle).unwrap();
        Self { program, handle, lease, way: None, blocks, version }
    }

    fn fsync(&mut self, datasync: bool) {
        let file = self.handle.into();
        ask(&self.program.session, Request::Fsync { file, datasync }).unwrap();
        self.blocks.iter_mut().for_each(Block::durable);
    }

    fn grant(&mut self, machine: &Machine) {
        let granted = direct::direct(&self.program.session, self.lease, self.handle).unwrap();
        // What was written under the last grant is durable, and so is what was brought home.
        self.blocks.iter_mut().filter(|block| block.unflushed).for_each(Block::durable);
        let attached = attach(machine, granted.token).unwrap();
        self.way = Some((granted, attached));
    }

    /// Through the host, which takes the grant back if it names the block.
    fn put(&mut self, block: u64) {
        self.version += 1;
        let place = (block * BLOCK, &image(self.version)[..]);
        put(&self.program.session, self.lease, place).unwrap();
        if self.way.as_ref().is_some_and(|(granted, _)| blocks(granted).contains(&block)) {
            self.way = None;
            self.blocks.iter_mut().filter(|block| block.unflushed).for_each(Block::durable);
        }
        self.blocks[block as usize].wrote(self.version, false);
    }

    fn write(&mut self, block: u64, durable: bool) {
        let Some((granted, attached)) = &self.way else { return };
        if !blocks(granted).contains(&block) {
            return;
        }
        self.version += 1;
        attached.write_at(home(granted, block * BLOCK), &image(self.version), durable).unwrap();
        self.blocks[block as usize].wrote(self.version, !durable);
        if durable {
            self.blocks[block as usize].durable();
        }
    }

    fn flush(&mut self) {
        let Some((_, attached)) = &self.way else { return };
        attached.flush().unwrap();
        self.blocks.iter_mut().filter(|block| block.unflushed).for_each(Block::durable);
    }

    /// Reads at the target where it is granted, else by the host.
    fn check(&mut self, block: u64, by_host: bool) {
        let (want, mut found) = (self.blocks[block as usize].newest(), vec![0; BLOCK_SIZE]);
        match &self.way {
            Some((granted, attached)) if !by_host && blocks(granted).contains(&block) => {
                attached.read_at(home(granted, block * BLOCK), &mut found).unwrap();
            }
            way => {
                let taken_back = way.as_ref().is_some_and(|(g, _)| blocks(g).contains(&block));
                let (session, file) = (&self.program.session, self.handle.into());
                found = bytes_of(session, file, block * BLOCK, BLOCK as u32);
                if taken_back {
                    self.way = None;
                    self.blocks.iter_mut().filter(|b| b.unflushed).for_each(Block::durable);
                }
            }
        }
        assert!(found == image(want), "block {block} is not of version {want}");
    }

    fn step(&mut self, machine: &Machine, v: &LocalVolume, rng: &mut Rng) {
        let block = rng.below(BLOCKS as u64);
        match rng.below(20) {
            0..2 => self.grant(machine),
            2..6 => self.put(block),
            6..11 => self.write(block, rng.chance(30)),
            11 => self.flush(),
            12 => self.fsync(rng.chance(50)),
            13..16 => self.check(block, false),
            16 => self.check(block, true),
            17 => v.commit(true).unwrap(),
            18 => {
                // Of everything that there is, and not only of what is journaled.
                let all = v.endpoint().call(&Credentials::default(), Request::Checkpoint);
                all.unwrap();
                self.blocks.iter_mut().for_each(Block::durable);
            }
            _ => v.tick().unwrap(),
        }
    }

    /// What a power cut left.
    fn judge(&mut self, seed: u64) {
        for (at, block) in self.blocks.iter_mut().enumerate() {
            let place = at as u64 * BLOCK;
            let found = bytes_of(&self.program.session, self.handle.into(), place, BLOCK as u32);
            let found = versions(&found);
            let may = found.iter().all(|version| block.versions.contains(version));
            assert!(may, "seed {seed}, block {at}: {found:?} of {:?}", block.versions);
        }
    }
}

#[test]
fn histories_by_both_ways_with_power_cuts() {
    let seeds = if std::env::var_os("SIFTFS_LONG").is_some() { 60 } else { 5 };
    for seed in 0..seeds {
        let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(seed));
        let mut machine = Machine::start(volume(24 << 20), Way::SharedMemory, dir.path());
        let mut v = host(&machine).unwrap();
        let first = program(&v);
        let (_, handle) = make(&first.session, "f", &image(1).repeat(BLOCKS));
        ask(&first.session, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
        ask(&first.session, Request::EndSession).unwrap();
        let blocks = vec![Block { versions: vec![1], unflushed: false }; BLOCKS];
        let mut world = World::at(&v, blocks, 1);
        for _ in 0..4 {
            for _ in 0..10 + rng.below(60) {
                world.step(&machine, &v, &mut rng);
            }
            // The host dies with the target's power.
            v.abandon();
            machine = machine.power_fails(Way::SharedMemory, rng.below(u64::MAX));
            v = host(&machine).unwrap();
            world = World::at(&v, world.blocks, world.version);
            world.judge(seed);
            // Each block gets one version again, which is durable.
            for block in 0..BLOCKS as u64 {
                world.put(block);
            }
            world.fsync(false);
        }
        v.close().unwrap();
    }
}
