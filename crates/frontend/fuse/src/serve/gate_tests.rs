use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

struct Slow(AtomicBool);

impl FileService for Slow {
    fn call(&self, _: &Credentials, _: Request) -> Result<Reply, Error> {
        std::thread::sleep(Duration::from_millis(50));
        self.0.store(true, Ordering::SeqCst);
        Ok(Reply::Done)
    }
}

/// Closing waits for the request under way, and refuses those that come later.
#[test]
fn close_waits_and_then_refuses() {
    let slow = Arc::new(Slow(AtomicBool::new(false)));
    let gate = Gate::default();
    let door = gate.before(slow.clone());
    let caller = {
        let door = door.clone();
        std::thread::spawn(move || door.call(&Credentials::default(), Request::StatFs))
    };
    while gate.state.count.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    gate.close();
    assert!(slow.0.load(Ordering::SeqCst), "close returned before the request ended");
    assert_eq!(caller.join().unwrap(), Ok(Reply::Done));
    let late = door.call(&Credentials::default(), Request::StatFs);
    assert_eq!(late, Err(errno(libc::ENODEV)));
    let (tx, rx) = std::sync::mpsc::channel();
    door.submit(&Credentials::default(), Request::StatFs, Box::new(move |r| tx.send(r).unwrap()));
    assert_eq!(rx.recv().unwrap(), Err(errno(libc::ENODEV)));
    gate.close();
}

/// Answers, and goes on.
struct GoesOn(AtomicBool);

impl FileService for GoesOn {
    fn call(&self, _: &Credentials, _: Request) -> Result<Reply, Error> {
        Ok(Reply::Done)
    }
    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        done(self.call(cred, req));
        std::thread::sleep(Duration::from_millis(50));
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Closing waits for what a request does after its answer, too.
#[test]
fn close_waits_for_what_goes_on_after_the_answer() {
    let service = Arc::new(GoesOn(AtomicBool::new(false)));
    let gate = Gate::default();
    let door = gate.before(service.clone());
    let (tx, rx) = std::sync::mpsc::channel();
    let caller = {
        let door = door.clone();
        let done = Box::new(move |r| tx.send(r).unwrap());
        std::thread::spawn(move || {
            door.submit(&Credentials::default(), Request::StatFs, done);
        })
    };
    assert_eq!(rx.recv().unwrap(), Ok(Reply::Done));
    gate.close();
    assert!(service.0.load(Ordering::SeqCst), "close returned before the request's end");
    caller.join().unwrap();
}

/// Keeps the requests that wait for a lock.
#[derive(Default)]
struct Waits(Mutex<Vec<Completion>>);

impl FileService for Waits {
    fn call(&self, _: &Credentials, _: Request) -> Result<Reply, Error> {
        Ok(Reply::Done)
    }
    fn submit(&self, _: &Credentials, _: Request, done: Completion) {
        self.0.lock().unwrap().push(done);
    }
}

/// A program that waits for a lock on a detached mount does not keep the volume from being closed.
#[test]
fn close_waits_for_no_lock() {
    use siftfs_proto::{Handle, LockAsk, LockKind, LockPlace, LockWait, WaitUntil};
    let waits = Arc::new(Waits::default());
    let gate = Gate::default();
    let wait = Some(LockWait { number: 1, until: WaitUntil::File });
    let (place, kind) = (LockPlace::Whole, Some(LockKind::Read));
    let ask = LockAsk { owner: 1, pid: 1, place, kind, wait };
    let lock = Request::SetLock { file: Handle(1).into(), ask };
    let (tell, told) = std::sync::mpsc::channel();
    let done = Box::new(move |result| tell.send(result).unwrap());
    gate.before(waits.clone()).submit(&Credentials::default(), lock, done);
    gate.close();
    assert!(told.try_recv().is_err(), "it still waits");
    waits.0.lock().unwrap().drain(..).for_each(|done| done(Ok(Reply::Done)));
    assert_eq!(told.recv(), Ok(Ok(Reply::Done)));
}
