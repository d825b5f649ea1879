//! Rule R25: what is published together is there together, or not at all.

use super::{bytes, every_recovery};
use siftfs_base::Error;
use siftfs_crash::{Bench, NOTHING_DONE, VolumeKind};
use siftfs_proto::{
    Credentials, Handle, Level, PublishEntry, PublishSource, ROOT_INO, Reply, Request, Rights,
    XattrMode,
};

fn named(from: &str, to: &str) -> PublishEntry {
    PublishEntry { source: PublishSource::Path(from.into()), to: to.into(), replace: true }
}

fn publish(b: &Bench, entries: Vec<PublishEntry>, level: Level) -> Result<(), Error> {
    let rights = Rights::all();
    b.call(Request::Publish { base: ROOT_INO, entries, level, rights }).map(drop)
}

/// Does the call fail with this errno?
fn is(result: Result<(), Error>, errno: i32) {
    match result {
        Err(Error::Posix(found)) => assert_eq!(found, errno),
        other => panic!("not errno {errno} but {other:?}"),
    }
}

const FILES: [&str; 3] = ["one", "two", "three"];

/// Three old files with new ones beside them, whose bytes nobody synced.
fn prepared() -> Bench {
    let b = Bench::new(VolumeKind::ROOMY);
    for (name, id) in FILES.iter().zip(1u64..) {
        b.durable(name, &bytes(id, 3000));
    }
    b.settle();
    for (name, id) in FILES.iter().zip(11u64..) {
        let temporary = format!("{name}.tmp");
        b.create(&temporary);
        b.write(&temporary, 0, &bytes(id, 5000));
    }
    b
}

fn all() -> Vec<PublishEntry> {
    FILES.iter().map(|name| named(&format!("{name}.tmp"), name)).collect()
}

/// Of every file, is it the new one? The bytes are those of one or the other.
fn news(back: &siftfs_crash::Back) -> Vec<bool> {
    let each = FILES.iter().zip(1u64..).map(|(name, id)| {
        let found = back.bytes(name);
        let new = found == bytes(id + 10, 5000);
        assert!(new || found == bytes(id, 3000), "{name} has bytes that it never had");
        new
    });
    each.collect()
}

/// Every write and flush of a durable publish, cut: all or nothing.
///
/// Seen to fail when a record carries only what is connected with its own file.
#[test]
fn r25_a_durable_publish_is_whole_at_every_cut() {
    let b = prepared();
    b.device.record_history();
    let io = b.io(|b| publish(b, all(), Level::Durable).expect("it is published"));
    assert_eq!((io.writes, io.flushes), (1, 1), "{io:?}");
    let history = b.device.take_history().expect("it was recorded");
    every_recovery(b, |back| assert_eq!(news(back), [true; 3]));
    let mut seen = [0, 0];
    history.each_cut(|_, cache| {
        for cut in [siftfs_device::Cut::LoseAll, siftfs_device::Cut::KeepAll] {
            let found = news(&siftfs_crash::Back::from(&cache.image(cut)));
            assert!(found.iter().all(|new| *new == found[0]), "{found:?}");
            seen[usize::from(found[0])] += 1;
        }
    });
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// A publish that is only visible, and then an fsync of one of its files, of its directory, or a
/// background transaction: all of it comes along, bytes included.
///
/// Seen to fail when a record carries only what is connected with its own file, and when a group's
/// files do not take their bytes along.
#[test]
fn r25_what_carries_one_name_carries_all() {
    let ways: [fn(&Bench); 4] =
        [|b| b.fsync("one"), |b| b.fsync("three"), |b| b.fsync(""), |b| b.commit(false)];
    for make_durable in ways {
        let b = prepared();
        publish(&b, all(), Level::Visible).expect("it is published");
        for (name, id) in FILES.iter().zip(11u64..) {
            assert_eq!(b.read(name), bytes(id, 5000));
        }
        make_durable(&b);
        every_recovery(b, |back| {
            assert_eq!(news(back), [true; 3]);
            assert!(FILES.iter().all(|name| !back.has(&format!("{name}.tmp"))));
        });
    }
}

/// The same for names that are new: the bytes of all files come along with one fsync.
///
/// Seen to fail when a group's files do not take their bytes along.
#[test]
fn r25_new_names_bring_their_bytes() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.settle();
    for (name, id) in FILES.iter().zip(11u64..) {
        b.create(&format!("{name}.tmp"));
        b.write(&format!("{name}.tmp"), 0, &bytes(id, 5000));
    }
    publish(&b, all(), Level::Visible).expect("it is published");
    b.fsync("two");
    every_recovery(b, |back| assert_eq!(news(back), [true; 3]));
}

