//! Requests that take long, clients that are killed, mounts that end meanwhile.

use crate::support::Mem;
use siftfs_base::Result;
use siftfs_fuse::{FuseMount, detach, unmount};
use siftfs_proto::{Completion, Credentials, FileService, Reply, Request, Target};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Files in memory whose fsyncs are held until the gate opens; every other one is answered by
/// a thread of its own.
struct Held {
    mem: Mem,
    state: Mutex<Fsyncs>,
    changed: Condvar,
}

#[derive(Default)]
struct Fsyncs {
    arrived: usize,
    open: bool,
}

impl Held {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |s| !s.open).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    #[track_caller]
    fn until_arrived(&self, n: usize) {
        let state = self.state.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (state, _) = self.changed.wait_timeout_while(state, limit, |s| s.arrived < n).unwrap();
        assert!(state.arrived >= n, "{} of {n} requests arrived", state.arrived);
    }
}

/// The same, shared.
struct Service(Arc<Held>);

impl FileService for Service {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.0.mem.call(cred, req)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        let Request::Fsync { file, .. } = req else {
            return done(self.call(cred, req));
        };
        let Target::Inode(ino) = file else { panic!("the kernel names inodes") };
        if ino % 2 == 0 {
            self.0.wait();
            return done(Ok(Reply::Done));
        }
        let held = self.0.clone();
        std::thread::spawn(move || {
            held.wait();
            done(Ok(Reply::Done));
        });
    }
}

struct Setup {
    held: Arc<Held>,
    dir: tempfile::TempDir,
    server: JoinHandle<std::io::Result<()>>,
}

fn setup() -> Setup {
    let (state, changed) = (Mutex::default(), Condvar::new());
    let held = Arc::new(Held { mem: Mem::new(), state, changed });
    let dir = tempfile::tempdir().unwrap();
    let service = Arc::new(Service(held.clone()));
    let options = crate::options();
    let make = || FuseMount::new(service, dir.path(), &options);
    let mount = crate::mounting(make).unwrap();
    let server = std::thread::spawn(move || mount.serve());
    Setup { held, dir, server }
}

/// A client that says when it has synced its file.
fn client(dir: &Path, name: usize) -> JoinHandle<std::io::Result<()>> {
    let path = dir.join(name.to_string());
    std::thread::spawn(move || {
        let mut file = File::create(path)?;
        file.write_all(b"x")?;
        file.sync_all()
    })
}

/// Another process that stays in fsync(2) of a new file.
fn process(dir: &Path, name: &str) -> Child {
    let path = dir.join(name);
    std::fs::write(&path, b"x").unwrap();
    Command::new("sync").arg(path).spawn().unwrap()
}

/// Fsyncs that take long, more than there were threads, do not keep other requests from being
/// served, on any processor; and each of them is answered in the end.
#[test]
fn long_requests_keep_nobody_waiting() {
    let s = setup();
    let clients: Vec<_> = (0..24).map(|i| client(s.dir.path(), i)).collect();
    s.held.until_arrived(24);
    let start = Instant::now();
    for i in 0..200 {
        std::fs::write(s.dir.path().join("other"), i.to_string()).unwrap();
        rustix::fs::statfs(s.dir.path()).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(clients.iter().all(|c| !c.is_finished()), "the fsyncs are held");
    s.held.open();
    clients.into_iter().for_each(|c| c.join().unwrap().unwrap());
    crate::cases::unmount_patiently(s.dir.path());
    s.server.join().unwrap().unwrap();
}

/// A client killed in its request goes when the request is answered, and the thread that served it
/// serves others.
#[test]
fn a_killed_client_takes_nobody_along() {
    let s = setup();
    let mut clients: Vec<_> = (0..6).map(|i| process(s.dir.path(), &i.to_string())).collect();
    s.held.until_arrived(6);
    clients.iter_mut().for_each(|c| c.kill().unwrap());
    s.held.open();
    for client in &mut clients {
        let status = client.wait().unwrap();
        assert!(status.signal() == Some(libc::SIGKILL) || status.success(), "{status}");
    }
    for i in 0..50 {
        client(s.dir.path(), 100 + i).join().unwrap().unwrap();
    }
    crate::cases::unmount_patiently(s.dir.path());
    s.server.join().unwrap().unwrap();
}

/// The connection is aborted (as `umount -f` and /sys/fs/fuse do) while requests are carried out:
/// the clients get an error, and the server ends without one when it has answered.
#[test]
fn an_aborted_connection_ends_the_server() {
    let s = setup();
    let clients: Vec<_> = (0..6).map(|i| client(s.dir.path(), i)).collect();
    s.held.until_arrived(6);
    let flags = rustix::mount::UnmountFlags::FORCE;
    // Busy, because files are open; the connection is aborted all the same.
    let _ = rustix::mount::unmount(s.dir.path(), flags);
    for client in clients {
        assert!(client.join().unwrap().is_err(), "an fsync that was not carried out");
    }
    s.held.open();
    s.server.join().unwrap().unwrap();
    let _ = unmount(s.dir.path());
    let _ = detach(s.dir.path());
}
