//! What each mount has of its own.

use crate::support::{SIFTFS, Setup, run, siftfs};
use crate::{Beside, THROUGH, fuse_for_all, shared, status};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Gid, Uid};
use siftfs_client::{Compound, CompoundError, FileStep, Level, NewAttributes};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const SOME: u32 = 65_534;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// What a compound of one step is refused for.
fn refusal(compound: Compound<'_>) -> Option<i32> {
    match compound.run(Level::Visible) {
        Ok(_) => None,
        Err(CompoundError::Refused { error, .. } | CompoundError::Failed(error)) => {
            error.raw_os_error()
        }
    }
}

/// A program on the volume that says as whom it runs.
fn program(s: &Setup) {
    fs::copy("/usr/bin/id", s.path("id")).unwrap();
    std::os::unix::fs::chown(s.path("id"), Some(0), Some(0)).unwrap();
    fs::set_permissions(s.path("id"), Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(s.tmp.path(), Permissions::from_mode(0o755)).unwrap();
}

/// Whom `id` runs as when another user starts it.
fn runs_as(path: &Path) -> io::Result<String> {
    let out = Command::new(path).arg("-u").uid(SOME).gid(SOME).output()?;
    Ok(String::from_utf8(out.stdout).unwrap().trim().into())
}

/// Set-id bits, devices and programs, by real calls.
#[test]
fn set_ids_devices_and_programs() {
    let s = shared();
    program(&s);
    let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
    mknodat(CWD, s.path("null"), kind, mode, rustix::fs::makedev(1, 3)).unwrap();
    let [nosuid, nodev, noexec] = ["nosuid", "nodev", "noexec"].map(|option| {
        let dir = Beside::of(&s, option);
        dir.attach(&s, option).ok();
        dir
    });
    assert_eq!(runs_as(&s.path("id")).unwrap(), "0");
    assert_eq!(runs_as(&nodev.path("id")).unwrap(), "0");
    assert_eq!(runs_as(&nosuid.path("id")).unwrap(), SOME.to_string());
    assert_eq!(errno(runs_as(&noexec.path("id"))), Some(libc::EACCES));
    for dir in [&nosuid, &noexec] {
        File::open(dir.path("null")).unwrap();
    }
    File::open(s.path("null")).unwrap();
    assert_eq!(errno(File::open(nodev.path("null"))), Some(libc::EACCES));
    for dir in [nosuid, nodev, noexec] {
        dir.umount();
    }
    s.umount();
    s.assert_plain_ext4();
}

/// A read-only mount refuses every change, calls of the kernel's and ioctls of ours, and the volume
/// stays writable through the other; a remount of each is about that one.
#[test]
fn read_only() {
    let s = shared();
    let dir = Beside::of(&s, "ro");
    dir.attach(&s, "ro").ok();
    fs::write(s.path("file"), "data").unwrap();
    assert_eq!(errno(fs::write(dir.path("new"), "x")), Some(libc::EROFS));
    assert_eq!(errno(fs::remove_file(dir.path("file"))), Some(libc::EROFS));
    assert_eq!(errno(File::options().write(true).open(dir.path("file"))), Some(libc::EROFS));
    let root = File::open(dir.path("")).unwrap();
    let ioctls = |root: &File| {
        let mut compound = Compound::on(root);
        let _: FileStep = compound.create("made", 0o644);
        let by_path = refusal(compound);
        let mut compound = Compound::on(root);
        let file = compound.lookup("file");
        let _ = compound
            .set_attributes(file, NewAttributes { perm: Some(0o600), ..Default::default() });
        [by_path, refusal(compound)]
    };
    assert_eq!(ioctls(&root), [Some(libc::EROFS); 2]);
    let entries = vec![siftfs_client::Entry {
        source: siftfs_client::Source::Path("file".into()),
        to: "moved".into(),
        replace: true,
    }];
    let publish = siftfs_client::Publish { entries, level: Level::Visible };
    assert_eq!(errno(siftfs_client::publish(root.as_fd(), &publish)), Some(libc::EROFS));
    drop(root);
    // Each by itself.
    let remount = |dir: &str, options: &str| {
        run(SIFTFS, &["mount", s.volume(), dir, "-o", &format!("remount,{options}")]).ok()
    };
    remount(dir.dir(), "rw");
    fs::write(dir.path("new"), "x").unwrap();
    remount(s.dir(), "ro");
    assert_eq!(errno(fs::write(s.path("other"), "x")), Some(libc::EROFS));
    fs::write(dir.path("other"), "x").unwrap();
    assert_eq!(ioctls(&File::open(s.path("")).unwrap()), [Some(libc::EROFS); 2]);
    // All of them: then the volume is.
    remount(dir.dir(), "ro");
    assert_eq!(errno(fs::write(dir.path("late"), "x")), Some(libc::EROFS));
    remount(s.dir(), "rw");
    fs::write(s.path("later"), "x").unwrap();
    assert_eq!(fs::read(dir.path("later")).unwrap(), b"x");
    assert_eq!(errno(fs::write(dir.path("later"), "y")), Some(libc::EROFS));
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// A volume that is read-only has read-only mounts, and says so.
#[test]
fn of_a_read_only_volume() {
    let s = Setup::new();
    s.mount(&format!("{THROUGH},shared,ro"));
    let dir = Beside::of(&s, "other");
    let ran = dir.attach(&s, "").ok();
    assert!(ran.err.contains("read-only, because the volume is"), "{ran:?}");
    assert_eq!(errno(fs::write(dir.path("new"), "x")), Some(libc::EROFS));
    assert_eq!(status(dir.dir())["mounts"][1]["warnings"].as_array().unwrap().len(), 1);
    s.umount();
    dir.umount();
    s.assert_plain_ext4();
}

/// Who is let in, the request loop, and SiftFS's own operations.
#[test]
fn users_loops_and_operations() {
    let s = shared();
    fs::set_permissions(s.tmp.path(), Permissions::from_mode(0o755)).unwrap();
    let dir = Beside::of(&s, "own");
    dir.attach(&s, "noallow_other,requests=device,threads=1,operations=off,subtype=mail").ok();
    let look = |path: &Path| {
        let (user, group) = (Uid::from_raw(SOME), Gid::from_raw(SOME));
        Command::new("stat")
            .arg(path)
            .uid(user.as_raw())
            .gid(group.as_raw())
            .output()
            .unwrap()
            .status
    };
    assert!(look(&s.path("")).success() && !look(&dir.path("")).success());
    let mount = siftfs_fuse::top_mount(dir.dir().as_ref()).unwrap().unwrap();
    assert_eq!(mount.fs_type, "fuse.mail");
    let entry = |root: &File| {
        let mut compound = Compound::on(root);
        let _: FileStep = compound.create("made", 0o644);
        refusal(compound)
    };
    let none = entry(&File::open(dir.path("")).unwrap());
    assert!([Some(libc::ENOTTY), Some(libc::EOPNOTSUPP)].contains(&none), "{none:?}");
    assert_eq!(entry(&File::open(s.path("")).unwrap()), None);
    let now = status(dir.dir());
    assert_eq!(now["mounts"][1]["request_loop"]["kind"], "device");
    let was = now["mounts"][0]["requests"].clone();
    for _ in 0..3 {
        fs::read_dir(dir.path("")).unwrap().count();
    }
    let now = status(dir.dir());
    assert!(now["mounts"][1]["requests"]["lookup"].as_u64() > None || now["requests"] != was);
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// A file has one number and one device per mount; a hard link leads from one mount to the other
/// no more than between two file systems.
#[test]
fn numbers_and_links() {
    let s = shared();
    let dir = Beside::of(&s, "other");
    dir.attach(&s, "").ok();
    fs::write(s.path("file"), "data").unwrap();
    let (a, b) = (fs::metadata(s.path("file")).unwrap(), fs::metadata(dir.path("file")).unwrap());
    assert_eq!(a.ino(), b.ino());
    assert_ne!(a.dev(), b.dev());
    assert_eq!(errno(fs::hard_link(s.path("file"), dir.path("link"))), Some(libc::EXDEV));
    assert_eq!(errno(fs::rename(s.path("file"), dir.path("moved"))), Some(libc::EXDEV));
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon of an unprivileged user, in a user namespace of its own, mounts nosuid and nodev,
/// first and attached, whatever is said.
#[test]
fn of_an_unprivileged_user() {
    let s = Setup::new();
    let second = s.tmp.path().join("second");
    fs::create_dir(&second).unwrap();
    for path in [s.tmp.path(), &second, s.dir().as_ref()] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    std::os::unix::fs::chown(s.volume(), Some(SOME), Some(SOME)).unwrap();
    fuse_for_all(s.tmp.path());
    let text = r#"
set -eu
# Where the daemon's socket may be.
mount -t tmpfs none /run
mount --bind "$T/fuse" /dev/fuse
"$SIFTFS" mount "$V" "$D" -o write_cache=writethrough,shared,suid,dev,subtype=
"$SIFTFS" mount "$V" "$T/second" -o write_cache=writethrough,suid,dev,ro
"$SIFTFS" mount "$V" "$D" -o remount,suid,dev
for dir in "$D" "$T/second"; do
    options=$(awk -v dir="$dir" '$5 == dir { print $6 }' /proc/self/mountinfo)
    case $options in *nosuid,nodev*) ;; *) echo "$dir: $options" >&2; exit 1;; esac
done
echo kept > "$D/file"
[ "$(cat "$T/second/file")" = kept ]
"$SIFTFS" umount "$D"
"$SIFTFS" umount "$T/second"
"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", text]);
    command.env("SIFTFS", SIFTFS).env("V", s.volume()).env("D", s.dir());
    command.env("T", s.tmp.path()).uid(SOME).gid(SOME);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let e2fsck = run("e2fsck", &["-fn", s.volume()]);
    assert_eq!(e2fsck.code, 0, "{e2fsck:?}");
}

