//! Unlinked files that are still open: part of rules R2 and R18.

use super::bytes;
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_device::Cut;
use siftfs_proto::Request;

/// An open, unlinked file may be named by a record that comes late: memory pressure stages its
/// overwrites. Recovery journals what it has applied when its transaction fills, and must not free
/// the file's blocks and number with it.
///
/// Seen to fail (the volume is refused) when recovery frees orphans before all records are applied.
#[test]
fn r18_a_late_record_of_an_unlinked_file_is_applied() {
    let b = Bench::new(VolumeKind::SMALL);
    let len = 1 << 20;
    let ino = b.durable("f", &bytes(1, len));
    b.settle();
    b.open("f");
    b.unlink("f");
    b.commit(false);
    for i in 0..20 {
        let name = format!("g{i}");
        b.durable(&name, &bytes(i, 100));
    }
    // More than the share of the cache that may stay dirty: the next commit pushes it.
    for at in (0..len).step_by(100_000) {
        let data = bytes(2, 100_000);
        let req = Request::write(ino, at, data);
        b.call(req).expect("an open file can be written");
    }
    b.device.record_history();
    b.commit(false);
    let history = b.device.take_history().expect("recorded");
    b.stop();
    let mut cuts = 0;
    history.each_cut(|cut, cache| {
        cuts += 1;
        let back = Back::from(&cache.image(Cut::KeepAll));
        for i in 0..20 {
            assert_eq!(back.bytes(&format!("g{i}")), bytes(i, 100), "cut {cut}");
        }
        assert!(!back.has("f"));
    });
    assert!(cuts > 2, "overwrites were staged before the transaction");
}
