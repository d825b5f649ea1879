//! The mount through which a program calls: a read-only view, one that nobody knows, and one on
//! which something else is mounted. What a system call refuses there, a compound and a publish
//! refuse.

use crate::calls::{FEATURES, File, START, features};
use crate::refused::refusal;
use crate::support::{Setup, run, siftfs};
use crate::{mounted, read, root};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::UnshareFlags;
use siftfs_client::{
    Access, Compound, Entry, FileStep, Level, NewAttributes, Publish, Source, publish,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

fn directory(path: &Path) -> File {
    File::open(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Publishes on a directory; the errno if it is refused.
fn named(dir: &File, source: Source, to: &str) -> i32 {
    let entries = vec![Entry { source, to: to.into(), replace: true }];
    match publish(dir.0.as_fd(), &Publish { entries, level: Level::Visible }) {
        Ok(()) => 0,
        Err(e) => e.raw_os_error().unwrap(),
    }
}

fn number(file: &File) -> Source {
    Source::Descriptor(u32::try_from(file.0.as_raw_fd()).unwrap())
}

/// A step has been added, and nothing needs its result.
fn added<T>(_: T) {}

/// What a compound of the steps that `steps` adds is refused for.
fn asked<'a>(dir: &'a File, steps: impl FnOnce(&mut Compound<'a>)) -> (Option<usize>, i32) {
    let mut compound = Compound::on(&dir.0);
    steps(&mut compound);
    refusal(compound)
}

/// A directory beside the mount.
fn place(s: &Setup, name: &str) -> PathBuf {
    let path = s.tmp.path().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn mount(args: &[&str]) {
    run("mount", args).ok();
}

/// What the volume's root has: names, links, modes, contents.
fn tree(s: &Setup) -> Vec<String> {
    let entries = std::fs::read_dir(s.path("")).unwrap().map(|e| e.unwrap());
    let files = entries.filter(|e| e.file_type().unwrap().is_file());
    let line = |e: std::fs::DirEntry| {
        let m = e.metadata().unwrap();
        let (mode, links) =
            (std::os::unix::fs::MetadataExt::mode(&m), std::os::unix::fs::MetadataExt::nlink(&m));
        format!("{:?} {mode:o} {links} {:?}", e.file_name(), std::fs::read(e.path()).unwrap())
    };
    let mut all: Vec<_> = files.map(line).collect();
    all.sort();
    all
}

/// Every step that would change something through the read-only directory `dir` is EROFS, and what
/// only reads is carried out.
fn nothing_changes_by(dir: &File) {
    type Steps = fn(&mut Compound<'_>);
    let names: [Steps; 5] = [
        |c| added(c.create("new", 0o644)),
        |c| added(c.unlink("a")),
        |c| added(c.rename("a", "new")),
        |c| added(c.open("a", Access::Write)),
        |c| added(c.open("a", Access::Both)),
    ];
    for (at, steps) in names.into_iter().enumerate() {
        assert_eq!(asked(dir, |c| steps(c)), (Some(0), libc::EROFS), "{at}");
    }
    type Uses = fn(&mut Compound<'_>, FileStep);
    let chmod = |c: &mut Compound<'_>, a| {
        let set = NewAttributes { perm: Some(0o600), ..NewAttributes::default() };
        c.set_attributes(a, set);
    };
    let uses: [Uses; 5] = [
        |c, a| added(c.link(a, "new")),
        |c, a| added(c.set_len(a, 0)),
        |c, a| added(c.write(a, 0, b"x")),
        |c, a| added(c.append(a, b"x")),
        chmod,
    ];
    let found = |uses: Uses| {
        asked(dir, |c| {
            let a = c.lookup("a");
            uses(c, a);
        })
    };
    for (at, uses) in uses.into_iter().enumerate() {
        assert_eq!(found(uses), (Some(1), libc::EROFS), "{at}");
    }
    assert_eq!(found(|c, a| added(c.read(a, 0, 10))), (None, 0));
    assert_eq!(named(dir, Source::Path("a".into()), "new"), libc::EROFS);
}

/// Through a read-only bind mount nothing changes, also for root; what was opened for writing
/// through another mount is written, and gets no name.
#[test]
fn a_read_only_view() {
    let s = mounted("writethrough");
    for name in ["a", "b"] {
        File::create(&s.path(name), b"content").sync();
    }
    let view = place(&s, "view");
    let at = view.to_str().unwrap();
    mount(&["--bind", s.dir(), at]);
    mount(&["-o", "remount,bind,ro", at]);
    let before = tree(&s);
    {
        let (dir, whole) = (directory(&view), root(&s));
        nothing_changes_by(&dir);
        // The kernel itself asks for flags.
        let flags = rustix::fs::ioctl_getflags(&dir.0).unwrap();
        let set = rustix::fs::ioctl_setflags(&dir.0, flags | rustix::fs::IFlags::NODUMP);
        assert_eq!(set, Err(rustix::io::Errno::ROFS));
        // A descriptor of the view: to read is enough for a link and for attributes.
        let reader = File::open(&view.join("a"), OFlags::RDONLY);
        let set = NewAttributes { perm: Some(0o600), ..NewAttributes::default() };
        let chmod = asked(&whole, |c| {
            c.set_attributes(&reader.0, set);
        });
        assert_eq!(chmod, (Some(0), libc::EROFS));
        let link = asked(&whole, |c| {
            c.link(&reader.0, "new");
        });
        assert_eq!(link, (Some(0), libc::EXDEV), "as linkat(2)");
        assert_eq!(tree(&s), before);
        let writer = File::open(&s.path("a"), OFlags::RDWR);
        assert_eq!(
            asked(&dir, |c| {
                c.write(&writer.0, 0, b"C");
            }),
            (None, 0)
        );
        assert_eq!(named(&dir, number(&writer), "new"), libc::EROFS);
        // A section was opened for writing.
        writer.call(START).unwrap();
    }
    assert_eq!(read(&s, "a"), b"Content");
    run("umount", &[at]).ok();
    s.umount();
    s.assert_plain_ext4();
}

/// A file that was opened through another mount of the volume gets no name here, as by linkat(2).
#[test]
fn a_descriptor_of_another_view() {
    let s = mounted("writethrough");
    let view = place(&s, "view");
    mount(&["--bind", s.dir(), view.to_str().unwrap()]);
    let file = File::create(&view.join("f"), b"f");
    assert_eq!(named(&root(&s), number(&file), "g"), libc::EXDEV);
    assert_eq!(named(&directory(&view), number(&file), "g"), 0);
    drop(file);
    run("umount", &[view.to_str().unwrap()]).ok();
    s.umount();
    s.assert_plain_ext4();
}

/// Runs `f` on a thread with a root and a working directory of its own, and what `more` says.
fn apart<R: Send>(more: UnshareFlags, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let body = || {
            // SAFETY: the thread shares no place and no mounts with others from here on.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | more) }.unwrap();
            if more.contains(UnshareFlags::NEWNS) {
                mount(&["--make-rprivate", "/"]);
            }
            f()
        };
        scope.spawn(body).join().unwrap()
    })
}

/// A container's view: read-only in a mount namespace of its own, while it is writable outside; a
/// directory that was opened outside is written to, unless nobody can know how it was mounted.
#[test]
fn other_namespaces() {
    let s = mounted("writethrough");
    File::create(&s.path("a"), b"content").sync();
    let outside = root(&s);
    apart(UnshareFlags::NEWNS, || {
        mount(&["-o", "remount,bind,ro", s.dir()]);
        nothing_changes_by(&root(&s));
        // Its mount is not in this namespace, but in the daemon's.
        assert_eq!(
            asked(&outside, |c| {
                c.create("passed", 0o644);
            }),
            (None, 0)
        );
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree: OwnedFd = open_tree(CWD, s.dir(), flags).unwrap();
        let detached = File(rustix::fs::openat(&tree, ".", OFlags::RDONLY, Mode::empty()).unwrap());
        let unknown = asked(&detached, |c| {
            c.create("new", 0o644);
        });
        assert_eq!(unknown, (None, libc::EOPNOTSUPP), "in nobody's table of mounts");
        assert_eq!(named(&detached, Source::Path("a".into()), "new"), libc::EOPNOTSUPP);
    });
    assert!(s.path("passed").exists() && !s.path("new").exists());
    drop(outside);
    s.umount();
    s.assert_plain_ext4();
}

/// A program in a root directory of its own, which shows it no table of mounts; the daemon's has
/// the mount.
#[test]
fn another_root() {
    let s = mounted("writethrough");
    std::fs::create_dir(s.path("jail")).unwrap();
    let outside = root(&s);
    apart(UnshareFlags::empty(), || {
        rustix::process::chroot(s.path("jail")).unwrap();
        std::env::set_current_dir("/").unwrap();
        let dir = directory(Path::new("/"));
        assert_eq!(
            asked(&dir, |c| {
                c.create("inside", 0o644);
            }),
            (None, 0)
        );
        assert_eq!(
            asked(&outside, |c| {
                c.create("beside", 0o644);
            }),
            (None, 0)
        );
        assert_eq!(
            asked(&dir, |c| {
                c.create("../out", 0o644);
            }),
            (Some(0), libc::EINVAL)
        );
    });
    assert!(s.path("jail/inside").exists() && s.path("beside").exists());
    drop(outside);
    s.umount();
    s.assert_plain_ext4();
}

/// No step and no publish gets at this file.
fn hidden(dir: &File, path: &str) {
    type Steps = fn(&mut Compound<'_>, &str);
    let all: [Steps; 3] = [
        |c, path| added(c.lookup(path)),
        |c, path| added(c.open(path, Access::Read)),
        |c, path| added(c.unlink(path)),
    ];
    for steps in all {
        assert_eq!(asked(dir, |c| steps(c, path)), (Some(0), libc::EXDEV), "{path}");
    }
    assert_eq!(named(dir, Source::Path(path.into()), "taken"), libc::EXDEV);
}

/// What lies below another mount is neither read nor changed, and a file on which something is
/// mounted keeps its name.
#[test]
fn what_is_hidden() {
    let s = mounted("writethrough");
    for dir in ["d", "d/secret", "free"] {
        std::fs::create_dir(s.path(dir)).unwrap();
    }
    for file in ["d/secret/key", "free/f", "covered", "above"] {
        File::create(&s.path(file), b"content").sync();
    }
    mount(&["-t", "tmpfs", "none", s.path("d/secret").to_str().unwrap()]);
    let (above, covered) = (s.path("above"), s.path("covered"));
    mount(&["--bind", above.to_str().unwrap(), covered.to_str().unwrap()]);
    {
        let (dir, inner) = (root(&s), directory(&s.path("d")));
        for (dir, path) in [(&dir, "d/secret/key"), (&inner, "secret/key")] {
            hidden(dir, path);
        }
        let ebusy = (Some(0), libc::EBUSY);
        assert_eq!(
            asked(&dir, |c| {
                c.unlink("covered");
            }),
            ebusy
        );
        assert_eq!(
            asked(&dir, |c| {
                c.rename("above", "covered");
            }),
            ebusy
        );
        assert_eq!(
            asked(&dir, |c| {
                c.rename("covered", "x");
            }),
            ebusy
        );
        assert_eq!(named(&dir, Source::Path("covered".into()), "x"), libc::EBUSY);
        let unlink = rustix::fs::unlinkat(CWD, &covered, AtFlags::empty());
        assert_eq!(unlink, Err(rustix::io::Errno::BUSY), "as the call");
        assert_eq!(
            asked(&dir, |c| {
                c.rename("free/f", "free/g");
            }),
            (None, 0)
        );
    }
    for place in [&covered, &s.path("d/secret")] {
        run("umount", &[place.to_str().unwrap()]).ok();
    }
    assert_eq!(read(&s, "d/secret/key"), b"content");
    assert!(s.path("free/g").exists() && s.path("covered").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// Many threads that call at once, each a moment before it waits.
#[test]
fn callers_on_their_way_to_wait() {
    let s = mounted("writethrough");
    File::create(&s.path("f"), b"f").sync();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let dir = root(&s);
                for _ in 0..300 {
                    assert_eq!(
                        asked(&dir, |c| {
                            c.lookup("f");
                        }),
                        (None, 0)
                    );
                }
            });
        }
    });
    s.umount();
}

/// `operations=off`: as on a file system that has none of them; a remount changes it, and `status`
/// says so.
#[test]
fn none_at_all() {
    let s = Setup::new();
    s.mount("operations=off");
    let file = File::create(&s.path("f"), b"f");
    let dir = root(&s);
    let none = |dir: &File| {
        assert_eq!(
            asked(dir, |c| {
                c.create("new", 0o644);
            }),
            (None, libc::ENOTTY)
        );
        assert_eq!(named(dir, Source::Path("f".into()), "g"), libc::ENOTTY);
        assert_eq!(
            (features(&file, FEATURES), file.call(START)),
            (Err(libc::ENOTTY), Err(libc::ENOTTY))
        );
        assert!(siftfs_client::stage(file.0.as_fd()).is_err());
    };
    none(&dir);
    rustix::fs::ioctl_getflags(&dir.0).unwrap();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,operations=on"]).ok();
    assert_eq!(
        asked(&dir, |c| {
            c.create("new", 0o644);
        }),
        (None, 0)
    );
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,operations=off"]).ok();
    none(&dir);
    let status = siftfs(&["status", s.dir()]).ok();
    assert!(status.out.contains("operations=off"), "{status:?}");
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,operations=maybe"])
        .fails(2, &["on or off"]);
    drop((dir, file));
    s.umount();
    s.assert_plain_ext4();
}
