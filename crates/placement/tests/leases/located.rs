//! Where the blocks of a leased file are: what a write of a part of one would have to read.

use crate::holders::*;
use crate::support::World;
use siftfs_proto::*;

const BLOCK: u64 = 4096;

fn locate(session: &Session, lease: LeaseId, blocks: (u64, u32), bring: u64) -> Result<u64, i32> {
    let (first, count) = blocks;
    let located = ask(session, Request::LeaseLocate { lease, first, count, bring })?;
    Ok(located.located().expect("bits"))
}

/// A file of eight blocks, of which block 5 is a hole, and the last one a part.
fn eight(world: &World) {
    let v = world.open();
    let session = user(&v);
    let handle = create(&session, "f");
    let write = |offset, len| ask(&session, Request::write(handle, offset, vec![7; len]));
    write(0, 5 * BLOCK as usize).expect("write");
    write(6 * BLOCK, BLOCK as usize + 100).expect("write");
    drop(session);
    v.close().expect("close");
}

#[test]
fn blocks_are_cold_until_they_are_brought_or_written() {
    let world = World::new(1);
    eight(&world);
    let v = world.open();
    let (session, _told) = holder(&v);
    let handle = open(&session, "f");
    let held = lease(&session, handle).expect("a lease");
    // All that has bytes in storage; not the hole, nor what is behind the end.
    assert_eq!(locate(&session, held, (0, 64), 0), Ok(0b1101_1111));
    assert_eq!(locate(&session, held, (4, 3), 0), Ok(0b101));
    assert_eq!(locate(&session, held, (8, 64), u64::MAX), Ok(0));
    assert_eq!(locate(&session, held, (MAX_FILE_SIZE / BLOCK, 64), u64::MAX), Ok(0));
    // What is brought: two runs, and what is no block of the file.
    assert_eq!(locate(&session, held, (1, 60), 1 << 20 | 0b1011), Ok(0b110_1111));
    assert_eq!(locate(&session, held, (0, 64), 0), Ok(0b1100_1001));
    // What is written.
    put(&session, held, 3 * BLOCK + 5, b"part").expect("a write");
    assert_eq!(locate(&session, held, (0, 64), 0), Ok(0b1100_0001));
    let mut wanted = vec![7; 5 * BLOCK as usize];
    wanted.resize(6 * BLOCK as usize, 0);
    wanted.resize(7 * BLOCK as usize + 100, 7);
    wanted[3 * BLOCK as usize + 5..][..4].copy_from_slice(b"part");
    assert_eq!(read(&session, handle), wanted);
    drop(session);
    v.close().expect("close");
    world.e2fsck();
}

#[test]
fn a_question_is_bounded_and_the_holders_own() {
    let world = World::new(1);
    eight(&world);
    let v = world.open();
    let ((session, _told), (other, _)) = (holder(&v), holder(&v));
    let held = lease(&session, open(&session, "f")).expect("a lease");
    for blocks in [(0, 65), (0, u32::MAX), (MAX_FILE_SIZE / BLOCK + 1, 1), (u64::MAX, 64)] {
        assert_eq!(locate(&session, held, blocks, 0), Err(libc::EINVAL), "{blocks:?}");
    }
    assert_eq!(locate(&other, held, (0, 8), 0), Err(libc::ESTALE));
    give_back(&session, held).expect("given back");
    assert_eq!(locate(&session, held, (0, 8), 0), Err(libc::ESTALE));
}
