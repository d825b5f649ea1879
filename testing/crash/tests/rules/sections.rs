//! Atomic sections: R25 (their half), R26, R27.

use super::{bytes, every_recovery};
use siftfs_base::{Error, InodeNr};
use siftfs_crash::{Back, Bench, Io, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, OpClass};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Credentials, MAX_FILE_SIZE, Opening, Reply, Request, SectionId, SetAttr, WriteData,
};

const PAGE: u64 = 4096;
/// Bytes that no file has and no structure: what of an aborted section would be found on storage.
const SECRET: &[u8; 32] = b"this must never be on the device";

fn start(b: &Bench, path: &str) -> SectionId {
    try_start(b, b.ino(path)).unwrap_or_else(|e| panic!("start on {path}: {e}"))
}

fn try_start(b: &Bench, ino: InodeNr) -> Result<SectionId, Error> {
    match b.call(Request::SectionStart { file: ino.into() })? {
        Reply::Section(id) => Ok(id),
        other => panic!("start: {other:?}"),
    }
}

fn write(b: &Bench, section: SectionId, offset: u64, data: &[u8]) {
    try_write(b, section, offset, data).unwrap_or_else(|e| panic!("write at {offset}: {e}"));
}

fn try_write(b: &Bench, section: SectionId, offset: u64, data: &[u8]) -> Result<(), Error> {
    let data = WriteData::copy_of(offset, data);
    b.call(Request::SectionWrite { section, offset, data }).map(drop)
}

fn read(b: &Bench, section: SectionId, offset: u64, len: u32) -> Vec<u8> {
    match b.call(Request::SectionRead { section, offset, len }) {
        Ok(Reply::Data(data)) => data,
        other => panic!("read: {other:?}"),
    }
}

fn commit(b: &Bench, sections: &[SectionId]) -> Result<(), Error> {
    commit_as(b, sections, true)
}

fn commit_as(b: &Bench, sections: &[SectionId], durable: bool) -> Result<(), Error> {
    b.call(Request::SectionCommit { sections: sections.to_vec(), durable, times: true }).map(drop)
}

fn abort(b: &Bench, section: SectionId) {
    b.call(Request::SectionAbort { section }).unwrap_or_else(|e| panic!("abort: {e}"));
}

fn laid_over(mut old: Vec<u8>, changes: &[(u64, Vec<u8>)]) -> Vec<u8> {
    for (offset, data) in changes {
        let (from, to) = (*offset as usize, *offset as usize + data.len());
        old.resize(old.len().max(to), 0);
        old[from..to].copy_from_slice(data);
    }
    old
}

/// Pieces of pages, whole ones, and some behind the end of a file of `size` bytes, with a hole.
fn scattered(id: u64, size: u64) -> Vec<(u64, Vec<u8>)> {
    vec![
        (100, bytes(id, 50)),
        (300, bytes(id + 1, 10)),
        (3 * PAGE, bytes(id + 2, 2 * PAGE)),
        (7 * PAGE - 20, bytes(id + 3, 40)),
        (size - 7, bytes(id + 4, 3 * PAGE)),
        (size + 20 * PAGE + 5, bytes(id + 5, 700)),
    ]
}

/// Cuts the power at every write and flush of `what`, which says at which one the commit has
/// returned. Every recovery shows one of `states`, contents of files; the last of them from there
/// on.
fn cut(b: Bench, what: impl FnOnce(&Bench) -> u64, states: &[Vec<(&str, Vec<u8>)>]) {
    b.device.record_history();
    let returned = what(&b);
    let history = b.device.take_history().expect("recorded");
    b.stop();
    let mut seen = vec![0; states.len()];
    let mut cuts = 0;
    history.each_cut(|at, cache| {
        cuts += 1;
        for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(at), Cut::Random(at + 1000)] {
            let back = Back::from(&cache.image(kind));
            let shows = |state: &Vec<(&str, Vec<u8>)>| {
                state.iter().all(|(path, content)| back.bytes(path) == *content)
            };
            let found = states.iter().position(shows);
            let found = found.unwrap_or_else(|| {
                let lens: Vec<_> = states[0].iter().map(|(p, _)| back.bytes(p).len()).collect();
                panic!("cut {at} {kind:?}: half of a section; lengths {lens:?}")
            });
            let last = found + 1 == states.len();
            assert!(at < returned || last, "cut {at} {kind:?}: what was committed is lost");
            seen[found] += 1;
        }
    });
    assert!(cuts > 1 && seen.iter().all(|n| *n > 0), "{cuts} cuts show each state: {seen:?}");
}

