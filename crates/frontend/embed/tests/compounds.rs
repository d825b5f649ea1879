//! Compounds by the embedded handle: what each step does, what is refused, and that nothing has
//! changed then.

use siftfs::{Access, Checksum, Codec, CompoundError, Error, File, NewAttributes, Volume, Width};
use siftfs_placement::{MkfsOptions, mkfs};
use std::path::PathBuf;

fn made(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("v.img");
    let opts = MkfsOptions { size: Some(1 << 30), ..MkfsOptions::default() };
    mkfs(&path, &opts, &mut |_, _, _| {}).expect("mkfs");
    path
}

/// Runs `test` on a fresh volume.
fn on_a_volume(test: impl FnOnce(&Volume)) {
    let dir = tempfile::tempdir().expect("temp dir");
    let v = Volume::open(&made(&dir)).expect("open");
    test(&v);
    v.close().expect("close");
}

fn file(v: &Volume, path: &str, bytes: &[u8]) -> File {
    let file = v.create(path, 0o644).expect("create");
    file.write_at(0, bytes).expect("write");
    file
}

fn content(v: &Volume, path: &str) -> Vec<u8> {
    v.open_file(path).expect("open").read_at(0, 1 << 20).expect("read")
}

/// Which step is refused, and why.
fn refused<T>(result: Result<T, CompoundError>) -> (usize, i32) {
    match result {
        Err(CompoundError::Refused { step, error }) => (step, error.errno()),
        Err(CompoundError::Failed(error)) => panic!("all of it failed: {error}"),
        Ok(_) => panic!("it was carried out"),
    }
}

#[test]
fn a_step_sees_what_those_before_it_did() {
    on_a_volume(|v| {
        drop(file(v, "/a", b"0123456789"));
        let mut steps = v.compound();
        let a = steps.open("/a", Access::Both);
        let before = steps.read(a, 2, 4);
        steps.write(a, 3, b"xy");
        let at = steps.append(a, before);
        let behind = steps.read(a, at, 100);
        let b = steps.create("/b", 0o600);
        let whole = steps.read(a, 0, 100);
        let written = steps.write(b, 5, whole);
        steps.set_len(a, 4);
        let cut = steps.read(a, 0, 100);
        steps.set_len(a, 6);
        let grown = steps.read(a, 0, 100);
        let mut results = steps.durable().expect("carried out");
        assert_eq!(results.bytes(before), b"2345");
        assert_eq!(results.number(at), Some(10));
        assert_eq!(results.bytes(behind), b"2345");
        assert_eq!(results.number(written), Some(14));
        assert_eq!(results.bytes(cut), b"012x");
        assert_eq!(results.bytes(grown), b"012x\0\0");
        let (a, b) = (results.file(a).expect("open"), results.file(b).expect("open"));
        assert_eq!(a.read_at(0, 100).expect("read"), b"012x\0\0");
        assert_eq!(b.read_at(0, 100).expect("read"), b"\0\0\0\0\x00012xy567892345");
        assert_eq!(v.stat("/b").expect("stat").perm, 0o600);
    });
}

#[test]
fn names_change_in_order() {
    on_a_volume(|v| {
        v.create_dir("/d", 0o755).expect("mkdir");
        drop(file(v, "/a", b"a"));
        drop(file(v, "/b", b"b"));
        let mut steps = v.compound();
        steps.rename("/a", "/d/a");
        let a = steps.lookup("/d/a");
        steps.link(a, "/a2");
        steps.replace("/b", "/a2");
        let b = steps.lookup("/a2");
        let found = steps.read(b, 0, 9);
        steps.unlink("/a2");
        let made = steps.create("/a2", 0o640);
        steps.write(made, 0, b"new");
        steps.rename("/a2", "/b");
        let temporary = steps.create("/t", 0o640);
        steps.write(temporary, 0, b"gone");
        steps.unlink("/t");
        let mut results = steps.durable().expect("carried out");
        assert_eq!(results.bytes(found), b"b");
        let kept = results.file(temporary).expect("open");
        assert_eq!(kept.read_at(0, 9).expect("read"), b"gone");
        assert_eq!(content(v, "/d/a"), b"a");
        assert_eq!(v.stat("/d/a").expect("stat").nlink, 1);
        assert_eq!(content(v, "/b"), b"new");
        assert!(v.stat("/a").is_err() && v.stat("/a2").is_err() && v.stat("/t").is_err());
    });
}

