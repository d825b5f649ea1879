use super::*;
use crate::kernel::testing::pair;
use siftfs_base::errno;
use siftfs_proto::FileKind;
use zerocopy::FromBytes;

fn receive(kernel: &OwnedFd) -> (OutHeader, Vec<u8>) {
    let mut buffer = vec![0u8; 1 << 17];
    let len = rustix::io::read(kernel, &mut buffer).unwrap();
    let (header, body) = OutHeader::read_from_prefix(buffer.get(..len).unwrap()).unwrap();
    assert_eq!(header.len as usize, len);
    (header, body.to_vec())
}

fn channel() -> (OwnedFd, Arc<Channel>) {
    let (kernel, ours) = pair();
    (kernel, Arc::new(Channel::new(Arc::new(ours))))
}

#[test]
fn a_token_answers_exactly_once() {
    let (kernel, channel) = channel();
    Token::new(Way::Device(channel.clone()), 1).send(Ok(Answer::Done));
    Token::new(Way::Device(channel.clone()), 2).send(Err(errno(libc::ENOENT)));
    drop(Token::new(Way::Device(channel.clone()), 3));
    Token::new(Way::Device(channel.clone()), 4).none();
    let moved = Token::new(Way::Device(channel.clone()), 5);
    std::thread::spawn(move || moved.send(Ok(Answer::Written(9)))).join().unwrap();
    let seen: Vec<(u64, i32)> =
        (0..4).map(|_| receive(&kernel).0).map(|h| (h.unique, h.error)).collect();
    assert_eq!(seen, [(1, 0), (2, -libc::ENOENT), (3, -libc::EIO), (5, 0)]);
    drop(channel);
    assert_eq!(rustix::io::read(&kernel, &mut [0u8; 64]).unwrap(), 0, "nothing more was sent");
}

#[test]
fn a_kernel_that_is_gone_is_no_error() {
    let (kernel, channel) = channel();
    drop(kernel);
    // EPIPE here where /dev/fuse says ENODEV: either way the token is spent.
    Token::new(Way::Device(channel), 1).send(Err(errno(libc::ENOENT)));
}

fn attributes() -> Attr {
    let t = |sec| Timestamp { sec, nsec: 7 };
    Attr {
        ino: 12,
        generation: 3,
        kind: FileKind::CharDevice,
        perm: 0o4640,
        nlink: 2,
        uid: 5,
        gid: 6,
        rdev: u32::try_from(rustix::fs::makedev(300, 70_000)).unwrap(),
        size: 1 << 40,
        blocks: 8,
        atime: t(-1),
        mtime: t(i64::MIN),
        ctime: t(1 << 33),
        crtime: t(9),
        held: false,
    }
}

#[test]
fn attributes_in_each_form() {
    let (kernel, channel) = channel();
    let a = attributes();
    let created = |flush| {
        let answer = Answer::Created(a.clone(), Handle(8), flush);
        Token::new(Way::Device(channel.clone()), 1).send(Ok(answer));
        let (_, body) = receive(&kernel);
        let (entry, rest) = abi::EntryOut::read_from_prefix(&body).unwrap();
        (entry, abi::OpenOut::read_from_bytes(rest).unwrap())
    };
    let (entry, open) = created(Flush::Left);
    assert_eq!((entry.node, entry.generation, open.handle), (12, 3, 8));
    assert_eq!(open.open_flags, abi::FOPEN_KEEP_CACHE | abi::FOPEN_NOFLUSH);
    assert_eq!(created(Flush::Sent).1.open_flags, abi::FOPEN_KEEP_CACHE);
    let seen = entry.attr;
    assert_eq!((seen.atime, seen.mtime, seen.ctime), (-1, i64::MIN, 1 << 33));
    assert_eq!((seen.mode, seen.size, seen.rdev), (0o24640, 1 << 40, a.rdev));
    assert_eq!((seen.nlink, seen.uid, seen.gid, seen.blocks), (2, 5, 6, 8));
    Token::new(Way::Device(channel.clone()), 2).send(Ok(Answer::Statx(a)));
    let (_, body) = receive(&kernel);
    let seen = abi::StatxOut::read_from_bytes(&body).unwrap();
    assert_eq!((seen.btime.sec, seen.btime.nsec, seen.mode), (9, 7, 0o24640));
    assert_eq!((seen.rdev_major, seen.rdev_minor), (300, 70_000));
    Token::new(Way::Device(channel), 3).send(Ok(Answer::Missing));
    let (_, body) = receive(&kernel);
    let none = abi::EntryOut::read_from_bytes(&body).unwrap();
    assert!(none.node == 0 && none.entry_valid > 0, "the kernel remembers that there is none");
}

