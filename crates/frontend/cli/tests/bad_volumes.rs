//! Files that are no volumes, damaged volumes, and volumes in use, as a script meets them: one
//! message that says what is wrong and what to do, and the exit status of the manual's table.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::Signal;
use siftfs_log::{HEADER_LEN, StaticHeader};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use support::{Ran, Setup, run, siftfs};

const BLOCK: usize = 4096;

/// A volume that was unmounted, and one whose daemon was killed with fsynced files in the log.
struct Volumes {
    setup: Setup,
    clean: PathBuf,
    dirty: PathBuf,
}

impl Volumes {
    fn new() -> Self {
        let setup = Setup::new();
        let (clean, dirty) = (setup.tmp.path().join("clean"), setup.tmp.path().join("dirty"));
        setup.mount("");
        write_synced(&setup.path("f"), b"in the area");
        setup.umount();
        fs::copy(setup.volume(), &clean).unwrap();
        setup.mount("commit=3600");
        for i in 0..20 {
            write_synced(&setup.path(&format!("g{i}")), format!("in the log {i}").as_bytes());
        }
        let daemon = setup.daemon();
        daemon.signal(Signal::KILL);
        daemon.wait();
        siftfs(&["umount", setup.dir()]).fails(1, &["siftfs recover"]);
        fs::copy(setup.volume(), &dirty).unwrap();
        Self { setup, clean, dirty }
    }

    /// A copy of one of them, open for damage.
    fn damaged(&self, from: &Path) -> File {
        fs::copy(from, self.setup.volume()).unwrap();
        OpenOptions::new().read(true).write(true).open(self.setup.volume()).unwrap()
    }

    /// The volume is refused: by mount with 1, by recover and fsck as given. All say `part`.
    #[track_caller]
    fn refused(&self, recover: i32, fsck: i32, part: &str) {
        let volume = self.setup.volume();
        let before = fs::read(volume).unwrap();
        siftfs(&["mount", volume, self.setup.dir()]).fails(1, &[volume, part]);
        one_message(&siftfs(&["recover", volume]).fails(recover, &[volume, part]));
        let found = siftfs(&["fsck", volume]);
        assert_eq!(found.code, fsck, "{found:?}");
        assert!(found.out.contains(volume) && found.err.is_empty(), "{found:?}");
        assert!(fs::read(volume).unwrap() == before, "a refused volume was changed");
    }

    /// fsck says `code` and that recovery puts it right; recovery does, and everything is there.
    #[track_caller]
    fn mended(&self, code: &str) {
        let volume = self.setup.volume();
        let found = siftfs(&["fsck", volume]);
        assert_eq!(found.code, 4, "{found:?}");
        assert!(found.out.contains(code) && found.out.contains("siftfs recover"), "{found:?}");
        assert!(!found.out.contains("error:"), "{found:?}");
        siftfs(&["recover", volume]).ok();
        siftfs(&["fsck", volume]).ok();
        self.setup.assert_plain_ext4();
    }
}

fn write_synced(path: &Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    file.write_all_at(data, 0).unwrap();
    file.sync_all().unwrap();
}

fn one_message(ran: &Ran) {
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    let twice = ran.err.split_whitespace().filter(|w| w.contains('/')).collect::<Vec<_>>();
    assert!(twice.windows(2).all(|w| w[0].trim_end_matches(':') != w[1]), "{ran:?}");
}

fn zero(file: &File, at: u64, len: usize) {
    file.write_all_at(&vec![0; len], at).unwrap();
}

/// The static part of the header, from the device's end.
fn header(file: &File) -> StaticHeader {
    let size = file.metadata().unwrap().len();
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, size - HEADER_LEN).unwrap();
    StaticHeader::decode(&block).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Sets or clears the marker in the primary superblock, checksum made right.
fn mark(file: &File, on: bool) {
    let mut sb = [0; 1024];
    file.read_exact_at(&mut sb, 1024).unwrap();
    siftfs_ext4::set_marker(&mut sb, on);
    file.write_all_at(&sb, 1024).unwrap();
}

#[test]
fn header_copies() {
    let v = Volumes::new();
    for (from, marked) in [(&v.clean, false), (&v.dirty, true)] {
        let file = v.damaged(from);
        let [first, last] = header(&file).header_offsets;
        zero(&file, last, BLOCK);
        let found = siftfs(&["fsck", v.setup.volume()]);
        assert_eq!(found.code, 4, "{found:?}");
        assert!(found.out.contains("header.copy"), "{found:?}");
        v.setup.mount("");
        assert_eq!(v.setup.path("g7").exists(), marked);
        v.setup.umount();
        v.setup.assert_plain_ext4();
        let file = v.damaged(from);
        zero(&file, first, BLOCK);
        zero(&file, last, BLOCK);
        match marked {
            true => v.refused(4, 4, "--discard-log"),
            false => v.refused(8, 8, "not a SiftFS volume"),
        }
    }
}

#[test]
fn features_from_the_future() {
    let v = Volumes::new();
    for from in [&v.clean, &v.dirty] {
        let file = v.damaged(from);
        let newer = StaticHeader { incompat: 0x40, ..header(&file) };
        for at in newer.header_offsets {
            file.write_all_at(&newer.encode_unchecked()[..], at).unwrap();
        }
        v.refused(4, 4, "0x40");
    }
}