#[test]
fn numbers_and_bytes_in_a_file_are_changed_in_place() {
    on_a_volume(|v| {
        let f = file(v, "/f", &[0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, b'x', b'y']);
        let mut steps = v.compound();
        let wrapped = steps.add_to(&f, 0, Width::U32, 3);
        let sum = steps.add_to(&f, 0, Width::U64, wrapped);
        let old = steps.patch(&f, 8, b"XY");
        steps.compare_and_set(&f, 9, b"Y", b"Z");
        let mut results = steps.visible().expect("carried out");
        assert_eq!(results.number(wrapped), Some(0xFFFF_FFFF));
        assert_eq!(results.number(sum), Some(0x1_0000_0002));
        assert_eq!(results.bytes(old), b"xy");
        assert_eq!(f.read_at(0, 99).expect("read"), [1, 0, 0, 0, 2, 0, 0, 0, b'X', b'Z']);
        for (offset, errno) in [(8, libc::ECANCELED), (9, libc::EINVAL)] {
            let mut steps = v.compound();
            steps.write(&f, 0, b"never");
            steps.compare_and_set(&f, offset, b"Y?", b"??");
            assert_eq!(refused(steps.visible()), (1, errno));
        }
        let mut steps = v.compound();
        steps.add_to(&f, 3, Width::U64, 1);
        assert_eq!(refused(steps.visible()), (0, libc::EINVAL), "behind the end");
        assert_eq!(f.read_at(0, 5).expect("read"), [1, 0, 0, 0, 2]);
    });
}

/// The paper's own compounds: a checksum stored in another file, and data stored compressed.
#[test]
fn what_steps_compute_is_what_they_store() {
    on_a_volume(|v| {
        let text = b"one staged transaction ".repeat(3000);
        let (data, sums) = (file(v, "/data", b""), file(v, "/sums", &[0; 8]));
        let all = [Checksum::Crc32c, Checksum::MaskedCrc32c, Checksum::Xxh3];
        for kind in all {
            let sum = v.checksum_and_write((&data, 7), &text, kind, (&sums, 0)).expect("durable");
            let len = u32::try_from(text.len()).expect("little");
            let (bytes, again) = v.read_and_checksum(&data, 7, len, kind).expect("read");
            assert_eq!((bytes, again), (text.clone(), sum));
            let width = if kind == Checksum::Xxh3 { 8 } else { 4 };
            assert_eq!(sums.read_at(0, width).expect("read"), sum.to_le_bytes()[..width]);
        }
        for codec in [Codec::Lz4Frame, Codec::Zstd] {
            let len = v.compress_and_write(&data, 0, codec, &text).expect("carried out");
            assert!(len < 4000, "{len} bytes");
            let mut steps = v.compound();
            let frame = steps.read(&data, 0, u32::try_from(len).expect("little"));
            let plain = steps.decompress(codec, frame, 1 << 20);
            let sum = steps.checksum(Checksum::Crc32c, plain);
            let mut results = steps.visible().expect("carried out");
            assert_eq!(results.bytes(plain), text);
            assert_eq!(results.number(sum), Some(u64::from(siftfs_base::crc32c(&text))));
            let mut bomb = v.compound();
            bomb.write(&sums, 0, b"never");
            let frame = bomb.read(&data, 0, 4096);
            let head = bomb.decompress(codec, frame.part(0, u32::try_from(len).unwrap()), 4096);
            bomb.write(&sums, 0, head);
            assert_eq!(refused(bomb.durable()), (2, libc::EOVERFLOW));
        }
    });
}

#[test]
fn attributes_and_times() {
    on_a_volume(|v| {
        let f = file(v, "/f", b"x");
        let at = siftfs_proto::SetTime::At(siftfs_base::Timestamp { sec: 77, nsec: 5 });
        let mut steps = v.compound();
        let set = NewAttributes { perm: Some(0o4711), uid: Some(7), ..Default::default() };
        steps.set_attributes(&f, set);
        let set = NewAttributes { mtime: Some(at), gid: Some(8), ..Default::default() };
        steps.set_attributes(&f, set);
        steps.durable().expect("carried out");
        let attr = f.stat().expect("stat");
        // chown(2) takes set-id bits away, also in the second step.
        assert_eq!((attr.perm, attr.uid, attr.gid, attr.mtime.sec), (0o711, 7, 8, 77));
        let mut steps = v.compound();
        let set = NewAttributes { mtime: Some(at), ..Default::default() };
        steps.set_attributes(&f, set);
        steps.append(&f, b"y");
        steps.visible().expect("carried out");
        assert!(f.stat().expect("stat").mtime.sec > 77, "the write came later");
    });
}

