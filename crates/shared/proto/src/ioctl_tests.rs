use super::*;

fn entry(flags: u16, source: &[u8], to: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_le_bytes();
    [&flags.to_le_bytes()[..], &len(source), &len(to), source, to].concat()
}

fn argument(count: u32, level: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    [&count.to_le_bytes()[..], &level.to_le_bytes(), &entries.concat()].concat()
}

fn path(from: &[u8], to: &[u8], replace: bool) -> Entry {
    Entry { source: Source::Path(from.to_vec()), to: to.to_vec(), replace }
}

#[test]
fn an_argument_is_read_as_the_page_has_it() {
    let bytes = argument(2, 2, &[entry(1, b"dir/a.tmp", b"a"), entry(2, &[7, 0, 0, 0], b"b")]);
    let open = Entry { source: Source::Descriptor(7), to: b"b".to_vec(), replace: false };
    let entries = vec![path(b"dir/a.tmp", b"a", true), open];
    let publish = Publish { entries, level: Level::Durable };
    assert_eq!(Publish::decode(&bytes).unwrap(), publish);
    let (command, written) = publish.encode().unwrap();
    assert_eq!(written, bytes);
    assert!(is_publish(command));
    assert_eq!((command >> 16 & 0x3FFF) as usize, bytes.len());
}

#[test]
fn every_level_comes_back() {
    for level in [Level::Visible, Level::Atomic, Level::Durable] {
        let publish = Publish { entries: vec![path(b"a", b"b", false)], level };
        assert_eq!(Publish::decode(&publish.encode().unwrap().1).unwrap(), publish);
    }
}

#[test]
fn what_is_cut_short_too_long_or_unknown_is_refused() {
    let good = argument(2, 0, &[entry(0, b"a", b"b"), entry(3, &[1, 0, 0, 0], b"c")]);
    assert!(Publish::decode(&good).is_ok());
    for len in 0..good.len() {
        assert!(Publish::decode(&good[..len]).is_err(), "{len} bytes");
    }
    assert!(Publish::decode(&[&good[..], &[0]].concat()).is_err());
    let one = |flags| argument(1, 0, &[entry(flags, b"abc", b"b")]);
    assert!(Publish::decode(&one(0)).is_ok());
    // A flag without a meaning; a descriptor of three bytes.
    assert!(Publish::decode(&one(4)).is_err());
    assert!(Publish::decode(&one(2)).is_err());
    assert!(Publish::decode(&argument(1, 3, &[entry(0, b"a", b"b")])).is_err());
    assert!(Publish::decode(&argument(u32::MAX, 0, &[entry(0, b"a", b"b")])).is_err());
}

#[test]
fn an_argument_too_long_for_an_ioctl_is_not_made() {
    let long = |name: usize| {
        let entries = vec![path(&vec![b'a'; name], b"b", false)];
        Publish { entries, level: Level::Visible }.encode()
    };
    let longest = LONGEST - 8 - 6 - 1;
    assert!(long(longest).is_ok());
    assert_eq!(long(longest + 1), Err(errno(libc::E2BIG)));
    assert_eq!(long(70_000), Err(errno(libc::E2BIG)));
}

#[test]
fn other_commands_are_not_taken_for_it() {
    for other in [0x4064_E511, 0x8064_E510, 0x0000_E510, 0x4008_6602] {
        assert!(!is_publish(other), "{other:x}");
    }
}
