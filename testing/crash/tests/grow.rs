//! Growing a volume: power cuts at every device operation leave the old volume or the new one, and
//! growing may be tried again.

use siftfs_crash::{
    Bench, ImageKind, VolumeKind, base_image_of, deterministic, devices, e2fsck_image,
    fault_device, mem_media, recover_image, walk_image,
};
use siftfs_device::{Cut, Device, Divisible, Fault, Image, MemDevice, OpClass, Part};
use siftfs_fsck::Severity;
use siftfs_model::pattern;
use siftfs_model::tree::{Tree, differences};
use siftfs_placement::{GrowReport, Media, MkfsOptions, grow_on, mkfs_on, recover_on};
use siftfs_volume::{AreaSuper, HeaderView};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// The length of the file system in an image.
fn area_len(image: &Image) -> u64 {
    AreaSuper::parse(&image.bytes(1024, 1024)).expect("a superblock").len
}

fn header(image: &Image) -> HeaderView {
    mem_media(image).1.read().expect("a header")
}

/// A volume of this kind with some files, at the start of a device of `size` bytes; unmounted, or
/// as a power cut leaves it.
fn start(kind: VolumeKind, size: u64, unmounted: bool) -> Image {
    let base = base_image_of(kind);
    let mut image = Image::new(size);
    image.write(0, &base.bytes(0, base.size() as usize));
    let b = Bench::on(image);
    b.mkdir("d");
    for i in 0..20 {
        b.durable(&format!("d/f{i}"), &pattern(i, 0, 3000 * i + 1));
    }
    b.write_large("large", &pattern(77, 0, 2 << 20));
    if unmounted {
        return b.close();
    }
    b.fsync("large");
    let image = b.device.image(Cut::LoseAll);
    b.stop();
    image
}

fn grow_image(image: &Image) -> Result<(Image, GrowReport), siftfs_base::Error> {
    let (device, media) = mem_media(image);
    let report = grow_on(media, &deterministic(), &mut |_, _, _| {})?;
    Ok((device.snapshot(), report))
}

/// Every judge of a volume is content with `image`, and it holds `want`.
fn judge(image: &Image, want: &Tree) -> Result<Image, String> {
    let media = mem_media(image).1;
    let found = siftfs_fsck::check_on(devices(&media));
    let errors: Vec<_> = found.iter().filter(|f| f.severity == Severity::Error).collect();
    if !errors.is_empty() {
        return Err(format!("fsck: {errors:?}"));
    }
    let recovered = recover_image(image)?;
    e2fsck_image(&recovered)?;
    let found = differences(want, &walk_image(&recovered)?, true);
    if found.is_empty() { Ok(recovered) } else { Err(found.join("\n")) }
}

/// How often a cut left the old volume, the old one with its log moved, and the larger one.
#[derive(Debug, Default)]
struct Left {
    old: usize,
    moved: usize,
    new: usize,
}

/// Cuts a growth of `image` at every device operation, of which every `stride`th is tried.
fn cut_everywhere(image: &Image, stride: u64) -> Left {
    let recovered = recover_image(image).unwrap();
    let (want, before) = (walk_image(&recovered).unwrap(), area_len(image));
    let old = header(image).header;
    let (grown, _) = grow_image(image).unwrap();
    let after = area_len(&grown);
    assert!(after > before);
    judge(&grown, &want).unwrap();
    let device = Arc::new(fault_device(image.clone(), 0));
    device.record_history();
    grow_on(device.clone(), &deterministic(), &mut |_, _, _| {}).unwrap();
    let history = device.take_history().unwrap();
    let (mut left, mut last) = (Left::default(), 0);
    history.each_cut(|cut, _| last = cut);
    history.each_cut(|cut, cache| {
        if !cut.is_multiple_of(stride) && cut != last {
            return;
        }
        for kind in ImageKind::choose(cache, 7, cut) {
            let cut_off = cache.image(kind.0);
            let said = |e: String| panic!("cut {cut} of {last}, {kind:?}: {e}");
            let recovered = judge(&cut_off, &want).unwrap_or_else(said);
            let moved = header(&cut_off).header != old;
            match area_len(&recovered) {
                len if len == after => left.new += 1,
                len if len == before && moved => left.moved += 1,
                len if len == before => left.old += 1,
                len => {
                    panic!("cut {cut}: a file system of {len} bytes, {before} or {after} wanted")
                }
            }
            // Once more: the file system is as long as it should be afterwards.
            match grow_image(&cut_off) {
                Ok((again, report)) => {
                    assert_eq!((report.area_bytes, area_len(&again)), (after, after));
                    judge(&again, &want).unwrap_or_else(said);
                }
                Err(error) => assert_eq!(area_len(&recovered), after, "cut {cut}: {error}"),
            }
        }
    });
    left
}

