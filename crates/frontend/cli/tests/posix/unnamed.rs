//! Files and directories without a name: removed while they are open, or made so.

use crate::data::{pattern, say_read};
use crate::pair::{Place, open, same};
use rustix::fs::{OFlags, ftruncate, unlink};
use rustix::io::pwrite;

#[test]
fn files_without_a_name() {
    same(|c| {
        c.file("f", &pattern(1, 20_000));
        let Some(f) = c.open("f", OFlags::RDWR) else { return };
        c.r("unlink", unlink(c.p("f")));
        c.fstat("f", &f);
        c.v("write", pwrite(&f, b"more", 30_000));
        say_read(c, "read", &f, 0, 40_000);
        c.r("truncate", ftruncate(&f, 100));
        c.r("fsync", rustix::fs::fsync(&f));
        c.r("chmod", rustix::fs::fchmod(&f, 0o600.into()));
        c.fstat("f", &f);
        c.file("f", b"another");
        c.stat("f");
        say_read(c, "read", &f, 0, 40_000);
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&f));
        c.r("open again", open(std::path::Path::new(&again), OFlags::RDWR, 0));
        let flag = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        let linked =
            rustix::fs::linkat(rustix::fs::CWD, again.as_str(), rustix::fs::CWD, c.p("back"), flag);
        c.r("link back", linked);
        let Some(g) = c.open("f", OFlags::RDWR) else { return };
        c.r("rename", rustix::fs::rename(c.p("f"), c.p("g")));
        c.v("write", pwrite(&g, b"after the rename", 0));
        c.content("g");
        c.file("h", b"the next");
        c.r("rename over it", rustix::fs::rename(c.p("h"), c.p("g")));
        say_read(c, "the displaced one", &g, 0, 100);
        c.fstat("displaced", &g);
        c.content("g");
        removed_directory(c);
    });
}

fn removed_directory(c: &mut Place) {
    c.dir("d");
    let Some(d) = c.open("d", OFlags::RDONLY | OFlags::DIRECTORY) else { return };
    std::env::set_current_dir(c.p("d")).unwrap();
    c.r("rmdir", rustix::fs::rmdir(c.p("d")));
    c.fstat("d", &d);
    let here = std::path::Path::new(".");
    let made = open(&here.join("x"), OFlags::CREATE | OFlags::WRONLY, 0o644);
    c.r("create in it", made);
    c.r("mkdir in it", rustix::fs::mkdir("x", 0o755.into()));
    c.r("symlink in it", rustix::fs::symlink("x", "y"));
    c.r("open it", open(here, OFlags::RDONLY, 0));
    let listed = std::fs::read_dir(".").map(|d| d.count());
    c.say(format!("list it: {listed:?}"));
    c.r("rename into it", rustix::fs::rename(c.p("g"), "g"));
    let linked = rustix::fs::linkat(
        rustix::fs::CWD,
        c.p("g"),
        rustix::fs::CWD,
        "l",
        rustix::fs::AtFlags::empty(),
    );
    c.r("link into it", linked);
    c.r("lookup in it", rustix::fs::stat("x").map(drop));
    c.r("go up", rustix::fs::stat("../g").map(drop));
    c.r("fsync it", rustix::fs::fsync(&d));
    c.v("working directory", std::env::current_dir().map_err(|_| rustix::io::Errno::NOENT));
    std::env::set_current_dir("/").unwrap();
}

/// O_TMPFILE: a file without a name is a file, gets a name only if it may, and leaves nothing.
#[test]
pub(crate) fn files_made_without_a_name() {
    use rustix::fs::{AtFlags, CWD};
    same(|c| {
        let file = tempfile::tempfile_in(c.p("."));
        let wrote = file.and_then(|mut f| std::io::Write::write(&mut f, b"nameless"));
        c.say(format!("{:?}", wrote.map_err(|e| e.kind())));
        c.dir("d");
        for (name, flags) in [("a", OFlags::RDWR), ("b", OFlags::RDWR | OFlags::EXCL)] {
            let unnamed = open(&c.p("d"), OFlags::TMPFILE | flags, 0o6644);
            let Some(f) = c.r("O_TMPFILE", unnamed) else { return };
            c.fstat("without a name", &f);
            c.v("write", pwrite(&f, b"some data", 4090));
            c.r("fsync", rustix::fs::fsync(&f));
            c.say(format!("{:?}", std::fs::read_dir(c.p("d")).map(|d| d.count()).ok()));
            let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&f));
            for to in [name, "twice"] {
                let (from, to) = (&proc, c.p(&format!("d/{to}")));
                c.r("link", rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW));
            }
            c.fstat("with a name", &f);
            c.stat(&format!("d/{name}"));
            c.content(&format!("d/{name}"));
            c.r("unlink", unlink(c.p("d/twice")));
        }
        c.v("not a directory", open(&c.p("d/a"), OFlags::TMPFILE | OFlags::RDWR, 0o600).map(drop));
        c.v("read only", open(&c.p("d"), OFlags::TMPFILE | OFlags::RDONLY, 0o600).map(drop));
        c.stat("d");
    });
}
