//! Every place of the header, damaged in one copy and in both, of volumes with acknowledged data
//! that is in the log alone: recovery brings all of it back, or refuses and says why.

use siftfs_crash::{
    Back, Bench, Split, VolumeKind, base_image_of, deterministic, devices, mem_media, open,
    recover_image,
};
use siftfs_device::{Cut, Image};
use siftfs_fsck::{Severity, check_on};
use siftfs_model::pattern;
use siftfs_placement::recover_on;

const BLOCK: u64 = 4096;
const COPY: u64 = 65_536;
/// The static part, two host slots, two service slots.
const BLOCKS: [&str; 5] = ["static part", "host A", "host B", "service A", "service B"];

/// Where the two copies of `image`'s header begin, and where the journal does.
fn copies(image: &Image) -> [u64; 2] {
    let area = u64::from(u32::from_le_bytes(image.bytes(1024 + 4, 4).try_into().expect("4 bytes")));
    [Split::of(image).log.unwrap_or(area * BLOCK), image.size() - COPY]
}

fn block(image: &Image, copy: usize, nr: usize) -> u64 {
    copies(image)[copy] + nr as u64 * BLOCK
}

/// What is done to a place.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// One bit of this byte is another.
    Flip(u64),
    /// All zero.
    Zero,
    /// As it was in an older image of the volume.
    Older,
}

/// The primary superblock, as a place beside the header's blocks.
const SUPERBLOCK: usize = BLOCKS.len();
/// Where it lies, and how long it is.
const SUPER: (u64, usize) = (1024, 1024);

fn damaged(image: &Image, older: &Image, nr: usize, which: &[usize], how: Damage) -> Image {
    let mut out = image.clone();
    for &copy in which {
        let place = |image: &Image| match nr {
            SUPERBLOCK => SUPER,
            _ => (block(image, copy, nr), BLOCK as usize),
        };
        let (at, len) = place(image);
        match how {
            Damage::Flip(byte) => {
                let byte = at + byte % len as u64;
                out.write(byte, &[image.bytes(byte, 1)[0] ^ 0x10]);
            }
            Damage::Zero => out.write(at, &vec![0; len]),
            Damage::Older => out.write(at, &older.bytes(place(older).0, len)),
        }
    }
    out
}

/// A volume with a history, and what is acknowledged on it.
struct Case {
    name: &'static str,
    kind: VolumeKind,
    image: Image,
    older: Image,
    files: Vec<(String, Vec<u8>)>,
}

/// Mounted once before, in use for the second time; `laps` rounds of commits and checkpoints, of
/// which each fills a good part of the log.
fn case(name: &'static str, kind: VolumeKind, laps: u64) -> Case {
    let mut files = Vec::new();
    let b = Bench::new(kind);
    b.durable("first", &pattern(1, 0, 3000));
    files.push(("first".to_string(), pattern(1, 0, 3000)));
    let older = b.device.image(Cut::KeepAll);
    let b = Bench::on(b.close());
    for lap in 0..laps {
        // Replaced and removed again: blocks and numbers are used by one file after the other.
        for i in 0..12 {
            b.durable(&format!("lap{i}"), &pattern(100 * lap + i, 0, 14_000 + 3000 * (lap % 3)));
        }
        b.commit(true);
        b.checkpoint();
        for i in 0..12 {
            b.unlink(&format!("lap{i}"));
        }
        b.commit(true);
        b.checkpoint();
    }
    for i in 0..12 {
        let (name, data) = (format!("f{i}"), pattern(i, 0, 2900));
        b.durable(&name, &data);
        files.push((name, data));
        if i == 5 {
            b.commit(true);
        }
    }
    Case { name, kind, image: b.crash(Cut::KeepAll), older, files }
}

/// In use for the first time, as many volumes are that break: the other host slot is mkfs's.
fn first_mount() -> Case {
    let kind = VolumeKind::SMALL;
    let b = Bench::new(kind);
    let files: Vec<_> = (0..20).map(|i| (format!("f{i}"), pattern(i, 0, 2900))).collect();
    for (name, data) in &files {
        b.durable(name, data);
    }
    let (image, older) = (b.crash(Cut::KeepAll), base_image_of(kind));
    Case { name: "first mount", kind, image, older, files }
}

