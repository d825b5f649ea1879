use super::*;

/// The numbers that programs build: a change of one is a change of the interface.
#[test]
fn numbers() {
    assert_eq!(STAGE, 0x8008_E501);
    assert_eq!(POLL, 0xC008_E502);
    assert_eq!(WAIT, 0x4010_E503);
    assert_eq!(BARRIER, 0x8008_E504);
}

#[test]
fn a_commit_of_several_is_read_as_it_was_written() {
    let commit = CommitAll { descriptors: vec![7, 0x0102_0304], level: Level::Atomic };
    let (command, argument) = commit.encode().unwrap();
    assert_eq!(argument, [2, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 4, 3, 2, 1]);
    assert_eq!(command, 0x4010_E511);
    assert!(is_commit_all(command) && !is_commit_all(command ^ 1));
    assert!(!is_commit_all(command | 1 << 31), "of another direction");
    assert_eq!(CommitAll::decode(&argument).unwrap(), commit);
}

#[test]
fn what_is_no_commit_is_refused() {
    let invalid = Err(errno(libc::EINVAL));
    let good = CommitAll { descriptors: vec![7, 8], level: Level::Durable }.encode().unwrap().1;
    assert!(CommitAll::decode(&good).is_ok());
    for len in 0..good.len() {
        assert_eq!(CommitAll::decode(&good[..len]), invalid, "{len} bytes");
    }
    assert_eq!(CommitAll::decode(&[&good[..], &[0; 4]].concat()), invalid);
    for (at, byte) in [(0, 1), (0, 3), (3, 0x80), (4, 3), (7, 1)] {
        let mut changed = good.clone();
        changed[at] = byte;
        assert_eq!(CommitAll::decode(&changed), invalid, "byte {at}");
    }
    let many = CommitAll { descriptors: vec![7; MOST + 1], level: Level::Durable };
    assert_eq!(many.encode(), Err(errno(libc::E2BIG)));
    let mut bytes = vec![7; (MOST + 3) * 4];
    bytes[..8].copy_from_slice(&[1, 4, 0, 0, 2, 0, 0, 0]);
    assert_eq!(CommitAll::decode(&bytes), Err(errno(libc::E2BIG)));
}

#[test]
fn a_granted_token_is_read_as_it_was_written() {
    let mut path = [0; SOCKET_BYTES];
    path[..4].copy_from_slice(b"/run");
    let out = GrantOut { token: [7; TOKEN_BYTES], path };
    let bytes = out.encode();
    assert_eq!((bytes.len(), GRANT >> 16 & 0x3FFF), (124, 124));
    assert_eq!(GrantOut::decode(&bytes), Ok(out));
    for wrong in [&bytes[..123], &[&bytes[..], &[0]].concat(), &[]] {
        assert!(GrantOut::decode(wrong).is_err());
    }
}