/// The volumes on which commits are cut: with one lane and two, and with a journal that repeats.
const KINDS: [VolumeKind; 3] =
    [VolumeKind::SMALL, VolumeKind::TWO_LANES, VolumeKind::SMALL.copies()];

/// A commit of several pages, partial and whole, inside and behind the file: after a power cut at
/// any write and flush, and of the checkpoint behind it, all of them are there or none.
///
/// Seen to fail when the record carries the first ranges alone.
#[test]
fn r25_every_cut_of_a_commit_shows_all_or_nothing() {
    for kind in KINDS {
        let b = Bench::new(kind);
        let old = bytes(1, 10 * PAGE + 33);
        b.durable("f", &old);
        b.settle();
        let changes = scattered(10, old.len() as u64);
        let new = laid_over(old.clone(), &changes);
        let what = |b: &Bench| {
            let section = start(b, "f");
            for (offset, data) in &changes {
                write(b, section, *offset, data);
            }
            commit(b, &[section]).expect("a commit");
            let returned = b.device.ops();
            assert!(b.read("f") == new);
            b.settle();
            returned
        };
        cut(b, what, &[vec![("f", old)], vec![("f", new.clone())]]);
    }
}

/// Two files, in directories of their own, one of them new: both or neither.
///
/// Seen to fail when the record carries the first file alone.
#[test]
fn r25_every_cut_of_a_commit_of_two_files_shows_both_or_neither() {
    for kind in KINDS {
        let b = Bench::new(kind);
        b.mkdir("d");
        let (old, more) = (bytes(1, 6 * PAGE), bytes(2, 5 * PAGE + 1));
        b.durable("f", &old);
        b.durable("d/g", &more);
        b.settle();
        let (one, two) = (scattered(10, old.len() as u64), scattered(20, more.len() as u64));
        let (new_f, new_g) = (laid_over(old.clone(), &one), laid_over(more.clone(), &two));
        let what = |b: &Bench| {
            let sections = [start(b, "f"), start(b, "d/g")];
            for (section, changes) in sections.iter().zip([&one, &two]) {
                for (offset, data) in changes {
                    write(b, *section, *offset, data);
                }
            }
            let io = b.io(|b| commit(b, &sections).expect("a commit"));
            assert_eq!((io.writes, io.flushes), (1, 1), "one record");
            let returned = b.device.ops();
            b.settle();
            returned
        };
        let before = vec![("f", old), ("d/g", more)];
        let after = vec![("f", new_f), ("d/g", new_g)];
        cut(b, what, &[before, after]);
    }
}

/// A commit that is not durable costs no flush, and is ordered before what is durable later.
#[test]
fn r25_a_commit_in_order_comes_before_later_fsyncs() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 3 * PAGE));
    b.durable("later", b"old");
    b.settle();
    // Something durable is under way before it: a record alone would be written durably.
    let section = start(&b, "f");
    write(&b, section, PAGE, &bytes(2, PAGE));
    commit_as(&b, &[section], false).expect("a commit");
    b.write("later", 0, b"new");
    b.fsync("later");
    let new = laid_over(bytes(1, 3 * PAGE), &[(PAGE, bytes(2, PAGE))]);
    every_recovery(b, |back| {
        assert_eq!(back.bytes("later"), b"new");
        assert!(back.bytes("f") == new);
    });
}

