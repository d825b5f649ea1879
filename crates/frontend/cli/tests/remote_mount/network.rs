//! Mounts over a network with delays, that breaks in the middle of messages. A proxy stands for it.

use super::returns::{check, work};
use crate::support::keys::Keys;
use crate::support::served::Served as Server;
use crate::support::{Setup, siftfs};
use crate::{Mount, patient};
use rustix::process::Signal;
use siftfs_rig::proxy::Proxy;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A served volume, and a mount of it through a proxy.
pub struct Far {
    pub setup: Setup,
    pub keys: Keys,
    pub server: Server,
    pub proxy: Proxy,
    pub mount: Mount,
}

impl Far {
    /// With the key of a line with these options. Everybody may make files below `all`.
    pub fn new(line: &str) -> Self {
        let setup = Setup::new();
        siftfs(&["mount", setup.volume(), setup.dir()]).ok();
        std::fs::create_dir(setup.path("all")).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(setup.path("all"), all).unwrap();
        patient(|| siftfs(&["umount", setup.dir()])).ok();
        let keys = Keys::new(setup.tmp.path(), &format!("{line} volumes=volume"));
        let server = serve(&setup, &keys);
        let proxy = Proxy::start(&server.address);
        let mount = Mount(setup.tmp.path().join("far"));
        std::fs::create_dir(&mount.0).unwrap();
        let log = setup.tmp.path().join("far.log").display().to_string();
        let options = keys.option();
        let mounted = ["mount", &proxy.address, mount.dir(), "-o", &options, "--log-file", &log];
        crate::siftfs(&mounted).ok();
        Self { setup, keys, server, proxy, mount }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.setup.tmp.path().join("far.log")).unwrap()
    }

    /// A new directory for a mount.
    pub fn directory(&self, name: &str) -> std::path::PathBuf {
        let dir = self.setup.tmp.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Mounts it there, not through the proxy.
    pub fn mount_at(&self, mount: &Mount) {
        let options = self.keys.option();
        crate::siftfs(&["mount", &self.server.address, mount.dir(), "-o", &options]).ok();
    }

    /// Another mount of it, not through the proxy.
    pub fn near(&self) -> Mount {
        let mount = Mount(self.directory("near"));
        self.mount_at(&mount);
        mount
    }

    pub fn end(self) {
        self.mount.umount();
        assert!(self.server.end(Signal::TERM).success());
        self.setup.assert_plain_ext4();
    }
}

fn serve(setup: &Setup, keys: &Keys) -> Server {
    let admits = keys.admits();
    let more: Vec<&str> = admits.iter().map(String::as_str).collect();
    Server::at(setup, "tcp:127.0.0.1:0", &more)
}