/// Nothing of a compound that is refused is there, in whatever step and for whatever reason.
#[test]
fn a_refusal_leaves_nothing_behind() {
    on_a_volume(|v| {
        v.create_dir("/d", 0o755).expect("mkdir");
        let f = file(v, "/f", b"as it was");
        let g = file(v, "/g", b"");
        let lost = file(v, "/lost", b"");
        let counts = || {
            let status = v.status().expect("status");
            (status.lsn, status.transaction, status.storage)
        };
        let before = counts();
        type Last<'a> = Box<dyn Fn(&mut siftfs::Compound<'_>) + 'a>;
        let last: Vec<(&str, Last<'_>, i32)> = vec![
            ("a name that is not there", Box::new(|c| _ = c.lookup("/none")), libc::ENOENT),
            ("one that is", Box::new(|c| _ = c.create("/f", 0o644)), libc::EEXIST),
            ("a directory", Box::new(|c| _ = c.open("/d", Access::Read)), libc::EISDIR),
            ("through a file", Box::new(|c| _ = c.lookup("/f/x")), libc::ENOTDIR),
            ("through a new one", Box::new(|c| _ = c.lookup("/new/x")), libc::ENOTDIR),
            ("a path with ..", Box::new(|c| _ = c.lookup("/d/../f")), libc::EINVAL),
            ("a long name", Box::new(|c| _ = c.lookup(&"x".repeat(256))), libc::ENAMETOOLONG),
            ("over a name", Box::new(|c| _ = c.rename("/f", "/lost")), libc::EEXIST),
            ("a large file", Box::new(|c| _ = c.write(&f, 1 << 44, b"x")), libc::EFBIG),
            ("a large size", Box::new(|c| _ = c.set_len(&f, 1 << 50)), libc::EFBIG),
            (
                "more than a record",
                Box::new(|c| _ = c.write(&f, 0, vec![0; 12 << 20])),
                libc::E2BIG,
            ),
            ("no frame", Box::new(|c| _ = c.decompress(Codec::Zstd, b"??", 99)), libc::EILSEQ),
        ];
        for (what, add, errno) in last {
            let mut steps = v.compound();
            let new = steps.create("/new", 0o644);
            steps.write(new, 0, b"never");
            steps.write(&f, 0, b"never");
            steps.replace("/g", "/lost");
            add(&mut steps);
            let result = steps.durable();
            assert!(result.is_err(), "{what}");
            assert_eq!(refused(result), (4, errno), "{what}");
        }
        assert_eq!(counts(), before, "nothing was staged, journaled or written");
        assert_eq!(content(v, "/f"), b"as it was");
        assert!(v.stat("/new").is_err());
        assert_eq!(v.stat("/g").expect("stat").ino, g.ino());
        assert_eq!(v.stat("/lost").expect("stat").ino, lost.ino());
    });
}

/// Bytes that steps make are written by one step, so the compound changes one thing: it is as whole
/// as a write, and no record before somebody asks for one. With a second change it is.
#[test]
fn a_record_with_its_checksum_is_one_change() {
    on_a_volume(|v| {
        let log = file(v, "/log", b"");
        log.sync_all().expect("sync");
        let staged = || v.status().expect("status").runtime.staged_transactions;
        let before = staged();
        let mut steps = v.compound();
        let rest = steps.join(b"head", &[7; 3000][..]);
        let sum = steps.checksum(Checksum::MaskedCrc32c, rest.part(2, 3002));
        let whole = steps.join(sum, rest);
        steps.write(&log, 10, whole);
        let mut results = steps.visible().expect("carried out");
        let sum = u32::try_from(results.number(sum).expect("a number")).expect("of 4 bytes");
        let found = content(v, "/log");
        assert_eq!(found[10..14], sum.to_le_bytes());
        assert_eq!((&found[14..18], &found[18..]), (&b"head"[..], &[7; 3000][..]));
        assert_eq!(staged(), before, "a write is no record");
        let mut steps = v.compound();
        steps.write(&log, 10, b"one");
        steps.write(&log, 20, b"two");
        steps.visible().expect("carried out");
        assert_eq!(staged(), before + 1, "two changes are one");
        // Doubled until there is no room for results: refused before it is made.
        let mut steps = v.compound();
        let mut twice = steps.join(&[1; 4096][..], b"");
        for _ in 0..40 {
            twice = steps.join(twice, twice);
        }
        assert_eq!(refused(steps.visible()), (12, libc::E2BIG));
    });
}