/// What keeps a section out of a record goes before it: a directory moved above a name that the
/// record must carry, more unsynced data than a record takes, more pending names than one carries,
/// changes of permissions, too many to go along, above a file whose directory is not known.
///
/// Seen to fail when the check lets what cannot be staged pass, and when unsynced data is not
/// synced before.
#[test]
fn r25_what_prevents_staging_goes_before() {
    type Prepare = fn(&Bench);
    let moved: Prepare = |b| {
        b.mkdir("a");
        b.mkdir("a/b");
        b.settle();
        b.create("a/b/f");
        b.rename("a/b", "f-dir");
        b.link("f-dir/f", "f");
    };
    let dirty: Prepare = |b| {
        b.create("f");
        let piece = bytes(5, 64 << 10);
        (0..8).for_each(|i| b.write("f", i * piece.len() as u64, &piece));
    };
    let many: Prepare = |b| {
        b.create("f");
        (0..140).for_each(|i| b.link("f", &format!("name{i}")));
        (0..140).for_each(|i| b.unlink(&format!("name{i}")));
    };
    let hidden: Prepare = |b| {
        b.mkdir("a");
        b.create("a/f");
        b.link("a/f", "f");
        let others: Vec<String> = (0..40).map(|i| format!("a/{i}")).collect();
        for path in &others {
            b.create(path);
        }
        b.settle();
        b.chmod("a", 0o700);
        others.iter().for_each(|path| b.chmod(path, 0o600));
    };
    for (prepare, name) in [(moved, "move"), (dirty, "dirty"), (many, "many"), (hidden, "hidden")] {
        let b = Bench::new(VolumeKind::SMALL);
        prepare(&b);
        let old = b.read("f");
        let section = start(&b, "f");
        let changes = [(10, bytes(7, 20)), (5 * PAGE, bytes(8, PAGE)), (30 * PAGE, bytes(9, 99))];
        for (offset, data) in &changes {
            write(&b, section, *offset, data);
        }
        let io = b.io(|b| commit(b, &[section]).unwrap_or_else(|e| panic!("{name}: {e}")));
        assert!(io.writes > 1, "{name}: something went before: {io:?}");
        let new = laid_over(old, &changes);
        assert!(b.read("f") == new, "{name}");
        every_recovery(b, |back| assert!(back.bytes("f") == new, "{name}"));
    }
}

/// The same at every cut: what went before may be there alone, the section never in part.
///
/// Seen to fail when the check lets what cannot be staged pass.
#[test]
fn r25_every_cut_of_a_commit_that_waits_for_a_full_commit() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("a");
    b.durable("a/f", &bytes(1, 8 * PAGE));
    b.settle();
    b.rename("a", "z");
    b.link("z/f", "z/g");
    let old = bytes(1, 8 * PAGE);
    let changes = [(10, bytes(7, 20)), (5 * PAGE, bytes(8, PAGE)), (30 * PAGE, bytes(9, 99))];
    let new = laid_over(old.clone(), &changes);
    let what = |b: &Bench| {
        let section = start(b, "z/f");
        for (offset, data) in &changes {
            write(b, section, *offset, data);
        }
        commit(b, &[section]).expect("a commit");
        b.device.ops()
    };
    let one = |name: &'static str, content: &Vec<u8>| vec![(name, content.clone())];
    let states = [
        [one("a/f", &old), one("z/g", &Vec::new())].concat(),
        [one("z/f", &old), one("z/g", &old)].concat(),
        [one("z/f", &new), one("z/g", &new)].concat(),
    ];
    cut(b, what, &states);
}

/// A full disk refuses the whole commit. Nothing of it is there, the section stays, and what was
/// written before it is as it was.
///
/// Seen to fail when space is not checked.
#[test]
fn r25_a_full_disk_applies_nothing() {
    let b = Bench::new(VolumeKind::SMALL);
    let old = bytes(1, 4 * PAGE);
    b.durable("f", &old);
    b.create("fill");
    let mut at = 0;
    while b.try_write("fill", at, &bytes(2, PAGE)).is_ok() {
        at += PAGE;
    }
    b.fsync("fill");
    let section = start(&b, "f");
    write(&b, section, 0, SECRET);
    write(&b, section, 100 * PAGE, &[SECRET.as_slice(); 256].concat());
    assert_eq!(commit(&b, &[section]), Err(Error::Posix(libc::ENOSPC)));
    assert!(b.read("f") == old);
    assert_eq!(read(&b, section, 0, 32), SECRET, "the section stays");
    abort(&b, section);
    let other = start(&b, "f");
    write(&b, other, 0, b"fits");
    commit(&b, &[other]).expect("what has a home needs no space");
    assert!(!found(&b), "refused bytes are on the device");
    let new = laid_over(old, &[(0, b"fits".to_vec())]);
    every_recovery(b, |back| assert!(back.bytes("f") == new));
}

