//! Mounts come and go.

use crate::place::script;
use crate::support::{Setup, siftfs};
use crate::{Beside, THROUGH, names, places, shared, status};
use std::fs;

/// A second mount of the volume is one more of the same daemon's: each shows what was written
/// through the other, goes by itself, and the last one closes the volume.
#[test]
fn a_second_mount_and_its_end() {
    let s = shared();
    let other = Beside::of(&s, "other");
    let ran = other.attach(&s, "").ok();
    assert_eq!((&*ran.out, &*ran.err), ("", ""));
    fs::create_dir(s.path("made")).unwrap();
    fs::write(s.path("made/here"), "one").unwrap();
    assert_eq!(fs::read(other.path("made/here")).unwrap(), b"one");
    fs::write(other.path("there"), "two").unwrap();
    assert_eq!(fs::read(s.path("there")).unwrap(), b"two");
    assert_eq!(places(other.dir()), [s.dir(), other.dir()]);
    assert_eq!(status(s.dir())["pid"], status(other.dir())["pid"]);
    // It is done when that mount is gone, and does not wait for the volume.
    let ran = other.umount();
    let stays = format!("stays mounted on {}", s.dir());
    assert!(ran.err.contains(&stays) && ran.err.lines().count() == 1, "{ran:?}");
    assert!(!other.is_mounted() && places(s.dir()) == [s.dir()]);
    fs::write(s.path("after"), "three").unwrap();
    assert_eq!(s.umount().err, "");
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(names(&s.path("")), ["after", "lost+found", "made", "there"]);
    s.umount();
}

/// The first mount goes first.
#[test]
fn the_first_goes_first() {
    let s = shared();
    let (second, third) = (Beside::of(&s, "second"), Beside::of(&s, "third"));
    second.attach(&s, "").ok();
    fs::write(s.path("file"), "kept").unwrap();
    s.umount();
    // It goes on without it, and takes more.
    third.attach(&s, "ro").ok();
    assert_eq!(places(second.dir()), [second.dir(), third.dir()]);
    for dir in [&second, &third] {
        assert_eq!(fs::read(dir.path("file")).unwrap(), b"kept");
        assert_eq!(status(dir.dir())["dir"], dir.dir());
    }
    s.mount(THROUGH);
    fs::write(s.path("again"), "there").unwrap();
    second.umount();
    s.umount();
    assert_eq!(fs::read(third.path("again")).unwrap(), b"there");
    assert_eq!(third.umount().err, "");
    s.assert_plain_ext4();
}

/// Commands work through each of them.
#[test]
fn every_command_takes_either() {
    let s = shared();
    let other = Beside::of(&s, "other");
    other.attach(&s, "").ok();
    fs::write(other.path("a"), "data").unwrap();
    for dir in [s.dir(), other.dir()] {
        siftfs(&["sync", dir]).ok();
        siftfs(&["checkpoint", dir]).ok();
        siftfs(&["trim", dir]).ok();
        siftfs(&["top", dir, "--count", "1"]).ok();
    }
    let (from, to) = (other.path("a"), other.path("b"));
    siftfs(&["publish", from.to_str().unwrap(), to.to_str().unwrap()]).ok();
    assert_eq!(fs::read(s.path("b")).unwrap(), b"data");
    other.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// Each way to take a mount away takes that one, and leaves the volume to the others.
#[test]
fn every_way_to_leave() {
    let s = shared();
    let other = Beside::of(&s, "other");
    let ways: [(&[&str], i32); 3] =
        [(&["umount"], 0), (&["umount", "--lazy"], 0), (&["umount", "--force"], 0)];
    for (way, code) in ways {
        other.attach(&s, "").ok();
        let name = way.join("");
        fs::write(other.path(&name), "kept").unwrap();
        let ran = siftfs(&[way, &[other.dir()]].concat());
        assert_eq!(ran.code, code, "{way:?}: {ran:?}");
        assert!(!other.is_mounted(), "{way:?}");
        assert_eq!(fs::read(s.path(&name)).unwrap(), b"kept");
    }
    // One that is in use stays, and so does the rest.
    other.attach(&s, "").ok();
    let held = fs::File::open(other.path("umount")).unwrap();
    siftfs(&["umount", other.dir()]).fails(1, &["in use"]);
    assert_eq!(places(s.dir()).len(), 2);
    drop(held);
    other.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// mount(8), umount(8) and fstab do all of that, with a line for each in their tables. They keep
/// the word `shared` for themselves: it is about propagation there.
#[test]
fn by_mount_and_fstab() {
    let s = Setup::new();
    script(
        &s,
        r#"
mkdir "$T/two" "$T/three"
touch /run/mount/utab
through=write_cache=writethrough
mount -t siftfs "$V" "$D" -o $through,share,nosuid
mount -t siftfs "$V" "$T/two" -o $through,ro,noexec
findmnt -no OPTIONS "$T/two" | grep -q '^ro,noexec' || fail "$(findmnt -no OPTIONS "$T/two")"
[ "$(findmnt -no SOURCE "$T/two")" = "$V" ] || fail source
for dir in "$D" "$T/two"; do
    grep -q "^SRC=$V TARGET=$dir " /run/mount/utab || fail "no line of $dir"
done
echo kept > "$D/file"
umount "$D"
grep -q "^SRC=$V TARGET=$D " /run/mount/utab && fail 'its line stays'
grep -q "^SRC=$V TARGET=$T/two " /run/mount/utab || fail 'the other line goes'
[ "$(cat "$T/two/file")" = kept ] || fail 'not read'
expect 32 mount -t siftfs "$V" "$D" -o write_cache=writeback
echo "$V $T/three siftfs $through,subdir=/,nodev,noauto 0 0" > "$T/fstab"
mount -T "$T/fstab" "$T/three"
findmnt -no OPTIONS "$T/three" | grep -q nodev || fail 'no nodev'
umount "$T/two" "$T/three"
grep -q "$V" /run/mount/utab && fail 'a line stays'
flock -n "$V" true || fail 'still in use'
e2fsck -fn "$V" > "$T/said" 2>&1 || fail "$(cat "$T/said")"
"#,
    )
    .ok();
}

/// A signal to the daemon takes all mounts away, in use or not.
#[test]
fn a_signal_ends_all() {
    let s = shared();
    let (second, third) = (Beside::of(&s, "second"), Beside::of(&s, "third"));
    second.attach(&s, "").ok();
    third.attach(&s, "").ok();
    let held = fs::File::create(second.path("held")).unwrap();
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::TERM);
    daemon.wait();
    drop(held);
    assert!(!second.is_mounted() && !third.is_mounted());
    assert_eq!(siftfs_fuse::top_mount(s.dir().as_ref()).unwrap(), None);
    s.assert_plain_ext4();
}
