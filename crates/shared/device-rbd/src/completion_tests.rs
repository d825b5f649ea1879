//! Accesses whose library is a script: each says how and when it ends.

use super::*;
use crate::functions::Callback;
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How one access ends.
#[derive(Clone, Copy)]
enum End {
    /// The library calls back with this result before the call that begins it has returned.
    AtOnce(isize),
    /// A thread of the library calls back with it after a while.
    Later(isize),
    /// The access cannot be begun.
    NotBegun(c_int),
}

/// What the handle of an image points to here.
#[derive(Default)]
struct Script {
    ends: Mutex<Vec<End>>,
    begun: AtomicUsize,
    /// The callbacks that have returned.
    called: AtomicUsize,
    /// Bytes that are under way, and the most that ever were.
    bytes: AtomicI64,
    most: AtomicI64,
}

/// What a completion points to here.
struct Fake {
    ticket: *mut c_void,
    callback: Callback,
    result: isize,
}

/// Completions that were made, and not released.
static OPEN: AtomicI64 = AtomicI64::new(0);
/// The tests count completions, and so run in turn.
static TURN: Mutex<()> = Mutex::new(());
/// No completion can be made.
static NO_MEMORY: AtomicBool = AtomicBool::new(false);
/// How long a thread of the library takes.
const WHILE: Duration = Duration::from_millis(30);

unsafe extern "C" fn create(
    ticket: *mut c_void,
    callback: Callback,
    made: *mut Completion,
) -> c_int {
    if NO_MEMORY.load(Ordering::Relaxed) {
        return -libc::ENOMEM;
    }
    OPEN.fetch_add(1, Ordering::Relaxed);
    let fake = Box::into_raw(Box::new(Fake { ticket, callback, result: isize::MIN }));
    // SAFETY: the caller has room for a handle.
    unsafe { *made = fake.cast() };
    0
}

unsafe extern "C" fn result_of(completion: Completion) -> isize {
    // SAFETY: `create` has made it, and it is not released yet.
    unsafe { (*completion.cast::<Fake>()).result }
}

unsafe extern "C" fn release(completion: Completion) {
    OPEN.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `create` has made it, and it is released once.
    drop(unsafe { Box::from_raw(completion.cast::<Fake>()) });
}

/// Begins an access, and ends it as the script says.
fn begin_as_told(image: RawImage, bytes: usize, completion: Completion) -> c_int {
    // SAFETY: the test's script outlives its accesses.
    let script: &'static Script = unsafe { &*image.cast::<Script>() };
    let bytes = bytes as i64;
    script.begun.fetch_add(1, Ordering::SeqCst);
    let all = script.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
    script.most.fetch_max(all, Ordering::SeqCst);
    let completion = completion as usize;
    let call = move |result| {
        script.bytes.fetch_sub(bytes, Ordering::SeqCst);
        let fake = completion as *mut Fake;
        // SAFETY: nobody else has the completion until its callback is called.
        let (callback, ticket) = unsafe {
            (*fake).result = result;
            ((*fake).callback, (*fake).ticket)
        };
        callback(fake.cast(), ticket);
        script.called.fetch_add(1, Ordering::SeqCst);
    };
    let end = script.ends.lock().unwrap().pop().expect("the script says how it ends");
    match end {
        End::AtOnce(result) => call(result),
        End::Later(result) => {
            thread::spawn(move || {
                thread::sleep(WHILE);
                call(result);
            });
        }
        End::NotBegun(error) => return -error,
    }
    0
}

unsafe extern "C" fn write(
    image: RawImage,
    _: u64,
    len: usize,
    _: *const c_char,
    completion: Completion,
) -> c_int {
    begin_as_told(image, len, completion)
}

unsafe extern "C" fn read(
    image: RawImage,
    _: u64,
    len: usize,
    _: *mut c_char,
    completion: Completion,
) -> c_int {
    begin_as_told(image, len, completion)
}

unsafe extern "C" fn flush(image: RawImage, completion: Completion) -> c_int {
    begin_as_told(image, 0, completion)
}

/// Carries jobs out whose ends are these, and returns the script as it was left. Nothing of them is
/// under way any more, and every completion was released.
fn carried_out<'a>(
    ends: &[End],
    jobs: impl IntoIterator<Item = Job<'a>>,
) -> (Result<(), i32>, &'static Script) {
    let functions: &'static Functions = Box::leak(Box::new(Functions {
        rbd_aio_create_completion: create,
        rbd_aio_get_return_value: result_of,
        rbd_aio_release: release,
        rbd_aio_write: write,
        rbd_aio_read: read,
        rbd_aio_flush: flush,
        ..Functions::none()
    }));
    let ends = Mutex::new(ends.iter().rev().copied().collect());
    let script: &'static Script = Box::leak(Box::new(Script { ends, ..Script::default() }));
    let result = run(functions, std::ptr::from_ref(script).cast_mut().cast(), jobs);
    assert_eq!(OPEN.load(Ordering::Relaxed), 0, "completions that nobody releases");
    (result, script)
}

