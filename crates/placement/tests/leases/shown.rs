//! What others are told of a leased file without an end of its lease: what its holder shows, as far
//! as it may.

use crate::holders::*;
use siftfs_base::Timestamp;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::thread::spawn;

/// The time of the world's clock.
const NOW: i64 = 1_700_000_000;

fn at(sec: i64, nsec: u32) -> Timestamp {
    Timestamp { sec, nsec }
}

fn stat(session: &Session, file: impl Into<Target>) -> Attr {
    ask(session, Request::GetAttr { file: file.into() }).expect("getattr").attr().unwrap()
}

/// The attributes that a listing tells of a name.
fn listed(session: &Session, name: &str) -> Option<Attr> {
    let dir = ask(session, Request::OpenDir { ino: ROOT }).unwrap().opened().unwrap();
    let list = Request::ReadDir { handle: dir, cookie: 0, max_bytes: 1 << 16, plus: true };
    let entries = ask(session, list).expect("a listing").entries().unwrap();
    ask(session, Request::Release { handle: dir }).expect("close");
    entries.into_iter().find(|entry| entry.name == name.as_bytes()).expect("its name").attr
}

#[test]
fn what_a_holder_shows_is_told_and_recalls_nothing() {
    let world = roomy(1);
    let v = world.open();
    let (session, told, shows) = shower(&v);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let handle = make(&session, "f");
    make(&session, "g");
    let (ino, theirs) = (look_up(&kernel, "f").ino, open(&kernel, "f"));
    let before = stat(&kernel, ino);
    let held = lease(&session, handle).expect("a lease");
    world.clock.advance(1_500_000_000);
    shows.shows(5000, at(NOW + 1, 5));
    let doors = [
        look_up(&kernel, "f"),
        stat(&kernel, ino),
        stat(&kernel, theirs),
        listed(&kernel, "f").expect("its attributes"),
    ];
    let time = at(NOW + 1, 5);
    let shown = Attr { size: 5000, mtime: time, ctime: time, held: true, ..before.clone() };
    for attr in doors {
        assert_eq!(attr, shown);
    }
    // The holder's own session sees what is there, and of other files everybody does.
    assert_eq!(look_up(&session, "f"), before);
    assert!(!look_up(&kernel, "g").held && !listed(&kernel, "g").unwrap().held);
    assert!(told.try_recv().is_err(), "nobody recalled");
    // Bytes are another matter.
    let reading = spawn(move || (read(&kernel, theirs), kernel));
    assert_eq!(told.recv(), Ok(held));
    put(&session, held, 0, b"NEW").expect("written");
    give_back(&session, held).expect("given back");
    let (seen, kernel) = reading.join().expect("the read returns");
    assert_eq!(seen, b"NEW bytes");
    assert!(!stat(&kernel, ino).held);
}

/// Whatever lies in a holder's memory: no size that is less than what is there or no file's, and no
/// time that is before what is there or after now.
#[test]
fn r54_what_is_shown_is_bounded() {
    let world = roomy(1);
    let v = world.open();
    let (session, told, shows) = shower(&v);
    let kernel = v.session(Opening::kernel()).expect("a session");
    world.clock.advance(1_000_000_000);
    let handle = make(&session, "f");
    let ino = look_up(&kernel, "f").ino;
    // The clock goes on by a nanosecond whenever it is looked at.
    let (was, now) = (stat(&kernel, ino).mtime, at(NOW + 2, 0));
    let seconds = |time: Timestamp| if time.sec == now.sec { now } else { time };
    lease(&session, handle).expect("a lease");
    world.clock.advance(1_000_000_000);
    for (size, mtime, told) in [
        (0, at(NOW, 0), (9, was)),
        (8, at(i64::MIN, u32::MAX), (9, was)),
        (10, at(NOW + 1, u32::MAX), (10, at(NOW + 1, 999_999_999))),
        (u64::MAX, at(NOW + 3, 0), (MAX_FILE_SIZE, now)),
        (MAX_FILE_SIZE + 1, at(i64::MAX, u32::MAX), (MAX_FILE_SIZE, now)),
    ] {
        shows.shows(size, mtime);
        let attr = stat(&kernel, ino);
        assert_eq!(attr.ctime, attr.mtime);
        assert_eq!((attr.size, seconds(attr.mtime)), told, "{size} {mtime:?}");
    }
    // A file that was dated ahead stays so.
    let set = SetAttr { mtime: Some(SetTime::At(at(NOW + 99, 0))), ..SetAttr::default() };
    let dated = Request::SetAttr { file: handle.into(), set, times: true };
    ask(&session, dated).expect("the holder's own");
    let attr = stat(&kernel, ino);
    assert_eq!((attr.mtime, seconds(attr.ctime)), (at(NOW + 99, 0), now));
    assert!(told.try_recv().is_err());
}

