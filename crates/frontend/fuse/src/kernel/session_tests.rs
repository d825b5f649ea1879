use super::*;
use crate::kernel::abi::OutHeader;
use crate::kernel::testing::{message_from, n32, n64, pair};
use crate::serve::adapter::Adapter;
use crate::serve::agreed::Agreed;
use crate::serve::server::Server;
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[allow(dead_code)] // what counts is for the tests on a mount
#[path = "../../tests/support/mod.rs"]
mod support;

fn schedule() -> Arc<Schedule> {
    Arc::new(Schedule::new(Default::default()))
}

/// No mount: nothing of it is written back here.
fn no_mount() -> crate::mount::mountinfo::MountEntry {
    crate::mount::mountinfo::MountEntry {
        id: 0,
        parent: 0,
        major: 0,
        minor: 0,
        root: "/".into(),
        mount_point: "/".into(),
        options: String::new(),
        fs_type: "fuse".into(),
        source: "none".into(),
    }
}

fn init(major: u32, minor: u32, flags: u32) -> Vec<u8> {
    let body = [n32(&[major, minor, 1 << 17, flags]), vec![0; 48]].concat();
    message_from(0, 1, abi::INIT, 0, &body)
}

fn send(kernel: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(kernel, bytes).unwrap(), bytes.len());
}

fn receive(kernel: &OwnedFd) -> (OutHeader, Vec<u8>) {
    let mut buffer = vec![0u8; 2 << 20];
    let len = rustix::io::read(kernel, &mut buffer).unwrap();
    let (header, body) = OutHeader::read_from_prefix(buffer.get(..len).unwrap()).unwrap();
    assert_eq!(header.len as usize, len);
    (header, body.to_vec())
}

/// The kernel's side of a connection whose other side serves files in memory.
struct Kernel {
    end: OwnedFd,
    server: Option<std::thread::JoinHandle<io::Result<()>>>,
    agreed: abi::InitOut,
    unique: u64,
}

impl Kernel {
    fn new(offered: u32) -> Self {
        let (end, ours) = pair();
        send(&end, &init(7, 99, offered));
        let session =
            Session::start(ours, Wanted { requests: Requests::Device, ..Wanted::default() })
                .unwrap();
        let (_, body) = receive(&end);
        let agreed = abi::InitOut::read_from_bytes(&body).unwrap();
        let mem = Arc::new(support::Mem::new());
        let server = Arc::new(Server::new(mem, Agreed { acls: true, ..Agreed::default() }));
        let adapter = Arc::new(Adapter::new(server, no_mount()));
        let server = Some(std::thread::spawn(move || {
            session.run((2, schedule()), Path::new("/"), &adapter)
        }));
        Self { end, server, agreed, unique: 100 }
    }

    /// Asks as root, and returns the answer's error and body.
    fn ask(&mut self, opcode: u32, node: u64, parts: &[&[u8]]) -> (i32, Vec<u8>) {
        self.unique += 1;
        send(&self.end, &message_from(0, self.unique, opcode, node, &parts.concat()));
        let (header, body) = receive(&self.end);
        assert_eq!(header.unique, self.unique);
        assert!(header.error <= 0 && (header.error == 0 || body.is_empty()));
        (-header.error, body)
    }

    fn ok<T: FromBytes + Immutable + KnownLayout>(
        &mut self,
        opcode: u32,
        node: u64,
        parts: &[&[u8]],
    ) -> T {
        let (error, body) = self.ask(opcode, node, parts);
        assert_eq!(error, 0, "opcode {opcode}");
        T::read_from_bytes(&body).unwrap_or_else(|_| panic!("opcode {opcode}: {body:?}"))
    }

    fn done(&mut self, opcode: u32, node: u64, parts: &[&[u8]]) {
        assert_eq!(self.ask(opcode, node, parts), (0, vec![]), "opcode {opcode}");
    }

    fn end(mut self) {
        let (other, _) = pair();
        drop(std::mem::replace(&mut self.end, other));
        self.server.take().unwrap().join().unwrap().unwrap();
    }
}

