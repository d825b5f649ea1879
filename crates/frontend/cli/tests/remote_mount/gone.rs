//! Files that are gone with their server, while kernels still refer to them: their numbers name no
//! other file.

use crate::support::serving::Server;
use crate::{Mount, Served, errno, siftfs};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::descriptors::own_table;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(100);
/// More files than are made before a free number is given again.
const FILES: usize = 40;

/// A file without a name, durably so far, and its number.
fn nameless(dir: &str) -> (File, u64) {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::from(0o600)).unwrap());
    file.write_all_at(b"mine", 0).unwrap();
    file.sync_all().unwrap();
    siftfs(&["sync", dir]).ok();
    let ino = file.metadata().unwrap().ino();
    (file, ino)
}

/// linkat(2) of a descriptor.
fn link(file: &File, name: &Path) -> std::io::Result<()> {
    let own = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, own, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Makes files until one has this number, or there are enough of them.
fn made(mount: &Mount, name: &str, ino: u64) -> Option<String> {
    (0..FILES).map(|n| format!("{name}{n}")).find(|name| {
        std::fs::write(mount.path(name), name).unwrap();
        std::fs::metadata(mount.path(name)).unwrap().ino() == ino
    })
}

/// The number is not given to another file before the descriptor is closed, and then it is.
#[test]
fn the_number_of_a_file_that_is_gone_is_kept() {
    let mut served = Served::start();
    let (mount, other) = (served.mount("m", ""), served.mount("other", ""));
    let (file, ino) = nameless(mount.dir());
    let again = served.restart_after(Signal::KILL, PAUSE);
    for (mount, name) in [(&mount, "own"), (&other, "theirs")] {
        assert_eq!(made(mount, name, ino), None, "another file has the number of one that is open");
    }
    served.server = Some(again.join().unwrap());
    let gone = [file.read_at(&mut [0; 4], 0).map(drop), link(&file, &mount.path("linked"))];
    assert_eq!(gone.map(errno), [libc::ESTALE; 2]);
    assert!(!mount.path("linked").exists());
    drop(file);
    let begun = Instant::now();
    while made(&mount, "later", ino).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the number never comes again");
        (0..FILES).for_each(|n| {
            let _ = std::fs::remove_file(mount.path(&format!("later{n}")));
        });
    }
    mount.umount();
    other.umount();
    served.end();
}

/// What a thread does with the file that it has open.
type Asked = Box<dyn FnOnce(&File) + Send>;

/// A file without a name that a thread has open in a table of its own: a process that is started
/// meanwhile has no copy of it, whose close would wait for a mount that is stopped.
struct Holder {
    asks: Sender<Asked>,
    thread: JoinHandle<()>,
    ino: u64,
}

impl Holder {
    fn of(dir: &str) -> Self {
        let (tell, told) = channel();
        let (asks, asked) = channel::<Asked>();
        let dir = dir.to_string();
        let thread = spawn(move || {
            own_table().unwrap();
            let (file, ino) = nameless(&dir);
            tell.send(ino).unwrap();
            asked.iter().for_each(|ask| ask(&file));
        });
        Self { asks, thread, ino: told.recv().unwrap() }
    }

    fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&File) -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.asks.send(Box::new(move |file| tell.send(ask(file)).unwrap())).unwrap();
        told.recv().unwrap()
    }

    /// The errno with which its descriptor gets no name.
    fn link(&self, name: PathBuf) -> i32 {
        errno(self.ask(move |file| link(file, &name)))
    }

    /// The errno with which nothing is written through it.
    fn write(&self) -> i32 {
        errno(self.ask(|file| file.write_at(b"not mine", 0)))
    }

    fn close(self) {
        drop(self.asks);
        self.thread.join().unwrap();
    }
}

/// A mount that comes back late, when its number is another file's already: that one is there by
/// its name, and is not what the descriptor is of, before it was looked up and after.
#[test]
fn a_late_mount_does_not_take_another_file_for_its_own() {
    let mut served = Served::start();
    let (mount, other) = (served.mount("m", ""), served.mount("other", ""));
    let held = Holder::of(mount.dir());
    let daemon = i32::try_from(mount.status()["pid"].as_i64().unwrap()).unwrap();
    let daemon = Pid::from_raw(daemon).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let theirs = made(&other, "theirs", held.ino);
    kill_process(daemon, Signal::CONT).unwrap();
    let theirs = theirs.expect("nobody waits for the other mount: its number is free");
    assert_eq!(held.link(mount.path("before")), libc::ESTALE);
    let there = mount.path(&theirs);
    assert_eq!(std::fs::read_to_string(&there).unwrap(), theirs);
    assert_eq!(std::fs::metadata(&there).unwrap().ino(), held.ino);
    assert_eq!(held.link(mount.path("after")), libc::ESTALE);
    assert!([libc::ESTALE, libc::EIO].contains(&held.write()));
    assert_eq!(errno(std::fs::hard_link(&there, mount.path("named"))), libc::ESTALE);
    // Once more: what was open of the former file is not opened again as the later one.
    let again = served.restart_after(Signal::KILL, PAUSE);
    assert_eq!(std::fs::read_to_string(&there).unwrap(), theirs);
    served.server = Some(again.join().unwrap());
    assert!([libc::ESTALE, libc::EIO].contains(&held.write()));
    assert_eq!(held.link(mount.path("again")), libc::ESTALE);
    assert_eq!(std::fs::read_to_string(other.path(&theirs)).unwrap(), theirs);
    assert_eq!(std::fs::metadata(other.path(&theirs)).unwrap().nlink(), 1);
    held.close();
    mount.umount();
    other.umount();
    served.end();
}
