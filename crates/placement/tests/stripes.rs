//! Striped volumes: made, used, recovered, given back; what is refused; power cuts of each member
//! and of the log apart.

#[allow(dead_code)] // each test program uses a part of it
#[path = "support/calls.rs"]
mod calls;
#[path = "at_target/machine.rs"]
mod machine;
#[path = "at_target/members.rs"]
mod members;
#[path = "support/striped.rs"]
mod striped;

use calls::{call, create, write_synced};
use siftfs_base::{Clock, ManualClock, Rng};
use siftfs_device::{Device, Fault, FaultDevice, OpClass};
use siftfs_device_stripe::{Member, StripedDevice};
use siftfs_placement::{
    Dial, LocalVolume, Media, MkfsOptions, OpenOptions, ServicePlace, Threads, TransportOptions,
    adopt, mkfs, mkfs_on, open_media_for, recover, recover_on, release,
};
use siftfs_proto::*;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use striped::{Serving, Set, UNIT, e2fsck};

const SIZE: u64 = 24 << 20;

/// What the file holds: no two units of it are alike.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

fn put(v: &LocalVolume, name: &str, bytes: &[u8]) {
    try_put(v, name, bytes).expect("a file, and its fsync");
}

fn try_put(v: &LocalVolume, name: &str, bytes: &[u8]) -> siftfs_base::Result<()> {
    let ask = |req| v.endpoint().call(&Credentials::default(), req);
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let (attr, handle) = ask(new)?.created()?;
    for (at, piece) in (0u64..).step_by(1 << 18).zip(bytes.chunks(1 << 18)) {
        ask(Request::write(attr.ino, at, piece.to_vec()))?;
    }
    ask(Request::Fsync { file: attr.ino.into(), datasync: false })?;
    ask(Request::Release { handle })?;
    ask(Request::Forget { ino: attr.ino, count: 1 }).map(drop)
}

/// Writes files with an fsync each until something fails; `kept` has those that were fsynced.
fn work(v: &LocalVolume, seed: u64, kept: &mut Vec<(String, Vec<u8>)>) -> siftfs_base::Result<()> {
    for n in 0..30u64 {
        let (name, data) = (format!("f{n}"), bytes(seed << 8 | n, 30_000 + 3000 * n as usize));
        try_put(v, &name, &data)?;
        kept.push((name, data));
        match n % 5 {
            2 => v.commit(true)?,
            4 => v.checkpoint()?,
            _ => {}
        }
    }
    Ok(())
}

fn get(v: &LocalVolume, name: &str) -> Vec<u8> {
    let found = call(v, Request::Lookup { parent: ROOT_INO, name: name.into() });
    let Reply::Entry(attr) = found else { panic!("no entry") };
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < attr.size {
        let (file, offset) = (attr.ino.into(), bytes.len() as u64);
        bytes.extend(call(v, Request::Read { file, offset, len: 1 << 18 }).data().expect("data"));
    }
    call(v, Request::Forget { ino: attr.ino, count: 1 });
    bytes
}