/// Seen to fail when what changes of the old file system is written at once, and not by the
/// journal.
#[test]
fn a_cut_anywhere_in_a_growth_inside_one_group_leaves_the_old_volume_or_the_new_one() {
    let left = cut_everywhere(&start(VolumeKind::SMALL, 40 * MIB, true), 1);
    assert!(left.old > 0 && left.moved > 0 && left.new > 0, "{left:?}");
}

#[test]
fn a_cut_anywhere_in_a_growth_by_groups_leaves_the_old_volume_or_the_new_one() {
    let left = cut_everywhere(&start(VolumeKind::TWO_LANES, 300 * MIB, true), 1);
    assert!(left.old > 0 && left.moved > 0 && left.new > 0, "{left:?}");
}

/// What is in the log comes into the file system first.
#[test]
fn a_dirty_volume_is_recovered_and_grown_wherever_it_is_cut() {
    let image = start(VolumeKind::SMALL, 40 * MIB, false);
    assert!(grow_image(&image).unwrap().1.recovered);
    let left = cut_everywhere(&image, 5);
    assert!(left.old > 0 && left.new > 0, "{left:?}");
}

#[test]
fn a_redo_lane_moves_with_the_log() {
    let kind = VolumeKind::SMALL.with_redo_lane();
    let image = start(kind, 60 * MIB, true);
    let left = cut_everywhere(&image, 4);
    assert!(left.old > 0 && left.new > 0, "{left:?}");
    let (grown, report) = grow_image(&image).unwrap();
    let (old, new) = (header(&image).header, header(&grown).header);
    assert!(report.log_moved && new.redo.unwrap().offset > old.redo.unwrap().offset);
    assert_eq!(new.redo.unwrap().len, old.redo.unwrap().len);
}

/// The new space is used, by a file that the old volume had no room for, and it lasts.
#[test]
fn a_grown_volume_is_used_to_its_end() {
    let (grown, report) = grow_image(&start(VolumeKind::SMALL, 300 * MIB, true)).unwrap();
    assert_eq!(report.area_bytes, area_len(&grown));
    assert!(report.log_moved && !report.recovered);
    let b = Bench::on(grown);
    let bytes = pattern(5, 0, 40 << 20);
    b.write_large("larger than it was", &bytes);
    b.fsync("larger than it was");
    let (cut, unmounted) = (b.device.image(Cut::LoseAll), b.close());
    for image in [recover_image(&cut).unwrap(), unmounted] {
        e2fsck_image(&image).unwrap();
        let tree = walk_image(&image).unwrap();
        let seen = &tree.nodes[&tree.lookup("/larger than it was").unwrap()];
        assert_eq!(seen.attr.size, bytes.len() as u64);
    }
    // And once more, by a log that was moved before.
    let mut longer = Image::new(600 * MIB);
    longer.write(0, &bytes_of(&recover_image(&cut).unwrap()));
    let (again, _) = grow_image(&longer).unwrap();
    e2fsck_image(&again).unwrap();
    assert!(area_len(&again) > 590 * MIB);
}

