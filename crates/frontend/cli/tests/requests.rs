//! How the kernel's requests come, as users see and choose it.

#[path = "../../fuse/tests/support/rings.rs"]
mod rings;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{Connection, SIFTFS, Setup, run, siftfs};

fn request_loop(s: &Setup) -> (String, String) {
    let json = siftfs(&["status", s.dir(), "--json"]).ok().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let text = |field: &str| json["request_loop"][field].as_str().unwrap().to_string();
    (text("kind"), text("why"))
}

/// Some of everything, with power cut by SIGKILL in the middle: what was synced is there.
fn a_life(s: &Setup, options: &str) {
    let mount = || {
        let args = ["mount", s.volume(), s.dir(), "-o", options];
        rings::offering(true, || run(SIFTFS, &args)).ok();
    };
    mount();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::create_dir(s.path("d")).unwrap();
    for i in 0..60 {
        let mut f = File::create(s.path(&format!("d/{i}"))).unwrap();
        f.write_all(&data[..1 + i * i * 800]).unwrap();
        f.sync_all().unwrap();
    }
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    mount();
    for i in 0..60 {
        assert_eq!(fs::read(s.path(&format!("d/{i}"))).unwrap(), &data[..1 + i * i * 800]);
    }
    assert_eq!(fs::read_dir(s.path("d")).unwrap().count(), 60);
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let path = s.path(&format!("t{t}"));
            std::thread::spawn(move || {
                for i in 0..40u32 {
                    let mut f = File::create(&path).unwrap();
                    writeln!(f, "{i}").unwrap();
                    f.sync_data().unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{i}\n"));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    fs::remove_dir_all(s.path("d")).unwrap();
}

#[test]
fn by_rings() {
    let s = Setup::new();
    a_life(&s, "requests=auto");
    let (kind, why) = request_loop(&s);
    if rings::has_rings() {
        assert_eq!((&*kind, &*why), ("ring", "the kernel offers it"));
        let text = siftfs(&["status", s.dir()]).ok().out;
        assert!(text.contains("by ") && text.contains(" rings with "), "{text}");
    } else {
        assert_eq!((&*kind, &*why), ("device", "this kernel has no FUSE over io_uring"));
    }
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn over_the_device() {
    let s = Setup::new();
    a_life(&s, "requests=device");
    assert_eq!(request_loop(&s), ("device".into(), "the option requests=device".into()));
    let text = siftfs(&["status", s.dir()]).ok().out;
    let way = text.lines().find(|line| line.contains("over /dev/fuse with ")).expect(&text);
    assert!(way.contains(" busy: the option requests=device"), "{way}");
    s.umount();
    s.assert_plain_ext4();
}

/// Rings that are asked for and cannot be had: one message that says why and what to do, and the
/// volume is as it was.
#[test]
fn rings_that_are_not_there() {
    let s = Setup::new();
    let args = ["mount", s.volume(), s.dir(), "-o", "requests=ring"];
    let why = if rings::has_rings() { "enable_uring" } else { "no FUSE over io_uring" };
    rings::offering(false, || run(SIFTFS, &args)).fails(1, &["requests=ring", why]);
    s.assert_plain_ext4();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "requests=both"])
        .fails(2, &["requests=both", "auto, ring, device"]);
}

/// `siftfs tune` switches the rings on and off, for mounts from then on. A mount by hand on a
/// terminal says that they are off; one of a script says nothing.
#[test]
fn rings_are_switched_on_and_off() {
    let s = Setup::new();
    let conf = "/etc/modprobe.d/siftfs.conf";
    let before = fs::read(conf).ok();
    let mount = format!("{SIFTFS} mount {} {}", s.volume(), s.dir());
    let typescript = s.tmp.path().join("typescript");
    let on_terminal = || run("script", &["-qec", &mount, typescript.to_str().unwrap()]).ok().out;
    let now = || {
        let json = siftfs(&["tune", "--json"]).ok().out;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["rings"]["now"].as_bool()
    };
    rings::offering(false, || {
        if !rings::has_rings() {
            siftfs(&["tune", "on"]).fails(1, &["no FUSE over io_uring"]);
            assert_eq!(now(), None);
            return;
        }
        assert!(on_terminal().contains("`siftfs tune on`"));
        assert_eq!(now(), Some(false));
        let why = request_loop(&s).1;
        assert!(why.contains("`siftfs tune on`"), "{why}");
        s.umount();
        let silent = run(SIFTFS, &["mount", s.volume(), s.dir()]).ok();
        assert_eq!((silent.out, silent.err), (String::new(), String::new()));
        s.umount();
        siftfs(&["tune", "on"]).ok();
        assert_eq!(now(), Some(true));
        assert!(!on_terminal().contains("tune"));
        assert_eq!(request_loop(&s).0, "ring");
        s.umount();
        siftfs(&["tune", "--off"]).ok();
        assert_eq!(now(), Some(false));
    });
    if let Some(text) = before {
        fs::write(conf, text).unwrap();
    }
    s.assert_plain_ext4();
}

/// What callers get whose requests are on their way when the daemon is killed: what is taken for
/// the answer of a dead mount, so that a mount or an unmount that comes in that moment does its
/// work.
#[test]
fn callers_of_a_killed_daemon() {
    const CALLERS: usize = 16;
    let s = Setup::new();
    let args = ["mount", s.volume(), s.dir(), "-o", "requests=auto"];
    for round in 0..8 {
        rings::offering(true, || run(SIFTFS, &args)).ok();
        let (daemon, calls) = (s.daemon(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let ends: Vec<_> = (0..CALLERS)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            match rustix::fs::statfs(s.dir()) {
                                Ok(_) => calls.fetch_add(1, Ordering::Relaxed),
                                Err(e) => return std::io::Error::from(e),
                            };
                        }
                    })
                })
                .collect();
            let start = Instant::now();
            while calls.load(Ordering::Relaxed) < 100 * CALLERS {
                assert!(start.elapsed() < Duration::from_secs(60), "statfs(2) does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
            daemon.signal(rustix::process::Signal::KILL);
            for end in ends {
                let said = end.join().unwrap();
                assert!(siftfs_fuse::says_dead(&said), "round {round}: {said}");
            }
        });
        daemon.wait();
    }
    rings::offering(true, || siftfs(&["mount", s.volume(), s.dir()])).ok();
    s.umount();
    s.assert_plain_ext4();
}

