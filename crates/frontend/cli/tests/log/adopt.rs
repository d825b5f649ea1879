//! Adopting an existing ext4 volume, and giving it back.

use crate::setup::{Apart, Loop, clean, umount};
use crate::support::{Ran, run};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// What the host's mke2fs makes of ext4 by default, and what the newest one does besides.
const OTHERS: &str = "has_journal,resize_inode,metadata_csum_seed,orphan_file,64bit,flex_bg,extent,\
                      huge_file,dir_nlink,extra_isize,metadata_csum";

impl Apart {
    /// An ext4 volume made with these options, used by the kernel.
    fn foreign(options: &[&str]) -> Self {
        let s = Self::empty();
        s.mke2fs(options);
        s.kernel("rw", fill);
        s
    }

    fn mke2fs(&self, options: &[&str]) {
        let volume = self.volume();
        let args = [&["-q", "-F"][..], options, &[&volume, "64M"]].concat();
        run("mke2fs", &args).ok();
    }

    fn adopt(&self) -> Ran {
        self.siftfs(&["adopt", &self.volume(), "--log", &self.log(), "--log-size", "8M"])
    }

    /// Adoption is refused, in these words, and nothing is made or changed.
    fn refused(&self, parts: &[&str]) {
        let before = fs::read(self.volume()).unwrap();
        self.adopt().fails(1, parts);
        assert!(!fs::exists(self.log()).unwrap(), "a log was made");
        assert!(before == fs::read(self.volume()).unwrap(), "the volume was changed");
    }

    /// A value in the superblock, as debugfs names it.
    fn set_super(&self, field: &str, value: &str) {
        let request = format!("set_super_value {field} {value}");
        run("debugfs", &["-w", "-R", &request, &self.volume()]).ok();
    }
}