/// Calls of many programs are on their way at the same time: none waits for another one's answer.
#[test]
fn calls_do_not_wait_for_each_other_under_delay() {
    let far = Far::new("role=client squash=none");
    for number in 0..16 {
        std::fs::write(far.mount.path(&format!("all/{number}")), [number; 5000]).unwrap();
    }
    far.proxy.plan.delay.store(50_000, Ordering::SeqCst);
    far.proxy.plan.most.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for number in 0..16u8 {
            let path = far.mount.path(&format!("all/{number}"));
            scope.spawn(move || {
                let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
                for round in 0..4 {
                    file.write_all_at(&[number ^ round; 5000], 0).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let most = far.proxy.plan.most.load(Ordering::SeqCst);
    assert!(most >= 6, "at most {most} messages were on their way");
    for number in 0..16u8 {
        let bytes = std::fs::read(far.mount.path(&format!("all/{number}"))).unwrap();
        assert_eq!(bytes, [number ^ 3; 5000]);
    }
    far.end();
}

/// The connection is cut in the middle of messages, again and again: no call fails, and all that
/// programs were told is there, also after a death of the server.
#[test]
fn a_mount_goes_on_when_messages_are_cut() {
    let far = Far::new("role=client squash=none");
    far.proxy.plan.delay.store(500, Ordering::SeqCst);
    let over = Arc::new(AtomicBool::new(false));
    let dirs = ["one", "other"].map(|name| far.mount.path(name));
    let workers = dirs.clone().into_iter().zip(31..).map(|(dir, seed)| {
        std::fs::create_dir(&dir).unwrap();
        let over = over.clone();
        std::thread::spawn(move || work(&dir, seed, &over))
    });
    let workers: Vec<_> = workers.collect();
    for cut in 0..12 {
        far.proxy.cut_after(1000 + cut * 7919);
        let begun = Instant::now();
        // Each cut is followed by a connection before the next one comes.
        let plan = &far.proxy.plan;
        while plan.cuts.load(Ordering::SeqCst) <= cut as u64
            || plan.made.load(Ordering::SeqCst) <= cut as u64 + 1
        {
            assert!(begun.elapsed() < Duration::from_secs(60), "cut {cut}: nobody works any more");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    over.store(true, Ordering::Relaxed);
    let ledgers: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    for (dir, ledger) in dirs.iter().zip(&ledgers) {
        check(dir, ledger);
    }
    let Far { setup, keys, server, proxy, mount } = far;
    mount.umount();
    server.end(Signal::KILL);
    let server = serve(&setup, &keys);
    proxy.lead_to(&server.address);
    let fresh = Mount(setup.tmp.path().join("fresh"));
    std::fs::create_dir(&fresh.0).unwrap();
    let options = keys.option();
    crate::siftfs(&["mount", &proxy.address, fresh.dir(), "-o", &options]).ok();
    for (name, ledger) in ["one", "other"].iter().zip(&ledgers) {
        check(&fresh.path(name), ledger);
    }
    fresh.umount();
    assert!(server.end(Signal::TERM).success());
    setup.assert_plain_ext4();
}

/// Where the server checks the callers, a call that a cut meets is carried out, or fails with EIO,
/// and the log says why. What was synced before is there.
#[test]
fn a_checked_mount_says_what_a_cut_has_cost() {
    let far = Far::new("role=client");
    let synced = far.mount.path("all/synced");
    let file = std::fs::File::create(&synced).unwrap();
    file.write_all_at(&[5; 9000], 0).unwrap();
    file.sync_all().unwrap();
    far.proxy.cut_after(3000);
    let mut failed = None;
    for round in 0..200u64 {
        if let Err(e) = file.write_all_at(&[6; 3000], 20_000 + round * 3000) {
            failed = Some(e);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(far.proxy.plan.cuts.load(Ordering::SeqCst), 1);
    if let Some(error) = failed {
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(far.log().contains("the server is lost"), "{}", far.log());
    }
    drop(file);
    let umounted = patient(|| crate::siftfs(&["umount", far.mount.dir()]));
    assert!(umounted.code == 0 || umounted.err.contains("server was lost"), "{umounted:?}");
    assert!(far.server.end(Signal::TERM).success());
    siftfs(&["mount", far.setup.volume(), far.setup.dir()]).ok();
    let bytes = std::fs::read(far.setup.path("all/synced")).unwrap();
    assert_eq!(bytes[..9000], [5; 9000]);
    patient(|| siftfs(&["umount", far.setup.dir()])).ok();
    far.setup.assert_plain_ext4();
}

/// Everything that is on its way is lost, and neither end is told: both find out, and the mount
/// goes on by another connection.
#[test]
fn a_mount_finds_out_that_nothing_arrives() {
    let far = Far::new("role=client squash=none");
    let file = std::fs::File::create(far.mount.path("f")).unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    far.proxy.plan.hole.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    file.write_all_at(&[2; 5000], 5000).unwrap();
    file.sync_all().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(far.proxy.plan.made.load(Ordering::SeqCst) >= 2);
    far.proxy.plan.hole.store(false, Ordering::SeqCst);
    let expected = [[1; 5000], [2; 5000]].concat();
    assert_eq!(std::fs::read(far.mount.path("f")).unwrap(), expected);
    drop(file);
    far.end();
}
