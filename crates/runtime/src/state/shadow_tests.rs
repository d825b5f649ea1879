use super::*;

fn laid(shadow: &Shadow, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![b'.'; len];
    shadow.lay_over(offset, &mut out);
    out
}

#[test]
fn what_was_written_is_laid_over_and_nothing_else() {
    let mut shadow = Shadow::default();
    shadow.put_bytes(4094, b"abcd");
    shadow.put_bytes(4200, b"x");
    assert_eq!(laid(&shadow, 4090, 12), b"....abcd....");
    assert_eq!(shadow.pages(), 2);
    shadow.put_bytes(4095, b"B");
    assert_eq!(laid(&shadow, 4094, 4), b"aBcd");
    assert_eq!(shadow.written().iter().collect::<Vec<_>>(), [(4094, 4098), (4200, 4201)]);
}

#[test]
fn what_lies_behind_the_end_is_forgotten() {
    let mut shadow = Shadow::default();
    shadow.put_bytes(10, &[7; 10_000]);
    shadow.cut(4097);
    assert_eq!(shadow.written().max_end(), Some(4097));
    assert_eq!(shadow.pages(), 2);
    shadow.put_bytes(4100, b"z");
    assert_eq!(laid(&shadow, 4095, 7), b"\x07\x07...z.");
    shadow.cut(0);
    assert_eq!((shadow.pages(), shadow.written().is_empty()), (0, true));
}