/// `siftfs sync` through one mount makes durable what programs stored through mappings of another.
#[test]
#[allow(unsafe_code)] // mmap(2) has no safe wrapper
fn a_sync_is_of_all_mounts() {
    let s = shared();
    let dir = Beside::of(&s, "other");
    dir.attach(&s, "").ok();
    fs::write(dir.path("file"), vec![b'.'; 8192]).unwrap();
    let file = File::options().read(true).write(true).open(dir.path("file")).unwrap();
    let flags = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, of a file that stays as long as it is.
    let map =
        unsafe { libc::mmap(std::ptr::null_mut(), 8192, flags.0, flags.1, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // A program that is started closes what it does not inherit, and the kernel writes that first.
    drop(file);
    // SAFETY: two pages from there are mapped, and nothing else has them.
    unsafe { map.cast::<u8>().add(5000).write_bytes(b'X', 100) };
    siftfs(&["sync", s.dir()]).ok();
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    // SAFETY: nothing uses the mapping any more.
    unsafe { libc::munmap(map, 8192) };
    daemon.wait();
    s.mount(THROUGH);
    let found = fs::read(s.path("file")).unwrap();
    assert!(found[5000..5100].iter().all(|b| *b == b'X'), "what was stored is lost");
    s.umount();
    s.assert_plain_ext4();
}
