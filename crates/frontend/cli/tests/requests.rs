//! How the kernel's requests come, as users see and choose it.

#[path = "../../fuse/tests/support/rings.rs"]
mod rings;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use std::fs::{self, File};
use std::io::Write;
use support::{SIFTFS, Setup, run, siftfs};

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
    assert!(text.contains("over /dev/fuse: the option"), "{text}");
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
