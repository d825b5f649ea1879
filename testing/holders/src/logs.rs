//! File logs whose registry is in memory, can fail, and can be looked at as a crash leaves it.

use siftfs_base::{Result, errno};
use siftfs_grantor::{LogFile, LogShape, Logs, RegisteredLease};
use siftfs_lease::{LOG_BYTES, LogMedium, Logged, Scanned, scan};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;

/// What is known of a log.
#[derive(Clone, Debug)]
pub struct Row {
    path: PathBuf,
    shape: LogShape,
    /// The leases whose records count.
    pub leases: Vec<RegisteredLease>,
    /// What is forgotten.
    pub begin: u64,
}

/// All logs of a volume.
#[derive(Default)]
struct Registry {
    rows: Mutex<BTreeMap<u64, Row>>,
    /// Each row that was durable for a while, and is not any more.
    former: Mutex<Vec<Row>>,
    fails: AtomicBool,
    writes: AtomicU64,
}

impl Registry {
    /// Changes a row, durably.
    fn change(&self, number: u64, change: impl FnOnce(&mut Row)) -> Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(errno(libc::EIO));
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.get_mut(&number).expect("the log is there");
        self.former.lock().unwrap_or_else(PoisonError::into_inner).push(row.clone());
        change(row);
        Ok(())
    }
}

/// Makes logs in a directory of its own.
pub struct TestLogs {
    registry: Arc<Registry>,
    dir: TempDir,
    made: AtomicU64,
    medium: LogMedium,
}

struct TestLog {
    registry: Arc<Registry>,
    number: u64,
    shape: LogShape,
    file: File,
}

impl Logs for TestLogs {
    fn create(&self, _process: u32) -> Result<Box<dyn LogFile>> {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        let path = self.dir.path().join(format!("log-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a file");
        file.set_len(LOG_BYTES).expect("space");
        let shape = LogShape { len: LOG_BYTES, key: 1000 + number, medium: self.medium };
        let row = Row { path, shape, leases: Vec::new(), begin: 0 };
        self.registry.rows.lock().unwrap_or_else(PoisonError::into_inner).insert(number, row);
        Ok(Box::new(TestLog { registry: self.registry.clone(), number, shape, file }))
    }
}

impl LogFile for TestLog {
    fn passed(&self) -> (BorrowedFd<'_>, LogShape) {
        (self.file.as_fd(), self.shape)
    }

    fn promise(&self) -> &str {
        "what the test says"
    }

    fn register(&mut self, lease: RegisteredLease) -> Result<bool> {
        self.registry.change(self.number, |row| row.leases.push(lease)).map(|()| true)
    }

    fn end(&mut self, numbers: &[u64]) -> Result<()> {
        let change = |row: &mut Row| row.leases.retain(|lease| !numbers.contains(&lease.number));
        self.registry.change(self.number, change)
    }

    fn forget(&mut self, end: u64) -> Result<()> {
        self.registry.change(self.number, |row| {
            assert!(end > row.begin, "a log is forgotten further on");
            row.begin = end;
        })
    }

    fn empty(&self) -> Result<()> {
        let emptied = match self.shape.medium.is_mapped() {
            // Its program would not survive another length.
            true => self.file.write_all_at(&vec![0; LOG_BYTES as usize], 0),
            false => self.file.set_len(0),
        };
        emptied.map_err(|_| errno(libc::EIO))
    }

    fn remove(self: Box<Self>) -> Result<()> {
        let mut rows = self.registry.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.get(&self.number).expect("the log is there");
        assert!(
            row.leases.is_empty() || self.registry.fails.load(Ordering::SeqCst),
            "no lease is left: {row:?}"
        );
        rows.remove(&self.number);
        Ok(())
    }
}

impl TestLogs {
    /// Those of new logs lie in this.
    pub fn new(medium: LogMedium) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { registry: Arc::default(), dir, made: AtomicU64::new(0), medium }
    }

    /// From now on no row can be written, or they can be again.
    pub fn fail(&self, fails: bool) {
        self.registry.fails.store(fails, Ordering::SeqCst);
    }

    /// How often a row was written.
    pub fn writes(&self) -> u64 {
        self.registry.writes.load(Ordering::SeqCst)
    }

    /// The rows.
    pub fn rows(&self) -> Vec<Row> {
        let rows = self.registry.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.values().cloned().collect()
    }

    /// Each row that was durable for a while, and is not any more.
    pub fn former(&self) -> Vec<Row> {
        self.registry.former.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a crash leaves: of the volume, as `volume` says, and of the logs. No row changes in
    /// between, and each row is written after what it stands for.
    pub fn cut<T>(&self, volume: impl FnOnce() -> T) -> (T, Vec<(Row, Vec<u8>)>) {
        let rows = self.registry.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |row: &Row| (row.clone(), std::fs::read(&row.path).expect("the log's file"));
        (volume(), rows.values().map(read).collect())
    }
}

/// Reads a log as recovery does. `write` gets what counts: the lease of the row, where, and what.
pub fn replay(
    (row, bytes): &(Row, Vec<u8>),
    mut write: impl FnMut(&RegisteredLease, u64, &[u8]),
) -> Scanned {
    let mut read = |at: u64, into: &mut [u8]| match bytes
        .get(at as usize..)
        .filter(|rest| rest.len() >= into.len())
    {
        Some(from) => {
            into.copy_from_slice(&from[..into.len()]);
            Ok(())
        }
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    };
    let mut each = |logged: &Logged, bytes: &[u8]| {
        let of = |lease: &&RegisteredLease| {
            (lease.slot, lease.number) == (logged.held.slot, logged.held.number)
        };
        if let Some(lease) = row.leases.iter().find(of) {
            write(lease, logged.offset, bytes);
        }
        Ok(())
    };
    // One that was emptied has nothing.
    scan(&mut read, &row.shape, row.begin, &mut each).unwrap_or_default()
}
