use super::*;

#[test]
fn names_come_before_places() {
    let named = |name: &str, at: &str| Ok(Named { name: name.into(), at: at.into() });
    assert_eq!("raw=/dev/ram0".parse(), named("raw", "/dev/ram0"));
    assert_eq!("NVMe, tcp=/a=b".parse(), named("NVMe, tcp", "/a=b"));
    for wrong in ["", "=", "raw", "raw=", "=/dev/ram0"] {
        assert!(wrong.parse::<Named>().is_err(), "{wrong}");
    }
}

/// What is measured overwrites its place, so that must not be anybody's file.
#[test]
fn a_file_that_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("somebodys");
    std::fs::write(&file, b"bytes").unwrap();
    let Err(Failed(message)) = Kernel::open(&file, 0) else { panic!("it is opened") };
    assert!(message.ends_with("neither a folder nor a block device"), "{message}");
    std::fs::write(dir.path().join(own_name(3)), b"bytes").unwrap();
    assert!(Kernel::open(dir.path(), 3).is_err(), "a file that has the name is opened");
    for name in ["somebodys".to_owned(), own_name(3)] {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"bytes");
    }
}
