//! Record areas that are not what they should be: one message, and nothing is replayed.

use crate::setup::Setup;
use std::fs;

/// Mount and recovery at this place fail, say this, and leave the volume as it is.
#[track_caller]
fn refused(s: &Setup, place: Option<&str>, code: i32, parts: &[&str]) {
    let before = fs::read(s.volume()).unwrap();
    let with: Vec<&str> = place.map_or(vec![], |place| vec!["--record-area", place]);
    let mount = s.mount(&with).fails(1, parts);
    assert_eq!(mount.err.lines().count(), 1, "{mount:?}");
    let volume = s.volume();
    let recover = s.siftfs(&[&["recover", &volume][..], &with].concat()).fails(code, parts);
    assert_eq!(recover.err.lines().count(), 1, "{recover:?}");
    assert!(fs::read(s.volume()).unwrap() == before, "something was written");
}

#[test]
fn r16_areas_that_are_not_the_volumes() {
    let (s, other) = (Setup::new("1M"), Setup::new("1M"));
    let older = s.memory("older");
    fs::copy(s.area(), &older).unwrap();
    s.crash_with("f", 5);
    let at = |path: &str| format!("volatile:{path}");
    refused(&s, Some(&other.place()), 8, &["is that of volume"]);
    refused(&s, Some(&at(&older)), 4, &["older copy"]);
    let short = s.memory("short");
    fs::write(&short, &fs::read(s.area()).unwrap()[..512 << 10]).unwrap();
    refused(&s, Some(&at(&short)), 4, &["1044480 bytes", "524288"]);
    fs::write(s.memory("zeros"), vec![0; 1 << 20]).unwrap();
    refused(&s, Some(&at(&s.memory("zeros"))), 8, &["no record area is there"]);
    refused(&s, Some(&at(&s.volume())), 8, &["the volume itself"]);
    refused(&s, Some("pmr:fffe:ff:1f.7"), 8, &["fffe:ff:1f.7"]);
    // What was put back under the name that is remembered.
    let moved = s.memory("moved");
    fs::rename(s.area(), &moved).unwrap();
    refused(&s, None, 8, &["record area", "was not found", "--record-area"]);
    let fsck = s.siftfs(&["fsck", &s.volume()]);
    assert!(fsck.code == 4 && fsck.out.contains("area.missing"), "{fsck:?}");
    fs::copy(&older, s.area()).unwrap();
    refused(&s, None, 4, &["older copy"]);
    s.siftfs(&["recover", &s.volume(), "--record-area", &at(&moved)]).ok();
    s.mount(&[]).ok();
    s.holds("f", 5);
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn r43_memory_that_is_not_persistent() {
    let s = Setup::new("1M");
    s.crash_with("f", 5);
    refused(&s, Some(&s.area()), 8, &["not DAX", "volatile:"]);
    let made = Setup::empty();
    for path in [made.area(), made.text("area")] {
        let mkfs = ["mkfs", &made.volume(), "--size", "64M", "--record-area", &path];
        made.siftfs(&mkfs).fails(1, &["not DAX", "volatile:"]);
        assert!(!fs::exists(&path).unwrap() && !fs::exists(made.volume()).unwrap());
    }
}

#[test]
fn places_that_a_record_area_cannot_have() {
    let s = Setup::empty();
    s.mkfs(&["--record-area-size", "64K"]).fails(1, &["too small", "--record-area-size 260K"]);
    assert!(!fs::exists(s.area()).unwrap(), "nothing was made");
    fs::write(s.area(), "precious").unwrap();
    s.mkfs(&[]).fails(1, &[&s.area(), "8 bytes"]);
    fs::write(s.area(), vec![1; 1 << 20]).unwrap();
    s.mkfs(&[]).fails(1, &[&s.area(), "--force"]);
    s.mkfs(&["--force"]).ok();
    s.mount(&[]).ok();
    let other = ["mkfs", &s.text("other"), "--size", "64M", "--record-area", &s.place()];
    s.siftfs(&other).fails(1, &["in use by"]);
    s.siftfs(&[&other[..], &["--force"]].concat()).fails(1, &["in use by"]);
    s.umount();
    s.siftfs(&other).fails(1, &["record area of volume", "--force"]);
    s.assert_plain_ext4();
}

#[test]
fn a_volume_without_a_record_area_takes_none() {
    let s = Setup::new("1M");
    let plain = s.text("plain");
    s.siftfs(&["mkfs", &plain, "--size", "64M"]).ok();
    let mount = ["mount", &plain, &s.dir(), "--record-area", &s.place()];
    s.siftfs(&mount).fails(1, &["has no record area"]);
}

/// R14: what was acknowledged and is damaged is said, and nothing of it is dropped in silence.
#[test]
fn r14_a_rotten_record_is_refused() {
    let s = Setup::new("1M");
    s.crash_with("f", 5);
    let mut area = fs::read(s.area()).unwrap();
    let at = area.windows(2).position(|w| w == b"f1").expect("its data");
    area[at] ^= 1;
    fs::write(s.area(), &area).unwrap();
    refused(&s, None, 4, &[]);
}
