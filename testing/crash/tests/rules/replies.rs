//! Rule R53: a change of names that a client of another machine made is there after a crash
//! together with what says so, or neither is.

use super::bytes;
use siftfs_base::{InodeNr, Rng};
use siftfs_crash::{
    Bench, VolumeKind, deterministic, devices, e2fsck_image, fault_device, media_of, mem_media,
    open, recover_image,
};
use siftfs_device::{Cut, Image};
use siftfs_fsck::Severity;
use siftfs_model::{Caller, Tree};
use siftfs_placement::recover_on;
use siftfs_proto::compound::{
    BytesArg, Compound, Compounded, FileArg, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::{
    Credentials, FileKind, Level, ORIGIN_SLOTS, Origin, ROOT_INO, Recovered, RenameMode, Reply,
    Request, Rights,
};
use std::sync::Arc;

const KIND: VolumeKind = VolumeKind::SMALL;
/// Files that are there, durably, before the clients come.
const OLD: u64 = 60;
const CLIENTS: u64 = 2;
const SLOTS: u64 = 3;

/// What a call did, as the tree shows it.
#[derive(Clone, Debug)]
enum Effect {
    Has(String),
    Lacks(String),
}

impl Effect {
    fn is_in(&self, tree: &Tree) -> bool {
        match self {
            Self::Has(path) => tree.get(path).is_some(),
            Self::Lacks(path) => tree.get(path).is_none(),
        }
    }
}

/// A call of a client.
#[derive(Debug)]
struct Made {
    client: u64,
    slot: u32,
    number: u64,
    /// The device's operation that came next when it began.
    began: u64,
    lsn: siftfs_base::Lsn,
    ino: InodeNr,
    effect: Effect,
}

/// A volume with clients that change names in their slots, and all that they did.
struct World {
    b: Bench,
    rng: Rng,
    numbers: std::collections::BTreeMap<(u64, u32), u64>,
    old: u64,
    made: Vec<Made>,
}

/// Credentials of root in this call.
fn of(origin: &Arc<Origin>) -> Credentials {
    Credentials { origin: Some(origin.clone()), ..Credentials::default() }
}

fn name(path: &str) -> Vec<u8> {
    path.into()
}

impl World {
    fn new(kind: VolumeKind, seed: u64) -> Self {
        let b = Bench::new(kind);
        for i in 0..OLD {
            b.create(&format!("old{i}"));
        }
        b.settle();
        let (rng, numbers, made) = (Rng::new(seed), Default::default(), Vec::new());
        Self { b, rng, numbers, old: 0, made }
    }

    /// One call of one client that changes names.
    fn change(&mut self) {
        let (client, slot) = (1 + self.rng.below(CLIENTS), self.rng.below(SLOTS) as u32);
        let number = self.numbers.entry((client, slot)).or_default();
        *number += 1;
        let number = *number;
        let new = format!("new-{client}-{slot}-{number}");
        let has = Effect::Has(new.clone());
        let old = format!("old{}", self.old);
        let (parent, kind) = (ROOT_INO, self.rng.below(6));
        let takes = kind >= 3 && self.old < OLD;
        let (req, effect) = match if takes { kind } else { kind % 3 } {
            0 => (Request::Create { parent, name: name(&new), perm: 0o644 }, has),
            1 => (Request::MakeDir { parent, name: name(&new), perm: 0o755 }, has),
            2 => (
                Request::MakeNode {
                    parent,
                    name: name(&new),
                    kind: FileKind::Fifo,
                    perm: 0,
                    rdev: 0,
                },
                has,
            ),
            3 => (Request::Link { ino: self.b.ino(&old), parent, name: name(&new) }, has),
            4 => (Request::Unlink { parent, name: name(&old) }, Effect::Lacks(old.clone())),
            _ => {
                let (new_parent, mode) = (parent, RenameMode::Whiteout);
                let (name, new_name) = (name(&old), name(&new));
                (Request::Rename { parent, name, new_parent, new_name, mode }, has)
            }
        };
        let taken = self.b.try_ino(&old);
        self.old += u64::from(takes);
        let origin = Arc::new(Origin::new(client, slot, number));
        let began = self.b.device.ops();
        let reply = self.b.service.call(&of(&origin), req).expect("carried out");
        let ino = match reply {
            Reply::Entry(attr) | Reply::Created { attr, .. } => attr.ino,
            _ => taken.expect("it was there"),
        };
        let lsn = origin.lsn();
        assert!(lsn.0 > 0, "a change of names draws a number");
        self.made.push(Made { client, slot, number, began, lsn, ino, effect });
    }

    /// What else goes on: fsyncs of files and directories, commits, checkpoints.
    fn step(&mut self) {
        match self.rng.below(12) {
            0..=6 => self.change(),
            7 => self.fsync_newest(),
            8 => self.b.fsync("/"),
            9 => self.b.commit(false),
            10 => self.b.commit(true),
            _ => self.b.checkpoint(),
        }
    }

    fn fsync_newest(&mut self) {
        let newest = self.made.iter().rev().find_map(|made| match &made.effect {
            Effect::Has(path) => Some(path.clone()),
            Effect::Lacks(_) => None,
        });
        if let Some(path) = newest {
            self.b.fsync(&path);
        }
    }
}

/// Opens an image: what was recovered, and the tree.
fn opened(image: &Image) -> (Option<Arc<Recovered>>, Tree) {
    let driver = open(mem_media(image).1).unwrap_or_else(|e| panic!("open: {e}"));
    let service = driver.volume.endpoint();
    let tree = Caller::root(&*service).walk().unwrap_or_else(|e| panic!("walk: {e}"));
    drop(service);
    let recovered = driver.volume.recovered();
    driver.volume.abandon();
    (recovered, tree)
}

fn fsck(image: &Image) {
    let found = siftfs_fsck::check_on(devices(&mem_media(image).1));
    let errors: Vec<_> = found.iter().filter(|f| f.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Every change that was made by `cut` is known to be there exactly if it is; and so is the newest
/// call of each slot, which its client may have no answer of. Returns how many of these were there,
/// and how many were not.
fn judge(made: &[Made], cut: u64, image: &Image) -> (usize, usize) {
    let (recovered, tree) = opened(image);
    let recovered = recovered.expect("a mounted volume was recovered");
    let (mut there, mut lost) = (0, 0);
    let begun = |m: &&Made| m.began <= cut;
    for m in made.iter().filter(begun) {
        let effect = m.effect.is_in(&tree);
        assert_eq!(recovered.holds(m.lsn), effect, "cut {cut}: {m:?}");
        let newest = made.iter().filter(begun).rfind(|o| (o.client, o.slot) == (m.client, m.slot));
        let carried = recovered.reply(m.client, m.slot, m.number);
        if newest.is_some_and(|newest| newest.number == m.number) {
            assert_eq!(carried.is_some(), effect, "cut {cut}: {m:?}");
            there += usize::from(effect);
            lost += usize::from(!effect);
        }
        if let Some(carried) = carried {
            assert!(effect, "cut {cut}: a reply without its effect: {m:?}");
            assert_eq!((carried.lsn, carried.ino), (m.lsn, m.ino), "cut {cut}: {m:?}");
        }
    }
    (there, lost)
}

/// Clients change names, beside fsyncs, transactions and checkpoints. Wherever power is lost, what
/// recovery tells of their calls is what it brought back.
///
/// Seen to fail: "carried.is_some()" when a record leaves out its replies, when the record behind
/// the cut is left out, and when it counts as part of the cut; "a reply without its effect" when
/// recovery believes a reply whose transaction was not committed.
#[test]
fn r53_a_reply_is_there_exactly_with_its_effect() {
    let (mut there, mut lost, mut cuts) = (0, 0, 0);
    for (seed, kind) in
        [KIND, VolumeKind::TWO_LANES, VolumeKind::APART, KIND.with_area()].into_iter().enumerate()
    {
        let mut w = World::new(kind, seed as u64 + 1);
        w.b.device.record_history();
        (0..60).for_each(|_| w.step());
        let history = w.b.device.take_history().expect("recorded");
        w.b.stop();
        history.each_cut(|cut, cache| {
            for kept in [Cut::LoseAll, Cut::KeepAll, Cut::Random(cut)] {
                let image = cache.image(kept);
                let found = judge(&w.made, cut, &image);
                (there, lost, cuts) = (there + found.0, lost + found.1, cuts + 1);
                if cut % 16 == 0 {
                    fsck(&image);
                    let recovered = recover_image(&image).unwrap_or_else(|e| panic!("{e}"));
                    fsck(&recovered);
                    e2fsck_image(&recovered).unwrap_or_else(|e| panic!("{e}"));
                }
            }
        });
    }
    assert!(cuts > 300 && there > 300 && lost > 300, "{cuts} cuts, {there} there, {lost} lost");
}

/// A recovery that is cut says the same the next time, or that it does not know: never anything
/// else. After one that has ended nothing is known, because the volume is clean.
///
/// Seen to fail when a recovery that goes on where another was cut tells what it finds.
#[test]
fn r53_a_recovery_that_is_cut_tells_nothing_false() {
    let (mut known, mut unknown) = (0, 0);
    for seed in 0..4 {
        let mut w = World::new(KIND, 100 + seed);
        (0..20).for_each(|_| w.step());
        // These are in the record behind the cut, whose transaction is lost.
        w.change();
        w.b.device.record_history();
        w.b.commit(false);
        let history = w.b.device.take_history().expect("recorded");
        let cut = w.b.device.ops();
        w.b.stop();
        let mut images = Vec::new();
        history.each_cut(|_, cache| images.push(cache.image(Cut::KeepAll)));
        for image in images {
            judge(&w.made, cut, &image);
            let device = Arc::new(fault_device(image.clone(), 1));
            device.record_history();
            recover_on(media_of(&device, &image), &deterministic()).expect("recovered");
            device.take_history().expect("recorded").each_cut(|again, cache| {
                let image = cache.image(Cut::Random(again));
                match opened(&image) {
                    (Some(_), _) => drop(judge(&w.made, cut, &image)),
                    (None, _) => unknown += 1,
                }
                known += 1;
            });
        }
    }
    assert!(known > unknown && unknown > 0, "{unknown} of {known} unknown");
}

/// An unmount forgets what is known of clients' calls before the header says clean. A crash in
/// between tells nothing: not that calls had no effect whose effect is there.
///
/// Seen to fail when the header says *mounted* until it says *clean*.
#[test]
fn r53_an_unmount_that_is_cut_tells_nothing_false() {
    let (mut known, mut unknown) = (0, 0);
    for seed in 0..4 {
        let mut w = World::new(KIND, 200 + seed);
        (0..20).for_each(|_| w.step());
        w.change();
        w.b.device.record_history();
        let (device, made) = (w.b.device.clone(), w.made);
        let mounted = device.ops();
        w.b.close();
        device.take_history().expect("recorded").each_cut(|cut, cache| {
            for image in [cache.image(Cut::LoseAll), cache.image(Cut::Random(cut))] {
                match opened(&image) {
                    (Some(_), _) => drop(judge(&made, mounted, &image)),
                    (None, _) => unknown += 1,
                }
                known += 1;
            }
        });
    }
    assert!(known > unknown && unknown > 100, "{unknown} of {known} unknown");
}

/// What is kept is kept while the volume is read-only, too.
///
/// Seen to fail when a remount forgets.
#[test]
fn r53_a_volume_that_is_made_read_only_knows_its_calls() {
    let b = Bench::new(KIND);
    call(&b, Origin::new(1, 0, 1), create("a")).expect("created");
    b.driver.volume.remounter().make_read_only().expect("read-only");
    let refused = call(&b, Origin::new(1, 0, 2), create("b"));
    assert_eq!(refused, Err(libc::EROFS));
    let device = b.device.clone();
    b.stop();
    let recovered = opened(&device.image(Cut::LoseAll)).0.expect("recovered");
    assert!(recovered.reply(1, 0, 1).is_some());
}

/// A compound of several changes of names is one call, and one record has all of it with its reply.
///
/// Seen to fail when a record leaves out its replies.
#[test]
fn r53_a_compound_is_one_call() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("old", &bytes(1, 100));
    b.settle();
    // Records of every length around those that one block holds.
    let most = 120u64;
    for files in 1..most {
        let level = if files % 2 == 0 { Level::Durable } else { Level::Atomic };
        let create = |i| Step::Create { path: name(&format!("n{files}-{i}")), perm: 0o600 };
        let mut steps: Vec<Step> = (0..3).map(create).collect();
        let (offset, data) = (NumberArg::Given(0), BytesArg::Given(bytes(1, 32 * files)));
        steps.push(Step::Write { file: FileArg::Step(StepNr(0)), offset, data });
        let from = name(if files == 1 { "old" } else { "moved" });
        let to = name("moved-on");
        steps.push(Step::Rename { from, to: to.clone(), replace: true });
        steps.push(Step::Rename { from: to, to: name("moved"), replace: true });
        let (base, rights, wanted) = (ROOT_INO, Rights::all(), Wanted::All);
        let compound = Compound { base, steps, level, rights, wanted };
        let origin = Arc::new(Origin::new(1, (files % 7) as u32, files));
        let done = b.service.call(&of(&origin), Request::Compound(Box::new(compound)));
        let done =
            done.unwrap_or_else(|e| panic!("{files}: {e}")).compounded().expect("a compound's");
        assert!(matches!(done, Compounded::Done { .. }), "{done:?}");
        assert!(origin.lsn().0 > 0);
    }
    b.fsync("/");
    let device = b.device.clone();
    b.stop();
    let recovered = opened(&device.image(Cut::LoseAll)).0.expect("recovered");
    for files in most - 7..most {
        assert!(recovered.reply(1, (files % 7) as u32, files).is_some(), "{files}");
    }
}

fn lane_bytes(b: &Bench) -> u64 {
    b.status().staging().0
}

fn call(b: &Bench, origin: Origin, req: Request) -> Result<Reply, i32> {
    b.service.call(&of(&Arc::new(origin)), req).map_err(|e| e.errno())
}

fn create(at: &str) -> Request {
    Request::Create { parent: ROOT_INO, name: name(at), perm: 0o644 }
}

/// What is kept for clients costs one block behind each cut. When the last one is gone, and at a
/// clean unmount, the lanes are empty; and nothing at all is written for a volume without any.
///
/// Seen to fail (lanes not empty) when a stale record is no work, and when an unmount does not
/// forget.
#[test]
fn r53_a_volume_without_clients_pays_nothing() {
    let b = Bench::new(KIND);
    let commit = |b: &Bench, new: &str| {
        b.create(new);
        b.commit(true);
    };
    let plain = b.io(|b| commit(b, "a"));
    b.settle();
    assert_eq!(lane_bytes(&b), 0);
    let with = b.io(|b| {
        call(b, Origin::new(1, 0, 1), create("b")).expect("created");
        b.commit(true);
    });
    assert_eq!(with.writes, plain.writes + 1, "the record behind the cut");
    b.settle();
    assert_eq!(lane_bytes(&b), 4096, "it stays when its transaction is in the area");
    let again = b.io(|b| b.commit(true));
    assert_eq!((again.writes, again.flushes), (0, 0), "it is no work by itself");
    b.driver.volume.sessions().forget_client(1);
    b.settle();
    assert_eq!(lane_bytes(&b), 0);
    let last = b.io(|b| commit(b, "c"));
    assert_eq!((last.writes, last.flushes), (plain.writes, plain.flushes));
    call(&b, Origin::new(2, 0, 1), create("d")).expect("created");
    let image = b.close();
    fsck(&image);
    e2fsck_image(&image).unwrap_or_else(|e| panic!("{e}"));
    assert!(opened(&image).0.is_none(), "it was clean");
}

/// Fsyncs may fill a lane to its end. What the next cut has to say of clients' calls has its room
/// there all the same.
///
/// Seen to fail (the volume stops) when no room is kept.
#[test]
fn r53_a_full_lane_has_room_for_the_record_of_a_cut() {
    let b = Bench::new(KIND);
    b.durable("f", &bytes(1, 4096));
    b.settle();
    for slot in 0..ORIGIN_SLOTS {
        call(&b, Origin::new(7, slot, 1), create(&format!("n{slot}"))).expect("created");
    }
    for i in 0..3000u64 {
        b.write("f", 0, &bytes(i, 100));
        b.fsync("f");
        if i % 500 == 0 {
            call(&b, Origin::new(i + 8, 0, 1), create(&format!("m{i}"))).expect("created");
        }
    }
    let device = b.device.clone();
    b.stop();
    let (recovered, _) = opened(&device.image(Cut::KeepAll));
    let recovered = recovered.expect("recovered");
    for slot in 0..ORIGIN_SLOTS {
        assert!(recovered.reply(7, slot, 1).is_some(), "slot {slot}");
    }
}

/// Clients and slots are bounded, and what goes beyond is refused before it is carried out.
#[test]
fn r53_what_is_kept_for_clients_is_bounded() {
    let b = Bench::new(VolumeKind::ROOMY);
    assert_eq!(call(&b, Origin::new(0, 0, 1), create("x")), Err(libc::EINVAL));
    assert_eq!(call(&b, Origin::new(1, ORIGIN_SLOTS, 1), create("x")), Err(libc::EINVAL));
    let mut crowded = 0;
    for client in 1..300u64 {
        let result = call(&b, Origin::new(client, 0, 1), create(&format!("c{client}")));
        crowded += usize::from(result == Err(libc::EAGAIN));
        assert_eq!(b.try_ino(&format!("c{client}")).is_some(), result.is_ok());
    }
    assert_eq!(crowded, 299 - siftfs_proto::ORIGIN_CLIENTS);
    b.driver.volume.sessions().forget_client(1);
    assert!(call(&b, Origin::new(299, 0, 2), create("x")).is_ok());
}