/// Nothing but the publish itself: a cut shows all or none, whichever it is.
#[test]
fn r25_a_visible_publish_is_whole_or_absent() {
    let b = prepared();
    publish(&b, all(), Level::Visible).expect("it is published");
    // Other work goes on, and is made durable.
    b.durable("other", b"work");
    every_recovery(b, |back| {
        let found = news(back);
        assert!(found.iter().all(|new| *new == found[0]), "{found:?}");
        assert_eq!(back.bytes("other"), b"work");
    });
}

/// What stands in the way of one record is cleared before: a directory above that was moved, and
/// more bytes than one record takes, which the files' own fsyncs stage.
///
/// Seen to fail when nothing is committed or synced before: the group becomes a full commit.
#[test]
fn r25_what_is_in_the_way_is_cleared_before() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.mkdir("old");
    b.durable("old/a", b"a");
    b.settle();
    b.rename("old", "new");
    b.create("a.tmp");
    b.write("a.tmp", 0, b"second");
    let full = |b: &Bench| b.status().runtime.full_commits.values().sum::<u64>();
    publish(&b, vec![named("a.tmp", "new/a")], Level::Durable).expect("it is published");
    assert_eq!(full(&b), 1, "the moved directory is committed first");
    let large = 700_000;
    b.write_large("big", &bytes(5, large));
    b.write_large("other", &bytes(6, large));
    let both = vec![named("big", "new/big"), named("other", "new/other")];
    publish(&b, both, Level::Durable).expect("it is published");
    assert_eq!(full(&b), 1, "their data is synced first, which takes no commit");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("new/a"), b"second");
        assert_eq!(back.bytes("new/big"), bytes(5, large));
        assert_eq!(back.bytes("new/other"), bytes(6, large));
    });
}

/// A file that never had a name gets one, in place of another file.
#[test]
fn r25_an_unnamed_file_is_published_in_place_of_another() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("config", b"old");
    b.durable("second", b"old, too");
    b.settle();
    let made = b.call(Request::TmpFile { parent: ROOT_INO, perm: 0o600, exclusive: false });
    let Ok(Reply::Created { attr, handle }) = made else { panic!("{made:?}") };
    let data = b"new".to_vec();
    b.call(Request::write(attr.ino, 0, data)).expect("written");
    b.create("second.tmp");
    let unnamed =
        PublishEntry { source: PublishSource::Open(handle), to: b"config".into(), replace: true };
    publish(&b, vec![unnamed, named("second.tmp", "second")], Level::Durable).expect("published");
    assert_eq!(b.read("config"), b"new");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("config"), b"new");
        assert!(back.has("second") && back.bytes("second").is_empty());
        assert!(!back.has("second.tmp"));
    });
}

/// A publish that is refused has changed nothing and written nothing, whichever entry it is.
///
/// Seen to fail when entries are applied as they are checked.
#[test]
fn r25_a_refused_publish_leaves_no_trace() {
    let b = prepared();
    b.mkdir("dir");
    b.fsync("dir");
    let good = || named("one.tmp", "one");
    let keep = |from: &str, to: &str| PublishEntry { replace: false, ..named(from, to) };
    let open = |n| PublishEntry { source: PublishSource::Open(Handle(n)), ..good() };
    let cases: Vec<(Vec<PublishEntry>, i32)> = vec![
        (vec![], libc::EINVAL),
        (vec![good(), named("absent", "two")], libc::ENOENT),
        (vec![good(), keep("two.tmp", "two")], libc::EEXIST),
        (vec![good(), named("dir", "elsewhere")], libc::EISDIR),
        (vec![good(), named("two.tmp", "dir")], libc::EISDIR),
        (vec![good(), named("one.tmp", "two")], libc::EINVAL),
        (vec![good(), named("two.tmp", "one")], libc::EINVAL),
        (vec![good(), named("two.tmp", "../two")], libc::EINVAL),
        (vec![good(), named("two.tmp", "/two")], libc::EINVAL),
        (vec![good(), named("two.tmp", "")], libc::EINVAL),
        (vec![good(), named("two.tmp", "three/two")], libc::ENOTDIR),
        (vec![good(), named("two.tmp", &"n".repeat(256))], libc::ENAMETOOLONG),
        (vec![good(), open(4711)], libc::EBADF),
        ((0..65).map(|i| named("one.tmp", &format!("copy-{i}"))).collect(), libc::E2BIG),
    ];
    for (entries, errno) in cases {
        let text = format!("{entries:?}");
        let io = b.io(|b| is(publish(b, entries, Level::Durable), errno));
        assert_eq!(io, NOTHING_DONE, "{text}");
        for (name, id) in FILES.iter().zip(1u64..) {
            assert_eq!(b.read(name), bytes(id, 3000), "{text}");
            assert_eq!(b.read(&format!("{name}.tmp")), bytes(id + 10, 5000), "{text}");
        }
    }
    b.stop();
}