/// Is [`SECRET`] anywhere on the device?
fn found(b: &Bench) -> bool {
    let image = b.device.contents();
    let all = image.bytes(0, image.size() as usize);
    all.windows(SECRET.len()).any(|w| w == SECRET)
}

/// Aborted, refused and void sections write nothing, neither then nor later, and what they wrote is
/// nowhere on the device after everything was written.
///
/// Seen to fail when an abort applies what was written.
#[test]
fn r26_uncommitted_bytes_are_nowhere() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 8 * PAGE));
    b.settle();
    let nothing = Io::default();
    let io = b.io(|b| {
        let aborted = start(b, "f");
        write(b, aborted, 5, SECRET);
        write(b, aborted, 20 * PAGE, &[SECRET.as_slice(); 128].concat());
        assert_eq!(read(b, aborted, 5, 32), SECRET);
        assert!(b.read("f") == bytes(1, 8 * PAGE), "other callers see nothing");
        assert_eq!(b.attr("f").size, 8 * PAGE);
        b.fsync("f");
        abort(b, aborted);
        b.fsync("f");
        let refused = start(b, "f");
        write(b, refused, 5, SECRET);
        assert_eq!(try_write(b, refused, MAX_FILE_SIZE, SECRET), Err(Error::Posix(libc::EFBIG)));
        assert_eq!(read(b, refused, 0, 100).len(), 100);
        abort(b, refused);
        b.fsync("f");
    });
    assert_eq!(io, nothing);
    let void = start(&b, "f");
    write(&b, void, 5, SECRET);
    b.write("f", 6, b"another's");
    assert_eq!(commit(&b, &[void]), Err(Error::Posix(libc::ECANCELED)));
    abort(&b, void);
    let left = start(&b, "f");
    write(&b, left, 5, SECRET);
    let seen = b.read("f");
    b.fsync("f");
    b.commit(true);
    b.settle();
    assert!(!found(&b), "uncommitted bytes are on the device");
    every_recovery(b, |back| assert!(back.bytes("f") == seen));
}

