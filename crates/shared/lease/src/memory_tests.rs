use super::*;
use crate::words::{Held, State};
use crate::{Place, Publish, Reader, Settled, Writer, shown};
use rustix::fs::{ftruncate, memfd_create};
use std::sync::Arc;

const EPOCH: u64 = 77;
const LARGEST: u64 = 1 << 40;

struct Sides {
    reader: Reader<Memory, View>,
    writer: Writer<View, Memory>,
    grantor: Arc<Memory>,
    view: Arc<View>,
    seen: Arc<View>,
}

fn sides() -> Sides {
    let Created { grantor, holder, passed } = create().unwrap();
    let (grantor, seen) = (Arc::new(grantor), Arc::new(holder));
    let reader = Reader::new((grantor.clone(), seen.clone()), FULL, (EPOCH, LARGEST));
    let (view, own) = open(&passed, EPOCH).unwrap();
    let view = Arc::new(view);
    let writer = Writer::new((view.clone(), Arc::new(own)), FULL, LARGEST);
    Sides { reader, writer, grantor, view, seen }
}

#[test]
fn a_write_arrives_through_the_memories() {
    let Sides { mut reader, mut writer, grantor, view, seen } = sides();
    assert!(view.is_alive());
    let held = reader.grant(5);
    assert_eq!(shown((&*grantor, &*seen), &FULL, held), None, "the holder has said nothing yet");
    assert!(writer.begin(held, 10, 1));
    let Publish::Published(one) = writer.publish(held, Place::End, b"hello, world", 2) else {
        panic!("there is room");
    };
    assert!(one.look(&*view));
    assert_eq!(one.offset, 10);
    let now = shown((&*grantor, &*seen), &FULL, held).unwrap();
    assert_eq!((now.size, now.mtime), (22, 2));
    let mut got = Vec::new();
    let mut sink = |record: &crate::Record, bytes: Vec<u8>| got.push((record.offset, bytes));
    crate::reader::tests::end(&mut reader, &[held], &mut sink, Memory::wake).unwrap();
    assert_eq!(got, [(10, b"hello, world".to_vec())]);
    assert_eq!(one.settled(&*view), Settled::Done);
    assert_eq!(shown((&*grantor, &*seen), &FULL, held), None, "the lease is over");
    assert_eq!(writer.publish(held, Place::End, b"more", 3), Publish::Ended);
    reader.close();
    assert!(!view.is_alive());
}

/// A holder sleeps on a word that it can only read, and is woken.
#[test]
fn the_end_of_a_recall_wakes_the_holder() {
    let Sides { mut reader, grantor, view, .. } = sides();
    let held = reader.grant(0);
    let index = FULL.word(0);
    let value = held.word(State::Granted);
    let (about, sleeper) = (Arc::new(std::sync::Barrier::new(2)), view.clone());
    let theirs = about.clone();
    let sleeps = std::thread::spawn(move || {
        theirs.wait();
        while sleeper.load(index, Ordering::Acquire) == value {
            // Nothing but a wake, or a word that has changed, ends this sleep in time.
            sleeper.sleep_while(index, value, Duration::from_secs(100_000));
        }
    });
    about.wait();
    crate::reader::tests::end(&mut reader, &[held], &mut |_, _| {}, Memory::wake).unwrap();
    sleeps.join().unwrap();
    drop(grantor);
}

/// What the holder gets of the grantor's memory can be read, by every path (R40).
#[test]
fn the_grantors_memory_is_written_by_nobody_else() {
    let Created { passed: [grantor, _], .. } = create().unwrap();
    let writable = |fd: &OwnedFd| MmapOptions::new().len(4096).map_raw(fd).is_ok();
    assert!(!writable(&grantor), "a mapping");
    assert!(rustix::io::pwrite(&grantor, b"x", 0).is_err(), "a write");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&grantor));
    let again = std::fs::File::options().read(true).write(true).open(&path);
    assert!(again.is_ok_and(|file| !writable(&file.into())), "another descriptor");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&grantor, hole, 0, 4096).is_err(), "a hole");
    assert!(ftruncate(&grantor, 0).is_err(), "smaller");
    assert!(rustix::fs::fcntl_add_seals(&grantor, SealFlags::WRITE).is_err(), "another seal");
}

/// What the holder's memory can be made to be by the holder stays what it is.
#[test]
fn the_holders_memory_keeps_its_size() {
    let Created { passed: [_, holder], holder: view, .. } = create().unwrap();
    assert!(ftruncate(&holder, 0).is_err() && ftruncate(&holder, 1 << 30).is_err());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&holder, hole, 0, FULL.holder_bytes() as u64).unwrap();
    let last = FULL.holder_words() - 1;
    assert_eq!(view.load(last, Ordering::Relaxed), 0, "a hole reads as zeros");
}

#[test]
fn memory_that_was_not_agreed_on_is_refused() {
    let Created { passed: [grantor, holder], grantor: own, holder: seen } = create().unwrap();
    let reader = Reader::new((Arc::new(own), Arc::new(seen)), FULL, (EPOCH, LARGEST));
    let made = |seals: SealFlags, len: u64| {
        let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let len = FULL.grantor_bytes() as u64;
    let refused = |fd: OwnedFd| open(&[fd, holder.try_clone().unwrap()], EPOCH).err().unwrap();
    let why = |fd: OwnedFd| refused(fd).to_string();
    assert!(why(made(SealFlags::GROW, len)).contains("sealed"));
    assert!(why(made(SealFlags::SHRINK | SealFlags::GROW, len - 8)).contains("bytes"));
    assert!(why(made(SealFlags::SHRINK | SealFlags::GROW, len)).contains("version"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(why(file.into()).contains("memfd"));
    let passed = [grantor, holder];
    assert!(open(&passed, EPOCH + 1).is_err(), "another session's");
    assert!(open(&passed, EPOCH).is_ok());
    drop(reader);
}

#[test]
fn a_lease_is_told_by_its_whole_word() {
    let held = Held { slot: 1, number: 5 };
    for state in [State::Granted, State::Recalled, State::Ended] {
        assert_eq!(held.state(held.word(state)), Some(state));
        assert_eq!(Held { slot: 1, number: 6 }.state(held.word(state)), None);
    }
    assert_eq!(held.state(0), None);
    assert_eq!(held.state(5 << 2), None);
}

/// The child of a fork sees that it is one.
#[test]
fn a_child_knows_that_it_is_one() {
    let mark = ForkMark::new().unwrap();
    assert!(mark.is_own());
    // SAFETY: the child calls nothing but functions that are safe after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(mark.is_own())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child, and writes its status to a local variable.
    let pid = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((pid, libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (child, true, 0));
    assert!(mark.is_own());
}
