//! RENAME_WHITEOUT, and overlayfs with its upper layer on the mount.

use crate::pair::{Place, as_user, open, same, tree, xattrs};
use crate::programs::{executed, program};
use crate::support::{Setup, maps_users, patient, run, siftfs};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags, chmod,
    chown, renameat_with, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::process::Signal;
use std::path::{Path, PathBuf};

fn whiteout(c: &mut Place, from: &str, to: &str, more: RenameFlags) {
    let flags = RenameFlags::WHITEOUT | more;
    let result = renameat_with(CWD, c.p(from), CWD, c.p(to), flags);
    c.r(&format!("{from} to {to} {flags:?}"), result);
    for name in [from, to] {
        c.stat(name);
    }
}

#[test]
fn whiteouts_beside_ext4() {
    same(|c| {
        for dir in ["d", "e", "e/full"] {
            c.dir(dir);
        }
        for file in ["f", "g", "h", "d/x", "e/y"] {
            c.file(file, file.as_bytes());
        }
        c.r("link", rustix::fs::link(c.p("h"), c.p("h2")));
        let none = RenameFlags::empty();
        whiteout(c, "f", "f2", none);
        whiteout(c, "f2", "g", none);
        whiteout(c, "g", "d/x", RenameFlags::NOREPLACE);
        whiteout(c, "g", "d/new", RenameFlags::NOREPLACE);
        whiteout(c, "g", "g2", RenameFlags::EXCHANGE);
        whiteout(c, "h", "h2", none);
        whiteout(c, "missing", "there", none);
        whiteout(c, "d", "e/d", none);
        whiteout(c, "e/d", "e/full", none);
        whiteout(c, "e/full", "e/d", none);
        whiteout(c, "e", "e/full/e", none);
        // A whiteout is a file like others.
        whiteout(c, "f", "f3", none);
        c.r("unlink", rustix::fs::unlink(c.p("f")));
        c.r("setgid", rustix::fs::chmod(c.p("e"), rustix::fs::Mode::from_raw_mode(0o2777)));
        c.r("chgrp", rustix::fs::chown(c.p("e"), None, Some(rustix::fs::Gid::from_raw(3000))));
        whiteout(c, "e/y", "y", none);
        for i in 0..300 {
            let (from, to) = (format!("many{i}"), format!("e/moved{i}"));
            c.file(&from, b"x");
            whiteout(c, &from, &to, none);
        }
    });
}

/// Of a rename that left a whiteout both halves survive, by an fsync of the file or of either
/// directory; without one, both or neither.
#[test]
fn a_whiteout_is_durable_with_its_rename() {
    for synced in ["file", "from", "to", "nothing"] {
        let setup = Setup::new();
        setup.mount("commit=30");
        for dir in ["from", "to"] {
            std::fs::create_dir(setup.path(dir)).unwrap();
        }
        std::fs::write(setup.path("from/f"), "content").unwrap();
        siftfs(&["sync", setup.dir()]).ok();
        let (from, to) = (setup.path("from/f"), setup.path("to/f"));
        renameat_with(CWD, &from, CWD, &to, RenameFlags::WHITEOUT).unwrap();
        let path = match synced {
            "file" => Some(to.clone()),
            "nothing" => None,
            dir => Some(setup.path(dir)),
        };
        if let Some(path) = &path {
            std::fs::File::open(path).unwrap().sync_all().unwrap();
        }
        let daemon = setup.daemon();
        daemon.signal(Signal::KILL);
        daemon.wait();
        setup.mount("commit=30");
        let kind = std::fs::symlink_metadata(&from).unwrap().file_type();
        let moved = to.exists();
        let white = std::os::unix::fs::FileTypeExt::is_char_device(&kind);
        assert_eq!(moved, white, "half of it after an fsync of {synced}");
        assert!(moved || path.is_none(), "nothing of it after an fsync of {synced}");
        setup.umount();
        setup.assert_plain_ext4();
    }
}

fn mount_overlay(root: &Path) {
    mount_layers(&["lower", "upper", "work", "merged"].map(|name| root.join(name)));
}

fn mount_layers(layers: &[PathBuf; 4]) {
    let [lower, upper, work, merged] = layers.each_ref().map(|layer| layer.to_str().unwrap());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    run("mount", &["-t", "overlay", "overlay", "-o", &options, merged]).ok();
}

fn change_overlay(merged: &Path) {
    let p = |name: &str| merged.join(name);
    std::fs::write(p("a"), "changed").unwrap();
    std::fs::remove_file(p("b")).unwrap();
    std::fs::rename(p("d/x"), p("d/z")).unwrap();
    std::fs::rename(p("c"), p("a2")).unwrap();
    std::fs::remove_dir_all(p("gone")).unwrap();
    std::fs::create_dir(p("gone")).unwrap();
    std::fs::write(p("gone/again"), "new").unwrap();
    std::fs::write(p("d/new"), "new").unwrap();
    std::fs::hard_link(p("d/new"), p("linked")).unwrap();
}

