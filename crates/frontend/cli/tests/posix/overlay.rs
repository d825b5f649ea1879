//! RENAME_WHITEOUT, and overlayfs with its upper layer on the mount.

use crate::pair::{Place, same, tree};
use crate::support::{Setup, patient, run, siftfs};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Signal;
use std::path::Path;

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
    let layer = |name: &str| root.join(name).to_str().unwrap().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        layer("lower"),
        layer("upper"),
        layer("work")
    );
    run("mount", &["-t", "overlay", "overlay", "-o", &options, &layer("merged")]).ok();
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