fn said<T>(result: siftfs_base::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Made, mounted, killed, recovered, given back: and between, the area is plain ext4.
#[test]
fn a_life() {
    let set = Set::made(3, SIZE);
    let opened = open_media_for(&set.name(), &OpenOptions::default(), false).unwrap();
    let stripes = opened.stripes.as_ref().expect("it is striped");
    assert_eq!(stripes.size(), SIZE / (3 * UNIT) * 3 * UNIT);
    drop(opened);
    set.e2fsck();
    let large = bytes(1, 5 << 20);
    let v = set.open().unwrap();
    put(&v, "large", &large);
    put(&v, "small", b"small");
    let checks = said(open_media_for(&set.name(), &OpenOptions::default(), false));
    assert!(checks.contains("in use"), "{checks}");
    v.close().unwrap();
    set.e2fsck();
    // A part of the file is on each member.
    for member in &set.members {
        let there = fs::read(member).unwrap();
        let found = large.chunks(4096).filter(|block| there.chunks(4096).any(|b| b == *block));
        assert!(found.count() > 200, "{} has its share", member.display());
    }
    let v = set.open().unwrap();
    assert!(get(&v, "large") == large);
    put(&v, "later", &large[..100_000]);
    v.abandon();
    let report = recover(&set.name(), &OpenOptions::default(), &mut |_, _, _| {}).unwrap();
    assert!(!report.clean && report.staged_found > 0, "{report:?}");
    set.e2fsck();
    let v = set.open().unwrap();
    assert!(get(&v, "later") == large[..100_000] && get(&v, "small") == b"small");
    v.close().unwrap();
    let report = release(&set.name(), &OpenOptions::default(), &mut |_, _, _| {}).unwrap();
    assert!(report.external_log);
    set.e2fsck();
    assert!(set.open().is_err(), "it is a volume no more");
}

/// What is there at other places than the members' data is not touched.
#[test]
fn reserved_bytes_and_what_is_behind_are_left() {
    let set = Set::named(2);
    for (member, len) in set.members.iter().zip([13 << 20, (13 << 20) + 4096]) {
        fs::File::create(member).unwrap().set_len(len).unwrap();
    }
    let opts = MkfsOptions { size: None, ..set.options(0) };
    mkfs(&set.name(), &opts, &mut |_, _, _| {}).unwrap();
    assert_eq!(set.members[1].metadata().unwrap().len(), (13 << 20) + 4096, "as it was");
    let labels: Vec<_> =
        set.members.iter().map(|m| fs::read(m).unwrap()[..4096].to_vec()).collect();
    let v = set.open().unwrap();
    put(&v, "f", &bytes(2, 1 << 20));
    v.close().unwrap();
    for (member, label) in set.members.iter().zip(labels) {
        let now = fs::read(member).unwrap();
        assert!(now[..4096] == label && now[12288..1 << 20].iter().all(|byte| *byte == 0));
    }
    assert!(fs::read(&set.members[1]).unwrap()[13 << 20..].iter().all(|byte| *byte == 0));
    let opened = open_media_for(&set.name(), &OpenOptions::default(), false).unwrap();
    assert_eq!(opened.media.area.size(), 2 * (12 << 20));
}

/// Each with a message that says what to do; and nothing is written.
#[test]
fn what_is_no_set_is_refused() {
    let set = Set::made(2, SIZE);
    let before: Vec<_> = set.members.iter().map(|m| fs::read(m).unwrap()).collect();
    let open = |name: &str| {
        let opts = OpenOptions { log: Some(set.log()), ..OpenOptions::default() };
        said(LocalVolume::open(Path::new(name), &opts, &mut |_, _, _| {}))
    };
    let [a, b] = [0, 1].map(|n| set.members[n].display().to_string());
    let right = set.name().display().to_string();
    assert!(open(&format!("stripe:{b},{a}")).contains(&format!("wrong order: name {right}")));
    assert!(open(&format!("stripe:{a}")).contains("in their order"));
    assert!(open(&format!("stripe:{a},{a}")).contains("named twice"));
    let link = set.dir.path().join("link");
    std::os::unix::fs::symlink(&a, &link).unwrap();
    let same = open(&format!("stripe:{a},{}", link.display()));
    assert!(same.contains("are the same file or device"), "{same}");
    let log = set.log().display().to_string();
    assert!(open(&format!("stripe:{a},{log}")).contains("the log given is the volume itself"));
    assert!(open(&format!("stripe:{a},{b}x")).contains("cannot open"));
    let copy = set.dir.path().join("copy");
    fs::copy(&a, &copy).unwrap();
    let doubled = open(&format!("stripe:{a},{}", copy.display()));
    assert!(doubled.contains("one of them is a copy"), "{doubled}");
    fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(2 << 20).unwrap();
    let short = open(&format!("stripe:{},{b}", copy.display()));
    assert!(short.contains("copy: truncated"), "{short}");
    assert!(open(&a).contains("it is a member of a striped volume"));
    assert!(before.iter().zip(&set.members).all(|(was, m)| fs::read(m).unwrap() == *was));
}

#[test]
fn what_cannot_be_made_is_refused() {
    let set = Set::named(2);
    let make = |opts: &MkfsOptions| said(mkfs(&set.name(), opts, &mut |_, _, _| {}));
    let opts = set.options(SIZE);
    assert!(make(&MkfsOptions { log: None, ..opts.clone() }).contains("say where (--log)"));
    let log = Some(set.members[1].clone());
    assert!(make(&MkfsOptions { log, ..opts.clone() }).contains("another file or device"));
    assert!(
        make(&MkfsOptions { log: Some(set.name()), ..opts.clone() }).contains("not on stripes")
    );
    let odd = MkfsOptions { stripe_unit: Some(UNIT + 1), ..opts.clone() };
    assert!(make(&odd).contains("a power of two"));
    assert!(make(&MkfsOptions { size: None, ..opts.clone() }).contains("--size"));
    assert!(make(&MkfsOptions { size: Some(UNIT), ..opts.clone() }).contains("whole units"));
    assert!(set.members.iter().all(|m| !m.exists()) && !set.log().exists(), "nothing was made");
    let flat = set.dir.path().join("flat");
    assert!(said(mkfs(&flat, &opts, &mut |_, _, _| {})).contains("--stripe-unit"));
    assert!(said(adopt(&set.name(), &set.log(), &opts, &mut |_, _, _| {})).contains("siftfs mkfs"));
    mkfs(&set.name(), &opts, &mut |_, _, _| {}).unwrap();
    let again = make(&opts);
    assert!(again.contains("member") && again.contains("holds data already"), "{again}");
    mkfs(&set.name(), &MkfsOptions { force: true, ..opts }, &mut |_, _, _| {}).unwrap();
    set.e2fsck();
}

/// What was there before is no part of the new file system.
#[test]
fn old_bytes_do_not_shine_through() {
    let set = Set::named(2);
    for member in &set.members {
        fs::write(member, vec![0xa5; 13 << 20]).unwrap();
    }
    let opts = MkfsOptions { size: None, force: true, reserve: true, ..set.options(0) };
    mkfs(&set.name(), &opts, &mut |_, _, _| {}).unwrap();
    set.e2fsck();
    let v = set.open().unwrap();
    put(&v, "f", &bytes(3, 1 << 20));
    v.close().unwrap();
    set.e2fsck();
}

/// The target's process has the members; its hosts do as with any volume.
#[test]
fn a_target_serves_stripes() {
    let set = Set::made(2, SIZE);
    let serving = Serving::start(&set);
    let host = || {
        let (target, options) = (serving.place.clone(), TransportOptions::default());
        let dial = Dial { address: target.address.clone(), options, secured: None };
        let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
        let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
        LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {})
    };
    let large = bytes(4, 3 << 20);
    let v = host().unwrap();
    put(&v, "f", &large);
    assert!(said(host()).contains("in use"), "one host at a time");
    v.checkpoint().unwrap();
    assert!(get(&v, "f") == large);
    v.abandon();
    let v = host().unwrap();
    assert!(get(&v, "f") == large);
    v.close().unwrap();
    drop(serving);
    set.e2fsck();
}

