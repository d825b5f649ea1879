use super::*;
use std::os::unix::net::UnixStream;

#[test]
fn a_socket_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = listen(&path).unwrap();
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let _end = UnixStream::connect(&path).unwrap();
    assert!(listener.accept().is_ok());
    assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let long = dir.path().join("x".repeat(200));
    assert!(listen(&long).unwrap_err().to_string().contains("too long"));
}