#[test]
fn the_protocol_is_agreed_on() {
    let kernel = Kernel::new(u32::MAX);
    let wanted = WANTED.iter().fold(0, |all, (_, flag)| all | flag);
    let out = kernel.agreed;
    assert_eq!((out.major, out.minor, out.flags), (7, abi::MINOR, wanted));
    assert_eq!((out.max_write, out.max_pages), (MAX_IO, 256));
    assert_eq!((out.max_readahead, out.max_background), (1 << 17, MAX_BACKGROUND));
    kernel.end();
    let kernel = Kernel::new(abi::FUSE_MAX_PAGES);
    assert_eq!(kernel.agreed.flags, abi::FUSE_MAX_PAGES, "only what is offered");
    kernel.end();
}

/// File locks come as requests to a shared mount, where the kernel has such.
#[test]
fn file_locks_come_as_requests_to_a_shared_mount_alone() {
    let locks = abi::FUSE_POSIX_LOCKS | abi::FUSE_FLOCK_LOCKS;
    let shared = Wanted { shared: true, ..Wanted::default() };
    assert_eq!(agree(u32::MAX, Wanted::default()) & locks, 0);
    assert_eq!(agree(u32::MAX, shared) & locks, locks);
    assert_eq!(agree(abi::FUSE_POSIX_LOCKS, shared), abi::FUSE_POSIX_LOCKS);
}

/// A mount of a part of the tree lets the kernel open no file by a number that it does not know.
#[test]
fn a_part_of_the_tree_is_not_exported() {
    let export = abi::FUSE_EXPORT_SUPPORT;
    assert_eq!(agree(u32::MAX, Wanted::default()) & export, export);
    let below = Wanted { below: true, ..Wanted::default() };
    assert_eq!(agree(u32::MAX, below), agree(u32::MAX, Wanted::default()) & !export);
}

/// Users are mapped where that is wanted, and a kernel that cannot is told so.
#[test]
fn mapped_users_only_where_they_are_wanted() {
    let start = |idmap, offered: u32| {
        let (end, ours) = pair();
        let flags2 = [n32(&[offered]), vec![0; 44]].concat();
        let body = [n32(&[7, 44, 1 << 17, abi::FUSE_INIT_EXT]), flags2].concat();
        send(&end, &message_from(0, 1, abi::INIT, 0, &body));
        let requests = Requests::Device;
        let started = Session::start(ours, Wanted { requests, idmap, ..Wanted::default() });
        let (header, body) = receive(&end);
        let agreed = abi::InitOut::read_from_bytes(&body).map(|out| (out.flags, out.flags2)).ok();
        (started.map(drop).map_err(|e| e.to_string()), header.error, agreed)
    };
    let all = abi::FUSE2_ALLOW_IDMAP | abi::FUSE2_OVER_IO_URING;
    assert_eq!(start(false, all), (Ok(()), 0, Some((0, 0))));
    let mapped = Some((abi::FUSE_INIT_EXT, abi::FUSE2_ALLOW_IDMAP));
    assert_eq!(start(true, all), (Ok(()), 0, mapped));
    let (error, errno, _) = start(true, abi::FUSE2_OVER_IO_URING);
    assert!(error.is_err_and(|e| e.contains("Linux 6.12")));
    assert_eq!(errno, -libc::EOPNOTSUPP);
}

#[test]
fn another_version_of_the_protocol() {
    let (end, ours) = pair();
    send(&end, &init(8, 0, 0));
    send(&end, &init(7, 31, 0));
    Session::start(ours, Wanted::default()).unwrap();
    let (_, body) = receive(&end);
    assert_eq!(abi::InitOut::read_from_bytes(&body).unwrap().major, 7, "it is told ours");
    let (_, body) = receive(&end);
    assert_eq!(abi::InitOut::read_from_bytes(&body).unwrap().minor, 31);
    let (end, ours) = pair();
    send(&end, &init(7, 22, 0));
    let error = Session::start(ours, Wanted::default()).err().unwrap().to_string();
    assert!(error.contains("FUSE 7.22") && error.contains("Linux 5.4"), "{error}");
    assert_eq!(receive(&end).0.error, -libc::EPROTO);
    let (end, ours) = pair();
    send(&end, &message_from(0, 1, abi::GETATTR, 1, &[0; 16]));
    assert!(Session::start(ours, Wanted::default()).is_err(), "the first request is not INIT");
    let (end, ours) = pair();
    drop(end);
    assert!(Session::start(ours, Wanted::default()).is_err(), "the mount is gone");
}

