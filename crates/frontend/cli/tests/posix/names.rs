//! Names: rename, link, unlink, directories, symbolic links, special files, limits.

use crate::pair::{Place, as_user, same};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, mknodat, readlink, rename,
    renameat_with, rmdir, symlink, unlink,
};

const KINDS: [&str; 7] = ["none", "file", "empty", "full", "link", "dangling", "fifo"];

/// Makes a file of a kind under a name.
fn make(c: &mut Place, kind: &str, name: &str) {
    match kind {
        "none" => {}
        "file" => c.file(name, kind.as_bytes()),
        "empty" => c.dir(name),
        "full" => {
            c.dir(name);
            c.file(&format!("{name}/inside"), b"x");
        }
        "link" => drop(symlink("inside", c.p(name))),
        "dangling" => drop(symlink("/nowhere/at/all", c.p(name))),
        "fifo" => {
            let made = mknodat(CWD, c.p(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0);
            c.r("fifo", made);
        }
        _ => unreachable!(),
    }
}

#[test]
fn rename_of_every_kind_over_every_kind() {
    same(|c| {
        let modes = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
        for (m, flags) in modes.into_iter().enumerate() {
            for from in KINDS {
                for to in KINDS {
                    let dir = format!("{m}-{from}-{to}");
                    c.dir(&dir);
                    c.dir(&format!("{dir}/sub"));
                    let (a, b) = (format!("{dir}/a"), format!("{dir}/sub/b"));
                    make(c, from, &a);
                    make(c, to, &b);
                    let renamed = renameat_with(CWD, c.p(&a), CWD, c.p(&b), flags);
                    c.r(&format!("rename {dir}"), renamed);
                    for name in [&a, &b, &dir, &format!("{dir}/sub")] {
                        c.stat(name);
                    }
                }
            }
        }
    });
}

#[test]
pub(crate) fn rename_rules() {
    same(|c| {
        c.dir("a");
        c.dir("a/b");
        c.dir("a/b/c");
        c.dir("x");
        c.file("f", b"f");
        let pairs = [
            ("a", "a/b/c/d"),
            ("a", "a/a"),
            ("a/b", "a"),
            ("a/b/c", "a/b"),
            ("a", "a"),
            ("f", "f"),
            ("f", "nodir/f"),
            ("nothing", "f"),
            ("f", "f/"),
            ("f/", "g"),
            ("a/", "x/"),
            ("x/b", "y/"),
            ("x/.", "z"),
            ("x/..", "z"),
            ("f", "x/."),
            ("f", "x/.."),
            ("f/x", "g"),
            ("f", "f/x"),
        ];
        for (from, to) in pairs {
            let renamed = rename(c.p(from), c.p(to));
            c.r(&format!("rename {from} {to}"), renamed);
        }
        let link = linkat(CWD, c.p("f"), CWD, c.p("f2"), AtFlags::empty());
        c.r("link", link);
        let renamed = rename(c.p("f"), c.p("f2"));
        c.r("rename of one name of a file over the other does nothing", renamed);
        c.stat("f");
        let swap = renameat_with(CWD, c.p("f"), CWD, c.p("f2"), RenameFlags::EXCHANGE);
        c.r("exchange", swap);
        let swap = renameat_with(CWD, c.p("x"), CWD, c.p("x/b"), RenameFlags::EXCHANGE);
        c.r("exchange with its child", swap);
        let swap = renameat_with(CWD, c.p("x/b"), CWD, c.p("x"), RenameFlags::EXCHANGE);
        c.r("exchange with its parent", swap);
        let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        let swap = renameat_with(CWD, c.p("f"), CWD, c.p("x"), both);
        c.r("both flags", swap);
        let white = renameat_with(CWD, c.p("f"), CWD, c.p("g"), RenameFlags::WHITEOUT);
        // FUSE offers no whiteouts.
        assert!(white.is_ok() || white == Err(rustix::io::Errno::INVAL));
        for name in ["a", "x", "x/b", "f2"] {
            c.stat(name);
        }
    });
}

#[test]
pub(crate) fn sticky_directories() {
    same(|c| {
        c.dir_mode("s", 0o777);
        c.r("chmod", rustix::fs::chmod(c.p("s"), Mode::from_raw_mode(0o1777)));
        c.dir_mode("open", 0o777);
        c.r("chmod", rustix::fs::chmod(c.p("open"), Mode::from_raw_mode(0o777)));
        as_user(1001, &[1001], || {
            c.file("s/theirs", b"1");
            c.file("s/victim", b"1");
            c.dir("s/dir");
        });
        as_user(1002, &[1002], || {
            c.file("s/mine", b"2");
            c.file("open/mine", b"2");
            c.dir("s/own");
            for (from, to) in [
                ("s/theirs", "open/t"),
                ("s/mine", "s/victim"),
                ("open/mine", "s/victim"),
                ("s/dir", "open/d"),
                ("s/dir", "s/e"),
                ("s/own", "s/dir"),
                ("s/mine", "open/m"),
            ] {
                let renamed = rename(c.p(from), c.p(to));
                c.r(&format!("rename {from} {to}"), renamed);
            }
            let flags = RenameFlags::EXCHANGE;
            let swap = renameat_with(CWD, c.p("open/m"), CWD, c.p("s/theirs"), flags);
            c.r("exchange", swap);
            c.r("unlink", unlink(c.p("s/theirs")));
            c.r("rmdir", rmdir(c.p("s/dir")));
            c.r("rmdir", rmdir(c.p("s/own")));
        });
        as_user(1001, &[1001], || {
            c.r("unlink", unlink(c.p("s/theirs")));
            c.r("rmdir", rmdir(c.p("s/dir")));
        });
    });
}

#[test]
fn limits_of_names_links_and_targets() {
    // With `SIFTFS_LONG` one more than ext4 allows. Without a mount `links_up_to_the_limit` of
    // `siftfs-crash` goes as far every day.
    let links = if std::env::var_os("SIFTFS_LONG").is_some() { 65_000 } else { 2_000 };
    same(|c| {
        let longest = "n".repeat(255);
        let too_long = "n".repeat(256);
        c.file(&longest, b"x");
        c.stat(&longest);
        for name in [&too_long, &format!("{longest}/x"), &format!("{too_long}/x")] {
            let opened = crate::pair::open(&c.p(name), OFlags::CREATE | OFlags::RDWR, 0o644);
            c.r("create", opened);
            c.stat(name);
            c.r("mkdir", rustix::fs::mkdir(c.p(name), Mode::RWXU));
            c.r("rmdir", rmdir(c.p(name)));
            c.r("unlink", unlink(c.p(name)));
            c.r("symlink", symlink("t", c.p(name)));
            let linked = linkat(CWD, c.p(&longest), CWD, c.p(name), AtFlags::empty());
            c.r("link", linked);
            c.r("rename", rename(c.p(&longest), c.p(name)));
            c.r("rename", rename(c.p(name), c.p(&longest)));
        }
        for len in [1, 59, 60, 61, 255, 1000, 4094, 4095, 4096] {
            let (target, name) = ("t".repeat(len), format!("l{len}"));
            c.r(&format!("symlink {len}"), symlink(target.as_str(), c.p(&name)));
            c.stat(&name);
            let read = readlink(c.p(&name), Vec::new());
            c.v("readlink", read.map(|t| t.as_bytes() == target.as_bytes()));
        }
        c.r("symlink to nothing", symlink("", c.p("l0")));
        c.v("readlink of a file", readlink(c.p(&longest), Vec::new()));
        for i in 0..=links {
            let name = c.p(&format!("h{i}"));
            let linked = linkat(CWD, c.p(&longest), CWD, name, AtFlags::empty());
            if linked.is_err() {
                c.r(&format!("link {i}"), linked);
                break;
            }
        }
        c.stat(&longest);
        for i in 0..links {
            let _ = unlink(c.p(&format!("h{i}")));
        }
        c.stat(&longest);
    });
}

#[test]
fn directories_and_their_links() {
    same(|c| {
        c.dir("d");
        c.stat("d");
        for name in ["d/1", "d/2", "d/3"] {
            c.dir(name);
            c.stat("d");
        }
        c.file("d/f", b"f");
        c.r("mkdir", rustix::fs::mkdir(c.p("d/1"), Mode::RWXU));
        c.r("mkdir over a file", rustix::fs::mkdir(c.p("d/f"), Mode::RWXU));
        c.r("mkdir in a file", rustix::fs::mkdir(c.p("d/f/x"), Mode::RWXU));
        c.r("mkdir in nothing", rustix::fs::mkdir(c.p("d/no/x"), Mode::RWXU));
        for name in ["d", "d/f", "d/no", "d/1/.", "d/1/..", "d/f/x", "d/1/", "d/2"] {
            c.r(&format!("rmdir {name}"), rmdir(c.p(name)));
        }
        for name in ["d", "d/3", "d/3/", "d/.", "d/..", "d/no", "d/f/", "d/f/x"] {
            c.r(&format!("unlink {name}"), unlink(c.p(name)));
        }
        for (from, to) in [("d/3", "d/4"), ("d/f", "d/3"), ("d/f", "d/no/x"), ("d/no", "d/x")] {
            let linked = linkat(CWD, c.p(from), CWD, c.p(to), AtFlags::empty());
            c.r(&format!("link {from} {to}"), linked);
        }
        c.r("symlink", symlink("f", c.p("d/s")));
        let hard = linkat(CWD, c.p("d/s"), CWD, c.p("d/s2"), AtFlags::empty());
        c.r("link of a symlink", hard);
        let hard = linkat(CWD, c.p("d/s"), CWD, c.p("d/s3"), AtFlags::SYMLINK_FOLLOW);
        c.r("link through a symlink", hard);
        for name in ["d", "d/f", "d/s", "d/s2", "d/s3", "d/3"] {
            c.stat(name);
        }
        c.r("symlink loop", symlink("loop", c.p("loop")));
        let opened = crate::pair::open(&c.p("loop"), OFlags::RDONLY, 0);
        c.r("open loop", opened);
    });
}

#[test]
pub(crate) fn special_files() {
    same(|c| {
        let kinds = [
            ("reg", FileType::RegularFile, 0),
            ("fifo", FileType::Fifo, 0),
            ("sock", FileType::Socket, 0),
            ("chr", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            ("big", FileType::CharacterDevice, rustix::fs::makedev(4000, 1_000_000)),
            ("blk", FileType::BlockDevice, rustix::fs::makedev(7, 300)),
            ("dir", FileType::Directory, 0),
        ];
        for (name, kind, dev) in kinds {
            for mode in [0o644, 0o6755, 0o1777] {
                let name = format!("{name}{mode:o}");
                let made = mknodat(CWD, c.p(&name), kind, Mode::from_raw_mode(mode), dev);
                c.r(&format!("mknod {name}"), made);
                c.stat(&name);
            }
        }
        let null = std::fs::read(c.p("chr644"));
        c.say(format!("reading /dev/null: {:?}", null.map_err(|e| e.kind())));
        as_user(1001, &[1001], || {
            let made = mknodat(CWD, c.p("n"), FileType::CharacterDevice, Mode::RUSR, 259);
            c.r("mknod by a user", made);
        });
        for name in ["fifo644", "sock644"] {
            c.r("truncate", rustix::fs::open(c.p(name), OFlags::PATH, Mode::empty()).map(drop));
            c.r("chmod", rustix::fs::chmod(c.p(name), Mode::from_raw_mode(0o600)));
            c.r("unlink", unlink(c.p(name)));
        }
        let listener = std::os::unix::net::UnixListener::bind(c.p("listen"));
        c.say(format!("bind: {:?}", listener.as_ref().map(|_| ()).map_err(|e| e.kind())));
        let joined = std::os::unix::net::UnixStream::connect(c.p("listen"));
        c.say(format!("connect: {:?}", joined.map(|_| ()).map_err(|e| e.kind())));
    });
}