/// Whatever changes a byte that a section wrote, or sets the file's size, or takes the file's last
/// name away, voids it: its commit is refused and changes nothing, and it can be read until it
/// ends. What touches none of its bytes leaves it be.
///
/// Seen to fail when changes of bytes, new sizes, or the end of the last name are not told to
/// sections.
#[test]
fn r27_foreign_changes_void_a_section() {
    let set_size = |b: &Bench, size| {
        b.set("f", SetAttr { size: Some(size), ..SetAttr::default() });
    };
    let open = |b: &Bench, truncate| {
        let (ino, access, kill_priv, times) = (b.ino("f"), Access::Both, false, true);
        b.call(Request::Open { ino, access, truncate, kill_priv, times, beside_lease: false })
            .expect("open");
    };
    let page = |b: &Bench, index: u64, data: Vec<u8>| {
        let (ino, offset) = (b.ino("f"), index * PAGE);
        let data = WriteData::copy_of(offset, &data);
        b.call(Request::WriteBack { file: ino.into(), offset, data, times: true }).expect("pages");
    };
    type Change<'a> = (&'a str, bool, &'a dyn Fn(&Bench));
    let changes: [Change<'_>; 19] = [
        ("a write over a byte", true, &|b| b.write("f", 2 * PAGE + 29, b"x")),
        ("a write beside it", false, &|b| b.write("f", 2 * PAGE + 30, b"x")),
        ("pages of the kernel", true, &|b| page(b, 2, bytes(9, PAGE))),
        ("other pages", false, &|b| page(b, 3, bytes(9, PAGE))),
        ("an append into it", true, &|b| b.append("f", &bytes(3, 2 * PAGE))),
        ("an append before it", false, &|b| b.append("f", b"x")),
        ("a write far behind it", true, &|b| b.write("f", 40 * PAGE, b"x")),
        ("a longer file", true, &|b| set_size(b, 9 * PAGE)),
        ("a shorter file", true, &|b| set_size(b, PAGE)),
        ("the same size", true, &|b| set_size(b, 6 * PAGE)),
        ("an open that truncates", true, &|b| open(b, true)),
        ("an open that does not", false, &|b| open(b, false)),
        ("a hole in it", true, &|b| b.allocate("f", Allocate::PunchHole, 2 * PAGE, PAGE)),
        ("a hole beside it", false, &|b| b.allocate("f", Allocate::PunchHole, 4 * PAGE, PAGE)),
        ("zeros", true, &|b| b.allocate("f", Allocate::ZeroRangeKeepSize, PAGE, 2 * PAGE)),
        ("preallocation that grows", true, &|b| b.allocate("f", Allocate::Grow, 0, 20 * PAGE)),
        ("preallocation", false, &|b| b.allocate("f", Allocate::KeepSize, 0, 20 * PAGE)),
        ("its last name", true, &|b| b.unlink("f")),
        ("another over it", true, &|b| b.rename("other", "f")),
    ];
    for (name, voids, change) in changes {
        let b = Bench::new(VolumeKind::SMALL);
        b.durable("f", &bytes(1, 6 * PAGE));
        b.durable("other", b"other");
        let handle = b.open("f");
        let ino = b.ino("f");
        let section = start(&b, "f");
        write(&b, section, 2 * PAGE + 10, &bytes(2, 20));
        write(&b, section, 7 * PAGE, &bytes(3, 100));
        change(&b);
        let req = Request::Read { file: ino.into(), offset: 0, len: 50 * PAGE as u32 };
        let before = b.call(req.clone()).expect("read").data();
        let committed = commit(&b, &[section]);
        let after = b.call(req).expect("read").data();
        if voids {
            assert_eq!(committed, Err(Error::Posix(libc::ECANCELED)), "{name}");
            assert_eq!(commit(&b, &[section]), Err(Error::Posix(libc::ECANCELED)), "{name}");
            assert_eq!(read(&b, section, 2 * PAGE + 10, 20), bytes(2, 20), "{name}: readable");
            assert!(before == after, "{name}: nothing is applied");
            abort(&b, section);
        } else {
            assert_eq!(committed, Ok(()), "{name}");
            let after = after.expect("data");
            assert_eq!(after[2 * PAGE as usize + 10..][..20], bytes(2, 20), "{name}");
            assert_eq!(after[7 * PAGE as usize..][..100], bytes(3, 100), "{name}");
        }
        b.call(Request::Release { handle }).expect("release");
        every_recovery(b, |_| {});
    }
}

/// A number that an unlinked file leaves behind is another file's, whose section is its own.
///
/// Seen to fail when the end of the last name is not told to sections.
#[test]
fn r27_a_removed_files_section_holds_no_other_file_up() {
    let b = Bench::new(VolumeKind::SMALL);
    let old = b.durable("f", b"old");
    let section = start(&b, "f");
    write(&b, section, 0, SECRET);
    b.unlink("f");
    b.settle();
    let again = (0..200).map(|i| b.durable(&format!("n{i}"), b"new")).position(|ino| ino == old);
    let path = format!("n{}", again.expect("the number comes back"));
    let other = start(&b, &path);
    write(&b, other, 0, b"NEW");
    assert_eq!(commit(&b, &[section]), Err(Error::Posix(libc::ECANCELED)));
    commit(&b, &[other]).expect("a commit");
    assert_eq!(b.read(&path), b"NEW");
    abort(&b, section);
    b.stop();
}

