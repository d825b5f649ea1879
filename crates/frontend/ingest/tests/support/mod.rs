//! Two memories of a session in plain words, files in memory, and what a program does with them.
#![allow(dead_code, missing_docs)]

use siftfs_base::{Error, Result, errno};
use siftfs_ingest::{BackEnd, Counters, Files, How, Index, Means, Pipelines, ingest};
use siftfs_lease::{Held, Own, Place, Publish, Reader, Shape, Words, Writer};
use siftfs_proto::WriteData;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub struct Plain(Vec<AtomicU64>);

impl Words for Plain {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }
    fn fence() {}
}

impl Own for Plain {
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }
}

pub const SLOTS: u32 = 4;
pub const SHAPE: Shape = Shape { page: 48, slots: SLOTS as usize, records: 64, data: 32 << 10 };
const LARGEST: u64 = 1 << 40;

/// A file as its program should find it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mtime: i64,
    pub error: Option<i32>,
}

impl File {
    pub fn write(&mut self, offset: u64, bytes: &[u8], time: i64) {
        let at = offset as usize;
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
        self.mtime = self.mtime.max(time);
    }
}

/// Files by their slots.
#[derive(Default)]
pub struct Store {
    pub files: Mutex<HashMap<u32, File>>,
    /// Bytes that cannot be written, by slot.
    pub bad: HashMap<u32, Range<u64>>,
    /// Of each question, what was to be brought.
    pub asked: Mutex<Vec<u64>>,
    /// Blocks that are cold, of all files.
    pub cold: Vec<u64>,
    pub writes: Mutex<Vec<(u32, u64, usize)>>,
    /// Called before each write.
    pub before: Option<Box<dyn Fn() + Send + Sync>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Store {
    pub fn is_bad(&self, slot: u32, offset: u64, len: u64) -> bool {
        self.bad.get(&slot).is_some_and(|bad| offset < bad.end && bad.start < offset + len)
    }
}

impl Index for Store {
    fn cold(&self, _held: Held, (first, count): (u64, u32), bring: u64) -> Result<u64> {
        assert!(count <= 64);
        lock(&self.asked).push(bring);
        let within = self.cold.iter().filter(|b| (first..first + u64::from(count)).contains(*b));
        Ok(within.fold(0, |bits, block| bits | 1 << (block - first)))
    }
}

impl Files for Store {
    fn write(&self, held: Held, offset: u64, data: WriteData, time: i64) -> Result<()> {
        self.before.iter().for_each(|before| before());
        let bytes = data.into_bytes();
        lock(&self.writes).push((held.slot, offset, bytes.len()));
        if self.is_bad(held.slot, offset, bytes.len() as u64) {
            return Err(errno(libc::EIO));
        }
        lock(&self.files).entry(held.slot).or_default().write(offset, &bytes, time);
        Ok(())
    }

    fn lose(&self, held: Held, error: &Error) {
        let mut files = lock(&self.files);
        files.entry(held.slot).or_default().error.get_or_insert(error.errno());
    }
}

/// A session: both sides, and the files.
pub struct Sides {
    pub reader: Reader<Plain, Plain>,
    pub writer: Arc<Mutex<Writer<Plain, Plain>>>,
    pub holder: Arc<Plain>,
    pub leases: Vec<Held>,
    pub back: BackEnd,
    pub counters: Arc<Counters>,
    pub how: How,
}

impl Sides {
    pub fn new(how: How) -> Self {
        let of = |words: usize| Arc::new(Plain((0..words).map(|_| AtomicU64::new(0)).collect()));
        let (grantor, holder) = (of(SHAPE.grantor_words()), of(SHAPE.holder_words()));
        let both = || (grantor.clone(), holder.clone());
        let mut reader = Reader::new(both(), SHAPE, (1, LARGEST));
        let mut writer = Writer::new(both(), SHAPE, LARGEST);
        let leases: Vec<Held> = (0..SLOTS).map(|slot| reader.grant(slot)).collect();
        leases.iter().for_each(|held| assert!(writer.begin(*held, 0, 0)));
        let writer = Arc::new(Mutex::new(writer));
        let (back, counters) = (BackEnd::default(), Arc::default());
        Self { reader, writer, holder, leases, back, counters, how }
    }

    pub fn publish(&self, slot: u32, offset: u64, bytes: &[u8], time: i64) -> Publish {
        lock(&self.writer).publish(self.leases[slot as usize], Place::At(offset), bytes, time)
    }

    pub fn ingest(&mut self, store: &Store) -> Result<()> {
        self.ingest_by(store, &Pipelines::default())
    }

    pub fn ingest_by(&mut self, store: &Store, pipelines: &Pipelines) -> Result<()> {
        let Self { reader, back, counters, how, .. } = self;
        ingest(reader, back, Means { index: store, files: store, counters, pipelines, how: *how })
    }

    /// A lease ends, and its slot has another one.
    pub fn end(&mut self, store: &Store, slot: u32) -> Result<()> {
        let held = self.leases[slot as usize];
        let Self { reader, back, counters, how, .. } = self;
        let pipelines = &Pipelines::default();
        let means = Means { index: store, files: store, counters, pipelines, how: *how };
        let ended = reader.end(&[held], |reader| ingest(reader, back, means), |_, _| {});
        back.forget(held);
        let next = self.reader.grant(slot);
        assert!(lock(&self.writer).begin(next, 0, 0));
        self.leases[slot as usize] = next;
        ended
    }
}