fn made(dir: &str, i: usize) -> std::io::Result<()> {
    File::create(format!("{dir}/{i}"))?.sync_all()
}

/// Many callers at once bring further threads of a queue, whose registration is followed by a
/// question of the daemon's to its own mount. Neither an unmount nor a kill in that moment may come
/// to harm by it.
#[test]
fn questions_to_its_own_mount() {
    const CALLERS: usize = 24;
    let s = Setup::new();
    let args = ["mount", s.volume(), s.dir(), "-o", "requests=auto"];
    let dir = s.dir();
    let ask = || (0..CALLERS).map(|i| std::thread::spawn(move || made(dir, i)));
    for round in 0..24 {
        rings::offering(true, || run(SIFTFS, &args)).ok();
        let connection = Connection::of(dir);
        let daemon = s.daemon();
        let asking: Vec<_> = ask().collect();
        if round % 2 == 0 {
            asking.into_iter().for_each(|t| t.join().unwrap().unwrap());
            // The daemon opens files of its own mount for a moment, to have pages dropped.
            s.bare_umount();
            daemon.wait();
        } else {
            daemon.signal(rustix::process::Signal::KILL);
            daemon.wait();
            // Some before, some after.
            asking.into_iter().for_each(|t| drop(t.join().unwrap()));
        }
        drop(connection);
    }
    rings::offering(true, || siftfs(&["mount", s.volume(), s.dir()])).ok();
    s.umount();
    s.assert_plain_ext4();
}