/// A lease that is over shows nothing: it ends, and nobody waits for its holder.
#[test]
fn r54_a_lease_that_is_over_shows_nothing() {
    let world = roomy(1);
    let v = world.open();
    let (session, told, shows) = shower(&v);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let handle = make(&session, "f");
    let held = lease(&session, handle).expect("a lease");
    shows.shows(5000, at(NOW, 0));
    assert_eq!(look_up(&kernel, "f").size, 5000);
    world.clock.advance(2_000_000_000);
    let attr = look_up(&kernel, "f");
    assert_eq!((attr.size, attr.held), (9, false));
    assert_eq!(keep(&session, held), Err(libc::ESTALE));
    assert!(told.try_recv().is_err());
}

/// A kernel that was told of a size works with it: it is told when the lease ends with another one,
/// and until then an append at the end that it believes in goes to the end.
#[test]
fn r50_a_shown_end_is_believed() {
    let world = roomy(1);
    let v = world.open();
    let (session, _recalled, shows) = shower(&v);
    let handle = make(&session, "f");
    let (kernel, told) = caching(&v);
    let ino = look_up(&kernel, "f").ino;
    let take = |what: &str| -> Notice { told.recv().unwrap_or_else(|e| panic!("{what}: {e}")) };
    // Shown 40 and then 60; written: nothing, 60, 30.
    let mut size = 9;
    for (written, tells) in [(0, true), (60, true), (30, true)] {
        drop(std::iter::from_fn(|| told.try_recv().ok()).collect::<Vec<_>>());
        let asking = session.clone();
        let leasing = spawn(move || lease(&asking, handle));
        (0..2).for_each(|_| drop(take("before a lease")));
        let held = leasing.join().expect("it returns").expect("a lease");
        for more in [40, 60] {
            shows.shows(size + more, at(NOW, 0));
            assert_eq!(look_up(&kernel, "f").size, size + more);
        }
        if written > 0 {
            put(&session, held, size, &vec![b'x'; written as usize]).expect("written");
        }
        let giving = session.clone();
        let giving = spawn(move || give_back(&giving, held));
        let notice = take("the size");
        assert_eq!((notice.sizes.as_slice(), tells), (&[ino][..], true));
        let true_end = size + written;
        for believed in [size + 40, size + 60] {
            let (file, data) = (ino.into(), b"!".to_vec().into());
            let append =
                Request::Append { file, end: believed, data, kill_priv: false, times: true };
            ask(&kernel, append).expect("appended");
        }
        drop(notice);
        giving.join().expect("it returns").expect("given back");
        let now = stat(&kernel, ino);
        assert_eq!((now.size, now.held), (true_end + 2, false), "after {written}");
        size = now.size;
    }
}

