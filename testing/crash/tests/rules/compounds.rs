//! Rules R25 and R28 for compounds: all that the steps change is there, or nothing; what they store
//! is what they computed.

use super::{bytes, every_recovery};
use siftfs_base::{Error, crc32c};
use siftfs_crash::{Back, Bench, NOTHING_DONE, VolumeKind};
use siftfs_device::Cut;
use siftfs_proto::compound::{
    Access, BytesArg, Checksum, Codec, Compound, Compounded, FileArg, NewAttributes, NumberArg,
    Step, StepNr, Wanted,
};
use siftfs_proto::{Credentials, Level, ROOT_INO, Reply, Request, Rights};

fn compound(b: &Bench, steps: Vec<Step>, level: Level) -> Result<Compounded, Error> {
    let (base, rights, wanted) = (ROOT_INO, Rights::all(), Wanted::All);
    let compound = Compound { base, steps, level, rights, wanted };
    match b.call(Request::Compound(Box::new(compound)))? {
        Reply::Compounded(compounded) => Ok(compounded),
        other => panic!("{other:?}"),
    }
}

fn done(b: &Bench, steps: Vec<Step>, level: Level) {
    match compound(b, steps, level) {
        Ok(Compounded::Done { .. }) => {}
        other => panic!("not carried out: {other:?}"),
    }
}

fn step(number: u32) -> FileArg {
    FileArg::Step(StepNr(number))
}

fn open(path: &str) -> Step {
    Step::Open { path: path.into(), access: Access::Both, truncate: false }
}

fn write(file: u32, offset: u64, data: Vec<u8>) -> Step {
    let (file, offset) = (step(file), NumberArg::Given(offset));
    Step::Write { file, offset, data: BytesArg::Given(data) }
}

const SUM_AT: u64 = 100;

/// A block of "data" is replaced, its checksum goes to "sums", "log" grows, "new" gets a file with
/// bytes, "old" another name, and "gone" goes.
fn steps(id: u64) -> Vec<Step> {
    let sum = Step::Checksum { kind: Checksum::Crc32c, data: BytesArg::Given(bytes(id, 6000)) };
    vec![
        open("data"),
        open("sums"),
        open("log"),
        write(0, 1000, bytes(id, 6000)),
        sum,
        Step::Write {
            file: step(1),
            offset: NumberArg::Given(SUM_AT),
            data: BytesArg::Step(StepNr(4)),
        },
        Step::Append { file: step(2), data: BytesArg::Given(bytes(id + 1, 300)) },
        Step::Create { path: b"new".to_vec(), perm: 0o644 },
        write(7, 0, bytes(id + 2, 5000)),
        Step::Rename { from: b"old".to_vec(), to: b"other".to_vec(), replace: false },
        Step::Unlink { path: b"gone".to_vec() },
        Step::SetSize { file: step(2), size: NumberArg::Given(350) },
    ]
}

fn prepared() -> Bench {
    let b = Bench::new(VolumeKind::ROOMY);
    for (name, len) in [("data", 9000), ("sums", 4096), ("log", 100), ("old", 10), ("gone", 5000)] {
        b.durable(name, &bytes(1, len));
    }
    b.settle();
    b
}

/// Was the compound carried out? Every file says the same.
fn carried_out(back: &Back, id: u64) -> bool {
    let mut data = bytes(1, 9000);
    data[1000..7000].copy_from_slice(&bytes(id, 6000));
    let mut sums = bytes(1, 4096);
    sums[SUM_AT as usize..][..4].copy_from_slice(&crc32c(&bytes(id, 6000)).to_le_bytes());
    let log = [&bytes(1, 100)[..], &bytes(id + 1, 300)[..250]].concat();
    let new = [
        back.bytes("data") == data,
        back.bytes("sums") == sums,
        back.bytes("log") == log,
        back.has("new") && back.bytes("new") == bytes(id + 2, 5000),
        back.has("other") && back.bytes("other") == bytes(1, 10),
        !back.has("gone"),
    ];
    let old = [
        back.bytes("data") == bytes(1, 9000),
        back.bytes("sums") == bytes(1, 4096),
        back.bytes("log") == bytes(1, 100),
        !back.has("new"),
        back.has("old") && back.bytes("old") == bytes(1, 10),
        back.has("gone") && back.bytes("gone") == bytes(1, 5000),
    ];
    assert!(new == [true; 6] || old == [true; 6], "a part: new {new:?}, old {old:?}");
    new[0]
}

