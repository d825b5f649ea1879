//! Commands beside processes that hang on another mount.

use crate::support::{Setup, siftfs};
use rustix::process::Signal;
use siftfs_rig::descriptors::own_table;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A process in exec(2) closes a file of a mount whose host is stopped, and waits. For that time
/// the kernel lets no other process read its descriptors. The message still names the process that
/// has another volume.
#[test]
fn who_has_a_volume_is_said_beside_a_process_that_hangs() {
    let (hung, other) = (Setup::new(), Setup::new());
    hung.mount("write_cache=writeback");
    other.mount("");
    let (daemon, owner) = (hung.daemon(), other.daemon());
    let path = hung.path("f");
    let (tell, told) = channel();
    let (go, going) = channel::<()>();
    let caller = thread::spawn(move || {
        own_table().unwrap();
        let mut file = File::create(path).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        tell.send(()).unwrap();
        going.recv().unwrap();
        Command::new("true").status().unwrap();
    });
    told.recv().unwrap();
    daemon.stop();
    go.send(()).unwrap();
    thread::sleep(Duration::from_secs(1));
    let (tell, told) = channel();
    let volume = other.volume();
    let asker = thread::spawn(move || tell.send(siftfs(&["fsck", volume])));
    let said = told.recv_timeout(Duration::from_secs(30));
    let hangs = !caller.is_finished();
    daemon.signal(Signal::CONT);
    asker.join().unwrap().ok();
    caller.join().unwrap();
    assert!(hangs, "nobody hung");
    let pid = owner.pid.as_raw_nonzero();
    said.expect("it is said in time").fails(8, &[volume, &format!("process {pid} (")]);
    other.umount();
    hung.umount();
}