/// Of two kernels one was shown a size, the other one believes in that of before the lease. An
/// append at either end goes to the file's, which is neither.
///
/// Seen to fail, with bytes at the older end, when only the size that was shown is noted.
#[test]
fn r50_an_end_that_was_not_shown_is_believed() {
    let world = roomy(1);
    let v = world.open();
    let (session, _recalled, shows) = shower(&v);
    let handle = make(&session, "f");
    let kernels = [(); 2].map(|()| caching(&v));
    let ino = look_up(&kernels[0].0, "f").ino;
    let was = look_up(&kernels[1].0, "f").size;
    let asking = session.clone();
    let leasing = spawn(move || lease(&asking, handle));
    for _ in 0..2 {
        let notices = kernels.each_ref().map(|(_, told)| told.recv().expect("before a lease"));
        drop(notices);
    }
    let held = leasing.join().expect("it returns").expect("a lease");
    shows.shows(was + 40, at(NOW, 0));
    assert_eq!(look_up(&kernels[0].0, "f").size, was + 40);
    put(&session, held, was, &[b'x'; 60]).expect("written");
    let giving = spawn(move || give_back(&session, held));
    kernels.iter().for_each(|(_, told)| drop(told.recv().expect("the size")));
    giving.join().expect("it returns").expect("given back");
    for (at, ((kernel, _), end)) in kernels.iter().zip([was + 40, was]).enumerate() {
        let (file, data) = (ino.into(), b"!".to_vec().into());
        let append = Request::Append { file, end, data, kill_priv: false, times: true };
        let asking = kernel.clone();
        let appending = spawn(move || ask(&asking, append));
        drop(kernels[1 - at].1.recv().expect("what the other one is told"));
        appending.join().expect("it returns").expect("appended");
        let size = stat(kernel, ino).size;
        assert_eq!(size, was + 61 + at as u64, "kernel {at}");
    }
}

/// A lease that ends with the size that everybody was told of is nobody's business.
#[test]
fn r39_an_end_that_was_told_is_not_told_again() {
    let world = roomy(1);
    let v = world.open();
    let (session, _recalled, shows) = shower(&v);
    let handle = make(&session, "f");
    let (kernel, told) = caching(&v);
    look_up(&kernel, "f");
    let asking = session.clone();
    let leasing = spawn(move || lease(&asking, handle));
    (0..2).for_each(|_| drop(told.recv().expect("a notice")));
    let held = leasing.join().expect("it returns").expect("a lease");
    shows.shows(9, at(NOW, 0));
    assert_eq!(look_up(&kernel, "f").size, 9);
    give_back(&session, held).expect("given back");
    assert!(told.try_recv().is_err());
}

/// To open a file to be read shows nothing of it, whatever its holder shows.
#[test]
fn to_open_a_file_to_be_read_recalls_nothing() {
    let world = roomy(1);
    let v = world.open();
    let (session, told) = holder(&v);
    let others = [v.session(Opening::kernel()).expect("a session"), user(&v)];
    let handle = make(&session, "f");
    let inodes = others.each_ref().map(|other| look_up(other, "f").ino);
    let held = lease(&session, handle).expect("a lease");
    let opened = [0, 1].map(|i| {
        let open = Request::open(inodes[i], Access::Read);
        ask(&others[i], open).expect("open").opened().expect("a handle")
    });
    assert!(told.try_recv().is_err(), "nobody recalled");
    let [one, _two] = others;
    let reading = spawn(move || read(&one, opened[0]));
    assert_eq!(told.recv(), Ok(held), "what is read recalls");
    give_back(&session, held).expect("given back");
    assert_eq!(reading.join().expect("the read returns"), b"old bytes");
}

/// What a session that lends cannot change is told beside its lease; others' sessions can change
/// it, and nobody would hear of that.
#[test]
fn attributes_that_no_lender_changes_recall_nothing() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    make(&kernel, "f");
    let file: Target = look_up(&kernel, "f").ino.into();
    let name = || b"user.x".to_vec();
    let set = |value: &[u8]| {
        let (value, mode) = (value.to_vec(), XattrMode::Set);
        Request::SetXattr { file, name: name(), value, mode, kill_setgid: false }
    };
    ask(&kernel, set(b"1")).expect("set");
    let (session, told, _) = lender(&v);
    let handle = ask(&session, opening(look_up(&kernel, "f").ino)).unwrap().opened().unwrap();
    let held = lease(&session, handle).expect("a lease");
    for looks in [
        Request::GetXattr { file, name: name() },
        Request::ListXattr { file },
        Request::GetFlags { file },
    ] {
        ask(&kernel, looks).expect("it waits for nobody");
    }
    assert!(told.try_recv().is_err(), "nobody recalled");
    let (changes, other) = (set(b"2"), kernel.clone());
    let changing = spawn(move || ask(&other, changes).map(drop));
    assert_eq!(told.recv(), Ok(held));
    give_back(&session, held).expect("given back");
    assert_eq!(changing.join().expect("it returns"), Ok(()));
}