/// Members and log in memory, which lose power at a time of their own each.
struct Disks {
    members: Vec<Arc<FaultDevice>>,
    log: Arc<FaultDevice>,
}

impl Disks {
    fn new() -> Self {
        let disk = |n, size| Arc::new(FaultDevice::new(size, n));
        Self { members: vec![disk(1, 13 << 20), disk(2, 13 << 20)], log: disk(3, 8 << 20) }
    }

    fn set(&self) -> Vec<Member> {
        let member = |(n, disk): (usize, &Arc<FaultDevice>)| Member {
            name: format!("m{n}"),
            device: disk.clone(),
        };
        self.members.iter().enumerate().map(member).collect()
    }

    fn media(&self) -> Media {
        let area = StripedDevice::open(self.set()).expect("labels never change");
        Media::split(Arc::new(area), self.log.clone())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<FaultDevice>> {
        self.members.iter().chain([&self.log])
    }

    /// What is left after a power cut, which finds some disks without power already.
    fn left(&self, seed: u64) -> Self {
        let left = |(n, disk): (u64, &Arc<FaultDevice>)| {
            Arc::new(FaultDevice::from_image(disk.power_cut_image(seed * 7 + n), n))
        };
        let mut all: Vec<_> = (0..).zip(self.all()).map(left).collect();
        Self { log: all.pop().expect("the log"), members: all }
    }
}

fn open_on(media: Media) -> siftfs_base::Result<LocalVolume> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(1_700_000_000));
    LocalVolume::open_on(media, clock, &OpenOptions::default(), Threads::None)
}

