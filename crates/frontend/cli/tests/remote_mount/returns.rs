//! The server dies, and comes back: its mounts have waited.

use crate::support::Setup;
use crate::support::serving::Server;
use crate::{Mount, Served, siftfs};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(300);

/// What was not synced is there again, under the names and numbers that it had: open files stay
/// open, and the fsync that comes afterwards covers what was written before.
#[test]
fn a_mount_goes_on_after_its_server_was_killed() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::create_dir(mount.path("d")).unwrap();
    let mut open = OpenOptions::new();
    open.read(true).write(true).create_new(true);
    let file = open.open(mount.path("d/first")).unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 5000], 5000).unwrap();
    let unsynced = open.open(mount.path("d/second")).unwrap();
    unsynced.write_all_at(b"never synced", 0).unwrap();
    std::fs::rename(mount.path("d/second"), mount.path("third")).unwrap();
    std::fs::write(mount.path("d/gone"), "x").unwrap();
    std::fs::remove_file(mount.path("d/gone")).unwrap();
    let before = unsynced.metadata().unwrap();
    let begun = Instant::now();
    let again = served.restart_after(Signal::KILL, PAUSE);
    // It waits for the server, and covers what was written before its death.
    file.write_all_at(&[3; 100], 10_000).unwrap();
    file.sync_all().unwrap();
    unsynced.sync_all().unwrap();
    assert!(begun.elapsed() > PAUSE);
    served.server = Some(again.join().unwrap());
    let after = unsynced.metadata().unwrap();
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
    assert_eq!(std::fs::metadata(mount.path("third")).unwrap().ino(), before.ino());
    assert!(!mount.path("d/gone").exists() && !mount.path("d/second").exists());
    // What the server has now is there after one more death, without any client.
    mount.kill();
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let fresh = served.mount("fresh", "");
    let first = std::fs::read(fresh.path("d/first")).unwrap();
    let expected = [vec![1; 5000], vec![2; 5000], vec![3; 100]].concat();
    assert!(first == expected, "{} bytes", first.len());
    assert_eq!(std::fs::read(fresh.path("third")).unwrap(), b"never synced");
    fresh.umount();
    served.end();
}

/// A file that was made without a name and synced is there under the name that it got, although the
/// server dies before anything else is durable.
#[test]
fn a_file_that_got_its_name_late_is_there() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    let file = rustix::fs::open(
        mount.dir(),
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::from(0o644),
    );
    let file = File::from(file.unwrap());
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, own, CWD, mount.path("named"), follow).unwrap();
    file.write_all_at(b", and not", 6).unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    assert_eq!(std::fs::read(mount.path("named")).unwrap(), b"synced, and not");
    served.server = Some(again.join().unwrap());
    drop(file);
    mount.umount();
    served.end();
}

/// An upgrade of the server: it ends in order, and another one takes its place.
#[test]
fn a_mount_goes_on_after_its_server_was_restarted() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), "before").unwrap();
    let file = OpenOptions::new().append(true).open(mount.path("f")).unwrap();
    let again = served.restart_after(Signal::TERM, PAUSE);
    std::io::Write::write_all(&mut &file, b" and after").unwrap();
    assert_eq!(std::fs::read(mount.path("f")).unwrap(), b"before and after");
    served.server = Some(again.join().unwrap());
    assert_eq!(mount.status()["server"]["lost"].as_str(), None);
    drop(file);
    mount.umount();
    served.end();
}

