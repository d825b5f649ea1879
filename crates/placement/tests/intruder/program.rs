//! A hostile program: it has a file of its own, and asks the target for anything.

use crate::world::{BLOCK, SIZE, World, ask, granted, home, make, memories};
use siftfs_base::{BLOCK_SIZE, Error, Rng, SharedBlock};
use siftfs_device::Role;
use siftfs_placement::TransportOptions;
use siftfs_proto::*;
use siftfs_transport::{CallerEnd, Received, connect};
use siftfs_wire::{
    Access, AtomicRun, BlockProtocol, FromService, GrantRun, PROTOCOL_VERSION, Place,
    StorageAnswer, StorageCall, ToService, UNORDERED,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of its file.
const BLOCKS: u64 = 16;
/// What it writes; before that its file has ones.
const OWN: u8 = 0xee;

/// What an intruder did.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Connections that got in.
    pub connections: u64,
    /// Calls that were carried out, and that failed.
    pub done: u64,
    pub refused: u64,
    /// Of those, refusals.
    pub refusals: u64,
    pub grants: u64,
    /// Grants that ended while calls were under way.
    pub revoked: u64,
    /// Words of shared memory that were changed.
    pub changed: u64,
}

/// What it has at the host.
struct Own {
    handle: Handle,
    lease: LeaseId,
    direct: Direct,
}

pub struct Intruder<'w> {
    world: &'w World,
    session: Arc<dyn FileService>,
    name: String,
    own: Option<Own>,
    /// Where its files once lay, in bytes of the area.
    freed: Vec<u64>,
    life: u64,
    rng: Rng,
    /// Memories that are not its own.
    others: BTreeSet<u64>,
    tried: Tried,
}

/// A connection that was let in.
struct Way {
    end: CallerEnd<BlockProtocol>,
    id: u64,
    number: u64,
}

impl Way {
    fn send(&mut self, message: impl FnOnce(u64) -> ToService) -> bool {
        self.id += 1;
        self.end.sender.send(message(self.id)).is_ok()
    }

    fn receive(&mut self, patience: Duration) -> Option<StorageAnswer> {
        self.receive_of(patience).map(|(_, answer)| answer)
    }

    /// An answer, and which call's it is.
    fn receive_of(&mut self, patience: Duration) -> Option<(u64, StorageAnswer)> {
        match self.end.receiver.recv(Some(patience)) {
            Ok(Received::Message(FromService::Storage { id, answer })) => Some((id, answer)),
            _ => None,
        }
    }
}

impl<'w> Intruder<'w> {
    pub fn new(world: &'w World, name: &str, rng: Rng, others: BTreeSet<u64>) -> Self {
        let (session, name) = (world.session(), name.to_string());
        let (own, freed, life, tried) = (None, Vec::new(), 0, Tried::default());
        Self { world, session, name, own, freed, life, rng, others, tried }
    }

    pub fn tried(&self) -> Tried {
        self.tried.clone()
    }

    /// One connection, and what it is used for.
    pub fn attack(&mut self) {
        if self.own.is_none() {
            self.begin();
        }
        // Its lease lasts as long as it says so, and not always.
        let lease = self.own().lease;
        if ask(&self.session, Request::LeaseKeep { lease }).is_err() {
            return self.give_up();
        }
        match self.rng.below(40) {
            0 => self.half_a_message(),
            1 => self.is_a_host(),
            2 => self.forged_token(),
            3 => self.dies_in_a_transaction(),
            4 => self.file_goes_meanwhile(),
            _ => self.calls(),
        }
    }

    /// A file, its lease and its grant.
    fn begin(&mut self) {
        let name = self.name.clone();
        let bytes = vec![1; (BLOCKS * BLOCK) as usize];
        let handle = make(&self.session, &name, &bytes).unwrap();
        let room = if self.rng.chance(30) { 1 << 16 } else { 0 };
        let (lease, direct) = granted(&self.session, handle, BLOCKS, room).unwrap();
        self.life = 0;
        self.own = Some(Own { handle, lease, direct });
        self.tried.grants += 1;
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("it has a file")
    }

