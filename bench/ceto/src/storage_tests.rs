use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const TIME: Duration = Duration::from_millis(5);
/// Writes that are to be under way at once, and how long that is waited for.
const BESIDE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// A device that a test plays: a write returns when others are under way beside it.
#[derive(Default)]
struct Played {
    writes: AtomicUsize,
    batches: AtomicUsize,
}

impl Device for Played {
    fn size(&self) -> u64 {
        1 << 20
    }
    fn read(&self, _offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(7);
        Ok(())
    }
    fn write(&self, _offset: u64, _data: &[u8], _fua: bool) -> Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while self.writes.load(Ordering::SeqCst) < BESIDE {
            assert!(begun.elapsed() < PATIENCE, "one after the other");
            thread::yield_now();
        }
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.batches.fetch_add(ops.len(), Ordering::SeqCst);
        Ok(())
    }
}

#[track_caller]
fn takes_its_time(io: impl FnOnce() -> Result<()>) {
    let begun = Instant::now();
    io().unwrap();
    assert!(begun.elapsed() >= TIME);
}

/// Each access takes its time and does what it is to, and a batch stays one.
#[test]
fn every_access_takes_its_time() {
    let device = Modelled::new(Played::default(), TIME);
    let mut data = [0; 512];
    takes_its_time(|| device.read(4096, &mut data));
    assert_eq!(data, [7; 512]);
    takes_its_time(|| device.flush());
    let ops = [0, 4096, 8192].map(|offset| WriteOp { offset, data: &[1; 512] });
    takes_its_time(|| device.write_batch(&ops));
    let Played { writes, batches } = &device.inner;
    assert_eq!((writes.load(Ordering::SeqCst), batches.load(Ordering::SeqCst)), (0, 3));
    assert!(device.describe().why.contains("5ms"));
}

/// Accesses of several threads are under way at once.
#[test]
fn accesses_run_beside_each_other() {
    let device = Modelled::new(Played::default(), TIME);
    thread::scope(|scope| {
        for at in 0..BESIDE as u64 {
            let device = &device;
            scope.spawn(move || takes_its_time(|| device.write(at * 4096, &[1; 512], true)));
        }
    });
}
