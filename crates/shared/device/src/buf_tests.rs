use super::*;

#[test]
fn starts_zeroed_and_aligned() {
    for len in [0, 1, 511, 4096, 4097, 1 << 20] {
        let buf = AlignedBuf::zeroed(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr() as usize % 4096, 0);
        assert!(buf.iter().all(|b| *b == 0));
    }
}

#[test]
fn copies_and_clones_stay_aligned() {
    let buf = AlignedBuf::copy_of(&[7; 5000]);
    let copy = buf.clone();
    assert_eq!(&copy[..], &[7; 5000]);
    assert_eq!(copy.as_ptr() as usize % 4096, 0);
}

#[test]
fn reused_memory_is_not_allocated_again() {
    let mut buf = AlignedBuf::copy_of(&[9; 9000]);
    let at = buf.as_ptr();
    for len in [100, 0, 4097, 9000, 3 * 4096] {
        buf.reuse(len);
        assert_eq!((buf.len(), buf.as_ptr()), (len, at));
    }
    assert_eq!(buf[..9000], [9; 9000], "nothing was written to it");
    buf.reuse(20_000);
    assert_eq!((buf.len(), buf.as_ptr() as usize % 4096), (20_000, 0));
}