#[test]
fn names_and_attributes() {
    let mut k = Kernel::new(u32::MAX);
    let dir: abi::EntryOut = k.ok(abi::MKDIR, 1, &[&n32(&[0o755, 0o22]), b"d\0"]);
    let (made, _): (abi::EntryOut, abi::OpenOut) = k.create(dir.node, b"f\0");
    let found: abi::EntryOut = k.ok(abi::LOOKUP, dir.node, &[b"f\0"]);
    assert_eq!((found.node, found.attr.mode), (made.node, 0o100_644));
    let none: abi::EntryOut = k.ok(abi::LOOKUP, dir.node, &[b"g\0"]);
    assert_eq!(none.node, 0, "a name that is not there can be remembered");
    let node: abi::EntryOut = k.ok(abi::MKNOD, 1, &[&n32(&[0o010_600, 0, 0, 0]), b"p\0"]);
    assert_eq!(node.attr.mode, 0o010_600);
    let link: abi::EntryOut = k.ok(abi::LINK, 1, &[&n64(&[made.node]), b"l\0"]);
    assert_eq!((link.node, link.attr.nlink), (made.node, 2));
    let link: abi::EntryOut = k.ok(abi::SYMLINK, 1, &[b"s\0", b"d/f\0"]);
    assert_eq!(k.ask(abi::READLINK, link.node, &[]), (0, b"d/f".to_vec()));
    k.done(abi::RENAME, 1, &[&n64(&[dir.node]), b"l\0m\0"]);
    k.done(abi::RENAME2, dir.node, &[&n64(&[1]), &n32(&[1, 0]), b"m\0l\0"]);
    assert_eq!(k.ask(abi::RENAME2, 1, &[&n64(&[1]), &n32(&[8, 0]), b"l\0m\0"]).0, libc::EINVAL);
    k.done(abi::UNLINK, 1, &[b"l\0"]);
    k.done(abi::UNLINK, 1, &[b"p\0"]);
    assert_eq!(k.ask(abi::UNLINK, 1, &[b"p\0"]).0, libc::ENOENT);
    k.done(abi::UNLINK, dir.node, &[b"f\0"]);
    k.done(abi::RMDIR, 1, &[b"d\0"]);
    let mut times = [0u64; 11];
    (times[0], times[4]) = (u64::from(abi::FATTR_ATIME), i64::MIN.cast_unsigned());
    let set: abi::AttrOut = k.ok(abi::SETATTR, made.node, &[&n64(&times)]);
    assert_eq!(set.attr.atime, i64::MIN);
    let seen: abi::AttrOut = k.ok(abi::GETATTR, made.node, &[&[0; 16]]);
    assert_eq!((seen.attr.atime, seen.attr.nlink), (i64::MIN, 0));
    let seen: abi::StatxOut = k.ok(abi::STATX, made.node, &[&[0; 24]]);
    assert_eq!(seen.atime.sec, i64::MIN);
    let statfs: abi::StatfsOut = k.ok(abi::STATFS, 1, &[]);
    assert_eq!((statfs.blocks, statfs.free, statfs.name_max), (1000, 900, 255));
    assert_eq!(k.ask(abi::GETATTR, 9999, &[&[0; 16]]).0, libc::ESTALE);
    assert_eq!(k.ask(abi::GETATTR, 1 << 40, &[&[0; 16]]).0, libc::ESTALE);
    k.end();
}