/// A mount whose Service has given nothing back yet, behind one that left at once what is longer
/// than the longest record of journal and lane.
fn behind_a_long_step() -> Case {
    let kind = VolumeKind::SMALL;
    let b = Bench::new(kind);
    b.durable("first", &pattern(1, 0, 3000));
    let older = b.device.image(Cut::KeepAll);
    let mut files = vec![("first".to_string(), pattern(1, 0, 3000))];
    for i in 0..45 {
        let file = (format!("long{i}"), pattern(i, 0, 16_000));
        b.durable(&file.0, &file.1);
        files.push(file);
    }
    let b = Bench::on(b.close());
    for i in 0..5 {
        let file = (format!("f{i}"), pattern(i, 0, 2900));
        b.durable(&file.0, &file.1);
        files.push(file);
    }
    Case { name: "behind a long step", kind, image: b.crash(Cut::KeepAll), older, files }
}

/// What the last checkpoint gave back is in use again: the service record before the newest says
/// that things lie where newer ones are now.
fn reused() -> Case {
    let kind = VolumeKind::SMALL;
    let mut files = Vec::new();
    let b = Bench::new(kind);
    b.durable("first", &pattern(1, 0, 3000));
    let older = b.device.image(Cut::KeepAll);
    let b = Bench::on(b.close());
    let fill = |b: &Bench, prefix: &str, percent: u64| {
        let mut made = Vec::new();
        let lane = |b: &Bench| b.status().log.lanes[0];
        let (len, from) = (lane(b).bytes, lane(b).head);
        while (lane(b).head - from) * 100 < len * percent {
            let i = made.len() as u64;
            let file = (format!("{prefix}{i}"), pattern(i, 0, 20_000));
            b.durable(&file.0, &file.1);
            made.push(file);
        }
        made
    };
    for round in ["x", "y"] {
        let gone = fill(&b, round, 55);
        b.commit(true);
        for (name, _) in &gone {
            b.unlink(name);
        }
        b.commit(true);
        b.checkpoint();
    }
    files.extend(fill(&b, "f", 65));
    Case { name: "reused log", kind, image: b.crash(Cut::KeepAll), older, files }
}

/// A volume that a recovery had begun to bring back, and that was cut off in it.
fn cut_in_recovery() -> Case {
    let Case { kind, image, older, files, .. } = case("", VolumeKind::SMALL, 2);
    let device = siftfs_device::FaultDevice::from_image(image, 1);
    let device = std::sync::Arc::new(device);
    device.record_history();
    recover_on(device.clone(), &deterministic()).expect("recovers");
    let history = device.take_history().expect("recorded");
    let mut images = Vec::new();
    history.each_cut(|_, cache| images.push(cache.image(Cut::KeepAll)));
    let image = images.swap_remove(images.len() * 3 / 5);
    Case { name: "cut in recovery", kind, image, older, files }
}

impl Case {
    /// All that was acknowledged is there, or recovery and mount refuse with a message; and `siftfs
    /// fsck` called it an error, if they do.
    fn judge(&self, what: &str, image: &Image) -> bool {
        let what = format!("{}, {what}", self.name);
        let (_, media) = mem_media(image);
        let errors = check_on(devices(&media));
        let errors = errors.iter().filter(|f| f.severity == Severity::Error).count();
        match recover_image(image) {
            Ok(_) => {
                let back = Back::from(image);
                for (name, data) in &self.files {
                    let found = back.bytes(name);
                    let len = found.len();
                    assert!(found == *data, "{what}: {name} has {len} bytes, silently");
                }
                assert_eq!(errors, 0, "{what}: fsck finds errors in what recovers");
                true
            }
            Err(_) => {
                let (_, media) = mem_media(image);
                let Err(error) = recover_on(media, &deterministic()) else {
                    panic!("{what}: refused once")
                };
                let text = error.to_string();
                assert!(text.len() > 25 && text.len() < 500, "{what}: no clear message: {text}");
                assert!(
                    open(mem_media(image).1).is_err(),
                    "{what}: recovery refuses, mount does not"
                );
                assert!(errors > 0, "{what}: recovery refuses ({text}), fsck finds nothing");
                false
            }
        }
    }
}

/// Bytes of a block that the test flips: one of each field, and of what is reserved.
fn places(nr: usize) -> Vec<u64> {
    let fields: &[u64] = match nr {
        0 => &[0, 8, 12, 16, 20, 24, 28, 32, 48, 64, 72, 80, 88, 96, 104, 112, 256, 264, 1280],
        1 | 2 => &[0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 84, 88, 216, 344, 1024, 2048],
        _ => &[0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 192],
    };
    let all = std::env::var_os("SIFTFS_LONG").is_some();
    let every = if all { 61 } else { 1999 };
    fields.iter().copied().chain((0..BLOCK).step_by(every)).chain([BLOCK - 1]).collect()
}