    fn connect(&mut self) -> Option<Way> {
        let mut options = TransportOptions::default();
        if self.rng.chance(50) {
            options.shared_memory = 0;
        }
        let end = connect::<BlockProtocol>(&self.world.door.address, &options).ok()?;
        Some(Way { end, id: 0, number: 0 })
    }

    /// A connection with the queue of its own grant.
    fn attach(&mut self) -> Option<Way> {
        let mut way = self.connect()?;
        self.life += 1;
        let (version, token, life) = (PROTOCOL_VERSION, self.own().direct.token, self.life);
        let call = StorageCall::Attach { version, token, queue: 0, life };
        way.send(|id| ToService::Storage { id, call });
        match way.receive(Duration::from_secs(20))? {
            StorageAnswer::Attached { .. } => {
                self.tried.connections += 1;
                Some(way)
            }
            _ => None,
        }
    }

    fn answered(&mut self, answer: &StorageAnswer) {
        self.world.count();
        match answer {
            StorageAnswer::Failed { error } => {
                self.tried.refused += 1;
                self.tried.refusals += u64::from(matches!(error, Error::Refused(_)));
            }
            StorageAnswer::Data { blocks } => {
                let bytes = blocks.iter().flat_map(|block| block.chunks(64));
                let own = |bytes: &[u8]| {
                    [0, 1, OWN].contains(&bytes[0]) || bytes.iter().any(|b| *b != bytes[0])
                };
                assert!(bytes.into_iter().all(own), "bytes of somebody else");
                self.tried.done += 1;
            }
            _ => self.tried.done += 1,
        }
    }

    /// Any calls in any places, a few at once; some are changed under way.
    fn calls(&mut self) {
        let Some(mut way) = self.attach() else { return };
        for _ in 0..self.rng.between(1, 40) {
            let most = self.rng.between(1, 6);
            let sent = (0..most).filter(|_| self.send_one(&mut way)).count();
            if self.rng.chance(4) {
                self.change_memory();
            }
            for _ in 0..sent {
                let patience = Duration::from_millis(self.rng.between(1, 50));
                let Some(answer) = way.receive(patience) else { return };
                self.answered(&answer);
            }
        }
    }

    fn send_one(&mut self, way: &mut Way) -> bool {
        let call = self.forged();
        let place = self.place(way);
        match self.rng.below(20) {
            0 => way.send(|id| ToService::Storage { id, call }),
            _ => way.send(|id| ToService::Queued { id, place, call }),
        }
    }

    /// Mostly the next number, which moves on; else another queue's, or none that there can be.
    fn place(&mut self, way: &mut Way) -> Place {
        let number = match self.rng.below(100) {
            0 => way.number + self.rng.below(70),
            1 => way.number.wrapping_sub(1 + self.rng.below(5)),
            2 => UNORDERED - 1,
            3 => UNORDERED,
            4 => self.rng.bits(),
            _ => {
                way.number += 1;
                way.number - 1
            }
        };
        let first = match self.rng.below(80) {
            0 => number.wrapping_add(1),
            1 => 0,
            2 => self.rng.bits(),
            _ => number,
        };
        let queue = if self.rng.chance(1) { self.rng.below(1 << 32) as u32 } else { 0 };
        Place { queue, number, first }
    }

    /// A byte of the area: its own, one that was, the canary's, metadata, or any.
    fn offset(&mut self) -> u64 {
        let beside = self.rng.below(2 * BLOCK);
        match self.rng.below(12) {
            0 => u64::MAX - self.rng.below(9000),
            1 => self.rng.below(SIZE),
            2 => self.rng.below(1 << 20),
            3 => self.world.canary[self.rng.below(16) as usize] + beside - BLOCK / 2,
            4 if !self.freed.is_empty() => {
                let which = self.rng.below(self.freed.len() as u64) as usize;
                self.freed[which] + beside
            }
            5 => home(&self.own().direct, BLOCKS - 1) + beside,
            _ => {
                let block = self.rng.below(BLOCKS);
                home(&self.own().direct, block) + if self.rng.chance(30) { beside } else { 0 }
            }
        }
    }