impl Kernel {
    fn create(&mut self, dir: u64, name: &[u8]) -> (abi::EntryOut, abi::OpenOut) {
        let head = n32(&[libc::O_RDWR.cast_unsigned(), 0o100_644, 0o22, 0]);
        let (error, body) = self.ask(abi::CREATE, dir, &[&head, name]);
        assert_eq!(error, 0);
        let (entry, rest) = abi::EntryOut::read_from_prefix(&body).unwrap();
        (entry, abi::OpenOut::read_from_bytes(rest).unwrap())
    }

    fn write(&mut self, node: u64, offset: u64, data: &[u8]) -> (i32, Vec<u8>) {
        let len = u32::try_from(data.len()).unwrap();
        let head = [n64(&[0, offset]), n32(&[len, 0, 0, 0, 0, 0])].concat();
        self.ask(abi::WRITE, node, &[&head, data])
    }

    fn read(&mut self, node: u64, offset: u64, size: u32) -> Vec<u8> {
        let head = [n64(&[0, offset]), n32(&[size, 0, 0, 0, 0, 0])].concat();
        let (error, data) = self.ask(abi::READ, node, &[&head]);
        assert_eq!(error, 0);
        data
    }
}

#[test]
fn file_data() {
    let mut k = Kernel::new(u32::MAX);
    let (f, open) = k.create(1, b"f\0");
    assert_eq!(k.write(f.node, 4, b"data"), (0, n32(&[4, 0])));
    assert_eq!(k.read(f.node, 2, 100), b"\0\0data");
    assert_eq!(k.read(f.node, 0, u32::MAX), b"\0\0\0\0data");
    k.done(abi::FSYNC, f.node, &[&n64(&[open.handle]), &n32(&[1, 0])]);
    k.done(abi::FALLOCATE, f.node, &[&n64(&[0, 0, 16]), &n32(&[0, 0])]);
    assert_eq!(
        k.ask(abi::FALLOCATE, f.node, &[&n64(&[0, 0, 16]), &n32(&[8, 0])]).0,
        libc::EOPNOTSUPP
    );
    let at: abi::OffsetOut = k.ok(abi::LSEEK, f.node, &[&n64(&[0, 3]), &n32(&[3, 0])]);
    assert_eq!(at.offset, 3);
    for (from, whence, error) in [(1 << 63, 3, libc::ENXIO), (0, 0, libc::EINVAL)] {
        assert_eq!(k.ask(abi::LSEEK, f.node, &[&n64(&[0, from]), &n32(&[whence, 0])]).0, error);
    }
    let flags = n32(&[(libc::O_WRONLY | libc::O_TRUNC).cast_unsigned(), 0]);
    let again: abi::OpenOut = k.ok(abi::OPEN, f.node, &[&flags]);
    assert_eq!(k.read(f.node, 0, 10), b"");
    k.done(abi::RELEASE, f.node, &[&n64(&[again.handle, 0, 0])]);
    assert_eq!(k.ask(abi::RELEASE, f.node, &[&n64(&[again.handle, 0, 0])]).0, libc::EBADF);
    let largest = vec![7; MAX_IO as usize];
    // A packet of a mebibyte is more than a socket takes by default.
    assert_eq!(k.write(f.node, 0, &largest[..100_000]).0, 0);
    assert_eq!(k.read(f.node, 99_999, 10), [7]);
    k.end();
}