/// The kernel checks no directory inside the request: mode, group, access control list and the
/// sticky bit count, of each directory on the way.
///
/// Seen to fail when the rights of the last entry are not checked.
#[test]
fn r25_every_directory_is_checked_for_the_caller() {
    let b = Bench::new(VolumeKind::ROOMY);
    for (dir, perm) in [("open", 0o777), ("group", 0o770), ("closed", 0o700), ("sticky", 0o1777)] {
        b.mkdir(dir);
        b.chmod(dir, perm);
        b.create(&format!("{dir}/file"));
    }
    b.mkdir("closed/inner");
    b.chmod("closed/inner", 0o777);
    let user = Credentials { uid: 1000, gid: 100, ..Credentials::default() };
    let ask = |from: &str, to: &str, rights: Rights| {
        let (base, level) = (ROOT_INO, Level::Visible);
        let entries = vec![named(from, to)];
        let req = Request::Publish { base, entries, level, rights };
        b.service.call(&user, req).map(drop)
    };
    let nothing = Rights::default;
    is(ask("open/file", "closed/new", nothing()), libc::EACCES);
    is(ask("open/file", "closed/inner/new", nothing()), libc::EACCES);
    is(ask("closed/file", "open/new", nothing()), libc::EACCES);
    is(ask("open/file", "group/new", nothing()), libc::EACCES);
    is(ask("open/file", "new", nothing()), libc::EACCES);
    is(ask("sticky/file", "open/new", nothing()), libc::EPERM);
    is(ask("open/file", "sticky/file", nothing()), libc::EPERM);
    // Group 0 owns the directories; a supplementary group is as good as the first.
    let grouped = Rights { groups: vec![7, 0], ..Rights::default() };
    ask("open/file", "group/new", grouped.clone()).expect("the group may");
    ask("group/new", "open/file", grouped).expect("and back");
    let owner = Rights { owns_all: true, ..Rights::default() };
    ask("sticky/file", "open/taken", owner).expect("CAP_FOWNER takes it out");
    ask("open/taken", "closed/inner/new", Rights::all()).expect("CAP_DAC_OVERRIDE goes anywhere");
    // A list that names the user: read, write and search, under a mask that lets it through.
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let list = [(1, 7, none), (2, 7, 1000), (4, 0, none), (16, 7, none), (32, 0, none)];
    let value = [2u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(list.map(|(tag, perm, id)| entry(tag, perm, id)))
        .collect::<Vec<_>>()
        .concat();
    let (ino, name) = (b.ino("closed"), b"system.posix_acl_access".to_vec());
    let (mode, kill_setgid) = (XattrMode::Set, false);
    b.call(Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid })
        .expect("a list is set");
    ask("closed/inner/new", "closed/named", nothing()).expect("the list names the user");
    b.stop();
}

/// Sixteen new files of 4 KiB in place of old ones: one write, one flush.
#[test]
fn r25_sixteen_files_are_one_write() {
    let b = Bench::new(VolumeKind::ROOMY);
    let names: Vec<String> = (0..16).map(|i| format!("file-{i}")).collect();
    for name in &names {
        b.durable(name, &bytes(1, 4096));
    }
    b.settle();
    for name in &names {
        b.create(&format!("{name}.tmp"));
        b.write(&format!("{name}.tmp"), 0, &bytes(2, 4096));
    }
    let entries = || names.iter().map(|n| named(&format!("{n}.tmp"), n)).collect();
    let io = b.io(|b| publish(b, entries(), Level::Durable).expect("it is published"));
    assert_eq!((io.writes, io.flushes), (1, 1), "{io:?}");
    every_recovery(b, |back| {
        assert!(names.iter().all(|name| back.bytes(name) == bytes(2, 4096)));
    });
}

/// The most that the smallest journal takes are applied, and stop nothing; one more is refused.
///
/// Seen to fail when the worst case of an entry is taken for less than it is.
#[test]
fn r25_the_smallest_journal_takes_some() {
    for (replace, most) in [(false, 3), (true, 11)] {
        let b = Bench::new(VolumeKind { size: 64 << 20, ..VolumeKind::APART });
        let prepare = |round: usize, n: usize| -> Vec<PublishEntry> {
            b.mkdir(&format!("{round}-{n}"));
            let entry = |i: usize| {
                let (from, to) = (format!("{round}-{n}/{i}.tmp"), format!("{round}-{n}/{i}"));
                b.create(&from);
                if replace {
                    b.create(&to);
                }
                named(&from, &to)
            };
            (0..n).map(entry).collect()
        };
        publish(&b, prepare(0, most), Level::Durable).expect("it is published");
        is(publish(&b, prepare(0, most + 1), Level::Durable), libc::E2BIG);
        // However much the running transaction holds already.
        for dirs in 1..25 {
            let entries = prepare(dirs, most);
            b.settle();
            for i in 0..dirs {
                b.mkdir(&format!("{dirs}-{most}/dir-{i}"));
            }
            publish(&b, entries, Level::Visible).expect("it is published");
        }
        b.settle();
        b.stop();
    }
}
