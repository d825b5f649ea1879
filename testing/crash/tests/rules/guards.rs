//! Rule R17 where the ancestors are not known: a file with several names takes along every change
//! of permissions that may be above one of them.

use super::{bytes, every_recovery};
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_proto::compound::{
    Access, BytesArg, Compound, Compounded, FileArg, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::{
    Level, PublishEntry, PublishSource, ROOT_INO, Reply, Request, Rights, WriteData,
};

/// "one/f" is "two/g", too, and "third/h" an old file; all is durable.
fn prepared() -> Bench {
    let b = Bench::new(VolumeKind::ROOMY);
    for dir in ["one", "two", "two/below", "third"] {
        b.mkdir(dir);
    }
    b.durable("one/f", &bytes(1, 5000));
    b.link("one/f", "two/below/g");
    b.durable("third/h", &bytes(2, 5000));
    b.settle();
    b
}

fn chmods(b: &Bench) {
    b.chmod("one", 0o711);
    b.chmod("two", 0o700);
    b.chmod("one/f", 0o600);
    b.setxattr("two", "security.label", b"secret");
    b.mkdir("new");
    b.chmod("new", 0o701);
}

fn guarded(back: &Back) {
    for (path, perm) in [("one", 0o711), ("two", 0o700)] {
        assert_eq!(back.tree.get(path).map(|d| d.attr.perm), Some(perm), "{path}");
    }
    let two = back.tree.get("two").expect("a directory");
    assert_eq!(two.xattrs.get(b"security.label".as_slice()), Some(&b"secret".to_vec()));
}

fn write_section(b: &Bench) {
    let Ok(Reply::Section(section)) = b.call(Request::SectionStart { file: b.ino("one/f").into() })
    else {
        panic!("a section begins")
    };
    let data = WriteData::copy_of(0, b"secret");
    b.call(Request::SectionWrite { section, offset: 0, data }).expect("written");
    b.call(Request::SectionCommit { sections: vec![section], durable: true, times: true })
        .expect("committed");
}

fn publish(b: &Bench) {
    let source = PublishSource::Path(b"one/f".to_vec());
    let entries = vec![PublishEntry { source, to: b"third/h".to_vec(), replace: true }];
    let (base, level, rights) = (ROOT_INO, Level::Durable, Rights::all());
    b.call(Request::Publish { base, entries, level, rights }).expect("published");
}

/// Writes into a file and gives it one more name.
fn compound(b: &Bench, path: &str) {
    let file = FileArg::Step(StepNr(0));
    let (offset, data) = (NumberArg::Given(0), BytesArg::Given(b"secret".to_vec()));
    let steps = vec![
        Step::Open { path: path.into(), access: Access::Both, truncate: false },
        Step::Write { file: file.clone(), offset, data },
        Step::Link { file, to: b"third/more".to_vec() },
    ];
    let (base, level, rights, wanted) = (ROOT_INO, Level::Durable, Rights::all(), Wanted::All);
    let compound = Compound { base, steps, level, rights, wanted };
    match b.call(Request::Compound(Box::new(compound))) {
        Ok(Reply::Compounded(Compounded::Done { .. })) => {}
        other => panic!("{other:?}"),
    }
}

type Way = (&'static str, fn(&Bench), fn(&Back));

/// Every way to make something of such a file durable, and what shows that it was.
const WAYS: [Way; 6] = [
    (
        "fsync",
        |b| {
            b.write("one/f", 0, b"secret");
            b.fsync("one/f")
        },
        |back| is_secret(back, "one/f"),
    ),
    (
        "fdatasync",
        |b| {
            b.write("one/f", 0, b"secret");
            b.fdatasync("one/f")
        },
        |back| is_secret(back, "two/below/g"),
    ),
    ("section", write_section, |back| is_secret(back, "one/f")),
    ("publish", publish, |back| {
        assert!(!back.has("one/f") && back.bytes("third/h") == bytes(1, 5000))
    }),
    ("compound", |b| compound(b, "one/f"), |back| is_secret(back, "third/more")),
    ("compound that hides", |b| compound(b, "third/h"), |back| is_secret(back, "third/more")),
];

fn is_secret(back: &Back, path: &str) {
    assert_eq!(back.bytes(path)[..6], *b"secret");
}

/// With a few changes pending: one record, whatever others change meanwhile.
///
/// Seen to fail (the recovery) when nothing of others goes along, and (the counts) when each such
/// call commits all that is pending first, which others can make it repeat without end.
#[test]
fn r17_a_few_changes_go_along_with_a_file_of_several_names() {
    for (what, way, shown) in WAYS {
        let b = prepared();
        chmods(&b);
        let io = b.io(way);
        assert_eq!((io.writes, io.flushes), (1, 1), "{what}: {io:?}");
        every_recovery(b, |back| {
            guarded(back);
            shown(back);
        });
    }
}

/// With many, all that is pending is committed first.
///
/// Seen to fail when the number is not looked at: the record has all of them.
#[test]
fn r17_many_changes_are_committed_with_a_file_of_several_names() {
    for (what, way, shown) in WAYS {
        let b = prepared();
        let names: Vec<String> = (0..40).map(|n| format!("third/{n}")).collect();
        for name in &names {
            b.create(name);
        }
        b.settle();
        chmods(&b);
        names.iter().for_each(|name| b.chmod(name, 0o600));
        let before = b.status().runtime.transactions;
        way(&b);
        assert!(b.status().runtime.transactions > before, "{what}: nothing was committed");
        every_recovery(b, |back| {
            guarded(back);
            shown(back);
        });
    }
}