fn in_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const DATA: &[u8] = &[7; 4096];

fn job() -> Job<'static> {
    Job::Write { offset: 0, data: DATA }
}

#[test]
fn a_callback_may_come_before_the_wait_and_after_it() {
    let _turn = in_turn();
    let (result, _) = carried_out(&[End::AtOnce(0)], [job()]);
    assert_eq!(result, Ok(()));
    let ends = [End::Later(0), End::AtOnce(0), End::Later(0)];
    let (result, script) = carried_out(&ends, [job(), Job::Flush, job()]);
    assert_eq!(result, Ok(()));
    // What was borrowed for the slowest is given back only behind its end.
    assert_eq!((script.begun.load(Ordering::SeqCst), script.bytes.load(Ordering::SeqCst)), (3, 0));
}

#[test]
fn a_negative_result_is_an_errno_and_the_first_one_counts() {
    let _turn = in_turn();
    for end in [End::AtOnce, End::Later] {
        let (result, _) = carried_out(&[end(-5)], [job()]);
        assert_eq!(result, Err(libc::EIO));
        let (result, _) = carried_out(&[end(-108)], [Job::Flush]);
        assert_eq!(result, Err(libc::ESHUTDOWN));
    }
    // What stands before is under way already; what stands behind is not begun.
    let ends = [End::Later(-30), End::AtOnce(-28), End::AtOnce(0)];
    let (result, script) = carried_out(&ends, [job(), job(), job()]);
    assert_eq!((result, script.begun.load(Ordering::SeqCst)), (Err(libc::ENOSPC), 2));
    assert_eq!(script.bytes.load(Ordering::SeqCst), 0, "the slow one was waited for");
    // No errno has as large a number.
    let (result, _) = carried_out(&[End::AtOnce(isize::MIN + 1)], [job()]);
    assert_eq!(result, Err(libc::EIO));
}

#[test]
fn a_read_that_is_short_is_an_error() {
    let _turn = in_turn();
    let mut buf = [0; 4096];
    for (found, result) in [(4096, Ok(())), (4095, Err(libc::EIO)), (0, Err(libc::EIO))] {
        let (said, _) = carried_out(&[End::Later(found)], [Job::Read { offset: 0, buf: &mut buf }]);
        assert_eq!(said, result, "{found}");
    }
}

#[test]
fn an_access_that_cannot_be_begun_ends_with_its_error() {
    let _turn = in_turn();
    let ends = [End::Later(0), End::NotBegun(libc::EROFS)];
    let (result, script) = carried_out(&ends, [job(), job()]);
    assert_eq!(result, Err(libc::EROFS));
    assert_eq!(script.begun.load(Ordering::SeqCst), 2);
    NO_MEMORY.store(true, Ordering::Relaxed);
    let (result, script) = carried_out(&[], [job(), job()]);
    NO_MEMORY.store(false, Ordering::Relaxed);
    assert_eq!((result, script.begun.load(Ordering::SeqCst)), (Err(libc::ENOMEM), 0));
}

#[test]
fn what_is_under_way_has_a_bound() {
    let _turn = in_turn();
    let data = vec![0; 1 << 20];
    let jobs = (0..12).map(|_| Job::Write { offset: 0, data: &data });
    let (result, script) = carried_out(&[End::Later(0); 12], jobs);
    assert_eq!((result, script.begun.load(Ordering::SeqCst)), (Ok(()), 12));
    let most = script.most.load(Ordering::SeqCst);
    assert!(most > 1 << 20 && most <= WINDOW as i64, "{most} bytes were under way");
    // One that is longer than the bound is carried out alone.
    let long = vec![0; 9 << 20];
    let (result, _) = carried_out(&[End::Later(0)], [Job::Write { offset: 0, data: &long }]);
    assert_eq!(result, Ok(()));
}

#[test]
fn two_wait_for_one_end_and_a_later_wait_returns_at_once() {
    let flight = Flight::default();
    flight.begins(10);
    let landed = AtomicBool::new(false);
    thread::scope(|scope| {
        let wait = || {
            let error = flight.wait(None);
            assert!(landed.load(Ordering::SeqCst), "it has waited for the end");
            error
        };
        let two = [scope.spawn(wait), scope.spawn(wait)];
        thread::sleep(WHILE);
        landed.store(true, Ordering::SeqCst);
        flight.ends(10, Some(libc::EIO));
        for one in two {
            assert_eq!(one.join().unwrap(), Some(libc::EIO));
        }
    });
    // The error stays for each that asks again, and no later one takes its place.
    assert_eq!((flight.wait(None), flight.wait(Some(1))), (Some(libc::EIO), Some(libc::EIO)));
    flight.begins(1);
    flight.ends(1, Some(libc::ENOSPC));
    assert_eq!(flight.wait(None), Some(libc::EIO));
}
