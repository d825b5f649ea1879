//! What is not a volume, not whole, not ours, or breaks while in use: one clear message, the right
//! errno, never a panic, a hang or silent loss.

mod disk;
mod faults;
mod header;
mod places;
mod redo_lane;
mod trees;

use siftfs_base::Error;
use siftfs_crash::{Back, Bench, Layout, VolumeKind, base_image, deterministic, open};
use siftfs_device::{Cut, Device, Fault, FaultDevice, Image, MemDevice, OpClass};
use siftfs_model::pattern;
use siftfs_placement::{LocalVolume, OpenOptions, mkfs, recover, recover_on};
use std::sync::Arc;

/// Opening and recovering `image` both fail; the message of the first.
fn refused(what: &str, image: &Image) -> Error {
    let device =
        |image: &Image| -> Arc<dyn Device> { Arc::new(MemDevice::from_image(image.clone())) };
    let Err(error) = open(device(image)) else { panic!("{what}: opened") };
    let Err(other) = recover_on(device(image), &deterministic()) else {
        panic!("{what}: recovered")
    };
    println!("{what}: {error}");
    for e in [&error, &other] {
        let text = e.to_string();
        assert!(text.len() > 25 && text.len() < 400, "{what}: no clear message: {text}");
        assert!(!matches!(e, Error::Posix(_)), "{what}: a bare errno: {text}");
    }
    error
}

/// Opening `image` works, and so does e2fsck after recovery.
fn serves(what: &str, image: &Image) -> Back {
    let device = Arc::new(MemDevice::from_image(image.clone()));
    recover_on(device.clone(), &deterministic()).unwrap_or_else(|e| panic!("{what}: {e}"));
    Back::from(&device.snapshot())
}

fn layout() -> Layout {
    layout_of(VolumeKind::SMALL)
}

fn layout_of(kind: VolumeKind) -> Layout {
    Layout::of(kind)
}

/// A dirty volume with a few acknowledged files.
fn dirty() -> Image {
    let b = Bench::new(VolumeKind::SMALL);
    for i in 0..30 {
        b.durable(&format!("f{i}"), &pattern(i, 0, 900));
    }
    b.commit(true);
    for i in 0..10 {
        b.durable(&format!("g{i}"), &pattern(i, 0, 900));
    }
    b.crash(Cut::LoseAll)
}

fn scribbled(image: &Image, offset: u64, len: usize) -> Image {
    let device = FaultDevice::from_image(image.clone(), 1);
    device.scribble(offset, len, 7);
    device.contents()
}

#[test]
fn not_a_volume() {
    refused("zeros", &Image::new(16 << 20));
    refused("empty", &Image::new(0));
    refused("one sector", &Image::new(512));
    let mut noise = Image::new(4 << 20);
    noise.write(0, &pattern(1, 0, 4 << 20));
    refused("noise", &noise);
    let layout = layout();
    let mut ext4 = Image::new(layout.area.end);
    let len = usize::try_from(layout.area.end).expect("small");
    ext4.write(0, &base_image().bytes(0, len));
    refused("plain ext4 without a log", &ext4);
}

#[test]
fn truncated() {
    let layout = layout();
    for image in [base_image(), dirty()] {
        for size in [layout.area.end / 2, layout.header.end, layout.staging.start + 4096] {
            let mut short = Image::new(size);
            short.write(0, &image.bytes(0, usize::try_from(size).expect("small")));
            refused("truncated", &short);
        }
    }
}

#[test]
fn one_header_copy_serves_the_other() {
    let layout = layout();
    for image in [base_image(), dirty()] {
        for copy in [&layout.header, &layout.tail] {
            for (at, len) in [(0, 65_536), (100, 10), (4096, 8192), (3 * 4096, 8192)] {
                let back = serves("one copy", &scribbled(&image, copy.start + at, len));
                if image == dirty_again(&image) {
                    assert_eq!(back.bytes("g9"), pattern(9, 0, 900));
                }
            }
        }
    }
}

