//! Cold files: what is read from the area, and when.

mod support;

use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use support::World;

const LEN: usize = 4 << 20;
const PIECE: u32 = 64 << 10;

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("the request")
}

fn bytes() -> Vec<u8> {
    (0..LEN).map(|i| (i / 4096 * 31 + i % 251) as u8).collect()
}

/// A volume, opened anew, with a file of which nothing is cached.
fn cold(world: &World) -> (LocalVolume, u32) {
    let v = world.open();
    let create = Request::Create { parent: ROOT_INO, name: b"f".to_vec(), perm: 0o644 };
    let Reply::Created { attr, .. } = call(&v, create) else { panic!("no file") };
    for (offset, piece) in (0u64..).step_by(1 << 20).zip(bytes().chunks(1 << 20)) {
        let data = WriteData::copy_of(offset, piece);
        assert!(matches!(data, WriteData::Blocks(_)));
        let write = Request::write(attr.ino, offset, data);
        assert_eq!(call(&v, write), Reply::Written { len: 1 << 20 });
    }
    v.close().expect("close");
    (world.open(), attr.ino)
}

/// As a mount asks: answered first, then read ahead.
fn read(v: &LocalVolume, ino: u32, offset: u64, len: u32) -> Vec<u8> {
    let (tell, told) = std::sync::mpsc::channel();
    let done = Box::new(move |reply| tell.send(reply).expect("somebody listens"));
    let request = Request::Read { file: ino.into(), offset, len };
    v.endpoint().submit(&Credentials::default(), request, done);
    let reply = told.recv().expect("answered").expect("read");
    assert_eq!(matches!(reply, Reply::Blocks(_)), len >= 64 << 10, "many bytes travel as blocks");
    reply.data().expect("data")
}

/// Bytes of metadata that may be read beside the file's: inodes come by 128 KiB.
const METADATA: u64 = 3 << 16;

/// Bytes of the file read from the area so far.
fn from_area(v: &LocalVolume) -> u64 {
    let Reply::Status(status) = call(v, Request::Status) else { panic!("no status") };
    status.storage.area.foreground.read_bytes
}

#[test]
fn who_reads_one_after_the_other_is_read_ahead_of() {
    let world = World::new(1);
    let (v, ino) = cold(&world);
    let before = from_area(&v);
    let mut found = Vec::new();
    let mut ahead = 0;
    for offset in (0..LEN as u64).step_by(PIECE as usize) {
        found.extend(read(&v, ino, offset, PIECE));
        let read = from_area(&v) - before;
        ahead = ahead.max(read.saturating_sub(found.len() as u64));
    }
    assert!(found == bytes(), "the bytes come back");
    assert!(ahead >= 1 << 20, "{ahead} bytes ahead at most");
    let read = from_area(&v) - before;
    assert!(read <= LEN as u64 + METADATA, "{read} bytes read: each once, and some metadata");
    v.close().expect("close");
    world.e2fsck();
}

#[test]
fn who_jumps_about_is_not() {
    let world = World::new(1);
    let (v, ino) = cold(&world);
    let all = bytes();
    let before = from_area(&v);
    for n in 1..=16u64 {
        let offset = n * 7 % 17 * 240_000 / 4096 * 4096;
        let at = offset as usize;
        assert!(read(&v, ino, offset, 4096) == all[at..at + 4096], "{offset}");
    }
    let read = from_area(&v) - before;
    assert!(read <= 16 * 4096 + METADATA, "{read} bytes read");
    v.close().expect("close");
}

/// Several readers of the same cold pages read them once.
#[test]
fn a_fill_is_shared() {
    let world = World::new(1);
    let (v, ino) = cold(&world);
    let before = from_area(&v);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for offset in (0..LEN as u64).step_by(1 << 20) {
                    let at = offset as usize;
                    assert!(read(&v, ino, offset, 1 << 20) == bytes()[at..at + (1 << 20)]);
                }
            });
        }
    });
    let read = from_area(&v) - before;
    assert!(read <= LEN as u64 + METADATA, "{read} bytes read");
    v.close().expect("close");
}

#[test]
fn parts_of_blocks_come_back_as_written() {
    let world = World::new(1);
    let (v, ino) = cold(&world);
    let all = bytes();
    for (offset, len) in [(1, 70_000), (4095, 65_536), (LEN - 66_000, 66_000), (5000, 10)] {
        let found = read(&v, ino, offset as u64, len as u32);
        assert!(found == all[offset..offset + len], "{offset} {len}");
    }
    let end = read(&v, ino, LEN as u64 - 70_000, 1 << 20);
    assert!(end == all[LEN - 70_000..], "short at the end of the file");
    v.close().expect("close");
}
