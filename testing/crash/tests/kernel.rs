//! An unmounted volume under the kernel's ext4: identical in every name, byte, mode, owner, xattr
//! and time. Needs root and a loop device.

use siftfs_base::Timestamp;
use siftfs_crash::{Bench, Config, VolumeKind, base_image_of, campaign, open};
use siftfs_device::{Image, MemDevice};
use siftfs_model::{Caller, Generator, Lockstep, Profile, Tree};
use siftfs_proto::{FileKind, ROOT_INO, Request};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// A file mounted read-only by the kernel.
struct Mounted {
    dir: tempfile::TempDir,
    _file: tempfile::NamedTempFile,
}

impl Mounted {
    fn new(image: &Image) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        image.save(file.path()).expect("saved");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let out = Command::new("mount")
            .args(["-t", "ext4", "-o", "loop,ro,noatime"])
            .args([file.path(), dir.path()])
            .output()
            .expect("mount runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "the kernel does not mount it (needs root): {said}");
        Self { dir, _file: file }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg(self.dir.path()).status();
    }
}

fn kind_of(meta: &fs::Metadata) -> FileKind {
    let t = meta.file_type();
    match () {
        () if t.is_dir() => FileKind::Directory,
        () if t.is_symlink() => FileKind::Symlink,
        () if t.is_fifo() => FileKind::Fifo,
        () if t.is_socket() => FileKind::Socket,
        () if t.is_char_device() => FileKind::CharDevice,
        () if t.is_block_device() => FileKind::BlockDevice,
        () => FileKind::Regular,
    }
}

fn time(sec: i64, nsec: i64) -> Timestamp {
    Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or(u32::MAX) }
}

/// Every difference between one inode of ours and what the kernel shows at `path`.
fn compare(tree: &Tree, ino: u32, path: &Path, out: &mut Vec<String>) {
    let seen = &tree.nodes[&ino];
    let a = &seen.attr;
    let meta = fs::symlink_metadata(path).expect("the name was listed");
    let ours = (a.kind, u32::from(a.perm), u64::from(a.nlink), a.uid, a.gid, u64::from(a.ino));
    let theirs =
        (kind_of(&meta), meta.mode() & 0o7777, meta.nlink(), meta.uid(), meta.gid(), meta.ino());
    let mut differ = |what: &str, ours: String, theirs: String| {
        if ours != theirs {
            out.push(format!("{}: {what}: ours {ours}, kernel {theirs}", path.display()));
        }
    };
    differ("kind, mode, links, owner, group, inode", format!("{ours:?}"), format!("{theirs:?}"));
    if matches!(a.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        differ("device", a.rdev.to_string(), meta.rdev().to_string());
    }
    let ours = [a.mtime, a.atime, a.ctime];
    let theirs = [
        time(meta.mtime(), meta.mtime_nsec()),
        time(meta.atime(), meta.atime_nsec()),
        time(meta.ctime(), meta.ctime_nsec()),
    ];
    differ("mtime, atime, ctime", format!("{ours:?}"), format!("{theirs:?}"));
    if let Ok(born) = meta.created()
        && let Ok(age) = born.duration_since(UNIX_EPOCH)
    {
        let ours = (a.crtime.sec, a.crtime.nsec);
        differ("crtime", format!("{ours:?}"), format!("{:?}", (age.as_secs(), age.subsec_nanos())));
    }
    match a.kind {
        FileKind::Regular => {
            let bytes = fs::read(path).expect("readable");
            let same = bytes == seen.content.read(0, u64::MAX);
            differ("bytes", "equal true".into(), format!("equal {same}"));
        }
        FileKind::Symlink => {
            let target = fs::read_link(path).expect("a link");
            differ(
                "target",
                format!("{:?}", seen.target),
                format!("{:?}", target.as_os_str().as_bytes()),
            );
        }
        _ => {}
    }
    if a.kind != FileKind::Symlink {
        differ("xattrs", format!("{:?}", seen.xattrs), format!("{:?}", xattrs(path)));
    }
}

fn xattrs(path: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0u8; 65_536];
    let len = rustix::fs::llistxattr(path, &mut list[..]).expect("listxattr");
    let names = list[..len].split(|b| *b == 0).filter(|n| !n.is_empty());
    names
        .map(|name| {
            let mut value = vec![0u8; 65_536];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("getxattr");
            value.truncate(len);
            (name.to_vec(), value)
        })
        .collect()
}

