use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_seal_is_known_again_and_no_other_one_is() {
    let seals = Seals::new().unwrap();
    let seal = seals.seal(&[b"one", b"two"]);
    assert!(seals.knows(&[b"one", b"two"], &seal));
    for parts in [&[&b"one"[..], b"tw"][..], &[b"onet", b"wo"], &[b"one", b"two", b""], &[b"two"]] {
        assert!(!seals.knows(parts, &seal), "{parts:?}");
    }
    for bit in 0..128 {
        let mut other = seal;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!seals.knows(&[b"one", b"two"], &other));
    }
    assert!(!Seals::new().unwrap().knows(&[b"one", b"two"], &seal), "another secret");
}

#[test]
fn a_file_keeps_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/secret");
    let seal = Seals::of_file(&path).unwrap().seal(&[b"said"]);
    assert!(Seals::of_file(&path).unwrap().knows(&[b"said"], &seal));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    for damaged in [&b""[..], &[7; 31], &[7; 33]] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(Seals::of_file(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
