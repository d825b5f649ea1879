//! Workers on an ordinary directory: what they do is what their models say, and the judge sees
//! what is missing.

use super::*;
use crate::tree::walk;
use std::fs::{self, File};
use std::path::PathBuf;

struct Bench {
    _tmp: tempfile::TempDir,
    worker: Worker,
}

fn umask() -> u16 {
    crate::umask().expect("this process's umask")
}

impl Bench {
    /// A worker on an empty directory, in `/var/tmp`, which mostly is a file system with
    /// everything.
    fn new() -> Self {
        let tmp = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
        let place =
            Place { mount: tmp.path().into(), worker: 1, siftfs: PathBuf::from("/bin/true") };
        for dir in [place.own(), place.shared()] {
            fs::create_dir(dir).expect("mkdir");
        }
        let tree = walk(&place).expect("walk");
        let worker = Worker::adopt(place, &tree, umask()).expect("adopt");
        Self { _tmp: tmp, worker }
    }

    /// What a recovery that lost nothing shows.
    fn verdict(&self) -> Vec<String> {
        self.worker.violations(&walk(&self.worker.place).expect("walk"))
    }

    fn step(&mut self, id: u32, request: Request) {
        self.step_by(id, request, How::Call);
    }

    fn step_by(&mut self, id: u32, request: Request, how: How) {
        let op = Op { id, action: Action::Call(Credentials::default(), request) };
        let mut prepared =
            self.worker.place.prepare(self.worker.oracle.model(), &op).expect("a call");
        prepared.how = how;
        let signals = Signals::default();
        assert!(self.worker.step(id, &prepared, Promise::None, &signals).expect("as the model"));
    }

    /// A file `f` with `data`, durable.
    fn durable(&mut self, data: &[u8]) -> InodeNr {
        let name = b"f".to_vec();
        self.step(1, Request::Create { parent: ROOT_INO, name, perm: 0o644 });
        let ino = FIRST_INO + 1;
        self.step(2, Request::write(ino, 0, data.to_vec()));
        self.step(3, Request::Fsync { file: ino.into(), datasync: false });
        ino
    }
}

#[test]
fn calls_do_what_the_model_says() {
    for seed in 0..12 {
        let mut bench = Bench::new();
        let profile = Profile { background: 0, reads: 12, ..Profile::crash() };
        let load = Load {
            seed,
            profile,
            synchronous: 20,
            writeback: false,
            served: false,
            nameless: true,
            keeps_answered: false,
        };
        bench.worker.steps(400, &load).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let tree = walk(&bench.worker.place).expect("walk");
        assert_eq!(bench.worker.differences(&tree), Vec::<String>::new(), "seed {seed}");
        assert_eq!(bench.verdict(), Vec::<String>::new(), "seed {seed}");
        // The next round's worker knows the same tree.
        let next = Worker::adopt(bench.worker.place.clone(), &tree, umask()).expect("adopt");
        assert_eq!(next.differences(&tree), Vec::<String>::new(), "seed {seed}");
    }
}

/// However long it works: the next round's worker has a number for every inode.
#[test]
fn a_full_worker_makes_no_more_inodes() {
    let bench = Bench::new();
    let own = bench.worker.place.own();
    for n in 0..FULL - 5 {
        File::create(own.join(format!("{n}"))).expect("create");
    }
    let tree = walk(&bench.worker.place).expect("walk");
    let mut worker = Worker::adopt(bench.worker.place.clone(), &tree, umask()).expect("adopt");
    let profile = Profile { background: 0, ..Profile::crash() };
    let load = Load {
        seed: 5,
        profile,
        synchronous: 0,
        writeback: false,
        served: false,
        nameless: true,
        keeps_answered: false,
    };
    let (mut most, mut generator) = (0, Generator::new(load.seed, load.profile.clone()));
    let (signals, mut rng) = (Signals::default(), Rng::new(1));
    for _ in 0..1500 {
        worker.next(&mut generator, &mut rng, &load, &signals).expect("as the model");
        most = most.max(worker.oracle.model().nodes().count());
    }
    worker.handles.clear();
    assert_eq!(most, FULL, "it filled up, and no more");
    let tree = walk(&worker.place).expect("walk");
    assert_eq!(worker.differences(&tree), Vec::<String>::new());
    Worker::adopt(worker.place.clone(), &tree, umask()).expect("adopt");
}