/// Every difference between `tree` and the kernel's view of `image`.
fn kernel_differences(tree: &Tree, image: &Image) -> Vec<String> {
    let mounted = Mounted::new(image);
    let mut out = Vec::new();
    let mut queue: Vec<(u32, PathBuf)> = vec![(ROOT_INO, mounted.dir.path().to_path_buf())];
    while let Some((ino, path)) = queue.pop() {
        compare(tree, ino, &path, &mut out);
        let Some(seen) = tree.nodes.get(&ino).filter(|n| n.attr.kind == FileKind::Directory) else {
            continue;
        };
        let listed = fs::read_dir(&path).expect("readable").map(|e| e.expect("an entry"));
        let names: std::collections::BTreeSet<Vec<u8>> =
            listed.map(|e| e.file_name().as_bytes().to_vec()).collect();
        let ours: std::collections::BTreeSet<Vec<u8>> = seen.entries.keys().cloned().collect();
        for name in names.symmetric_difference(&ours) {
            let shown = siftfs_model::tree::lossy(name);
            out.push(format!("{}: {shown} is only on one side", path.display()));
        }
        for (name, child) in seen.entries.iter().filter(|(n, _)| names.contains(*n)) {
            queue.push((*child, path.join(std::ffi::OsStr::from_bytes(name))));
        }
    }
    out
}

