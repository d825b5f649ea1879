use super::*;
use std::os::unix::fs::PermissionsExt;

/// Every way writes the same on the file system that tests are run on.
#[test]
fn every_way_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes: Vec<u8> = (0..40_960u32).map(|i| (i / 7) as u8).collect();
    for how in [
        How::Call,
        How::Descriptor,
        How::Direct(Way::Aio),
        How::Direct(Way::Uring),
        How::Copy,
        How::Send,
        How::Mapping,
        How::Stores,
        How::Section,
    ] {
        std::fs::write(&path, vec![0; 65_536]).expect("written");
        match how.write(&path, 8192, &bytes, Promise::Data) {
            // Not every file system has O_DIRECT.
            Err(Refused::Errno(libc::EINVAL)) if matches!(how, How::Direct(_)) => continue,
            other => assert_eq!(other, Ok(Reply::Written { len: 40_960 }), "{how:?}"),
        }
        let found = std::fs::read(&path).expect("read");
        assert_eq!(found.get(8192..8192 + 40_960), Some(&*bytes), "{how:?}");
        assert_eq!(found.len(), 65_536, "{how:?}");
    }
}

#[test]
fn all_of_them_are_drawn() {
    let mut rng = Rng::new(5);
    let all = [
        (Promise::None, false, 4),
        (Promise::Data, false, 7),
        (Promise::All, false, 7),
        (Promise::None, true, 4),
        (Promise::All, true, 5),
    ];
    for (promise, lost, least) in all {
        let mut seen = Vec::new();
        for _ in 0..400 {
            let how = How::draw(&mut rng, promise, lost);
            if !seen.contains(&how) {
                seen.push(how);
            }
        }
        assert_eq!(seen.len(), least, "{promise:?}: {seen:?}");
        assert!(promise == Promise::None || !seen.contains(&How::Mapping), "promises nothing");
        let nameless = [How::Mapping, How::Copy, How::Send];
        assert!(!lost || !nameless.iter().any(|how| seen.contains(how)), "{seen:?}");
    }
}

/// Where the kernel refuses a stranger, nothing is reported.
#[test]
fn a_stranger_is_refused_here() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    std::fs::write(&path, "x").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).expect("chmod");
    assert_eq!(stranger(&path), Ok(()));
}
