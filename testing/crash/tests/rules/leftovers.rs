//! What is begun and not finished: nothing of it reaches storage (R26), and the status report
//! counts it while it lasts.

use super::bytes;
use siftfs_base::Error;
use siftfs_crash::{Bench, Io, VolumeKind};
use siftfs_proto::{Opening, ROOT_INO, Reply, Request, SectionId, WriteData};
use siftfs_status::Operations;

const PAGE: u64 = 4096;

fn start(b: &Bench, path: &str) -> SectionId {
    match b.call(Request::SectionStart { file: b.ino(path).into() }) {
        Ok(Reply::Section(id)) => id,
        other => panic!("start on {path}: {other:?}"),
    }
}

fn write(b: &Bench, section: SectionId, offset: u64, len: u64) {
    let data = WriteData::copy_of(offset, &bytes(9, len));
    b.call(Request::SectionWrite { section, offset, data }).expect("a section's write");
}

fn commit(b: &Bench, sections: &[SectionId]) -> Result<(), Error> {
    b.call(Request::SectionCommit { sections: sections.to_vec(), durable: true, times: true })
        .map(drop)
}

/// Each way in which a section ends without a commit writes nothing, at once and later: aborted,
/// refused because it is void, refused because it is too much together with another, and given
/// up by the end of its session.
///
/// Seen to fail when an abort applies what was written, and when a session's end is told to tickets
/// alone.
#[test]
fn r26_ends_without_a_commit_write_nothing() {
    type End = fn(&Bench, SectionId);
    let ends: [(&str, End); 4] = [
        ("aborted", |b, section| {
            b.call(Request::SectionAbort { section }).expect("abort");
        }),
        ("void", |b, section| {
            b.truncate("f", 100 * PAGE);
            b.settle();
            b.device.record();
            assert_eq!(commit(b, &[section]), Err(Error::Posix(libc::ECANCELED)));
            b.call(Request::SectionAbort { section }).expect("abort");
        }),
        ("named twice", |b, section| {
            assert_eq!(commit(b, &[section, section]), Err(Error::Posix(libc::EINVAL)));
            b.call(Request::SectionAbort { section }).expect("abort");
        }),
        ("its session ends", |b, _| {
            b.call(Request::EndSession).expect("the end of the session");
        }),
    ];
    for (name, end) in ends {
        let mut b = Bench::new(VolumeKind::SMALL);
        b.durable("f", &bytes(1, 100 * PAGE));
        b.settle();
        let session = b.driver.volume.session(Opening::kernel()).expect("a session");
        let service = std::mem::replace(&mut b.service, session);
        let io = b.io(|b| {
            let section = start(b, "f");
            write(b, section, 5, 20);
            write(b, section, 20 * PAGE, 3 * PAGE);
            write(b, section, 99 * PAGE, PAGE);
            assert_eq!(b.status().operations.sections, 1, "{name}");
            end(b, section);
        });
        b.service = service;
        let later = b.io(|b| {
            assert_eq!(begun(b), Operations::default(), "{name}");
            b.fsync("f");
            b.commit(true);
        });
        assert_eq!((io, later), (Io::default(), Io::default()), "{name}");
        assert!(b.read("f") == bytes(1, 100 * PAGE), "{name}");
        b.stop();
    }
}

/// A file that never had a name goes with its last handle, and its section with it: the file
/// that gets the number next may have a section.
///
/// Seen to fail when the end of a file is told to nobody.
#[test]
fn r27_a_file_without_a_name_leaves_its_number() {
    let b = Bench::new(VolumeKind::SMALL);
    let made = b.call(Request::TmpFile { parent: ROOT_INO, perm: 0o600, exclusive: false });
    let Ok(Reply::Created { attr, handle }) = made else { panic!("{made:?}") };
    let ino = attr.ino;
    let Ok(Reply::Section(section)) = b.call(Request::SectionStart { file: ino.into() }) else {
        panic!()
    };
    b.call(Request::Forget { ino, count: 1 }).expect("forget");
    b.call(Request::Release { handle }).expect("release");
    b.settle();
    let again = (0..200).map(|i| b.durable(&format!("n{i}"), b"new")).position(|new| new == ino);
    let path = format!("n{}", again.expect("the number comes back"));
    let other = start(&b, &path);
    write(&b, other, 0, 3);
    assert_eq!(commit(&b, &[section]), Err(Error::Posix(libc::ECANCELED)));
    commit(&b, &[other]).expect("a commit");
    b.stop();
}

/// What is begun and not ended, whatever the memory for it was before.
fn begun(b: &Bench) -> Operations {
    Operations { bytes_peak: 0, bytes_most: 0, ..b.status().operations }
}

/// The status report has tickets while they are not durable, and sections while they have not
/// ended, with the memory that they hold.
#[test]
fn the_report_counts_what_is_open() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", b"old");
    b.durable("g", b"old");
    assert_eq!(begun(&b), Operations::default());
    b.write("g", 0, b"new");
    let ticket = b.stage("g");
    let section = start(&b, "f");
    let one = Operations { tickets: 1, sections: 1, ..Operations::default() };
    assert_eq!(begun(&b), one);
    write(&b, section, 0, 3 * PAGE);
    let held = b.status().operations.section_bytes;
    assert!((3 * PAGE..4 * PAGE).contains(&held), "{held} bytes");
    b.truncate("f", 1);
    b.wait(ticket, None).expect("durable");
    let void = b.status().operations;
    assert_eq!((void.tickets, void.sections, void.void_sections), (0, 1, 1));
    b.call(Request::SectionAbort { section }).expect("abort");
    assert_eq!(begun(&b), Operations::default());
    b.stop();
}