/// Features that a reader may ignore and a writer may not: such a volume is never written, and a
/// read-only mount changes no byte of it.
#[test]
fn features_that_only_readers_may_ignore() {
    let v = Volumes::new();
    let seal = |file: &File| {
        let newer = StaticHeader { ro_compat: 0x40, ..header(file) };
        for at in header(file).header_offsets {
            file.write_all_at(&newer.encode()[..], at).unwrap();
        }
    };
    let (volume, dir) = (v.setup.volume(), v.setup.dir());
    let unchanged = |before: &[u8]| assert!(fs::read(volume).unwrap() == before, "it was written");
    let parts: &[&str] = &[volume, "incompatible volume", "0x40", "-o ro"];
    for from in [&v.clean, &v.dirty] {
        seal(&v.damaged(from));
        let before = fs::read(volume).unwrap();
        one_message(&siftfs(&["mount", volume, dir]).fails(1, parts));
        unchanged(&before);
        if from == &v.clean {
            v.setup.mount("ro");
            assert!(fs::read_dir(dir).unwrap().count() > 0);
            siftfs(&["mount", volume, dir, "-o", "remount,rw"]).fails(1, &["0x40"]);
            fs::write(v.setup.path("new"), "").unwrap_err();
            v.setup.umount();
            siftfs(&["fsck", volume]).ok();
        } else {
            let ro = siftfs(&["mount", volume, dir, "-o", "ro"]);
            one_message(&ro.fails(1, &["recovered first"]));
            siftfs(&["recover", volume]).fails(4, parts);
            siftfs(&["recover", volume, "--discard-log"]).fails(4, parts);
            siftfs(&["fsck", volume, "--repair", "all"]).fails(4, &["0x40"]);
        }
        let listen = format!("unix:{dir}/socket");
        let device = ["device", volume, "--listen", &listen];
        siftfs(&device).fails(1, parts);
        siftfs(&["release", volume]).fails(1, parts);
        unchanged(&before);
    }
}

#[test]
fn marker_and_header_disagree() {
    let v = Volumes::new();
    mark(&v.damaged(&v.dirty), false);
    v.refused(4, 4, "--discard-log");
    mark(&v.damaged(&v.clean), true);
    v.mended("marker.stale");
}

/// A superblock torn by a power cut is no damage: recovery restores it.
#[test]
fn a_torn_superblock() {
    let v = Volumes::new();
    for from in [&v.clean, &v.dirty] {
        zero(&v.damaged(from), 1024 + 512, 512);
        v.mended("super.torn");
        zero(&v.damaged(from), 1024, 1024);
        v.mended("super.missing");
        v.setup.mount("ro");
        assert_eq!(v.setup.path("g19").exists(), from == &v.dirty);
        v.setup.umount();
    }
}

#[test]
fn rot_truncation_and_growth() {
    let v = Volumes::new();
    let file = v.damaged(&v.dirty);
    let lane = header(&file).lanes[0].offset;
    zero(&file, lane + 5 * BLOCK as u64 + 100, 200);
    v.refused(4, 4, "corrupt");
    let file = v.damaged(&v.dirty);
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    v.refused(4, 4, "corrupt");
    v.damaged(&v.clean);
    run("resize2fs", &["-f", v.setup.volume()]).ok();
    v.refused(4, 4, "corrupt");
}

#[test]
fn not_a_volume() {
    let v = Volumes::new();
    let volume = v.setup.volume();
    v.damaged(&v.clean).set_len(0).unwrap();
    v.refused(8, 8, "not a SiftFS volume");
    fs::write(volume, vec![0; 16 << 20]).unwrap();
    v.refused(8, 8, "not a SiftFS volume");
    run("mke2fs", &["-q", "-F", "-t", "ext4", volume]).ok();
    v.refused(8, 8, "not a SiftFS volume");
    fs::remove_file(volume).unwrap();
    for command in ["recover", "fsck"] {
        siftfs(&[command, volume]).fails(8, &[volume, "No such file"]);
        siftfs(&[command, v.setup.dir()]).fails(8, &["neither a regular file nor a block device"]);
    }
}

/// A loop device, detached at the end.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Self {
        Self(run("losetup", &["--find", "--show", file]).ok().out.trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = run("losetup", &["-d", &self.0]);
        assert!(detached.code == 0 || std::thread::panicking(), "{detached:?}");
    }
}

/// While the kernel has the volume mounted, directly from a block device or through a loop device
/// over its file, no command opens either, and a message names the mount point. The kernel refuses
/// a volume that is mounted here in the same way.
#[test]
fn mounted_by_the_kernel() {
    let s = Setup::new();
    let other = s.tmp.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let device = Loop::over(s.volume());
    run("mount", &["-t", "ext4", &device.0, other]).ok();
    for (volume, parts) in
        [(&device.0[..], ["is mounted on", other]), (s.volume(), [&device.0[..], other])]
    {
        siftfs(&["mount", volume, s.dir()]).fails(1, &parts);
        one_message(&siftfs(&["recover", volume]).fails(8, &parts));
        one_message(&siftfs(&["fsck", volume]).fails(8, &parts));
        one_message(&siftfs(&["mkfs", volume, "--force"]).fails(1, &parts));
    }
    run("umount", &[other]).ok();

    siftfs(&["mount", &device.0, s.dir()]).ok();
    write_synced(&s.path("f"), b"on the device");
    let kernel = run("mount", &["-t", "ext4", &device.0, other]);
    assert_ne!(kernel.code, 0, "{kernel:?}");
    siftfs(&["mount", s.volume(), other]).fails(1, &[s.volume(), "in use by process"]);
    siftfs(&["mount", &device.0, other]).fails(1, &[&device.0, "process"]);
    s.umount();
    drop(device);
    s.assert_plain_ext4();
}