/// Locks are kept, and programs that wait for one go on to wait.
#[test]
fn locks_outlive_the_server() {
    let mut served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", ""));
    std::fs::write(one.path("f"), "x").unwrap();
    let held = File::open(one.path("f")).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let wanted = File::open(other.path("f")).unwrap();
    let waits = std::thread::spawn(move || {
        rustix::fs::flock(&wanted, FlockOperation::LockExclusive).map(|()| wanted)
    });
    std::thread::sleep(PAUSE);
    let again = served.restart_after(Signal::KILL, PAUSE);
    let third = File::open(other.path("f")).unwrap();
    let refused = rustix::fs::flock(&third, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    if waits.is_finished() {
        panic!("{:?}", waits.join().unwrap());
    }
    drop(held);
    let granted = waits.join().unwrap().unwrap();
    served.server = Some(again.join().unwrap());
    drop((granted, third));
    one.umount();
    other.umount();
    served.end();
}

/// Who does not want to wait need not: a mount goes without its server, and says so.
///
/// Seen to be in use, in two of five runs, while what the daemon asks of its own mount waits for
/// the server (`kick` in `fuse/src/kernel/ring`).
#[test]
fn a_mount_is_unmounted_without_its_server() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), "x").unwrap();
    served.server.take().unwrap().end(Signal::KILL);
    let begun = Instant::now();
    let status = mount.status();
    assert!(status["server"]["lost"].as_str().is_some());
    let ends = |_| {
        std::thread::sleep(PAUSE / 10);
        threads(&status, "siftfs-kick") == 0
    };
    assert!((0..100).any(ends), "a thread waits for the server");
    siftfs(&["umount", mount.dir()]).fails(1, &["it is unmounted", "server was lost"]);
    assert!(!mount.is_there());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    served.server = Some(Server::start(served.setup.volume()));
    served.end();
}

/// How many threads of this name a mount's daemon has.
fn threads(status: &serde_json::Value, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", status["pid"])).unwrap();
    let names = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// A command that waits for the server's answer when the server dies is told so: it does not wait
/// for the next one.
#[test]
fn commands_do_not_wait_for_a_server_that_died_meanwhile() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    let server = served.server.take().unwrap();
    server.signal(Signal::STOP);
    let status = std::thread::scope(|scope| {
        let status = scope.spawn(|| mount.status());
        std::thread::sleep(PAUSE);
        server.end(Signal::KILL);
        status.join().unwrap()
    });
    assert!(status["server"]["lost"].as_str().is_some(), "{status}");
    assert!(status["runtime"]["failed"].as_str().is_some(), "{status}");
    served.server = Some(Server::start(served.setup.volume()));
    drop(mount);
    served.end();
}

/// So it is where the server dies while it makes durable what was not.
///
/// Seen to be told as if all were well when the session is not asked again what it keeps.
#[test]
fn an_unmount_says_that_its_server_died_meanwhile() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), "x").unwrap();
    let server = served.server.take().unwrap();
    server.signal(Signal::STOP);
    let dir = mount.dir().to_string();
    let ends = std::thread::spawn(move || siftfs(&["umount", &dir]));
    std::thread::sleep(PAUSE);
    server.end(Signal::KILL);
    ends.join().unwrap().fails(1, &["it is unmounted", "may not be there"]);
    assert!(!mount.is_there());
    served.server = Some(Server::start(served.setup.volume()));
    served.end();
}

/// A mount that is gone with its server keeps others waiting for the grace time and no longer.
#[test]
fn others_wait_for_the_grace_time_only() {
    let mut served = Served::start();
    let (gone, other) = (served.mount("gone", ""), served.mount("other", ""));
    std::fs::write(other.path("f"), "x").unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    gone.kill();
    served.server = Some(again.join().unwrap());
    let begun = Instant::now();
    std::fs::write(other.path("g"), "y").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    siftfs(&["umount", gone.dir()]);
    other.umount();
    served.end();
}

/// What became durable without that its client was told is there, and no change is lost when it
/// cannot be made twice: an attribute is removed, and a commit in the background has that.
///
/// Seen to fail with EIO at the fsync when a removal that finds nothing is a change that is lost.
#[test]
fn a_removal_that_was_durable_is_no_loss() {
    let setup = Setup::new();
    let home = Mount(setup.tmp.path().join("home"));
    std::fs::create_dir(home.dir()).unwrap();
    let address = format!("unix:{}.sock", setup.volume());
    // It commits all the time, and says only every two seconds what is durable.
    let serve = || {
        let args = ["mount", setup.volume(), home.dir(), "-o", "commit=0.01"];
        siftfs(&[&args[..], &["--listen", &address]].concat()).ok();
    };
    serve();
    let mount = Mount(setup.tmp.path().join("mount"));
    std::fs::create_dir(mount.dir()).unwrap();
    siftfs(&["mount", &address, mount.dir()]).ok();
    let file = File::create(mount.path("f")).unwrap();
    for _ in 0..3 {
        rustix::fs::fsetxattr(&file, "user.a", b"x", XattrFlags::CREATE).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fremovexattr(&file, "user.a").unwrap();
        std::thread::sleep(PAUSE);
        home.kill();
        while siftfs_fuse::detach(Path::new(home.dir())).is_ok() {}
        serve();
        file.sync_all().unwrap();
        assert_eq!(rustix::fs::fgetxattr(&file, "user.a", &mut [0; 8]), Err(Errno::NODATA));
    }
    drop(file);
    mount.umount();
    home.umount();
}