/// One member, or the log, loses its power in the middle, then all of them; recovery brings back
/// what was fsynced, and the file system is whole.
#[test]
fn power_cuts_of_each_device_apart() {
    let made = Disks::new();
    let area = Arc::new(StripedDevice::make(made.set(), UNIT, u64::MAX).unwrap());
    let any: Arc<dyn Device> = area.clone();
    let opts = MkfsOptions { log_size: Some(8 << 20), lanes: 1, ..MkfsOptions::default() };
    mkfs_on(Media::split(any, made.log.clone()), &opts).expect("mkfs");
    area.seal([1; 16]).unwrap();
    let (mut failed, mut lost) = (0, [0; 3]);
    for seed in 0..24u64 {
        let mut rng = Rng::new(seed);
        let disks = made.left(seed);
        let v = open_on(disks.media()).expect("open");
        let victim = (seed % 3) as usize;
        let disk = disks.all().nth(victim).expect("a disk").clone();
        disk.cut_at(disk.ops() + 1 + rng.below(50));
        let mut kept = Vec::new();
        failed += u64::from(work(&v, seed, &mut kept).is_err());
        lost[victim] += u64::from(disk.is_cut());
        v.abandon();
        let left = disks.left(seed + 100);
        recover_on(left.media(), &OpenOptions::default()).expect("recovery");
        let mut whole = vec![0; left.media().area.size() as usize];
        left.media().area.read(0, &mut whole).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&whole, 0).unwrap();
        e2fsck(file.path());
        let v = open_on(left.media()).expect("open again");
        kept.iter().for_each(|(name, data)| assert!(get(&v, name) == *data, "seed {seed}: {name}"));
        v.close().unwrap();
    }
    assert!(
        failed > 10 && lost.iter().all(|n| *n > 2),
        "{failed} broke; {lost:?} lost their power"
    );
}

/// A member that fails a flush stops the mount; the next one recovers.
#[test]
fn a_member_that_fails_stops_the_mount() {
    let disks = Disks::new();
    let area = Arc::new(StripedDevice::make(disks.set(), UNIT, u64::MAX).unwrap());
    let any: Arc<dyn Device> = area.clone();
    let opts = MkfsOptions { log_size: Some(8 << 20), lanes: 1, ..MkfsOptions::default() };
    mkfs_on(Media::split(any, disks.log.clone()), &opts).expect("mkfs");
    area.seal([1; 16]).unwrap();
    let v = open_on(disks.media()).unwrap();
    let ino = create(&v, "f");
    write_synced(&v, ino, 9000);
    disks.members[1].inject(Fault::fail(OpClass::Flush, libc::EIO).once());
    v.commit(true).unwrap();
    v.checkpoint().expect_err("the second member's flush failed");
    v.checkpoint().expect_err("the failure is latched");
    v.abandon();
    disks.members[1].remove_all();
    let v = open_on(disks.media()).unwrap();
    assert_eq!(get(&v, "f"), [7; 9000]);
    v.close().unwrap();
}