fn fill(m: &Path) {
    fs::create_dir(m.join("dir")).unwrap();
    for i in 0..200 {
        fs::write(m.join(format!("dir/file{i}")), vec![i as u8; 100 * i]).unwrap();
    }
    symlink("dir/file7", m.join("link")).unwrap();
    fs::set_permissions(m.join("dir/file9"), PermissionsExt::from_mode(0o4750)).unwrap();
    let sparse = fs::File::create(m.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
}

fn check(m: &Path) {
    for i in 0..200 {
        let want = if i == 5 { b"changed".to_vec() } else { vec![i as u8; 100 * i] };
        assert_eq!(fs::read(m.join(format!("dir/file{i}"))).unwrap(), want, "file{i}");
    }
    assert_eq!(fs::read(m.join("link")).unwrap(), vec![7; 700]);
    assert_eq!(fs::metadata(m.join("dir/file9")).unwrap().permissions().mode() & 0o7777, 0o4750);
    assert_eq!(fs::metadata(m.join("sparse")).unwrap().len(), (5 << 20) + 3);
    assert_eq!(fs::read(m.join("new")).unwrap(), b"by siftfs");
}

#[test]
fn a_foreign_volume_is_adopted_used_and_released() {
    for options in
        [&["-t", "ext4"][..], &["-b", "4096", "-O", OTHERS], &["-t", "ext4", "-I", "512"]]
    {
        let s = Apart::foreign(&[options, &["-b", "4096"]].concat());
        let adopted = s.adopt().ok();
        assert!(adopted.out.contains("adopted as volume"), "{adopted:?}");
        s.assert_plain_ext4();
        s.mount();
        fs::write(s.path("dir/file5"), "changed").unwrap();
        fs::write(s.path("new"), "by siftfs").unwrap();
        check(&s.path(""));
        s.crash_again();
        s.mount();
        check(&s.path(""));
        s.umount();
        s.assert_plain_ext4();
        // The kernel's turn, journal and all, and ours again.
        s.kernel("rw", |m| {
            check(m);
            fs::write(m.join("between"), "by the kernel").unwrap();
        });
        s.mount();
        assert_eq!(fs::read(s.path("between")).unwrap(), b"by the kernel");
        s.umount();
        s.siftfs(&["adopt", &s.volume(), "--log", &s.text("second"), "--log-size", "8M"])
            .fails(1, &["a SiftFS volume already", "release"]);
        let released = s.siftfs(&["release", &s.volume()]).ok();
        assert!(released.out.contains("plain ext4"), "{released:?}");
        clean(&s.volume());
        s.kernel("rw", |m| {
            check(m);
            fs::remove_file(m.join("between")).unwrap();
        });
        clean(&s.volume());
        s.siftfs(&["mount", &s.volume(), &s.dir()]).fails(1, &["not a SiftFS volume"]);
        let with = ["mount", &s.volume(), &s.dir(), "--log", &s.log()];
        s.siftfs(&with).fails(1, &["no log is on the device"]);
        // The log's place is free for the next one.
        let again = ["adopt", &s.volume(), "--log", &s.log(), "--force", "--journal-data", "copy"];
        let again = s.siftfs(&again).ok();
        assert!(again.out.contains("(copy)"), "{again:?}");
        s.mount();
        s.crash_again();
        let seen = s.siftfs(&["inspect", &s.volume(), "--json"]).ok().out;
        assert!(seen.contains(r#""data": "copy""#), "{seen}");
        s.mount();
        s.umount();
        s.assert_plain_ext4();
    }
}

impl Apart {
    /// What was done so far is durable, and the daemon dies.
    fn crash_again(&self) {
        self.siftfs(&["sync", &self.dir()]).ok();
        self.kill();
    }
}

/// Nothing but the superblocks is touched by adopting and releasing.
#[test]
fn adoption_leaves_everything_else_alone() {
    let s = Apart::foreign(&["-b", "4096", "-t", "ext4"]);
    let before = fs::read(s.volume()).unwrap();
    s.adopt().ok();
    s.siftfs(&["release", &s.volume(), "--log", &s.log(), "--json"]).ok();
    let after = fs::read(s.volume()).unwrap();
    let changed: Vec<usize> =
        (0..before.len()).filter(|i| before[*i] != after[*i]).map(|i| i / 1024).collect();
    assert!(changed.iter().all(|kib| *kib == 1), "more than the superblock: {changed:?}");
    let link = 1024 + 0x3d0..1024 + 0x3fc;
    assert_eq!(after[link.clone()], before[link]);
}

#[test]
fn a_dirty_volume_is_released_with_everything() {
    let s = Apart::foreign(&["-b", "4096", "-t", "ext4"]);
    s.adopt().ok();
    s.crash_with("kept");
    let released = s.siftfs(&["release", &s.volume(), "--json"]).ok();
    assert!(released.out.contains("\"recovered\": true"), "{released:?}");
    clean(&s.volume());
    s.kernel("ro", |m| assert_eq!(fs::read(m.join("kept")).unwrap(), b"kept"));
}

/// A volume that holds its own log is given back too.
#[test]
fn a_volume_with_its_own_log_is_released() {
    let s = Apart::empty();
    s.siftfs(&["mkfs", &s.volume(), "--size", "32M"]).ok();
    s.crash_with("kept");
    s.siftfs(&["adopt", &s.volume(), "--log", &s.log(), "--log-size", "8M"])
        .fails(1, &["a SiftFS volume already"]);
    s.siftfs(&["release", &s.volume()]).ok();
    s.siftfs(&["mount", &s.volume(), &s.dir()]).fails(1, &["not a SiftFS volume"]);
    assert_eq!(run("e2fsck", &["-fy", &s.volume()]).code, 0);
    run("resize2fs", &[&s.volume()]).ok();
    clean(&s.volume());
    s.kernel("ro", |m| assert_eq!(fs::read(m.join("kept")).unwrap(), b"kept"));
    s.adopt().ok();
    s.mount();
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn features_outside_the_profile_are_named_with_a_reason() {
    for (options, name, why) in [
        (&["-O", "bigalloc,^resize_inode"][..], "bigalloc", "clusters"),
        (&["-O", "inline_data"], "inline_data", "inside inodes"),
        (&["-O", "encrypt"], "encrypt", "encrypted"),
        (&["-O", "casefold"], "casefold", "without regard to case"),
        (&["-O", "verity"], "verity", "verity"),
        (&["-O", "ea_inode"], "ea_inode", "inodes of their own"),
        (&["-O", "quota"], "quota", "kept current"),
        (&["-O", "project,quota"], "project", "project"),
        (&["-O", "mmp"], "mmp", "rewritten"),
        (&["-O", "meta_bg,^resize_inode"], "meta_bg", "spread over"),
        (&["-O", "large_dir"], "large_dir", "three levels"),
        (&["-O", "sparse_super2"], "sparse_super2", "chosen places"),
    ] {
        let s = Apart::empty();
        s.mke2fs(&[&["-b", "4096", "-t", "ext4"][..], options].concat());
        s.refused(&[&s.volume(), "not taken", name, why]);
    }
    let s = Apart::empty();
    s.mke2fs(&["-b", "4096", "-t", "ext3"]);
    s.refused(&["features missing", "extent", "metadata_csum"]);
    let s = Apart::empty();
    s.mke2fs(&["-b", "1024", "-t", "ext4"]);
    s.refused(&["block size other than 4096"]);
    let s = Apart::empty();
    s.mke2fs(&["-b", "4096", "-t", "ext4", "-I", "128"]);
    s.refused(&["inode size below 256"]);
}

#[test]
fn volumes_in_a_state_that_is_not_clean_are_refused() {
    let s = Apart::empty();
    fs::write(s.volume(), vec![0; 16 << 20]).unwrap();
    s.refused(&["no ext4 file system"]);
    // Mounted by the kernel; and a copy of it as it is then: its journal needs to be replayed.
    let s = Apart::foreign(&["-b", "4096", "-t", "ext4"]);
    let copy = Apart::empty();
    s.kernel("rw", |m| {
        fs::write(m.join("f"), "x").unwrap();
        run("sync", &["-f", m.to_str().unwrap()]).ok();
        fs::copy(s.volume(), copy.volume()).unwrap();
        s.adopt().fails(1, &["mounted on"]);
    });
    assert!(!fs::exists(s.log()).unwrap());
    copy.refused(&["needs_recovery", "mount it once"]);
    s.set_super("state", "3");
    s.refused(&["has noted errors", "e2fsck -f"]);
    s.set_super("state", "0");
    s.refused(&["not unmounted cleanly", "e2fsck"]);
    s.set_super("state", "1");
    s.set_super("last_orphan", "13");
    s.refused(&["deleted files", "e2fsck"]);
    s.set_super("last_orphan", "0");
    let cut = fs::read(s.volume()).unwrap();
    fs::write(s.volume(), &cut[..32 << 20]).unwrap();
    s.refused(&["truncated"]);
    let mut rot = cut.clone();
    rot[4096 + 10] ^= 1;
    fs::write(s.volume(), &rot).unwrap();
    s.refused(&["corrupt"]);
    fs::write(s.volume(), &cut).unwrap();
    let same = ["adopt", &s.volume(), "--log", &s.volume()];
    s.siftfs(&same).fails(1, &["another file or device"]);
    let small = ["adopt", &s.volume(), "--log", &s.log(), "--log-size", "3M"];
    s.siftfs(&small).fails(1, &["too small", "at least"]);
    s.siftfs(&["adopt", &s.volume()]).fails(2, &["--log"]);
    s.siftfs(&["adopt", &s.text("none"), "--log", &s.log()]).fails(1, &["No such file"]);
    s.adopt().ok();
}

/// On loop devices, as on disks.
#[test]
fn a_block_device_is_adopted() {
    let s = Apart::foreign(&["-b", "4096", "-t", "ext4"]);
    let file = s.text("log.img");
    fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
    let (area, log) = (Loop::over(&s.volume()), Loop::over(&file));
    s.siftfs(&["adopt", &area.0, "--log", &log.0]).ok();
    let dir = s.dir();
    s.siftfs(&["mount", &area.0, &dir]).ok();
    fs::write(s.path("dir/file5"), "changed").unwrap();
    fs::write(s.path("new"), "by siftfs").unwrap();
    s.umount();
    clean(&area.0);
    s.siftfs(&["release", &area.0]).ok();
    let kernel = Command::new("mount").args([&area.0, &dir]).status().unwrap();
    assert!(kernel.success());
    check(&s.path(""));
    umount(&dir);
}