#[test]
fn a_lost_file_is_seen() {
    let mut bench = Bench::new();
    bench.durable(b"acknowledged");
    assert_eq!(bench.verdict(), Vec::<String>::new());
    fs::remove_file(bench.worker.place.own().join("f")).expect("rm");
    assert!(bench.verdict().iter().any(|v| v.starts_with("O2")), "{:?}", bench.verdict());
}

#[test]
fn lost_bytes_are_seen_and_unsynced_ones_may_be_lost() {
    let mut bench = Bench::new();
    let ino = bench.durable(b"acknowledged");
    let path = bench.worker.place.own().join("f");
    let data: WriteData = b"unsynced".to_vec().into();
    bench.step(4, Request::write(ino, 0, data));
    assert_eq!(bench.verdict(), Vec::<String>::new());
    fs::write(&path, b"acknowledged").expect("write");
    assert_eq!(bench.verdict(), Vec::<String>::new(), "as before the write");
    fs::write(&path, b"acknowledgeX").expect("write");
    assert!(bench.verdict().iter().any(|v| v.starts_with("O5")), "{:?}", bench.verdict());
}

/// A kernel that keeps written pages back sends those of a synchronous write alone: the file is
/// longer then, and an earlier page's bytes are not there yet. Without such a cache they were
/// written before, and an fsync sends all of them.
#[test]
fn bytes_that_a_kernel_kept_back_are_zero_in_a_file_that_grew() {
    let missing = |writeback: bool, synced: bool| {
        let mut bench = Bench::new();
        bench.worker.writes_read = writeback;
        let ino = bench.durable(b"");
        for (id, offset, len) in [(4, 4096, 1), (5, 108_504, 9000)] {
            bench.step(id, Request::write(ino, offset, vec![9; len]));
        }
        if synced {
            bench.step(6, Request::Fsync { file: ino.into(), datasync: false });
        }
        assert_eq!(bench.verdict(), Vec::<String>::new());
        let path = bench.worker.place.own().join("f");
        let mut bytes = fs::read(&path).expect("read");
        bytes[4096] = 0;
        fs::write(&path, bytes).expect("write");
        bench.verdict()
    };
    assert_eq!(missing(true, false), Vec::<String>::new());
    for (writeback, synced) in [(false, false), (true, true), (false, true)] {
        let verdict = missing(writeback, synced);
        assert!(verdict.iter().any(|v| v.starts_with("O5 byte 4096")), "{verdict:?}");
    }
}

/// The first page's end is a size in between only where the kernel may divide the write.
#[test]
fn a_size_inside_a_write_is_seen() {
    const INSIDE: [u64; 4] = [4095, 4096, 4097, 8192];
    let found = |offset: u64, append: bool, how: How| {
        let mut bench = Bench::new();
        let ino = bench.durable(&[7; 100]);
        let path = bench.worker.place.own().join("f");
        let data: WriteData = vec![9; 9000].into();
        bench.step_by(
            4,
            Request::Write {
                file: ino.into(),
                offset,
                data,
                append,
                kill_priv: false,
                times: true,
            },
            how,
        );
        assert_eq!(bench.verdict(), Vec::<String>::new());
        INSIDE.map(|size| {
            File::options().write(true).open(&path).expect("open").set_len(size).expect("cut");
            let verdict = bench.verdict();
            let bytes = fs::read(&path).expect("read");
            fs::write(&path, [&bytes[..], &vec![9; 9100 - bytes.len()]].concat()).expect("write");
            verdict.is_empty()
        })
    };
    let divided = [false, true, false, false];
    assert_eq!(found(100, false, How::Call), divided);
    assert_eq!(found(0, true, How::Call), divided);
    assert_eq!(found(50, false, How::Descriptor), divided);
    assert_eq!(found(0, false, How::Call), [false; 4], "from a page's begin on");
    assert_eq!(found(100, false, How::Copy), [false; 4], "past the cache");
}

