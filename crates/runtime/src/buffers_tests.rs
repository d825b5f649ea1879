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
fn few_are_kept_of_each_kind() {
    let buffers = RecordBuffers::default();
    for (len, most) in [(4096, SMALL), (1 << 20, BULK)] {
        let taken: Vec<AlignedBuf> = (0..most + 3).map(|_| buffers.take(len)).collect();
        taken.into_iter().for_each(|buf| buffers.give(buf));
        assert_eq!(relock(buffers.of(len.into()).0.lock()).len(), most);
    }
}