#[test]
fn what_no_compound_may_be() {
    on_a_volume(|v| {
        let f = file(v, "/f", b"x");
        let failed = |result: Result<_, CompoundError>| match result {
            Err(CompoundError::Failed(error)) => error.errno(),
            Err(other) => panic!("{other}"),
            Ok(siftfs::Results { .. }) => panic!("it was carried out"),
        };
        assert_eq!(failed(v.compound().visible()), libc::EINVAL, "no step");
        let mut steps = v.compound();
        for _ in 0..65_537 {
            steps.read(&f, 0, 1);
        }
        assert_eq!(failed(steps.visible()), libc::E2BIG, "65,537 steps");
        let (mut one, mut two) = (v.compound(), v.compound());
        let foreign = two.read(&f, 0, 1);
        one.append(&f, foreign);
        assert_eq!(failed(one.visible()), libc::EINVAL, "another one's result");
        let mut closed = v.compound();
        let again = closed.open("/f", Access::Read);
        closed.close(again);
        closed.read(again, 0, 1);
        assert_eq!(refused(closed.visible()), (2, libc::EBADF));
        let mut read_only = v.compound();
        let again = read_only.open("/f", Access::Read);
        read_only.append(again, b"y");
        assert_eq!(refused(read_only.visible()), (1, libc::EBADF));
        assert_eq!(f.read_at(0, 9).expect("read"), b"x");
    });
}

/// Many names need more of a transaction than there is: refused, and the volume goes on.
#[test]
fn more_names_than_a_record_takes_are_refused() {
    on_a_volume(|v| {
        let create = |many: usize| {
            let mut steps = v.compound();
            for i in 0..many {
                let file = steps.create(&format!("/{many}-{i}"), 0o644);
                steps.close(file);
            }
            steps.durable().map(drop)
        };
        assert_eq!(Error::from(create(2000).expect_err("too many")).errno(), libc::E2BIG);
        assert!(v.stat("/2000-0").is_err());
        create(3).expect("a few");
        assert!(v.stat("/3-2").is_ok());
    });
}

/// One write and one flush, and after a crash all of it.
#[test]
fn durable_is_one_write_and_one_flush() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = made(&dir);
    let v = Volume::open(&path).expect("open");
    let a = file(&v, "/a", &[1; 9000]);
    a.sync_all().expect("sync");
    let before = v.status().expect("status").storage;
    let mut steps = v.compound();
    steps.write(&a, 100, [2; 5000].to_vec());
    for name in ["/b", "/c"] {
        let new = steps.create(name, 0o644);
        steps.write(new, 0, [3; 300].to_vec());
        steps.close(new);
    }
    steps.durable().expect("carried out");
    let io = v.status().expect("status").storage;
    assert_eq!(io.staging.foreground.writes - before.staging.foreground.writes, 1);
    assert_eq!(io.staging.foreground.flushes - before.staging.foreground.flushes, 1);
    drop(a);
    v.abandon();
    let v = Volume::open(&path).expect("recovery");
    assert_eq!(content(&v, "/a")[99..5101], [&[1][..], &[2; 5000], &[1]].concat());
    assert_eq!(content(&v, "/b"), [3; 300]);
    assert_eq!(content(&v, "/c"), [3; 300]);
    v.close().expect("close");
}

#[test]
fn convenience_calls() {
    on_a_volume(|v| {
        drop(file(v, "/f", b"0123456789"));
        let (f, data) = v.open_read("/f", 3, 4).expect("open and read");
        assert_eq!(data, b"3456");
        assert_eq!(v.read_modify_write(&f, 1, b"xy").expect("patched"), b"12");
        let g = v.open_write("/f", 10, b"ab").expect("opened and written");
        v.write_close(g, 12, b"cd").expect("written and closed");
        assert_eq!(f.read_at(0, 99).expect("read"), b"0xy3456789abcd");
        let mut steps = v.compound();
        let empty = steps.open_truncated("/f");
        steps.append(empty, b"again");
        steps.durable().expect("carried out");
        assert_eq!(f.read_at(0, 99).expect("read"), b"again");
    });
}