#[test]
fn what_another_worker_made_is_not_judged_and_what_nobody_made_is() {
    let bench = Bench::new();
    let shared = bench.worker.place.shared();
    fs::write(shared.join("2.other"), b"another's").expect("write");
    assert_eq!(bench.verdict(), Vec::<String>::new());
    fs::write(shared.join("1.nobody"), b"nobody's").expect("write");
    assert!(bench.verdict().iter().any(|v| v.starts_with("O8")), "{:?}", bench.verdict());
}

/// In the model the worker's own directory is above the shared one, whose fsyncs owe its rights
/// then.
#[test]
fn rights_of_the_own_directory_are_left_alone() {
    let bench = Bench::new();
    let changes = |name: &str| {
        let (name, value) = (name.as_bytes().to_vec(), vec![1, 2]);
        let (ino, mode) = (ROOT_INO, siftfs_proto::XattrMode::Set);
        let request = Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid: false };
        let op = Op { id: 1, action: Action::Call(Credentials::default(), request) };
        bench.worker.place.prepare(bench.worker.oracle.model(), &op).is_some()
    };
    for name in ["system.posix_acl_access", "security.c"] {
        assert!(!changes(name), "{name}");
    }
    for name in ["trusted.b", "user.a"] {
        assert!(changes(name), "{name}");
    }
}

/// The host died between a creation and its answer: the number is not known.
#[test]
fn what_was_being_made_is_known_by_its_name() {
    let mut bench = Bench::new();
    let name = b"new".to_vec();
    let request = Request::Create { parent: ROOT_INO, name, perm: 0o644 };
    let op = Op { id: 1, action: Action::Call(bench.worker.cred.clone(), request) };
    bench.worker.oracle.begin(&op).expect("the model makes it");
    assert_eq!(bench.verdict(), Vec::<String>::new(), "it is not there");
    let path = bench.worker.place.own().join("new");
    fs::write(&path, b"").expect("write");
    assert_eq!(bench.verdict(), Vec::<String>::new(), "it is there");
    fs::write(&path, b"bytes that nobody wrote").expect("write");
    assert!(!bench.verdict().is_empty());
}

#[test]
fn what_a_death_cut_short_is_under_way() {
    let written = |len| Reply::Written { len };
    assert!(cut_off(&Ok(written(9)), &Ok(written(4))));
    assert!(!cut_off(&Ok(written(9)), &Ok(written(9))));
    assert!(!cut_off(&Ok(written(4)), &Ok(written(9))), "more than was asked for");
    let data = |bytes: &[u8]| Reply::Data(bytes.to_vec());
    assert!(cut_off(&Ok(data(b"all of it")), &Ok(data(b"all"))));
    assert!(!cut_off(&Ok(data(b"all of it")), &Ok(data(b"All"))), "something else");
    assert!(!cut_off(&Ok(data(b"all of it")), &Ok(data(b"all of it"))));
    assert!(!cut_off(&Ok(data(b"all")), &Ok(data(b"all of it"))));
    for gone in [libc::ENOTCONN, libc::ECONNABORTED, libc::ENODEV, libc::ECANCELED, libc::EINTR] {
        assert!(cut_off(&Ok(written(9)), &Err(Refused::Errno(gone))));
    }
    let lost = Err(Refused::Errno(libc::EIO));
    assert!(!cut_off(&Ok(written(9)), &lost));
    assert!(lost_pages(How::Mapping, &lost) && !lost_pages(How::Call, &lost));
    assert!(!lost_pages(How::Mapping, &Err(Refused::Errno(libc::EINVAL))));
}