/// Every write and flush of a durable compound, cut: all or nothing, and one write and one flush.
///
/// Seen to fail when each file of a compound gets a record of its own.
#[test]
fn r25_a_durable_compound_is_whole_at_every_cut() {
    let b = prepared();
    b.device.record_history();
    let io = b.io(|b| done(b, steps(7), Level::Durable));
    assert_eq!((io.writes, io.flushes), (1, 1), "{io:?}");
    let history = b.device.take_history().expect("it was recorded");
    every_recovery(b, |back| assert!(carried_out(back, 7)));
    let mut seen = [0, 0];
    history.each_cut(|_, cache| {
        for cut in [Cut::LoseAll, Cut::KeepAll] {
            seen[usize::from(carried_out(&Back::from(&cache.image(cut)), 7))] += 1;
        }
    });
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// One that is only visible, and others' work behind it that is made durable: it is whole, and
/// ordered before.
#[test]
fn r25_a_visible_compound_is_whole_and_ordered() {
    for (level, durably) in [
        (Level::Visible, (|b| b.fsync("log")) as fn(&Bench)),
        (Level::Atomic, |b| _ = b.durable("later", b"work")),
        (Level::Visible, |b| b.commit(false)),
    ] {
        let b = prepared();
        done(&b, steps(9), level);
        durably(&b);
        every_recovery(b, |back| assert!(carried_out(back, 9)));
    }
    let b = prepared();
    done(&b, steps(9), Level::Visible);
    every_recovery(b, |back| _ = carried_out(back, 9));
}

/// What stands in the way is brought out of it before: a directory above that was moved, pending
/// permissions, and more unsynced bytes than a record takes.
#[test]
fn r25_what_is_in_the_way_of_a_compound_is_cleared_before() {
    let ways: [fn(&Bench); 3] = [
        |b| {
            b.mkdir("d");
            b.rename("d", "e");
        },
        |b| b.chmod("data", 0o600),
        |b| {
            b.write("log", 0, &bytes(1, 100));
            b.write("data", 1 << 20, &bytes(3, 9 << 20));
            b.truncate("data", 9000);
            b.write("old", 0, &bytes(1, 10));
        },
    ];
    for in_the_way in ways {
        let b = prepared();
        in_the_way(&b);
        done(&b, steps(11), Level::Durable);
        every_recovery(b, |back| assert!(carried_out(back, 11)));
    }
}

/// A step that is refused, at any place: nothing is written, staged or latched.
///
/// Seen to fail when steps change the volume before all of them are checked.
#[test]
fn r25_a_refused_compound_changes_nothing() {
    let b = prepared();
    let all = steps(13);
    for at in 0..=all.len() {
        let mut some = all.clone();
        some.insert(at, Step::Lookup { path: b"none".to_vec() });
        // What comes behind names results by number: it is not reached.
        let io = b.io(|b| match compound(b, some, Level::Durable) {
            Ok(Compounded::Refused { step, errno }) => {
                assert_eq!((step.0 as usize, errno), (at, libc::ENOENT));
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(io, NOTHING_DONE, "a step refused at {at}");
    }
    done(&b, steps(15), Level::Durable);
    every_recovery(b, |back| assert!(carried_out(back, 15)));
}

/// The disk fills up in the last step: nothing of the others is there, and nothing is latched.
#[test]
fn r25_a_compound_without_space_changes_nothing() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.create("full");
    b.durable("a", &bytes(1, 5000));
    let mut fill = 0;
    while b.try_write("full", fill, &bytes(2, 256 << 10)).is_ok() {
        fill += 256 << 10;
    }
    let steps = vec![
        open("a"),
        write(0, 0, bytes(9, 5000)),
        Step::Create { path: b"b".to_vec(), perm: 0o644 },
        write(2, 0, bytes(9, 1 << 20)),
    ];
    match compound(&b, steps, Level::Durable) {
        Err(Error::Posix(libc::ENOSPC)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(b.read("a"), bytes(1, 5000));
    b.unlink("full");
    b.write("a", 0, &bytes(3, 100));
    b.fsync("a");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("a")[..100], bytes(3, 100));
        assert!(!back.has("b"));
    });
}

/// One that no record takes says so at once, also if it is about a removed file with bytes that are
/// never synced: they are in nobody's way.
///
/// Seen to fail when such a file is synced to make room: it is EAGAIN then.
#[test]
fn r25_a_compound_that_is_too_large_says_so() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("gone", &bytes(1, 5000));
    let ino = b.ino("gone");
    let open = Request::open(ino, Access::Both);
    let Ok(Reply::Opened { handle }) = b.call(open) else { panic!("not opened") };
    b.write("gone", 0, &bytes(2, 5000));
    b.unlink("gone");
    let chmod = |perm| {
        let set = NewAttributes { perm: Some(perm), ..NewAttributes::default() };
        Step::SetAttributes { file: FileArg::Open(handle), set }
    };
    match compound(&b, (0o400..0o500).map(chmod).collect(), Level::Atomic) {
        Err(Error::Posix(libc::E2BIG)) => {}
        other => panic!("{other:?}"),
    }
}

/// As rename(2): between two names of one file nothing is renamed, and no right is asked for.
///
/// Seen to fail when the rights to take the names away are checked before.
#[test]
fn r25_a_rename_that_does_nothing_asks_for_no_right() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("a", b"one file");
    b.link("a", "b");
    let rename = Step::Rename { from: b"a".to_vec(), to: b"b".to_vec(), replace: true };
    let (base, rights, wanted) = (ROOT_INO, Rights::default(), Wanted::All);
    let compound = Compound { base, steps: vec![rename], level: Level::Visible, rights, wanted };
    let user = Credentials { uid: 1000, gid: 1000, ..Credentials::default() };
    match b.service.call(&user, Request::Compound(Box::new(compound))) {
        Ok(Reply::Compounded(Compounded::Done { names, .. })) => assert_eq!(names, []),
        other => panic!("{other:?}"),
    }
    assert!(b.try_ino("a").is_some() && b.try_ino("b").is_some());
}

/// What is stored compressed comes back as it was, after a crash.
#[test]
fn r28_what_was_computed_is_what_is_stored() {
    let b = prepared();
    let text = b"coalescing checkpoint ".repeat(5000);
    let steps = vec![
        open("data"),
        Step::Compress { codec: Codec::Zstd, data: BytesArg::Given(text.clone()) },
        Step::SetSize { file: step(0), size: NumberArg::Given(0) },
        Step::Append { file: step(0), data: BytesArg::Step(StepNr(1)) },
    ];
    done(&b, steps, Level::Durable);
    every_recovery(b, |back| {
        let frame = back.bytes("data");
        assert!(frame.len() < text.len() / 10);
        assert_eq!(zstd::decode_all(&frame[..]).expect("a frame"), text);
    });
}