/// Random sequences, unmounted, then under the kernel.
#[test]
fn random_trees_are_identical() {
    let config = Config::from_env(12, 400);
    let profile = Profile { names: 40, dirs: 12, offset_max: 200_000, ..Profile::default() };
    let result = campaign(&config, |seed| {
        let device = Arc::new(MemDevice::from_image(base_image_of(VolumeKind::ROOMY)));
        let driver = open(device.clone()).map_err(|e| format!("open: {e}"))?;
        let service = driver.volume.endpoint();
        let mut pair = Lockstep::new(&*service, &driver)?;
        let mut generator = Generator::new(seed, profile.clone());
        for _ in 0..config.ops {
            let op = generator.next(&pair.model);
            let _outcome = pair.step(&op)?;
        }
        let caller = Caller::root(&*service);
        let mut tree = caller.walk().map_err(|e| format!("walk: {e}"))?;
        // The walk read files, which moves access times, and always where the mtime lies ahead of
        // the clock: what they are now is asked for without reading.
        for (ino, node) in &mut tree.nodes {
            node.attr.atime = caller.attr(*ino).map_err(|e| format!("attributes: {e}"))?.atime;
        }
        drop(pair);
        drop(service);
        driver.volume.close().map_err(|e| format!("close: {e}"))?;
        let found = kernel_differences(&tree, &device.snapshot());
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// 100,000 names (hard links of two files) in one directory, a third of them removed; the cost of
/// one does not grow with their number.
#[test]
fn a_hundred_thousand_names() {
    let b = Bench::new(VolumeKind { size: 128 << 20, log: 32 << 20, ..VolumeKind::SMALL });
    let links = [b.create("one"), b.create("two")];
    let dir = b.mkdir("big");
    let name = |i: u32| format!("a rather ordinary file name {i}").into_bytes();
    let mut laps = Vec::new();
    for lap in 0..10u32 {
        let start = std::time::Instant::now();
        for i in lap * 10_000..(lap + 1) * 10_000 {
            let req = Request::Link { ino: links[i as usize % 2], parent: dir, name: name(i) };
            match b.call(req) {
                Ok(siftfs_proto::Reply::Entry(attr)) => {
                    b.call(Request::Forget { ino: attr.ino, count: 1 }).expect("forget");
                }
                other => panic!("link {i}: {other:?}"),
            }
        }
        laps.push(start.elapsed());
        b.commit(true);
    }
    println!("10,000 names each: {laps:?}");
    let slowest = laps.iter().skip(1).max().expect("ten laps");
    assert!(*slowest < laps[0] * 8 + std::time::Duration::from_secs(2), "{laps:?}");
    for i in (0..100_000).step_by(3) {
        b.call(Request::Unlink { parent: dir, name: name(i) }).expect("unlink");
    }
    let caller = Caller::root(&*b.service);
    let found = caller.read_dir(dir).expect("readable").len();
    assert_eq!(found, 100_000 - 33_334 + 2);
    for i in [0, 1, 50_000, 66_666, 99_999] {
        let there = b.try_ino(&format!("big/{}", String::from_utf8_lossy(&name(i)))).is_some();
        assert_eq!(there, i % 3 != 0, "name {i}");
    }
    let tree = caller.walk().expect("walks");
    let image = b.close();
    siftfs_crash::e2fsck_image(&image).expect("clean");
    let mut found = kernel_differences(&tree, &image);
    found.retain(|d| !d.contains("atime"));
    assert_eq!(found, Vec::<String>::new());
}

/// The most hard links of one file that ext4 allows; the next is refused, until one is removed.
#[test]
fn links_up_to_the_limit() {
    let b = Bench::new(VolumeKind { size: 128 << 20, log: 32 << 20, ..VolumeKind::SMALL });
    let (ino, dir) = (b.create("one"), b.mkdir("links"));
    let link = |i: u32| {
        let name = format!("link {i}").into_bytes();
        match b.call(Request::Link { ino, parent: dir, name }) {
            Ok(siftfs_proto::Reply::Entry(attr)) => {
                b.call(Request::Forget { ino: attr.ino, count: 1 }).expect("forget");
                Ok(())
            }
            Ok(other) => panic!("link {i}: {other:?}"),
            Err(error) => Err(error),
        }
    };
    for i in 1..65_000 {
        link(i).unwrap_or_else(|e| panic!("link {i}: {e}"));
        if i % 10_000 == 0 {
            b.commit(true);
        }
    }
    assert_eq!(b.attr("one").nlink, 65_000);
    for _ in 0..2 {
        let error = link(65_000).expect_err("one too many");
        assert_eq!(error.errno(), libc::EMLINK, "{error}");
    }
    b.unlink("links/link 7");
    link(65_000).expect("there is room for one again");
    assert_eq!(b.attr("one").nlink, 65_000);
    let tree = Caller::root(&*b.service).walk().expect("walks");
    let image = b.close();
    siftfs_crash::e2fsck_image(&image).expect("clean");
    let mut found = kernel_differences(&tree, &image);
    found.retain(|d| !d.contains("atime"));
    assert_eq!(found, Vec::<String>::new());
}

/// While the kernel has the volume mounted through a loop device, it cannot be opened here; and
/// while it is open here, the kernel refuses it.
#[test]
fn the_kernel_and_we_exclude_each_other() {
    use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, mkfs};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, at) = (dir.path().join("volume"), dir.path().join("mounted"));
    fs::create_dir(&at).expect("a directory");
    let quiet = &mut |_: &str, _: u64, _: u64| {};
    let opts = MkfsOptions { size: Some(32 << 20), ..MkfsOptions::default() };
    mkfs(&path, &opts, quiet).expect("mkfs");
    let mount = || {
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", "loop"]).args([&path, &at]);
        command.output().expect("mount runs")
    };
    let unmount = || Command::new("umount").arg(&at).status().expect("umount runs").success();
    let out = mount();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "the kernel does not mount it (needs root): {said}");
    let opened = LocalVolume::open(&path, &OpenOptions::default(), quiet);
    // As a program that looks at new devices: the loop device goes when it lets go, and not before.
    let name = Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&path).output();
    let name = String::from_utf8(name.expect("losetup runs").stdout).expect("a name");
    let seen = fs::File::open(name.trim()).expect("the loop device");
    let looks = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(seen);
    });
    assert!(unmount());
    let Err(error) = opened else { panic!("opened what the kernel has mounted") };
    assert!(error.to_string().len() > 25, "{error}");
    println!("{error}");
    let volume = LocalVolume::open(&path, &OpenOptions::default(), quiet).expect("free again");
    looks.join().expect("it looked");
    if mount().status.success() {
        assert!(unmount());
        panic!("the kernel mounted what is open here");
    }
    volume.close().expect("closes");
    assert!(mount().status.success(), "plain ext4 again");
    assert!(unmount());
}
