//! `siftfs inspect`, and what recovery then does.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use support::{Setup, siftfs};

fn inspected(s: &Setup) -> Value {
    serde_json::from_str(&siftfs(&["inspect", s.volume(), "--json"]).ok().out).unwrap()
}

/// A volume whose daemon was killed with `n` fsynced files in its log.
fn dirty(n: usize) -> Setup {
    let s = Setup::new();
    s.mount("commit=3600");
    for i in 0..n {
        let mut f = File::create(s.path(&format!("secret-{i}"))).unwrap();
        f.write_all(b"secret contents").unwrap();
        f.sync_all().unwrap();
    }
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    s
}

#[test]
fn it_says_what_recovery_does() {
    let s = dirty(30);
    let before = fs::read(s.volume()).unwrap();
    let seen = inspected(&s);
    let text = siftfs(&["inspect", s.volume()]).ok().out;
    assert!(before == fs::read(s.volume()).unwrap(), "inspect wrote");
    assert_eq!(
        (&seen["host"]["state"], &seen["marker"]["marked"]),
        (&"mounted".into(), &true.into())
    );
    assert_eq!(seen["lanes"][0]["records"].as_array().unwrap().len(), 30);
    assert_eq!(seen["lanes"][0]["records"][7]["items"]["create"], 1);
    assert!(text.contains("10 before these"), "{text}");
    assert!(text.contains("marker") && !text.contains("secret"), "{text}");
    let report = siftfs(&["recover", s.volume(), "--json"]).ok().out;
    let report: Value = serde_json::from_str(&report).unwrap();
    // Replaying the journal reclaims the records that its transactions name, before the lanes are read.
    assert!(seen["recovery"]["found"].as_u64() >= report["staged_found"].as_u64());
    assert_eq!(seen["recovery"]["apply"], report["staged_applied"]);
    assert_eq!(seen["recovery"]["replay"], report["replayed_transactions"]);
    let work = ["apply", "replay"].map(|what| seen["recovery"][what].as_u64().unwrap());
    assert!(work.iter().sum::<u64>() > 0, "{seen}");
    let after = inspected(&s);
    assert_eq!(
        (&after["recovery"]["needed"], &after["host"]["state"]),
        (&false.into(), &"clean".into())
    );
    assert!(siftfs(&["inspect", s.volume()]).ok().out.contains("nothing to do"));
}

#[test]
fn what_cannot_be_inspected() {
    let s = Setup::new();
    siftfs(&["inspect"]).fails(16, &[]);
    siftfs(&["inspect", "/no/such/volume"]).fails(8, &["/no/such/volume"]);
    s.mount("");
    siftfs(&["inspect", s.volume()]).fails(8, &[s.volume()]);
    s.umount();
    fs::write(s.volume(), vec![0; 16 << 20]).unwrap();
    let none = siftfs(&["inspect", s.volume()]);
    assert!(none.code == 8 && none.out.contains("no header found"), "{none:?}");
}
