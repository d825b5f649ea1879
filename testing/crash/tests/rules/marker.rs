//! Rules about the marker, and about whose superblock it is: R15, R16.

use super::bytes;
use super::log::{dirty_volume, recover_error};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, Layout, VolumeKind, base_image, base_image_of, e2fsck_image};
use siftfs_device::{Cut, Fate, FaultDevice, Image, MemDevice};
use siftfs_fsck::Severity;
use std::sync::Arc;

/// s_feature_incompat of the superblock at this byte.
fn incompat(image: &Image, superblock: u64) -> u32 {
    let b = image.bytes(superblock + 0x60, 4);
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

const MARKER: u32 = 0x2000_0000;

/// While mounted, and after a crash, the marker keeps e2fsck away; afterwards it is gone.
///
/// Seen to fail when the marker is never set.
#[test]
fn r15_the_marker() {
    let clean = base_image();
    assert_eq!(incompat(&clean, 1024) & MARKER, 0);
    assert_eq!(e2fsck_image(&clean), Ok(()));
    let b = Bench::new(VolumeKind::SMALL);
    let mounted = b.device.image(Cut::LoseAll);
    assert_ne!(incompat(&mounted, 1024) & MARKER, 0);
    assert!(e2fsck_image(&mounted).is_err(), "e2fsck must refuse");
    // A journaled superblock keeps it.
    b.durable("f", b"x");
    b.settle();
    let later = b.device.image(Cut::LoseAll);
    assert_ne!(incompat(&later, 1024) & MARKER, 0);
    assert!(e2fsck_image(&later).is_err(), "e2fsck must refuse");
    let closed = b.close();
    assert_eq!(incompat(&closed, 1024) & MARKER, 0);
    assert_eq!(e2fsck_image(&closed), Ok(()));
}

/// The superblock torn between its sectors while the marker is set or cleared: the header holds a
/// copy, and repairs it. Mount and unmount are cut at every boundary.
///
/// Seen to fail when a torn superblock is not put back.
#[test]
fn r15_a_torn_superblock_is_repaired() {
    let device = Arc::new(FaultDevice::from_image(base_image(), 1));
    device.record_history();
    let b = Bench::on_device(device.clone());
    b.durable("f", &bytes(1, 100));
    b.mkdir("d");
    b.close();
    let history = device.take_history().expect("recorded");
    history.each_cut(|cut, cache| {
        let torn = cache.image_with(|w| if w.offset < 4096 { Fate::Prefix(1) } else { Fate::Keep });
        let other =
            cache.image_with(|w| if w.offset < 4096 { Fate::Torn(cut) } else { Fate::Lose });
        for image in [torn, other, cache.image(Cut::Random(cut))] {
            let back = Back::from(&image);
            assert_eq!(incompat(&back.image, 1024) & MARKER, 0);
        }
    });
}

/// Where the only backup superblock of a volume of two block groups lies, in bytes.
const BACKUP: u64 = 32_768 * 4096;
/// Large enough to have it.
const TWO_GROUPS: VolumeKind = VolumeKind { size: 200 << 20, log: 8 << 20, ..VolumeKind::SMALL };

/// e2fsck falls back to a backup superblock, so each has the marker too while the log is in use. No
/// backup has it when the primary has not: the primary gets it first and loses it last, so a change
/// that is half-way is seen as unfinished, and recovery ends it.
///
/// Seen to fail when the backups are left alone, when the primary is marked last, and when it is
/// cleared first.
#[test]
fn r15_the_backups_are_marked_too() {
    let device = Arc::new(FaultDevice::from_image(base_image_of(TWO_GROUPS), 1));
    let magic = device.contents().bytes(BACKUP + 56, 2);
    assert_eq!(magic, [0x53, 0xef], "a backup superblock lies there");
    device.record_history();
    let b = Bench::on_device(device.clone());
    b.durable("f", &bytes(1, 100));
    b.close();
    let (mut in_use, mut half, mut plain) = (0, 0, 0);
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        for image in [cache.image(Cut::LoseAll), cache.image(Cut::Random(cut))] {
            let marked = |at| incompat(&image, at) & MARKER != 0;
            let found = siftfs_fsck::check(&MemDevice::from_image(image.clone()));
            if found.iter().any(|f| f.code == "super.torn") {
                continue;
            }
            assert!(marked(1024) || !marked(BACKUP), "cut {cut}: only a backup is marked");
            assert!(found.iter().all(|f| f.severity != Severity::Error), "cut {cut}: {found:?}");
            match (marked(1024), marked(BACKUP)) {
                (true, true) => in_use += 1,
                (true, false) => half += 1,
                _ => plain += 1,
            }
            // Not before the mount's last step, when nothing was appended, and not after the header
            // said clean.
            let half_way = |code: &str| code == "marker.stale" || code == "marker.pending";
            let log_in_use = marked(1024) && !found.iter().any(|f| half_way(f.code));
            assert!(!log_in_use || marked(BACKUP), "cut {cut}: the log is in use, {found:?}");
            let back = Back::from(&image);
            let found = siftfs_fsck::check(&MemDevice::from_image(back.image));
            assert!(found.iter().all(|f| f.severity == Severity::Info), "cut {cut}: {found:?}");
        }
    });
    assert!(in_use > 0 && half > 0 && plain > 0, "{in_use} in use, {half} half, {plain} plain");
}

