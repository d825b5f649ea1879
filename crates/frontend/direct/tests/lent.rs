//! Files whose lease somebody else has taken, and ends without asking.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::{Result, errno};
use siftfs_device_target::Lines;
use siftfs_direct::DirectFile;
use siftfs_placement::LocalVolume;
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, LeaseId, ROOT_INO, Reply, Request, Target,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::machine::{Machine, Way};
use support::{all, ask, host, open, opening, reach, user, volume};

struct Nothing;

impl Holder for Nothing {
    fn recall(&self, _: LeaseId) {}
}

/// The service of one file: its lease ends when that is `over`, as far as the program sees.
struct One {
    session: Arc<dyn FileService>,
    handle: Handle,
    over: AtomicBool,
}

impl One {
    fn of(v: &LocalVolume, name: &str) -> Arc<Self> {
        let session = v.holder(opening(), Arc::new(Nothing)).unwrap();
        let handle = open(&session, name);
        Arc::new(Self { session, handle, over: AtomicBool::new(false) })
    }
}

impl FileService for One {
    fn call(&self, cred: &Credentials, mut req: Request) -> Result<Reply> {
        if self.over.load(Ordering::Acquire) {
            match req {
                Request::LeaseExtend { .. } => return Ok(Reply::Extended(Vec::new())),
                Request::LeaseWrite { .. } => return Err(errno(libc::ESTALE)),
                // As the host of a program that has no other way: there is one lease.
                Request::Lease { .. } => return Err(errno(libc::EAGAIN)),
                Request::Write { .. } => return Err(errno(libc::EOPNOTSUPP)),
                _ => {}
            }
        }
        match &mut req {
            Request::Release { handle } => *handle = self.handle,
            req => {
                if let Some(file) = req.names_mut().file {
                    *file = Target::Open(self.handle);
                }
            }
        }
        self.session.call(cred, req)
    }
}

/// An append that goes over the border of what is granted is written up to there, if the lease ends
/// then, and says so: a program that heard of an error would write it again, behind itself.
#[test]
fn an_append_is_cut_at_the_border_of_a_grant() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::Unix, dir.path());
    let v = host(&machine);
    let other = user(&v);
    let new = Request::Create { parent: ROOT_INO, name: "f".into(), perm: 0o644 };
    let (_, handle) = ask(&other, new).created().unwrap();
    ask(&other, Request::Release { handle });
    let one = One::of(&v, "f");
    let finds = Box::new(|target: &str| reach(target).map(Lines::new));
    let file = DirectFile::lent(finds, one.clone());
    let mut model = Vec::new();
    // A stream, for which there is room behind its end.
    for byte in 1..4 {
        let bytes = vec![byte; 40_000];
        assert_eq!(file.append(&bytes).unwrap(), (model.len() as u64, bytes.len()));
        model.extend(bytes);
    }
    assert!(file.is_direct());
    // No more is granted from here on, and nothing is taken beside that.
    one.over.store(true, Ordering::Release);
    let mut short = None;
    for byte in 4..100 {
        let bytes = vec![byte; 50_001];
        match file.append(&bytes) {
            Ok((at, len)) => {
                assert_eq!(at, model.len() as u64);
                model.extend(&bytes[..len]);
                if len < bytes.len() {
                    short = Some(len);
                    break;
                }
            }
            Err(error) => panic!("nothing of {byte} is written, as is said: {error}"),
        }
    }
    assert!(short.is_some_and(|len| len > 0), "{short:?}");
    assert_eq!(model.len() % 4096, 0, "the grant ends with a block");
    let handle = open(&other, "f");
    drop(file);
    assert!(all(&other, handle) == model, "what was answered is there, and nothing else");
    v.close().unwrap();
}