#[test]
fn copies_keep_holes_out() {
    let mut k = Kernel::new(u32::MAX);
    let (a, _) = k.create(1, b"a\0");
    let (b, _) = k.create(1, b"b\0");
    k.write(a.node, 0, &[1; 9000]);
    k.write(b.node, 0, &[2; 100]);
    let copy =
        |from: u64, to: u64, len: u64, flags: u64| n64(&[0, from, b.node, 0, to, len, flags]);
    let out: abi::WriteOut = k.ok(abi::COPY_FILE_RANGE, a.node, &[&copy(8990, 50, 1 << 40, 0)]);
    assert_eq!(out.size, 10, "as far as the source goes");
    let want = [vec![2; 50], vec![1; 10], vec![2; 40]].concat();
    assert_eq!(k.read(b.node, 0, 4096), want);
    let out: abi::WriteOut = k.ok(abi::COPY_FILE_RANGE, a.node, &[&copy(9000, 0, 5, 0)]);
    assert_eq!(out.size, 0);
    for (from, to, flags, error) in
        [(0, 0, 1, libc::EINVAL), (u64::MAX, 0, 0, libc::EOVERFLOW), (0, u64::MAX, 0, libc::EFBIG)]
    {
        assert_eq!(k.ask(abi::COPY_FILE_RANGE, a.node, &[&copy(from, to, 5, flags)]).0, error);
    }
    k.end();
}

#[test]
fn files_without_a_name() {
    let mut k = Kernel::new(u32::MAX);
    let head = n32(&[libc::O_RDWR.cast_unsigned(), 0o100_600, 0o22, 0]);
    let (error, body) = k.ask(abi::TMPFILE, 1, &[&head, b"/\0"]);
    assert_eq!(error, 0);
    let (entry, _) = abi::EntryOut::read_from_prefix(&body).unwrap();
    assert_eq!(entry.attr.nlink, 0);
    k.write(entry.node, 0, b"x");
    let named: abi::EntryOut = k.ok(abi::LINK, 1, &[&n64(&[entry.node]), b"n\0"]);
    assert_eq!((named.node, named.attr.nlink, named.attr.size), (entry.node, 1, 1));
    k.end();
}

#[test]
fn directories_and_attributes() {
    let mut k = Kernel::new(u32::MAX);
    let (f, _) = k.create(1, b"f\0");
    let open: abi::OpenOut = k.ok(abi::OPENDIR, 1, &[&[0; 8]]);
    for (opcode, len) in [(abi::READDIR, 96), (abi::READDIRPLUS, 480)] {
        let head = [n64(&[open.handle, 0]), n32(&[4096, 0, 0, 0, 0, 0])].concat();
        let (error, bytes) = k.ask(opcode, 1, &[&head]);
        assert_eq!((error, bytes.len()), (0, len), "., .. and f");
    }
    k.done(abi::FSYNCDIR, 1, &[&n64(&[open.handle, 0])]);
    k.done(abi::RELEASEDIR, 1, &[&n64(&[open.handle, 0, 0])]);
    let long = k.agreed.flags & abi::FUSE_SETXATTR_EXT != 0;
    let head = |flags: u32| if long { n32(&[3, flags, 0, 0]) } else { n32(&[3, flags]) };
    k.done(abi::SETXATTR, f.node, &[&head(0), b"user.a\0abc"]);
    assert_eq!(k.ask(abi::SETXATTR, f.node, &[&head(1), b"user.a\0abc"]).0, libc::EEXIST);
    assert_eq!(k.ask(abi::SETXATTR, f.node, &[&head(3), b"user.a\0abc"]).0, libc::EINVAL);
    let size: abi::XattrSizeOut = k.ok(abi::GETXATTR, f.node, &[&n32(&[0, 0]), b"user.a\0"]);
    assert_eq!(size.size, 3);
    let got = k.ask(abi::GETXATTR, f.node, &[&n32(&[3, 0]), b"user.a\0"]);
    assert_eq!(got, (0, b"abc".to_vec()));
    let small = k.ask(abi::GETXATTR, f.node, &[&n32(&[2, 0]), b"user.a\0"]);
    assert_eq!(small.0, libc::ERANGE);
    assert_eq!(k.ask(abi::LISTXATTR, f.node, &[&n32(&[9, 0])]), (0, b"user.a\0".to_vec()));
    k.done(abi::REMOVEXATTR, f.node, &[b"user.a\0"]);
    assert_eq!(k.ask(abi::REMOVEXATTR, f.node, &[b"user.a\0"]).0, libc::ENODATA);
    k.end();
}