#[test]
fn an_overlay_with_its_upper_layer_here() {
    let kernel = std::fs::read_to_string("/proc/filesystems").unwrap();
    assert!(kernel.contains("\toverlay\n"), "this kernel has no overlayfs");
    let setup = Setup::new();
    setup.mount("commit=1");
    for dir in ["lower/d", "lower/gone/deep", "upper", "work", "merged"] {
        std::fs::create_dir_all(setup.path(dir)).unwrap();
    }
    for file in ["a", "b", "c", "d/x", "d/y", "gone/old"] {
        std::fs::write(setup.path("lower").join(file), file).unwrap();
    }
    let root = Path::new(setup.dir());
    mount_overlay(root);
    let merged = setup.path("merged");
    change_overlay(&merged);
    let before = tree(&merged);
    let names = |path: &str| {
        let mut names: Vec<String> = std::fs::read_dir(merged.join(path))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["a", "a2", "d", "gone", "linked"]);
    assert_eq!(
        (names("d"), names("gone")),
        (vec!["new", "y", "z"].into_iter().map(String::from).collect(), vec!["again".into()])
    );
    patient(|| run("umount", &[merged.to_str().unwrap()])).ok();
    siftfs(&["sync", setup.dir()]).ok();
    let daemon = setup.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    setup.mount("commit=1");
    mount_overlay(root);
    assert_eq!(tree(&merged), before);
    patient(|| run("umount", &[merged.to_str().unwrap()])).ok();
    setup.umount();
    setup.assert_plain_ext4();
}

const CAP_NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Programs of the lower layer: name, mode, owner, group, and whether it has capabilities.
const PROGRAMS: [(&str, u32, u32, u32, bool); 5] = [
    ("su", 0o6755, 1001, 2000, false),
    ("sg", 0o2755, 0, 2000, false),
    ("sg without x", 0o6745, 1001, 2000, false),
    ("ping", 0o755, 0, 0, true),
    ("both", 0o4755, 1001, 2000, true),
];

fn lower_programs(lower: &Path) {
    for (name, mode, uid, gid, caps) in PROGRAMS {
        let path = lower.join(name);
        std::fs::write(&path, program()).unwrap();
        chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
        chmod(&path, Mode::from_raw_mode(mode)).unwrap();
        if caps {
            let none = XattrFlags::empty();
            setxattr(&path, "security.capability", &CAP_NET_RAW, none).unwrap();
        }
    }
}

/// What copies a program up, or changes it there.
fn change_program(path: &Path, change: &str) -> Result<(), Errno> {
    let at = |tv_sec| {
        let time = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::empty())
    };
    let (user, group) = (Some(Uid::from_raw(1001)), Some(Gid::from_raw(3000)));
    match change {
        "touch" => at(978_307_200),
        "link" => rustix::fs::link(path, path.with_extension("linked")),
        "open" => open(path, OFlags::RDWR, 0).map(drop),
        "write" => rustix::io::write(open(path, OFlags::RDWR, 0)?, &[0x7f]).map(drop),
        "chmod" => chmod(path, Mode::from_raw_mode(0o6755)),
        "chown" => chown(path, user, None),
        "chown both" => chown(path, user, group),
        "chgrp" => chown(path, None, group),
        "twice" => at(978_307_200).and_then(|()| chown(path, user, group)),
        "chmod and chown" => {
            chmod(path, Mode::from_raw_mode(0o6755)).and_then(|()| chown(path, user, group))
        }
        _ => unreachable!(),
    }
}

const PROGRAM_CHANGES: [&str; 10] = [
    "touch",
    "link",
    "open",
    "write",
    "chmod",
    "chown",
    "chown both",
    "chgrp",
    "twice",
    "chmod and chown",
];

/// overlayfs gives the file that it copies up its owner inside of the kernel, which takes nothing
/// away; chown(2) does, also where it copies up first.
fn copy_up(c: &mut Place) {
    let lower = tempfile::tempdir().unwrap();
    chmod(lower.path(), Mode::from_raw_mode(0o755)).unwrap();
    lower_programs(lower.path());
    for (who, uid) in [("root", 0), ("owner", 1001)] {
        for change in PROGRAM_CHANGES {
            for dir in ["upper", "work", "merged"] {
                c.dir(dir);
            }
            let layers = [lower.path().to_path_buf(), c.p("upper"), c.p("work"), c.p("merged")];
            mount_layers(&layers);
            for (name, ..) in PROGRAMS {
                // Differences on purpose: `rights`; and whose group a caller's is, is not known.
                let group = maps_users() && name == "sg without x";
                if group || (change, name, uid) == ("write", "both", 0) {
                    continue;
                }
                let path = c.p("merged").join(name);
                let what = format!("{change} of {name} by {who}");
                let groups = if uid == 0 { vec![0] } else { vec![2000, 3000] };
                let result = as_user(uid, &groups, || change_program(&path, change));
                c.r(&what, result);
                c.say(format!("{what}: {}", executed(&path)));
                c.stat(&format!("merged/{name}"));
                let caps = xattrs(&path).iter().any(|(n, _)| n == "security.capability");
                c.say(format!("capabilities {caps}"));
            }
            patient(|| run("umount", &[c.p("merged").to_str().unwrap()])).ok();
            for dir in ["upper", "work", "merged"] {
                std::fs::remove_dir_all(c.p(dir)).unwrap();
            }
        }
    }
}

#[test]
pub(crate) fn a_copy_up_keeps_privileges() {
    same(copy_up);
}