/// `image` itself if it is a dirty one (has its marker), else something else.
fn dirty_again(image: &Image) -> Image {
    let flags = image.bytes(1024 + 0x60, 4);
    if flags[3] & 0x20 != 0 { image.clone() } else { Image::new(0) }
}

#[test]
fn both_headers_corrupt() {
    let layout = layout();
    for image in [base_image(), dirty()] {
        let one = scribbled(&image, layout.header.start, 4096);
        refused("both headers", &scribbled(&one, layout.tail.start, 4096));
    }
}

/// Any byte of the static header, the records or the superblock may be wrong: never a panic, and
/// what opens is whole.
#[test]
fn any_corrupt_byte_is_survived() {
    let layout = layout();
    let image = dirty();
    let places = [
        (layout.header.start, 4096 * 5),
        (layout.journal.start, 40_000),
        (layout.staging.start, 60_000),
        (1024, 1024),
        (4096, 40_000),
    ];
    for (start, len) in places {
        for i in 0..60u64 {
            let at = start + siftfs_model::mix(i + start) % len;
            let device = FaultDevice::from_image(image.clone(), 1);
            device.flip_bits(at, 1 << (i % 8));
            let device: Arc<dyn Device> = Arc::new(MemDevice::from_image(device.contents()));
            match recover_on(device, &deterministic()) {
                Ok(_) => {}
                Err(e) => assert!(e.to_string().len() > 20, "byte {at}: {e}"),
            }
        }
    }
}

/// An ext4 area that was grown over the first header copy: the one at the device's end tells.
#[test]
fn an_area_grown_over_the_header() {
    let layout = layout();
    let dirty = scribbled(&dirty(), layout.header.start, 65_536);
    assert_eq!(serves("first header overwritten", &dirty).bytes("g3"), pattern(3, 0, 900));
    // resize2fs knows nothing of the log and grows the file system to the end of the device.
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    base_image().save(file.path()).expect("saved");
    let out = std::process::Command::new("resize2fs").arg("-f").arg(file.path()).output();
    assert!(out.expect("resize2fs runs").status.success());
    refused("grown area", &Image::load(file.path()).expect("loaded"));
}

/// Blocks of the area's own metadata that fail their checksums: a caller that needs them is told,
/// before or after the volume opens.
#[test]
fn an_ext4_area_with_bad_checksums() {
    let damaged = ["group descriptors", "block bitmap", "inode bitmap", "inode table"];
    for (nr, what) in (1..).zip(damaged) {
        let image = scribbled(&base_image(), nr * 4096, 4096);
        let device: Arc<dyn Device> = Arc::new(MemDevice::from_image(image));
        let used = open(device).and_then(|driver| {
            let service = driver.volume.endpoint();
            let caller = siftfs_model::Caller::root(&*service);
            let parent = siftfs_proto::ROOT_INO;
            let name = b"new".to_vec();
            let req = siftfs_proto::Request::Create { parent, name, perm: 0o644 };
            let used = caller.walk().and_then(|_| caller.call(req));
            let synced = used.and_then(|reply| match reply {
                siftfs_proto::Reply::Created { attr, .. } => {
                    let (ino, data) = (attr.ino, vec![1; 9000]);
                    let req = siftfs_proto::Request::write(ino, 0, data);
                    caller.call(req).and_then(|_| siftfs_model::Control::commit(&driver, true))
                }
                other => panic!("{other:?}"),
            });
            drop(service);
            driver.volume.abandon();
            synced
        });
        let Err(error) = used else { panic!("{what}: nobody noticed") };
        let first = error.to_string();
        assert!(first.contains("corrupt "), "{what}: {first}");
        let errno = if matches!(error, Error::Latched(_)) { libc::EIO } else { libc::EUCLEAN };
        assert_eq!(error.errno(), errno, "{what}: {first}");
    }
}