/// One section per file and 1,024 in all, each of its session; what fits can be committed, whatever
/// it looks like, and what does not fit leaves the section as it was.
#[test]
fn bounds_of_sections() {
    for kind in [VolumeKind::SMALL, VolumeKind::SMALL.copies(), VolumeKind::ROOMY] {
        for piece in [1, 5000, PAGE, 256 << 10] {
            let b = Bench::new(kind);
            b.durable("f", &bytes(1, 64 << 10));
            let section = start(&b, "f");
            let mut changes = Vec::new();
            let refused = (0u64..).find_map(|i| {
                let at = i * (piece + 3 * PAGE / 2);
                let data = bytes(i, piece);
                let result = try_write(&b, section, at, &data);
                if result.is_ok() {
                    changes.push((at, data));
                }
                result.err()
            });
            assert_eq!(refused, Some(Error::Posix(libc::EFBIG)), "{kind:?} {piece}");
            assert!(piece > PAGE || !changes.is_empty(), "{kind:?} {piece}");
            commit(&b, &[section]).unwrap_or_else(|e| panic!("{kind:?} {piece}: {e}"));
            let new = laid_over(bytes(1, 64 << 10), &changes);
            assert!(b.read("f") == new, "{kind:?} {piece}");
            let back = b.recovered(Cut::LoseAll);
            assert!(back.bytes("f") == new, "{kind:?} {piece}");
        }
    }
    let b = Bench::new(VolumeKind::ROOMY);
    let files: Vec<InodeNr> = (0..1025).map(|i| b.create(&format!("f{i}"))).collect();
    let sections: Vec<_> = files[..1024].iter().map(|ino| try_start(&b, *ino).unwrap()).collect();
    assert_eq!(try_start(&b, files[0]), Err(Error::Posix(libc::EBUSY)));
    assert_eq!(try_start(&b, files[1024]), Err(Error::Posix(libc::EMFILE)));
    let strange = Request::SectionAbort { section: sections[0] };
    let session = b.driver.volume.session(Opening::kernel()).expect("a session");
    let other = session.call(&Credentials::default(), strange);
    assert_eq!(other, Err(Error::Posix(libc::EINVAL)), "another session's (R31)");
    assert_eq!(commit(&b, &[sections[0], sections[0]]), Err(Error::Posix(libc::EINVAL)));
    assert_eq!(commit(&b, &[SectionId(99_999)]), Err(Error::Posix(libc::EINVAL)));
    // Each takes its bytes, and all of them together are more than one record.
    for section in &sections[..8] {
        let piece = bytes(7, 64 << 10);
        (0..4).for_each(|i| write(&b, *section, i * piece.len() as u64, &piece));
    }
    assert_eq!(commit(&b, &sections[..8]), Err(Error::Posix(libc::EFBIG)), "too much together");
    for section in &sections[..8] {
        commit(&b, &[*section]).expect("each alone");
    }
    assert_eq!(try_start(&b, b.mkdir("d")), Err(Error::Posix(libc::EISDIR)));
    let ended = commit(&b, &[sections[0]]);
    assert_eq!(ended, Err(Error::Posix(libc::EINVAL)), "it has ended");
    try_start(&b, files[1024]).expect("some have ended");
    b.stop();
}

/// After a failed write of the commit's record nothing is promised any more, and nothing of the
/// section is acknowledged.
#[test]
fn r21_a_commit_whose_record_cannot_be_written() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 3 * PAGE));
    b.durable("g", &bytes(2, 3 * PAGE));
    let sections = [start(&b, "f"), start(&b, "g")];
    sections.iter().for_each(|section| write(&b, *section, 10, &bytes(3, PAGE)));
    let staging = Layout::of(VolumeKind::SMALL).staging;
    b.device.inject(Fault::fail(OpClass::Write, libc::EIO).within(staging).once());
    let failed = commit(&b, &sections).expect_err("the record is lost");
    assert_eq!(failed.errno(), libc::EIO);
    let again = try_start(&b, b.ino("f")).expect_err("nothing is promised any more");
    assert_eq!(again.errno(), libc::EIO);
    let old = [("f", bytes(1, 3 * PAGE)), ("g", bytes(2, 3 * PAGE))];
    every_recovery(b, |back| {
        for (path, content) in &old {
            assert!(back.bytes(path) == *content, "{path}");
        }
    });
}