/// What the holder of a write lease shows of its file counts for no time; the name counts.
#[test]
fn attributes_that_are_held_count_for_no_time() {
    let (kernel, channel) = channel();
    let a = Attr { held: true, ..attributes() };
    let told = |answer| {
        Token::new(Way::Device(channel.clone()), 1).send(Ok(answer));
        receive(&kernel).1
    };
    let entry = |bytes: &[u8]| {
        let (entry, _) = abi::EntryOut::read_from_prefix(bytes).unwrap();
        (entry.entry_valid > 0, entry.attr_valid, entry.attr_valid_nsec)
    };
    assert_eq!(entry(&told(Answer::Entry(a.clone()))), (true, 0, 0));
    assert_eq!(entry(&told(Answer::Created(a.clone(), Handle(8), Flush::Left))), (true, 0, 0));
    let attr = abi::AttrOut::read_from_bytes(&told(Answer::Attr(a.clone()))).unwrap();
    let statx = abi::StatxOut::read_from_bytes(&told(Answer::Statx(a.clone()))).unwrap();
    assert_eq!((attr.attr_valid, attr.attr_valid_nsec), (0, 0));
    assert_eq!((statx.attr_valid, statx.attr_valid_nsec), (0, 0));
    let mut buffer = DirBuffer::new(4096, true, Valid::ALONE);
    let (cookie, kind, name) = (5, FileKind::Regular, b"f".to_vec());
    assert!(buffer.add(&DirEntry { ino: 12, cookie, kind, name, attr: Some(a) }));
    assert_eq!(entry(&told(buffer.done())), (true, 0, 0));
}

#[test]
fn directory_entries_are_padded_and_bounded() {
    let entry = |name: &[u8]| DirEntry {
        ino: 12,
        cookie: 5,
        kind: FileKind::Directory,
        name: name.to_vec(),
        attr: Some(attributes()),
    };
    for (plus, each) in [(false, 32), (true, 160)] {
        let mut buffer = DirBuffer::new(3 * each + 31, plus, Valid::ALONE);
        for _ in 0..3 {
            assert!(buffer.add(&entry(b"eight ch")));
        }
        assert!(!buffer.add(&entry(b"eight ch")), "a fourth has no room");
        let Answer::Data(bytes) = buffer.done() else { panic!("a directory is data") };
        assert_eq!(bytes.len(), 3 * each as usize);
        let at = if plus { 128 } else { 0 };
        let (head, name) = abi::Dirent::read_from_prefix(bytes.get(at..).unwrap()).unwrap();
        assert_eq!((head.ino, head.cookie, head.name_len, head.kind), (12, 5, 8, 4));
        assert_eq!(name.get(..8).unwrap(), b"eight ch");
    }
    let mut buffer = DirBuffer::new(u32::MAX, false, Valid::ALONE);
    assert!(buffer.bytes.capacity() <= 1 << 20, "the kernel's word alone allocates nothing");
    assert!(buffer.add(&entry(b"a")));
    let Answer::Data(bytes) = buffer.done() else { panic!("a directory is data") };
    assert_eq!(bytes.len(), 32, "padded to eight bytes");
}
