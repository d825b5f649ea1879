//! `siftfs inspect`, and what recovery then does.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::Signal;
use serde_json::Value;
use siftfs_lease::{Batches, Held, Logged};
use siftfs_placement::{LocalVolume, OpenOptions};
use siftfs_proto::{Credentials, ROOT_INO, Reply, Request};
use siftfs_registry::RegisteredLease;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{SIFTFS, Setup, siftfs};

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
    // Replaying the journal reclaims the records that its transactions name, before the lanes are
    // read.
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

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A journal that repeats staged data: chosen by mkfs, known to the mount and its device process
/// from the header, shown, and recovered.
#[test]
fn a_journal_with_copies() {
    let s = Setup::empty();
    let mkfs = ["mkfs", s.volume(), "--size", "64M", "--journal-data"];
    siftfs(&[&mkfs[..], &["copies"]].concat()).fails(2, &["ref and copy"]);
    siftfs(&[&mkfs[..], &["copy"]].concat()).ok();
    let address = format!("unix:{}", s.tmp.path().join("socket").display());
    let mut device = Command::new(SIFTFS);
    device.args(["device", s.volume(), "--listen", &address]).stdout(Stdio::piped());
    let mut device = Killed(device.spawn().unwrap());
    BufReader::new(device.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    siftfs(&["mount", s.volume(), s.dir(), "--service", &address, "-o", "commit=3600"]).ok();
    let content: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    let mut f = File::create(s.path("file")).unwrap();
    f.write_all(&content).unwrap();
    f.sync_all().unwrap();
    siftfs(&["sync", s.dir()]).ok();
    let status: Value =
        serde_json::from_str(&siftfs(&["status", s.dir(), "--json"]).ok().out).unwrap();
    assert_eq!(status["runtime"]["log"]["journal_data"], "copy");
    let journaled = status["runtime"]["service"]["journaled_bytes"].as_u64().unwrap();
    assert!(journaled > 100_000, "{journaled}");
    assert!(siftfs(&["status", s.dir()]).ok().out.contains("staged data repeated"));
    // The device process dies first: without its host it would checkpoint what there is.
    drop(device);
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    let seen = inspected(&s);
    assert_eq!(seen["journal"]["data"], "copy");
    let transactions = seen["journal"]["transactions"].as_array().unwrap();
    let repeated: u64 = transactions.iter().map(|t| t["repeated"].as_u64().unwrap()).sum();
    assert!(repeated >= 100_000, "{seen}");
    assert_eq!(seen["recovery"]["stops"], Value::Null);
    siftfs(&["recover", s.volume()]).ok();
    s.assert_plain_ext4();
    s.mount("");
    assert!(fs::read(s.path("file")).unwrap() == content);
    s.umount();
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

/// A volume whose daemon died, and the directory where a program's own log has what it had synced
/// last: a file's first bytes.
fn with_a_log(logs: &Path) -> Setup {
    let s = Setup::new();
    s.mount("commit=3600");
    fs::write(s.path("file"), b"written by the daemon").unwrap();
    s.umount().ok();
    let volume =
        LocalVolume::open(Path::new(s.volume()), &OpenOptions::default(), &mut |_, _, _| {})
            .unwrap();
    let lookup = Request::Lookup { parent: ROOT_INO, name: b"file".to_vec() };
    let found = volume.endpoint().call(&Credentials::default(), lookup);
    let Ok(Reply::Entry(attr)) = found else { panic!("{found:?}") };
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let directory = volume.private_logs().directory(logs).unwrap();
    let mut log = directory.new_log(child.id()).unwrap();
    let (ino, generation) = (attr.ino, attr.generation);
    log.register(RegisteredLease { slot: 0, number: 1, ino, generation }).unwrap();
    let mut batches = Batches::new(log.shape()).unwrap();
    let record = Logged { held: Held { slot: 0, number: 1 }, offset: 0, time: 0 };
    assert!(batches.push(&record, 7, |to| to.copy_from_slice(b"Private")));
    let batch = batches.seal(0).unwrap();
    rustix::io::pwrite(log.descriptor(), batch.bytes, batch.place).unwrap();
    child.kill().and_then(|()| child.wait()).unwrap();
    volume.abandon();
    s
}

/// A directory on a disk.
fn beside_this_program() -> (tempfile::TempDir, PathBuf) {
    let program = std::env::current_exe().unwrap();
    let top = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let logs = top.path().join("logs");
    (top, logs)
}

#[test]
fn logs_of_programs_are_shown_and_taken_in() {
    for json in [false, true] {
        let (_top, logs) = beside_this_program();
        let s = with_a_log(&logs);
        let dir = logs.to_str().unwrap();
        assert_eq!(inspected(&s)["host"]["registry"]["dir"], dir);
        let text = siftfs(&["inspect", s.volume()]).ok().out;
        assert!(text.contains(&format!("private logs in {dir}")), "{text}");
        let checked = siftfs(&["fsck", s.volume()]);
        let told = format!("logs of programs in {dir}");
        assert!(checked.code == 4 && checked.out.contains(&told), "{}", checked.out);
        if json {
            let report = siftfs(&["recover", s.volume(), "--json"]).ok().out;
            let report: Value = serde_json::from_str(&report).unwrap();
            let logs = &report["private_logs"];
            assert_eq!((&logs["records"], &logs["bytes"]), (&1.into(), &7.into()));
        } else {
            let text = siftfs(&["recover", s.volume()]).ok().out;
            assert!(text.contains("1 logs of programs taken in: 1 records of 1 batches"), "{text}");
        }
        s.mount("");
        assert_eq!(fs::read(s.path("file")).unwrap(), b"Private by the daemon");
        assert_eq!(fs::read_dir(&logs).unwrap().count(), 0, "nothing is left there");
    }
}

/// Neither mounted nor recovered without them, until they are given up.
#[test]
fn logs_of_programs_that_are_lost() {
    let (_top, logs) = beside_this_program();
    let s = with_a_log(&logs);
    let away = logs.with_extension("away");
    fs::rename(&logs, &away).unwrap();
    let parts = ["registry", "is missing", "siftfs recover --discard-log"];
    siftfs(&["recover", s.volume()]).fails(8, &parts);
    siftfs(&["mount", s.volume(), s.dir()]).fails(1, &parts);
    siftfs(&["recover", s.volume(), "--discard-log"]).ok();
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(fs::read(s.path("file")).unwrap(), b"written by the daemon");
    drop(s);
    assert_eq!(fs::read_dir(&away).unwrap().count(), 2, "what lies elsewhere is not touched");
}
