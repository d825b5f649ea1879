//! Rules about logs in mapped memory: R43, and R36 where lines of it are lost.

use super::bytes;
use super::programs::{Folder, Program, dead, recovered};
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_device::{Cut, Device, FaultDevice, Image};
use siftfs_lease::{LOG_BYTES, LogMedium, LogShape, Logged, scan};
use siftfs_placement::LogsPlace;
use std::fs;
use std::os::unix::fs::FileExt;

/// The log's memory under a processor's caches: what is stored is persistent after its write-back
/// and the fence, as far as `persist` is minded.
struct Memory {
    device: FaultDevice,
    /// Batches that were acknowledged, and the operation that came next.
    acknowledged: Vec<u64>,
}

impl Memory {
    fn new() -> Self {
        let device = FaultDevice::new(LOG_BYTES, 1).with_bytes_from(0);
        device.record_history();
        Self { device, acknowledged: Vec::new() }
    }

    /// What an fsync(2) does, or what it must not do: acknowledge a batch that is still in a cache.
    fn batch(&mut self, (place, batch): (u64, &[u8]), persist: bool) {
        self.device.write(place, batch, false).expect("stored");
        if persist {
            self.device.flush().expect("fenced");
        }
        self.acknowledged.push(self.device.ops());
    }

    /// Batches that were acknowledged before this operation.
    fn before(&self, op: u64) -> usize {
        self.acknowledged.iter().filter(|next| **next <= op).count()
    }
}

/// A volume whose files a and b a program writes by a log in memory: the log's batches, the file a
/// after each of them, the folder and the image of the volume.
struct Written {
    memory: Memory,
    shape: LogShape,
    after: Vec<Vec<u8>>,
    image: Image,
    folder: Folder,
}

fn written(persist: bool) -> Written {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("a", &bytes(1, 3000));
    let folder = Folder::new();
    let place = LogsPlace::volatile(&folder.logs);
    let directory = b.driver.volume.private_logs().directory(place).expect("a registry");
    let mut child = dead();
    let mut program = Program::new(&directory, child.id());
    child.kill().and_then(|()| child.wait()).expect("gone");
    let shape = program.row.shape();
    assert_eq!(shape.medium, LogMedium::Volatile);
    let held = program.lease(&b, "a", 1);
    let (mut memory, mut file) = (Memory::new(), bytes(1, 3000));
    let mut after = vec![file.clone()];
    for (n, len) in [(0u64, 8usize), (1, 60), (2, 700), (3, 1), (4, 2500), (5, 130)] {
        let (offset, data) = (n * 400, bytes(n + 10, len as u64));
        let record = Logged { held, offset, time: 1_600_000_000_000_000_000 };
        assert!(program.batches.push(&record, len, |to| to.copy_from_slice(&data)));
        let batch = program.batches.seal(0).expect("there is room");
        memory.batch((batch.place, batch.bytes), persist);
        let end = offset as usize + len;
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(&data);
        after.push(file.clone());
    }
    let image = b.crash(Cut::LoseAll);
    folder.keep();
    Written { memory, shape, after, image, folder }
}

/// Batches that a scan finds in the log's memory, and whether something is told as lost.
fn found(shape: &LogShape, log: &Image) -> (usize, Option<String>) {
    let mut read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&log.bytes(at, into.len()));
        Ok(())
    };
    let scanned = scan(&mut read, shape, 0, &mut |_, _| Ok(())).expect("read");
    (scanned.batches as usize, scanned.lost)
}

/// All that the power may leave of the log, with the operation at which it went.
fn each_cut(memory: &Memory, mut check: impl FnMut(u64, &Image)) {
    let history = memory.device.take_history().expect("recorded");
    history.each_cut(|op, cache| {
        let random = (0..40).map(|seed| Cut::Random(op * 100 + seed));
        for cut in random.chain([Cut::LoseAll, Cut::KeepAll]) {
            check(op, &cache.image(cut));
        }
    });
}

/// Wherever the power goes, in the middle of a batch's lines too: every batch that was acknowledged
/// is found, the one that was on its way is whole or not there, and nothing is told as lost.
///
/// Seen to fail when a batch's checksum covers its header alone, and (below) without the fence.
#[test]
fn r43_a_log_in_memory_has_what_was_acknowledged() {
    let Written { memory, shape, .. } = written(true);
    let (mut cuts, mut between) = (0, 0);
    each_cut(&memory, |op, log| {
        let (batches, lost) = found(&shape, log);
        let least = memory.before(op);
        assert!((least..=least + 1).contains(&batches), "cut {op}: {batches} of {least}");
        assert_eq!(lost, None, "cut {op}");
        cuts += 1;
        between += usize::from(batches > least);
    });
    assert!(cuts > 400 && between > 10, "{cuts} cuts, {between} with a batch too many");
}

/// The same without write-back and fence: the test above would find that.
#[test]
fn r43_without_a_fence_what_was_acknowledged_is_lost() {
    let Written { memory, shape, .. } = written(false);
    let mut missed = 0;
    each_cut(&memory, |op, log| {
        missed += u32::from(found(&shape, log).0 < memory.before(op));
    });
    assert!(missed > 50, "{missed} cuts");
}

/// A recovery from some of these cuts: the file is what it was after the batches that are there.
#[test]
fn r36_a_torn_log_in_memory_is_taken_in() {
    let Written { memory, shape, after, image, folder } = written(true);
    let path = |folder: &Folder| {
        let log = folder.files().into_iter().find(|path| path.to_string_lossy().contains("/log-"));
        log.expect("the log")
    };
    let (mut seen, mut turn) = (0, 0);
    each_cut(&memory, |op, log| {
        turn += 1;
        if turn % 23 != 0 {
            return;
        }
        folder.bring_back();
        // The kept one stays as it is.
        let path = path(&folder);
        fs::remove_file(&path).expect("a link");
        let file = fs::File::create_new(&path).expect("made");
        file.write_all_at(&log.bytes(0, LOG_BYTES as usize), 0).expect("written");
        let (batches, _) = found(&shape, log);
        let (image, report) = recovered(&image);
        assert_eq!(report.batches as usize, batches, "cut {op}");
        assert!(report.lost.is_empty(), "cut {op}: {:?}", report.lost);
        assert!(Back::from(&image).bytes("a") == after[batches], "cut {op}: {batches} batches");
        assert!(folder.files().is_empty(), "{:?}", folder.files());
        seen |= 1 << batches;
    });
    assert!(seen == (1 << after.len()) - 1, "each number of batches: {seen:b}");
}