fn bytes_of(image: &Image) -> Vec<u8> {
    image.bytes(0, image.size() as usize)
}

/// A log on a device of its own stays where it is. Both devices are parts of one here, so that one
/// order of operations covers both.
#[test]
fn a_log_elsewhere_stays_and_the_file_system_grows_to_its_devices_end() {
    const AREA: u64 = 200 * MIB;
    const LOG: u64 = 8 * MIB;
    let split = |device: Arc<dyn Divisible>| {
        let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(device.clone(), range)) };
        Media::split(part(0..AREA), part(AREA..AREA + LOG))
    };
    let mem = Arc::new(MemDevice::new(AREA + LOG));
    let opts =
        MkfsOptions { size: Some(16 * MIB), lanes: 1, force: true, ..MkfsOptions::default() };
    mkfs_on(split(mem.clone()), &opts).unwrap();
    let image = mem.snapshot();
    let device = Arc::new(fault_device(image.clone(), 0));
    device.record_history();
    let report = grow_on(split(device.clone()), &deterministic(), &mut |_, _, _| {}).unwrap();
    assert_eq!((report.area_bytes, report.log_moved), (AREA, false));
    let history = device.take_history().unwrap();
    let (mut old, mut new) = (0, 0);
    history.each_cut(|cut, cache| {
        for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(cut)] {
            let left = Arc::new(MemDevice::from_image(cache.image(kind)));
            recover_on(split(left.clone()), &deterministic()).unwrap();
            let mut area = Image::new(AREA);
            area.write(0, &left.snapshot().bytes(0, AREA as usize));
            e2fsck_image(&area).unwrap_or_else(|e| panic!("cut {cut}: {e}"));
            match area_len(&area) {
                AREA => new += 1,
                len if len == 16 * MIB => old += 1,
                len => panic!("cut {cut}: {len} bytes"),
            }
            if area_len(&area) < AREA {
                let again = grow_on(split(left.clone()), &deterministic(), &mut |_, _, _| {});
                assert_eq!(again.unwrap().area_bytes, AREA, "cut {cut}");
            }
        }
    });
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// Nothing changes where a bound is met, and the message says which.
#[test]
fn bounds_are_named_and_nothing_is_written() {
    let refused = |image: &Image, why: &str| {
        let (device, media) = mem_media(image);
        let said = grow_on(media, &deterministic(), &mut |_, _, _| {}).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
        assert!(device.snapshot() == *image, "nothing was written");
    };
    // The log has to move behind its old end: 16 MiB, and its own length.
    refused(&start(VolumeKind::SMALL, 17 * MIB, true), "(--size 19584K)");
    refused(&start(VolumeKind::SMALL, 16 * MIB, true), "too few to grow it");
    refused(&start(VolumeKind::SMALL, 40 * MIB + 512, true), "no whole number of blocks");
    // The table of descriptors: one block of them for 64 groups.
    refused(&start(VolumeKind::SMALL, 9000 * MIB, true), "(--size 8195M)");
}

/// An error of the device in the middle is reported, and the volume opens.
#[test]
fn a_write_that_fails_leaves_a_volume() {
    let image = start(VolumeKind::SMALL, 40 * MIB, true);
    let want = walk_image(&image).unwrap();
    for nth in [1, 3, 5, 8, 12] {
        for class in [OpClass::Write, OpClass::Flush] {
            let device = Arc::new(fault_device(image.clone(), 0));
            let fault = device.inject(Fault::fail(class, libc::EIO).after(nth).once());
            let done = grow_on(device.clone(), &deterministic(), &mut |_, _, _| {});
            assert_eq!(done.is_err(), device.fired(fault) > 0, "{class:?} {nth}");
            judge(&device.image(Cut::LoseAll), &want).unwrap();
        }
    }
}