/// An attribute's change is refused that a dead server may have carried out, or may not: one that
/// is there with another value was not made by it, and of the others nobody can say it.
///
/// Seen to fail when each such refusal is taken for the own first attempt.
#[test]
fn refusals_of_attributes_are_not_taken_for_success() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    let file = File::create(mount.path("f")).unwrap();
    rustix::fs::fsetxattr(&file, "user.a", b"here", XattrFlags::CREATE).unwrap();
    file.sync_all().unwrap();
    type Change = fn(&File) -> rustix::io::Result<()>;
    let other: Change = |file| rustix::fs::fsetxattr(file, "user.a", b"new", XattrFlags::CREATE);
    let same: Change = |file| rustix::fs::fsetxattr(file, "user.a", b"here", XattrFlags::CREATE);
    let removal: Change = |file| rustix::fs::fremovexattr(file, "user.b");
    for (change, expected) in [(other, Errno::EXIST), (same, Errno::IO), (removal, Errno::IO)] {
        // The kernel has the attributes, and asks for them no more before it makes the call. That
        // has left when the server dies, and is not carried out.
        std::thread::sleep(PAUSE);
        file.metadata().unwrap();
        served.server.as_ref().unwrap().signal(Signal::STOP);
        let theirs = file.try_clone().unwrap();
        let call = std::thread::spawn(move || change(&theirs));
        std::thread::sleep(PAUSE);
        let again = served.restart_after(Signal::KILL, PAUSE);
        assert_eq!(call.join().unwrap(), Err(expected));
        served.server = Some(again.join().unwrap());
    }
    file.sync_all().unwrap();
    drop(file);
    mount.umount();
    served.end();
}

/// A section's commit is durable when it is answered: nothing that was written before it is
/// repeated over it, also through a mount.
///
/// Seen to fail when what is kept of the file is not made durable before (`before_final`).
#[test]
fn nothing_older_is_repeated_over_a_section() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("f"));
    let file = file.unwrap();
    file.write_all_at(&[9; 8192], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.set_len(4000).unwrap();
    let section = siftfs_client::Section::start(&file).unwrap();
    file.write_all_at(&[2; 4000], 2000).unwrap();
    section.commit().unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    served.server = Some(again.join().unwrap());
    // It waits until the server is there; what that has, a program sees, and not what the kernel
    // has in memory.
    file.sync_all().unwrap();
    let volume = siftfs::Volume::connect(served.address()).unwrap();
    let found = volume.open_file("/f").unwrap().read_at(0, 8192).unwrap();
    volume.close().unwrap();
    assert!(found == [vec![1; 2000], vec![2; 4000]].concat());
    drop(file);
    mount.umount();
    served.end();
}

/// Files of a ledger at most: a volume of a test has 4,096 inodes, which fast storage fills.
pub const MOST_FILES: usize = 1000;

/// What a program has been told of its directory: each file's bytes.
pub type Ledger = BTreeMap<String, Vec<u8>>;

