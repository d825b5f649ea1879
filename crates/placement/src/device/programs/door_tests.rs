//! A target that admits programs alone, on memory that can be made to wait, for tests.

use crate::device::calls::lock;
use crate::device::programs::grants::{HostGrants, Tokens};
use crate::device::workers::{WorkerOptions, Workers};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Error, Result};
use siftfs_device::{Device, Io, IoDone, IoKind, IoQueue, MemDevice};
use siftfs_device_target::{Lines, Queue, RequestOrder, TargetPlace};
use siftfs_transport::{CallerEnd, Listener, Received, Sender, TransportOptions, connect};
use siftfs_wire::{
    BlockProtocol, FromService, GrantRun, PROTOCOL_VERSION, Place, StorageAnswer, StorageCall,
    ToService, Token,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const BLOCKS: u64 = 64;
pub const AREA: u64 = BLOCKS * BLOCK_BYTES;
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Memory that stops before chosen writes, and otherwise takes its time over each block: a request
/// of several blocks is seen in part, unless others wait for it.
pub struct Gated {
    pub memory: MemDevice,
    /// Writes that begin with this byte wait.
    shut: Mutex<Option<u8>>,
    changed: Condvar,
    waits: AtomicUsize,
    /// The first byte of each write that was carried out.
    pub log: Mutex<Vec<u8>>,
    /// Flushes wait.
    flushes_wait: Mutex<bool>,
    /// Flushes that have begun.
    pub flushes: AtomicUsize,
    slow: bool,
}

impl Gated {
    pub fn new(slow: bool) -> Arc<Self> {
        let (shut, changed, waits, log) = Default::default();
        let (flushes_wait, flushes, memory) = (Mutex::new(false), 0.into(), MemDevice::new(AREA));
        Arc::new(Self { memory, shut, changed, waits, log, flushes_wait, flushes, slow })
    }

    pub fn shut(&self, byte: Option<u8>) {
        *lock(&self.shut) = byte;
        self.changed.notify_all();
    }

    pub fn hold_flushes(&self, wait: bool) {
        *lock(&self.flushes_wait) = wait;
        self.changed.notify_all();
    }

    /// How many writes have waited.
    pub fn held(&self) -> usize {
        self.waits.load(Ordering::SeqCst)
    }

    pub fn wait_for_one(&self) {
        while self.waits.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Device for Gated {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(buf.chunks_mut(BLOCK_SIZE)) {
            self.memory.read(at, block)?;
            if self.slow {
                thread::sleep(Duration::from_micros(20));
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        let mut shut = lock(&self.shut);
        while shut.is_some() && data.first().copied() == *shut {
            self.waits.fetch_add(1, Ordering::SeqCst);
            shut = self.changed.wait(shut).unwrap();
        }
        drop(shut);
        lock(&self.log).extend(data.first());
        for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(data.chunks(BLOCK_SIZE)) {
            self.memory.write(at, block, fua)?;
            if self.slow {
                thread::sleep(Duration::from_micros(20));
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        while *lock(&self.flushes_wait) {
            thread::sleep(Duration::from_millis(1));
        }
        self.memory.flush()
    }
}

/// Memory whose reads and whole writes begin without a wait and end a while later, as those of a
/// disk with io_uring do.
pub struct Later {
    pub memory: Arc<MemDevice>,
    delay: Duration,
    /// Accesses fail.
    pub fails: AtomicBool,
    /// Where what is under way begins, and when it ends.
    under_way: Mutex<Vec<(u64, Instant)>>,
    /// The most that ever was under way at one time, of all and of one place.
    pub most: AtomicUsize,
    pub most_of_one: AtomicUsize,
}

impl Later {
    pub fn new(delay: Duration) -> Arc<Self> {
        let memory = Arc::new(MemDevice::new(AREA));
        let (fails, under_way, most, most_of_one) = Default::default();
        Arc::new(Self { memory, delay, fails, under_way, most, most_of_one })
    }
}

impl Device for Later {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.memory.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.memory.write(offset, data, fua)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        let Io { id, kind, offset, mut buf } = io;
        let result = match kind {
            _ if self.fails.load(Ordering::SeqCst) => Err(Error::Posix(libc::EIO)),
            IoKind::Read => self.memory.read(offset, &mut buf),
            IoKind::Write { durable } => self.memory.write(offset, &buf, durable),
        };
        let now = Instant::now();
        let mut under_way = lock(&self.under_way);
        under_way.retain(|(_, due)| *due > now);
        under_way.push((offset, now + self.delay));
        let own = under_way.iter().filter(|(other, _)| *other == offset).count();
        self.most.fetch_max(under_way.len(), Ordering::SeqCst);
        self.most_of_one.fetch_max(own, Ordering::SeqCst);
        queue.tell_at(now + self.delay, IoDone { id, buf, result });
        Ok(())
    }
}

/// Lets the writes of a device go on at the end of a test, also of one that fails: else its threads
/// would be waited for without an end.
pub struct Opens(pub Arc<Gated>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.shut(None);
    }
}

/// What cuts each connection.
type Connections = Arc<Mutex<Vec<Arc<dyn Sender<FromService>>>>>;

/// A target that admits programs alone.
pub struct Door {
    pub tokens: Arc<Tokens>,
    pub grants: HostGrants,
    pub place: TargetPlace,
    ending: Arc<AtomicBool>,
    pub refused: Arc<AtomicUsize>,
    connections: Connections,
    pub workers: Option<Arc<Workers>>,
    accepting: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Door {
    pub fn new() -> Self {
        Self::with(0, 2)
    }

    /// With memory of this many bytes that both sides share, and workers.
    pub fn with(shared_memory: u64, workers: usize) -> Self {
        let (tokens, dir) =
            (Arc::new(Tokens::new(None, std::env::temp_dir())), tempfile::tempdir().unwrap());
        let options = TransportOptions { shared_memory, ..TransportOptions::default() };
        let address = siftfs_transport::Address::Unix(dir.path().join("door"));
        let listener = Listener::<BlockProtocol>::bind(&address, &options).unwrap();
        let place = TargetPlace { address, volume: "any".into(), options, secured: None };
        let (ending, refused) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let connections = Connections::default();
        let workers = WorkerOptions { workers, ..WorkerOptions::default() };
        let workers = Arc::new(Workers::new(workers, &tokens, Box::new(|_| ())));
        let own = (workers.clone(), ending.clone(), refused.clone(), connections.clone());
        let accepting = thread::spawn(move || accept(&listener, &own));
        let grants = HostGrants::new(&tokens);
        Self {
            tokens,
            grants,
            place,
            ending,
            refused,
            connections,
            workers: Some(workers),
            accepting: Some(accepting),
            _dir: dir,
        }
    }

    pub fn grant<D>(&self, lease: u64, runs: Vec<BlockRun>, device: &Arc<D>) -> Token
    where
        D: Device + 'static,
    {
        let device: Arc<dyn Device> = device.clone();
        let of = |run: BlockRun| {
            let BlockRun { start: block, len } = run;
            GrantRun { block, len, first: block, fresh: false }
        };
        let runs = runs.into_iter().map(of).collect();
        self.grants.grant((lease, lease), (true, runs), &device, 0..1 << 40).unwrap()
    }

    pub fn all<D: Device + 'static>(&self, device: &Arc<D>) -> Token {
        self.grant(1, vec![BlockRun { start: 0, len: BLOCKS }], device)
    }

    pub fn queue(&self, token: Token, order: RequestOrder) -> Queue {
        Queue::open(Lines::new(self.place.clone()), token, order).unwrap()
    }

    /// All connections that there are break.
    pub fn cut(&self) {
        lock(&self.connections).drain(..).for_each(|sender| sender.cut());
    }

    pub fn raw(&self) -> Raw {
        let end = connect::<BlockProtocol>(&self.place.address, &self.place.options).unwrap();
        Raw { end, id: 0 }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        self.accepting.take().unwrap().join().unwrap();
        drop(self.workers.take());
    }
}

type Shared = (Arc<Workers>, Arc<AtomicBool>, Arc<AtomicUsize>, Connections);

fn accept(listener: &Listener<BlockProtocol>, (workers, ending, refused, connections): &Shared) {
    while !ending.load(Ordering::SeqCst) {
        let Some(end) = listener.accept(Some(Duration::from_millis(20))).unwrap() else {
            continue;
        };
        lock(connections).push(end.sender.clone());
        let refused = refused.clone();
        let refused = move |_: &Error| {
            refused.fetch_add(1, Ordering::SeqCst);
        };
        drop(workers.admit(end, None, (PATIENCE, Box::new(refused))));
    }
}

/// A connection that says what it likes.
pub struct Raw {
    pub end: CallerEnd<BlockProtocol>,
    pub id: u64,
}

impl Raw {
    pub fn say(&mut self, place: Place, call: StorageCall) -> u64 {
        self.id += 1;
        self.end.sender.send(ToService::Queued { id: self.id, place, call }).unwrap();
        self.id
    }

    pub fn attach(&mut self, token: Token, life: u64) -> StorageAnswer {
        self.id += 1;
        let call = StorageCall::Attach { version: PROTOCOL_VERSION, token, queue: 0, life };
        self.end.sender.send(ToService::Storage { id: self.id, call }).unwrap();
        // What is over meanwhile is answered, too.
        loop {
            let (id, answer) = self.answer(PATIENCE).unwrap();
            if id == self.id {
                return answer;
            }
        }
    }

    pub fn attaches(&mut self, token: Token, life: u64) -> bool {
        matches!(self.attach(token, life), StorageAnswer::Attached { .. })
    }

    pub fn answer(&mut self, within: Duration) -> Option<(u64, StorageAnswer)> {
        match self.end.receiver.recv(Some(within)) {
            Ok(Received::Message(FromService::Storage { id, answer })) => Some((id, answer)),
            Ok(Received::Timeout) => None,
            other => panic!("{other:?}"),
        }
    }
}