/// The header says dirty and the marker is gone: another program changed the area. Stop.
///
/// Seen to fail when a missing marker is not checked.
#[test]
fn r15_marker_and_header_disagree() {
    let (mut image, _) = dirty_volume(3);
    image.write(0, &base_image().bytes(0, 4096));
    let error = recover_error(&image);
    assert!(!matches!(error, Error::Posix(_)), "{error}");
    assert!(error.to_string().len() > 30, "no explanation: {error}");
}

/// An area that belongs to another volume is not given this log.
///
/// Seen to fail when the UUIDs are not compared.
#[test]
fn r16_log_and_area_belong_together() {
    let layout = Layout::of(VolumeKind::SMALL);
    let (mut image, _) = dirty_volume(3);
    let other = {
        let device: Arc<MemDevice> = Arc::new(MemDevice::new(VolumeKind::SMALL.size));
        let shared: Arc<dyn siftfs_device::Device> = device.clone();
        let opts = siftfs_placement::MkfsOptions {
            size: Some(VolumeKind::SMALL.size),
            log_size: Some(VolumeKind::SMALL.log),
            lanes: 1,
            force: true,
            ..Default::default()
        };
        siftfs_placement::mkfs_on(shared.clone(), &opts).expect("mkfs");
        Bench::on(device.snapshot()).crash(Cut::KeepAll)
    };
    let len = usize::try_from(layout.area.end).expect("small");
    image.write(0, &other.bytes(0, len));
    let error = recover_error(&image);
    assert!(error.to_string().len() > 30, "no explanation: {error}");
}

/// `closed`, a plain ext4 volume with a file f, after another system removed f and made a
/// directory.
pub fn changed_by_others(closed: &Image) -> Image {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    closed.save(file.path()).expect("saved");
    let commands = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(commands.path(), "mkdir elsewhere\nrm f\n").expect("written");
    let status = std::process::Command::new("debugfs")
        .args(["-w", "-f"])
        .args([commands.path(), file.path()])
        .output()
        .expect("debugfs runs");
    assert!(status.status.success());
    Image::load(file.path()).expect("loaded")
}

/// A volume that another system changed since the last clean unmount starts with an empty log.
#[test]
fn r16_a_volume_changed_by_others_opens() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 100));
    let back = Back::from(&changed_by_others(&b.close()));
    assert!(back.has("elsewhere") && !back.has("f"));
    let b = Bench::on(back.image);
    b.durable("g", b"new");
    super::every_recovery(b, |back| {
        assert!(back.has("elsewhere") && !back.has("f"));
        assert_eq!(back.bytes("g"), b"new");
    });
}

/// The same, and power is cut while the marker is set: a superblock torn then is put back as the
/// other system left it, not as the last unmount did.
///
/// Seen to fail when the header keeps the superblock of the last unmount.
#[test]
fn r16_a_torn_superblock_is_the_changed_one() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 300_000));
    let changed = changed_by_others(&b.close());
    let device = Arc::new(FaultDevice::from_image(changed, 1));
    device.record_history();
    Bench::on_device(device.clone()).close();
    let mut torn = 0;
    device.take_history().expect("recorded").each_cut(|_, cache| {
        for sectors in [1, 2, 3] {
            let image = cache
                .image_with(|w| if w.offset < 4096 { Fate::Prefix(sectors) } else { Fate::Keep });
            let found = siftfs_fsck::check(&MemDevice::from_image(image.clone()));
            torn += usize::from(found.iter().any(|f| f.code == "super.torn"));
            let back = Back::from(&image);
            assert!(back.has("elsewhere") && !back.has("f"));
        }
    });
    assert!(torn > 0, "the superblock was never torn");
}