/// Makes, writes, renames, truncates and removes files until `over`, and syncs some of them. Every
/// call has to succeed.
pub fn work(dir: &Path, seed: u64, over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::new();
    let mut drawn = seed;
    let mut draw = move |below: u64| {
        drawn =
            drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (drawn >> 33) % below
    };
    let open = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("open"));
    let open = open.unwrap();
    ledger.insert("open".into(), Vec::new());
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let names: Vec<String> = ledger.keys().filter(|name| *name != "open").cloned().collect();
        let some = (!names.is_empty()).then(|| names[draw(names.len() as u64) as usize].clone());
        let chosen = if names.len() < MOST_FILES { draw(8) } else { 0 };
        match (chosen, some) {
            (0, Some(name)) => {
                std::fs::remove_file(dir.join(&name)).unwrap();
                ledger.remove(&name);
            }
            (1, Some(name)) => {
                number += 1;
                let to = format!("moved-{number}");
                std::fs::rename(dir.join(&name), dir.join(&to)).unwrap();
                let bytes = ledger.remove(&name).unwrap();
                ledger.insert(to, bytes);
            }
            (2, Some(name)) => {
                let file = OpenOptions::new().write(true).open(dir.join(&name)).unwrap();
                let size = draw(6000);
                file.set_len(size).unwrap();
                file.sync_all().unwrap();
                ledger.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            (3, _) => open.sync_data().unwrap(),
            (4 | 5, _) => {
                let (at, byte) = (draw(40_000), draw(256) as u8);
                let bytes = vec![byte; draw(9000) as usize + 1];
                open.write_all_at(&bytes, at).unwrap();
                let all = ledger.get_mut("open").unwrap();
                let end = at as usize + bytes.len();
                all.resize(all.len().max(end), 0);
                all[at as usize..end].copy_from_slice(&bytes);
            }
            _ => {
                number += 1;
                let name = format!("made-{number}");
                let bytes = vec![draw(256) as u8; draw(5000) as usize];
                let file = File::create_new(dir.join(&name)).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
                if draw(3) == 0 {
                    file.sync_all().unwrap();
                }
                ledger.insert(name, bytes);
            }
        }
    }
    ledger
}

pub fn check(dir: &Path, ledger: &Ledger) {
    let names = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ledger.keys().cloned().collect::<Vec<_>>());
    for (name, bytes) in ledger {
        let found = std::fs::read(dir.join(name)).unwrap();
        if found != *bytes {
            std::thread::sleep(Duration::from_secs(3));
            let later = std::fs::read(dir.join(name)).unwrap();
            let attr = std::fs::metadata(dir.join(name)).unwrap();
            panic!(
                "{name}: {} and later {} bytes of {}, {attr:?}",
                found.len(),
                later.len(),
                bytes.len()
            );
        }
    }
}

/// Two mounts whose programs work on, while their server is killed again and again: no call fails,
/// and in the end everything is as they were told.
#[test]
fn two_ledgers_survive_many_deaths() {
    let mut served = Served::start();
    let mounts = [served.mount("one", ""), served.mount("other", "")];
    let over = Arc::new(AtomicBool::new(false));
    let dirs = [mounts[0].path("of-one"), mounts[1].path("of-other")];
    let workers = dirs.clone().into_iter().zip(1..).map(|(dir, seed)| {
        std::fs::create_dir(&dir).unwrap();
        let over = over.clone();
        std::thread::spawn(move || work(&dir, seed, &over))
    });
    let workers: Vec<_> = workers.collect();
    for death in 0..8 {
        std::thread::sleep(Duration::from_millis(300 + 170 * death));
        let signal = if death == 5 { Signal::TERM } else { Signal::KILL };
        let again = served.restart_after(signal, Duration::from_millis(50));
        served.server = Some(again.join().unwrap());
    }
    std::thread::sleep(Duration::from_secs(1));
    over.store(true, Ordering::Relaxed);
    let ledgers: Vec<Ledger> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    for (dir, ledger) in dirs.iter().zip(&ledgers) {
        assert!(ledger.len() > 1, "nothing was done");
        check(dir, ledger);
    }
    mounts.iter().for_each(Mount::umount);
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let fresh = served.mount("fresh", "");
    for (dir, ledger) in dirs.iter().zip(&ledgers) {
        check(&fresh.path(dir.file_name().unwrap().to_str().unwrap()), ledger);
    }
    fresh.umount();
    served.end();
}