    fn len(&mut self) -> u32 {
        let lens = [0, 1, 512, 4096, 4096, 4096, 5000, 1 << 16, 1 << 18, (1 << 18) + 1, u32::MAX];
        lens[self.rng.below(lens.len() as u64) as usize]
    }

    /// The blocks that the length needs, or another number of them.
    fn blocks(&mut self, len: u64) -> Vec<SharedBlock> {
        let right = len.div_ceil(BLOCK).min(70);
        let given = if self.rng.chance(85) { right } else { self.rng.below(70) };
        vec![SharedBlock::from([OWN; BLOCK_SIZE]); given as usize]
    }

    fn forged(&mut self) -> StorageCall {
        let (offset, len) = (self.offset(), self.len());
        let device = if self.rng.chance(95) { 0 } else { self.rng.below(256) as u8 };
        let (lease, token) = (self.own().lease.0, self.own().direct.token);
        let durable = self.rng.chance(30);
        match self.rng.below(30) {
            0 => StorageCall::Discard { device, offset, len: len.into() },
            1 => StorageCall::Revoke { lease: lease ^ self.rng.below(3), token },
            2 => StorageCall::Settle { lease, token },
            3 => StorageCall::Claim { device, role: Role::Host, patience: 0 },
            4 => {
                let run = GrantRun { block: offset / BLOCK, len: 1, first: 1 << 20, fresh: false };
                StorageCall::Extend { lease, token, runs: vec![run] }
            }
            5 => {
                let run = GrantRun { block: offset / BLOCK, len: 1, first: 0, fresh: false };
                StorageCall::Grant { lease, file: self.rng.below(40), write: true, runs: vec![run] }
            }
            6 => StorageCall::Describe { device },
            7 => StorageCall::Flush { device },
            8 => StorageCall::AtomicAbort { transaction: self.rng.below(10) },
            9..15 => self.atomic(),
            15..22 => StorageCall::Read { device, offset, len },
            _ => {
                let blocks = self.blocks(len.into());
                StorageCall::Write { device, offset, len, durable, blocks }
            }
        }
    }

    fn atomic(&mut self) -> StorageCall {
        let count = self.rng.below(4);
        let runs = (0..count).map(|_| AtomicRun { offset: self.offset(), len: self.len() });
        let runs: Vec<AtomicRun> = runs.collect();
        let blocks = self.blocks(runs.iter().map(|run| u64::from(run.len)).sum());
        let (transaction, commit) = (self.rng.below(10), self.rng.chance(40));
        StorageCall::AtomicWrite { transaction, commit, runs, blocks }
    }

    /// Bytes of a memory that it shares with the target are other ones, whenever that is.
    fn change_memory(&mut self) {
        let own = memories().into_iter().filter(|(inode, _)| !self.others.contains(inode));
        let own: Vec<_> = own.collect();
        if own.is_empty() {
            return;
        }
        let (inode, range) = &own[self.rng.below(own.len() as u64) as usize];
        // By the file, and not by the address, where something else may be by now.
        let file = format!("/proc/self/map_files/{range}");
        let Ok(memory) = File::options().write(true).open(file) else { return };
        let attr = memory.metadata().unwrap();
        if attr.ino() != *inode {
            return;
        }
        for _ in 0..self.rng.between(1, 30) {
            let most = if self.rng.chance(70) { 1 << 16 } else { attr.len() };
            let at = self.rng.below(most.min(attr.len()) - 8);
            let word = self.rng.bits().to_le_bytes();
            // A block's bytes stay those that it may write.
            let bytes = if self.rng.chance(50) { [OWN; 8] } else { word };
            self.tried.changed += u64::from(memory.write_all_at(&bytes, at).is_ok());
        }
    }

