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
fn resize_zeroes_what_it_gains() {
    let mut buf = AlignedBuf::copy_of(&[9; 4096]);
    buf.resize(100);
    buf.resize(9000);
    assert_eq!(&buf[..100], &[9; 100]);
    assert!(buf[100..].iter().all(|b| *b == 0));
}
