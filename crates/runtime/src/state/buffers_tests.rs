use super::*;

#[test]
fn what_was_given_back_is_taken_again() {
    let buffers = RecordBuffers::default();
    for len in [8192, 1 << 20] {
        let buf = buffers.take(len);
        let at = buf.as_ptr();
        buffers.give(buf);
        let again = buffers.take(len - 4096);
        assert_eq!((again.as_ptr(), again.len()), (at, len as usize - 4096));
    }
}

#[test]
fn few_are_kept() {
    let pool = Pool::<3>::default();
    (0..5).for_each(|_| pool.give(AlignedBuf::default()));
    assert_eq!(relock(pool.0.lock()).len(), 3);
}

#[test]
fn bulk_takes_no_small_records_memory() {
    let buffers = RecordBuffers::default();
    for len in [4096, 1 << 20] {
        buffers.give(buffers.take(len));
    }
    let kept = [relock(buffers.bulk.0.lock()).len(), relock(buffers.small.0.lock()).len()];
    assert_eq!(kept, [1, 1]);
}
