//! Memory that is there, and memory that is not.

use super::*;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr::null_mut;

fn mapped(prot: ProtFlags) -> *mut u8 {
    // SAFETY: a new mapping.
    unsafe { mmap_anonymous(null_mut(), 8192, prot, MapFlags::PRIVATE) }.unwrap().cast()
}

#[test]
fn what_is_not_there_is_left_to_the_kernel() {
    let nothing = mapped(ProtFlags::empty());
    let readable = mapped(ProtFlags::READ);
    for bad in [std::ptr::null(), nothing.cast_const(), std::ptr::dangling::<u8>().wrapping_sub(9)]
    {
        assert!(User::one(bad.cast(), 5).gather().is_none(), "{bad:?}");
        assert!(!User::one(bad.cast(), 5).takes(5), "{bad:?}");
        assert!(User::several(bad.cast(), 1).is_none(), "{bad:?}");
    }
    assert!(User::one(readable.wrapping_add(8190).cast(), 2).gather().is_some());
    assert!(!User::one(readable.cast(), 4).takes(4));
    assert!(User::one(readable.cast(), usize::MAX).gather().is_none());
    let one = libc::iovec { iov_base: readable.cast(), iov_len: 1 };
    assert!(User::several(&one, -1).is_none() && User::several(&one, 1025).is_none());
}

#[test]
fn pieces_are_gathered_and_scattered_in_order() {
    let mut bytes = *b"abcdefgh";
    let base = bytes.as_mut_ptr();
    let piece =
        |at: usize, len| libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len: len };
    let pieces = [piece(5, 3), piece(0, 0), piece(0, 4)];
    let user = User::several(pieces.as_ptr(), 3).unwrap();
    assert_eq!((user.len, user.gather().unwrap()), (7, b"fghabcd".to_vec()));
    assert!(user.takes(4));
    user.scatter(b"1234");
    assert_eq!(&bytes, b"4bcde123");
}
