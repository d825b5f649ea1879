//! One mount, as programs and the other commands see it.

use crate::support::run;
use crate::{Served, siftfs};
use rustix::fs::{AtFlags, CWD, XattrFlags};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// What programs do with files works, lasts beyond the mount, and is plain ext4 in the end.
#[test]
fn files_are_as_on_any_mount() {
    let served = Served::start();
    let mount = served.mount("m", "");
    let (f, g) = (mount.path("f"), mount.path("d/g"));
    std::fs::write(&f, vec![7; 1_000_000]).unwrap();
    std::fs::File::open(&f).unwrap().sync_all().unwrap();
    std::fs::create_dir(mount.path("d")).unwrap();
    std::fs::rename(&f, &g).unwrap();
    std::os::unix::fs::symlink("g", mount.path("d/s")).unwrap();
    std::fs::hard_link(&g, mount.path("h")).unwrap();
    rustix::fs::setxattr(&g, "user.a", b"value", XattrFlags::empty()).unwrap();
    std::fs::set_permissions(&g, std::fs::Permissions::from_mode(0o640)).unwrap();
    run("setfacl", &["-m", "u:1000:r", g.to_str().unwrap()]).ok();
    run("chown", &["1000:1001", g.to_str().unwrap()]).ok();
    let file = std::fs::OpenOptions::new().write(true).open(&g).unwrap();
    file.set_len(500_000).unwrap();
    file.sync_data().unwrap();
    drop(file);
    mount.umount();

    let mount = served.mount("again", "");
    let g = mount.path("d/g");
    let meta = std::fs::metadata(&g).unwrap();
    assert_eq!((meta.len(), meta.nlink(), meta.uid(), meta.gid()), (500_000, 2, 1000, 1001));
    assert_eq!(std::fs::read(mount.path("d/s")).unwrap(), vec![7; 500_000]);
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(&g, "user.a", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"value");
    let acl = run("getfacl", &["-cn", g.to_str().unwrap()]).ok().out;
    assert!(acl.contains("user:1000:r--"), "{acl}");
    let stat = rustix::fs::statat(CWD, mount.dir(), AtFlags::empty()).unwrap();
    assert_eq!(stat.st_ino, 1);
    mount.umount();
    served.end();
}

/// `status` says which server it is, `sync` and `checkpoint` are carried out there, and both ways
/// to unmount work.
#[test]
fn commands_reach_the_server() {
    let served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), vec![1; 100_000]).unwrap();
    siftfs(&["sync", mount.dir()]).ok();
    let status = mount.status();
    assert_eq!(status["server"]["address"], served.address());
    assert!(status["server"]["lost"].is_null(), "{status}");
    assert!(status["server"]["calls"].as_u64().unwrap() > 5);
    let server = served.server.as_ref().unwrap().pid().as_raw_nonzero().get();
    assert_ne!(status["pid"].as_i64().unwrap(), i64::from(server));
    let text = siftfs(&["status", mount.dir()]).ok().out;
    assert!(text.contains("connected") && text.contains("serving"), "{text}");
    siftfs(&["checkpoint", mount.dir()]).ok();
    let status = mount.status();
    assert_eq!(status["runtime"]["unreclaimed_transactions"].as_u64().unwrap(), 0, "{status}");
    assert!(status["runtime"]["service"]["checkpoint_last"]["batch"].as_u64().unwrap() > 0);
    mount.umount();
    assert!(!mount.is_there());
    let mount = served.mount("other", "subdir=lost+found,ro");
    assert_eq!(std::fs::read_dir(mount.dir()).unwrap().count(), 0);
    assert_eq!(crate::errno(std::fs::write(mount.path("x"), "")), libc::EROFS);
    run("umount", &[mount.dir()]).ok();
    served.end();
}

/// What mount(8) says to its helper is understood, and fstab's own words mean nothing.
#[test]
fn the_helper_takes_an_address() {
    let served = Served::start();
    let helper = served.setup.tmp.path().join("mount.siftfs");
    std::os::unix::fs::symlink(crate::SIFTFS, &helper).unwrap();
    let dir = served.setup.dir();
    let words = "rw,_netdev,nofail,x-systemd.automount";
    run(helper.to_str().unwrap(), &[served.address(), dir, "-o", words, "-t", "siftfs"]).ok();
    let mount = siftfs_fuse::top_mount(Path::new(dir)).unwrap().expect("a mount");
    assert_eq!((mount.source.to_str(), &*mount.fs_type), (Some(served.address()), "fuse.siftfs"));
    std::fs::write(served.setup.path("f"), "x").unwrap();
    // By its address, as umount(8) takes it.
    siftfs(&["umount", served.address()]).ok();
    assert!(siftfs_fuse::top_mount(Path::new(dir)).unwrap().is_none());
    served.end();
}
