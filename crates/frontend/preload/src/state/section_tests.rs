use super::*;

fn laid(at: u64, begin: u64, written: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 5];
    lay_over((at, &mut bytes), (begin, written));
    bytes
}

#[test]
fn what_was_written_lies_over_what_was_read() {
    assert_eq!(laid(10, 10, b"abcde"), b"abcde");
    assert_eq!(laid(10, 8, b"abcde"), b"cde\0\0");
    assert_eq!(laid(10, 13, b"abcde"), b"\0\0\0ab");
    assert_eq!(laid(10, 11, b"a"), b"\0a\0\0\0");
    assert_eq!(laid(10, 5, b"0123456789abcdef"), b"56789");
    for (begin, written) in [(5, &b"abcde"[..]), (15, b"abcde"), (u64::MAX, b"a"), (0, b"")] {
        assert_eq!(laid(10, begin, written), [0; 5], "{begin}");
    }
}

#[test]
fn a_range_meets_a_write_of_the_section() {
    let writes = vec![(10, vec![1; 5]), (20, vec![1; 1])];
    let (owner, place) = (Weak::new(), Place::Library);
    let section = Section { owner, fd: -1, writes, bytes: 6, is_void: false, place };
    for (range, meets) in [(0..10, false), (0..11, true), (14..15, true), (15..20, false)] {
        assert_eq!(section.meets(&range), meets, "{range:?}");
    }
    assert!(section.meets(&(20..21)) && !section.meets(&(21..u64::MAX)));
}
