use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

#[test]
fn a_descriptor_comes_behind_a_message() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let (mut read, mut write) = std::io::pipe().unwrap();
    here.write_all(b"before").unwrap();
    send(&here, write.as_fd()).unwrap();
    let mut text = [0; 6];
    there.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"before");
    let mut got = std::fs::File::from(receive(&there).unwrap());
    got.write_all(b"through").unwrap();
    write.write_all(b" it").unwrap();
    drop((got, write));
    let mut all = String::new();
    read.read_to_string(&mut all).unwrap();
    assert_eq!(all, "through it");
}

#[test]
fn an_end_or_a_bare_byte_is_an_error() {
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(b"D").unwrap();
    assert_eq!(receive(&there).unwrap_err().kind(), io::ErrorKind::Other);
    drop(here);
    assert_eq!(receive(&there).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
