//! The program, the daemon and the target die.

use crate::town::{FILE, Town, WAY};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use siftfs_accel::{By, Session, Through};
use siftfs_holders::world::EVER;

/// The target loses its power, and comes back: what was synced is there, and so is what was only
/// written, because the program is still there to repeat it.
#[test]
fn a_program_outlives_its_target() {
    for seed in 0..4 {
        let mut town = Town::new();
        let user = town.user();
        let f = user.make("f", &vec![1; FILE]);
        let (session, direct) = town.direct(f);
        let mut model = vec![1; FILE];
        assert_eq!(direct.write_at(0, &[2; 8192]), Through::Lease(8192));
        assert!(matches!(direct.sync_by(true).unwrap(), Through::Lease(_)));
        assert_eq!(direct.write_at(4096, &[3; 8192]), Through::Lease(8192));
        assert_eq!(direct.append(&vec![4; 100_000]), Through::Lease((FILE as u64, 100_000)));
        model[..8192].fill(2);
        model[4096..12_288].fill(3);
        model.resize(FILE + 100_000, 4);
        let machine = town.machine.take().unwrap();
        town.machine = Some(machine.power_fails(WAY, seed));
        let mut read = vec![0; model.len()];
        assert_eq!(direct.read_at(0, &mut read), Through::Lease(model.len()), "{seed}");
        assert!(read == model, "{seed}");
        assert_eq!(direct.write_at(100, &[5; 10]), Through::Lease(10));
        model[100..110].fill(5);
        assert!(matches!(direct.sync_by(false).unwrap(), Through::Lease(By::Daemon)), "{seed}");
        assert!(user.read(f) == model, "{seed}");
        direct.close().unwrap();
        drop(session);
        town.close();
    }
}

/// The session's connection ends, as by the end of the process.
fn cut(session: &Session) {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    for fd in session.descriptors() {
        let same = pidfd_getfd(&own, fd, PidfdGetfdFlags::empty()).unwrap();
        rustix::net::shutdown(&same, rustix::net::Shutdown::Both).unwrap();
    }
}

/// The program goes without a word: what it wrote is the file's, synced or not (rule R47).
#[test]
fn r47_what_a_program_wrote_outlives_it() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", &vec![1; FILE]);
    let (session, direct) = town.direct(f);
    assert_eq!(direct.write_at(4096, &[2; 8192]), Through::Lease(8192));
    assert_eq!(direct.append(&vec![3; 100_000]), Through::Lease((FILE as u64, 100_000)));
    assert_eq!(direct.append(b"small"), Through::Lease((FILE as u64 + 100_000, 5)));
    cut(&session);
    town.until("the session ends", |town| town.counts().sessions == 0);
    let mut model = vec![1; FILE];
    model[4096..12_288].fill(2);
    model.resize(FILE + 100_000, 3);
    model.extend(b"small");
    assert!(user.read(f) == model);
    // What is left of the program is of no use to it.
    assert_eq!(direct.write_at(0, &[9; 4096]), Through::Mount);
    assert_eq!(direct.sync_by(true).unwrap(), Through::Mount);
    assert!(user.read(f) == model);
    drop((direct, session));
    town.close();
}

/// The daemon ends: the program's calls are the kernel's, at once and for ever.
#[test]
fn without_a_daemon_calls_are_the_kernels() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", &vec![1; FILE]);
    let (session, direct) = town.direct(f);
    assert_eq!(direct.write_at(0, &[2; 4096]), Through::Lease(4096));
    assert!(town.grantor.stop(EVER));
    let mut read = [0; 10];
    assert_eq!(direct.read_at(0, &mut read), Through::Mount);
    assert_eq!(direct.write_at(0, &[3; 4096]), Through::Mount);
    assert_eq!(direct.sync_by(true).unwrap(), Through::Mount);
    assert_eq!(direct.append(b"x"), Through::Mount);
    assert_eq!(&user.read(f)[..4097], &[&[2; 4096][..], &[1]].concat()[..]);
    drop((direct, session));
    town.volume.close().unwrap();
}
