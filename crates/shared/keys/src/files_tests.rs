use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::symlink;

fn refused(path: &Path, guard: Guard) -> String {
    match read_if_there(path, guard, 100) {
        Err(e) => e.to_string(),
        Ok(text) => panic!("it was read: {}", text.is_some()),
    }
}

#[test]
fn modes_decide() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "text").unwrap();
    for (mode, secret, trusted) in [
        (0o600, true, true),
        (0o400, true, true),
        (0o640, false, true),
        (0o604, false, true),
        (0o620, false, false),
        (0o602, false, false),
        (0o611, false, true),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        for (guard, good) in [(Guard::Secret, secret), (Guard::Trusted, trusted)] {
            let read = read(&path, guard, 100).map(|t| t.text.to_string());
            assert_eq!(read.is_ok(), good, "{mode:o} {guard:?}");
            if let Err(e) = read {
                let e = e.to_string();
                assert!(e.contains("chmod") && e.contains(&format!("{mode:04o}")), "{e}");
            }
        }
    }
}

#[test]
fn owners_decide() {
    assert!(rustix::process::geteuid().is_root(), "giving a file away needs root");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "text").unwrap();
    std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
    assert!(refused(&path, Guard::Trusted).contains("belongs to user 1234"));
}

#[test]
fn what_is_no_small_text_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(read_if_there(&at("missing"), Guard::Trusted, 100).unwrap().is_none());
    assert!(read(&at("missing"), Guard::Trusted, 100).is_err());
    assert!(refused(dir.path(), Guard::Trusted).contains("not a regular file"));
    // Nobody writes to it: the open must not wait.
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(refused(&at("fifo"), Guard::Trusted).contains("not a regular file"));
    fs::write(at("long"), "x".repeat(101)).unwrap();
    assert!(refused(&at("long"), Guard::Trusted).contains("more than 100 bytes"));
    fs::write(at("whole"), "x".repeat(100)).unwrap();
    assert_eq!(read(&at("whole"), Guard::Trusted, 100).unwrap().text.len(), 100);
    fs::write(at("bytes"), [0xff, 0xfe]).unwrap();
    assert!(refused(&at("bytes"), Guard::Trusted).contains("not UTF-8"));
    symlink(at("whole"), at("link")).unwrap();
    assert!(read(&at("link"), Guard::Trusted, 100).is_ok());
}

#[test]
fn a_file_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/f");
    create(&path, 0o600, "first").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let again = create(&path, 0o600, "second").unwrap_err().to_string();
    assert!(again.contains("there already"), "{again}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    replace(&path, 0o644, "third").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "third");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "nothing else is left");
}

/// A fresh file has no stamp, since another change may leave all of it as it was.
#[test]
fn stamps_are_of_files_that_have_settled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "text").unwrap();
    assert!(read(&path, Guard::Trusted, 100).unwrap().stamp.is_none());
    let stamp = Stamp::now(&path).unwrap();
    let changed =
        SystemTime::UNIX_EPOCH + Duration::new(stamp.changed.0 as u64, stamp.changed.1 as u32);
    assert!(!stamp.tells_changes(changed + SETTLED));
    assert!(stamp.tells_changes(changed + SETTLED + Duration::from_millis(1)));
    // The clock went back since.
    assert!(!stamp.tells_changes(changed - Duration::from_secs(60)));
}