fn systematic(case: &Case) {
    let (mut recovered, mut refused) = (0, 0);
    assert!(case.judge("undamaged", &case.image));
    for (nr, name) in BLOCKS.iter().enumerate() {
        for which in [&[0][..], &[1], &[0, 1]] {
            let flips = places(nr).into_iter().map(Damage::Flip);
            for how in flips.chain([Damage::Zero, Damage::Older]) {
                let image = damaged(&case.image, &case.older, nr, which, how);
                let served = case.judge(&format!("{name}, copies {which:?}, {how:?}"), &image);
                assert!(served || which.len() == 2, "{}, {name}: one copy serves", case.name);
                recovered += u32::from(served);
                refused += u32::from(!served);
            }
        }
    }
    println!("{} {:?}: {recovered} recovered, {refused} refused", case.name, case.kind);
    assert!(recovered > 100 && refused > 10, "{}: {recovered}, {refused}", case.name);
}

/// Damage of the two copies of a block, and of the primary superblock, whose checksum and marker
/// only choose which way recovery goes.
fn both_copies_and_the_superblock(case: &Case) {
    let (checksum, marker, csum_feature) = (1020 + 1, 0x63, 0x65);
    let flips = [checksum, marker, csum_feature, 0x2d].map(Damage::Flip);
    for (nr, name) in BLOCKS.iter().enumerate() {
        for how in [Damage::Flip(BLOCK - 1), Damage::Flip(24), Damage::Zero, Damage::Older] {
            let image = damaged(&case.image, &case.older, nr, &[0, 1], how);
            for also in flips.into_iter().chain([Damage::Zero, Damage::Older]) {
                let image = damaged(&image, &case.older, SUPERBLOCK, &[0], also);
                case.judge(&format!("both of {name} {how:?}, superblock {also:?}"), &image);
            }
        }
    }
}

/// Two or three places of header and superblock, drawn by `seed`.
fn drawn(case: &Case, seed: u64) {
    let mut state = seed;
    let mut draw = |n: u64| {
        state += 1;
        siftfs_model::mix(state) % n
    };
    let (mut image, mut what) = (case.image.clone(), format!("seed {seed}"));
    for _ in 0..2 + draw(2) {
        let (nr, copy) = (draw(1 + SUPERBLOCK as u64) as usize, draw(2) as usize);
        let how = match draw(4) {
            0 => Damage::Zero,
            1 => Damage::Older,
            _ => Damage::Flip(draw(BLOCK)),
        };
        image = damaged(&image, &case.older, nr, &[copy], how);
        what += &format!("; {} copy {copy} {how:?}", BLOCKS.get(nr).unwrap_or(&"superblock"));
    }
    case.judge(&what, &image);
}

/// As [`systematic`], with damage of several places at once.
fn several_places(case: &Case) {
    both_copies_and_the_superblock(case);
    let draws = if std::env::var_os("SIFTFS_LONG").is_some() { 3000 } else { 60 };
    (0..draws).for_each(|seed| drawn(case, 1000 * seed));
}

#[test]
fn several_places_of_a_first_mount() {
    several_places(&first_mount());
}

#[test]
fn several_places_of_a_young_log() {
    several_places(&case("young log", VolumeKind::SMALL, 0));
}

#[test]
fn several_places_of_a_log_apart() {
    several_places(&case("log apart", VolumeKind::APART, 1));
}

#[test]
fn several_places_of_a_recovery_that_was_cut() {
    several_places(&cut_in_recovery());
}

#[test]
fn with_a_log_behind_a_long_step() {
    systematic(&behind_a_long_step());
    several_places(&behind_a_long_step());
}

#[test]
fn with_a_first_mount() {
    systematic(&first_mount());
}

/// Nothing was reclaimed yet.
#[test]
fn with_a_young_log() {
    systematic(&case("young log", VolumeKind::SMALL, 0));
}

/// Rings have wrapped, and what checkpoints gave back is used again.
#[test]
fn with_an_old_log() {
    systematic(&case("old log", VolumeKind::SMALL, 9));
}

#[test]
fn with_a_log_that_is_used_again() {
    systematic(&reused());
}

#[test]
fn with_a_log_apart() {
    systematic(&case("log apart", VolumeKind::APART, 2));
}

#[test]
fn with_a_recovery_that_was_cut() {
    systematic(&cut_in_recovery());
}