    /// A stream that breaks off, or has other bytes than the protocol's.
    fn half_a_message(&mut self) {
        let siftfs_placement::Address::Unix(socket) = &self.world.door.address else { return };
        let Ok(mut stream) = UnixStream::connect(socket) else { return };
        let len = self.rng.below(300) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| self.rng.below(256) as u8).collect();
        let _ = stream.write_all(&bytes);
        // And one that says who it is, and stops in the middle of what it wants.
        if let Some(way) = self.attach() {
            way.end.sender.cut();
        }
    }

    /// A host is let in by another door.
    fn is_a_host(&mut self) {
        let Some(mut way) = self.connect() else { return };
        let (version, volume) = (PROTOCOL_VERSION, crate::machine::NAME.to_string());
        let access = [Access::ReadOnly, Access::Shared, Access::Alone][self.rng.below(3) as usize];
        let call = match self.rng.chance(60) {
            true => StorageCall::Open { version, volume, access },
            false => self.forged(),
        };
        way.send(|id| ToService::Storage { id, call });
        let answer = way.receive(Duration::from_secs(1));
        let got = answer.is_some_and(|answer| !matches!(answer, StorageAnswer::Failed { .. }));
        assert!(!got, "a program was let in as a host");
    }

    /// A token that is its own but for one bit, or the rest of another's.
    fn forged_token(&mut self) {
        let Some(mut way) = self.connect() else { return };
        let mut token = self.own().direct.token;
        let at = self.rng.below(256);
        token[at as usize / 8] ^= 1 << (at % 8);
        let (version, life) = (PROTOCOL_VERSION, self.rng.bits());
        let call = StorageCall::Attach { version, token, queue: 0, life };
        way.send(|id| ToService::Storage { id, call });
        let answer = way.receive(Duration::from_secs(1));
        assert!(!matches!(answer, Some(StorageAnswer::Attached { .. })), "a forged token");
    }

    fn dies_in_a_transaction(&mut self) {
        let Some(mut way) = self.attach() else { return };
        for number in 0..self.rng.between(1, 4) {
            let call = self.atomic();
            let place = Place { queue: 0, number, first: number };
            way.send(|id| ToService::Queued { id, place, call });
        }
        way.end.sender.cut();
    }

    /// Its grant ends while its calls are carried out; then its blocks are somebody else's.
    fn file_goes_meanwhile(&mut self) {
        let way = self.attach();
        let Some(mut way) = way else {
            self.give_up();
            return;
        };
        for _ in 0..4 {
            self.send_one(&mut way);
        }
        self.tried.revoked += 1;
        let places: Vec<u64> = (0..BLOCKS).map(|block| home(&self.own().direct, block)).collect();
        self.give_up();
        // What was sent before is over; what comes now is refused.
        let offset = places[self.rng.below(BLOCKS) as usize];
        let blocks = vec![SharedBlock::from([OWN; BLOCK_SIZE])];
        let call =
            StorageCall::Write { device: 0, offset, len: BLOCK as u32, durable: true, blocks };
        let place = Place { queue: 0, number: UNORDERED, first: UNORDERED };
        way.send(|id| ToService::Queued { id, place, call });
        while let Some((id, answer)) = way.receive_of(Duration::from_millis(100)) {
            self.world.count();
            let late = id == way.id && answer == StorageAnswer::Done;
            assert!(!late, "a write after the end of its grant");
        }
        self.freed.extend(places);
        let surplus = self.freed.len().saturating_sub(200);
        self.freed.drain(..surplus);
    }

    /// Lease and file go.
    fn give_up(&mut self) {
        let Own { handle, lease, .. } = self.own.take().expect("it has a file");
        // The lease may have ended by itself.
        let _ = ask(&self.session, Request::LeaseReturn { lease });
        ask(&self.session, Request::Release { handle }).unwrap();
        let name = self.name.clone().into();
        ask(&self.session, Request::Unlink { parent: ROOT_INO, name }).unwrap();
    }
}