/// A directory's block, broken on a clean volume: reading there is EUCLEAN; other files are
/// unaffected.
#[test]
fn a_broken_directory_block_is_an_error_for_its_readers_only() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("d");
    b.durable("d/inside-the-broken-directory", b"x");
    b.durable("ok", b"fine");
    let image = b.close();
    let needle = b"inside-the-broken-directory";
    let at = (0..layout().area.end / 4096)
        .find(|nr| {
            let block = image.bytes(nr * 4096, 4096);
            block.windows(needle.len()).any(|w| w == needle)
        })
        .expect("the directory's block");
    let b = Bench::on(scribbled(&image, at * 4096 + 40, 4));
    let caller = siftfs_model::Caller::root(&*b.service);
    let error = caller.read_dir(b.ino("d")).expect_err("a bad checksum");
    assert_eq!(error.errno(), libc::EUCLEAN, "{error}");
    assert_eq!(b.read("ok"), b"fine");
    b.durable("new", b"works");
    b.stop();
}

/// The disk fills: ENOSPC at the write, everything accepted is kept, and removing makes room.
#[test]
fn a_full_disk() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("precious", &pattern(1, 0, 50_000));
    b.create("f");
    let mut at = 0;
    let error = loop {
        match b.try_write("f", at, &pattern(2, at, 100_000)) {
            Ok(()) => at += 100_000,
            Err(e) => break e,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    b.fsync("f");
    assert_eq!(b.read("precious"), pattern(1, 0, 50_000));
    b.unlink("f");
    b.durable("g", &pattern(3, 0, 1 << 20));
    let image = b.close();
    let back = Back::from(&image);
    assert!(back.bytes("g") == pattern(3, 0, 1 << 20));
}

/// Reads that fail: an errno, and nothing latched for others.
#[test]
fn an_error_on_a_read() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &pattern(1, 0, 100_000));
    let image = b.close();
    let b = Bench::on(image);
    let ino = b.ino("f");
    let fault = b.device.inject(Fault::fail(OpClass::Read, libc::EIO));
    let caller = siftfs_model::Caller::root(&*b.service);
    let error = caller.read(ino, 0, 4096).expect_err("the read fails");
    assert_eq!(error.errno(), libc::EIO);
    b.device.remove(fault);
    assert_eq!(b.read("f"), pattern(1, 0, 100_000));
    b.durable("g", b"x");
    b.stop();
}

#[test]
fn messages_for_files_that_are_no_volume() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let quiet = &mut |_: &str, _: u64, _: u64| {};
    let opts = OpenOptions::default();
    let missing = dir.path().join("missing");
    let Err(error) = LocalVolume::open(&missing, &opts, quiet) else { panic!("opened") };
    assert!(error.to_string().contains("missing"), "{error}");
    let text = dir.path().join("text");
    std::fs::write(&text, "hello").expect("written");
    assert!(LocalVolume::open(&text, &opts, quiet).is_err());
    assert!(recover(&text, &opts, quiet).is_err());
    assert_eq!(std::fs::read(&text).expect("read"), b"hello", "left alone");
}

/// mkfs does not overwrite something unless told to.
#[test]
fn mkfs_refuses_what_is_in_use() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("volume");
    let quiet = &mut |_: &str, _: u64, _: u64| {};
    let mut opts = siftfs_placement::MkfsOptions { size: Some(32 << 20), ..Default::default() };
    mkfs(&path, &opts, quiet).expect("a new volume");
    let Err(error) = mkfs(&path, &opts, quiet) else { panic!("overwrote a volume") };
    assert!(matches!(error, Error::Refused(_)), "{error}");
    opts.force = true;
    mkfs(&path, &opts, quiet).expect("forced");
    opts.size = Some(1 << 20);
    assert!(mkfs(&dir.path().join("tiny"), &opts, quiet).is_err(), "too small");
}