/// What has no answer gets none, what is not served ENOSYS, what makes no sense an error; the
/// connection goes on after each.
#[test]
fn odd_requests() {
    let mut k = Kernel::new(u32::MAX);
    let (f, _) = k.create(1, b"f\0");
    for (opcode, parts) in [
        (abi::FORGET, n64(&[0])),
        (abi::BATCH_FORGET, [n32(&[2, 0]), n64(&[f.node, 0, 77, 0])].concat()),
    ] {
        let m = message_from(0, 5, opcode, f.node, &parts);
        send(&k.end, &m);
    }
    // Of a file without a section; ENOSYS would end it for all files.
    k.done(abi::FLUSH, f.node, &[&n64(&[0, 0, 0])]);
    for opcode in [31, 34, 36, 37, 40, 41, 48, 50, 53, 99, u32::MAX] {
        assert_eq!(k.ask(opcode, f.node, &[&[0; 64]]).0, libc::ENOSYS, "opcode {opcode}");
    }
    assert_eq!(k.ask(abi::IOCTL, f.node, &[&[0; 32]]).0, libc::ENOTTY);
    k.done(abi::DESTROY, 0, &[]);
    assert_eq!(k.ask(abi::LOOKUP, 1, &[b"no end"]).0, libc::EPROTO);
    assert_eq!(k.ask(abi::INIT, 0, &[&[0; 64]]).0, libc::EPROTO);
    send(&k.end, b"short");
    k.done(abi::FSYNC, f.node, &[&n64(&[0, 0])]);
    k.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any number of messages that make no sense, and the files are served as before. Opcodes that
    /// the test's own file system would size files by are left to the parser's tests.
    #[test]
    fn nonsense_ends_nothing(
        bodies in proptest::collection::vec(
            (0u32..60, 0u64..20, proptest::collection::vec(any::<u8>(), 0..120)), 1..40),
    ) {
        let mut k = Kernel::new(u32::MAX);
        let harmless = |op: &u32| {
            ![abi::FORGET, abi::BATCH_FORGET, abi::WRITE, abi::SETATTR, abi::FALLOCATE,
              abi::COPY_FILE_RANGE].contains(op)
        };
        for (opcode, node, body) in bodies.iter().filter(|b| harmless(&b.0)) {
            k.ask(*opcode, *node, &[body]);
        }
        k.ok::<abi::StatfsOut>(abi::STATFS, 1, &[]);
        k.end();
    }
}

/// Carries fsyncs out only when the gate opens.
struct Slow {
    gate: std::sync::Mutex<()>,
}

impl Handler for Slow {
    fn handle(&self, message: Message<'_>, token: Token) {
        if matches!(message.op, Operation::Fsync { .. }) {
            drop(self.gate.lock().unwrap());
        }
        token.send(Ok(Answer::Done));
    }

    fn over(&self) {}
}

/// Twenty requests that take long do not keep the twenty-first from being read, with one thread or
/// two that stay.
#[test]
fn long_requests_never_take_the_last_reader() {
    for keep in [1, 2] {
        let (end, ours) = pair();
        send(&end, &init(7, 99, 0));
        let session = Session::start(ours, Wanted::default()).unwrap();
        receive(&end);
        let slow = Arc::new(Slow { gate: std::sync::Mutex::new(()) });
        let held = slow.gate.lock().unwrap();
        let handler = slow.clone();
        let server =
            std::thread::spawn(move || session.run((keep, schedule()), Path::new("/"), &handler));
        let fsync = [n64(&[1]), n32(&[0, 0])].concat();
        for unique in 1..=20 {
            send(&end, &message_from(0, unique, abi::FSYNC, 1, &fsync));
        }
        send(&end, &message_from(0, 21, abi::STATFS, 1, &[]));
        assert_eq!(receive(&end).0.unique, 21, "the others are still held");
        drop(held);
        let mut answered: Vec<u64> = (0..20).map(|_| receive(&end).0.unique).collect();
        answered.sort_unstable();
        assert_eq!(answered, (1..=20).collect::<Vec<u64>>());
        drop(end);
        server.join().unwrap().unwrap();
    }
}
