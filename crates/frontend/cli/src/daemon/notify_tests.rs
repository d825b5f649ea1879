use super::*;

fn received(socket: &UnixDatagram) -> Vec<u8> {
    let mut buf = [0; 64];
    let n = socket.recv(&mut buf).unwrap();
    buf[..n].to_vec()
}

#[test]
fn the_manager_hears_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    send(path.as_os_str(), b"READY=1\n").unwrap();
    assert_eq!(received(&socket), b"READY=1\n");
    let name = format!("siftfs-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    send(OsStr::new(&format!("@{name}")), b"READY=1\n").unwrap();
    assert_eq!(received(&socket), b"READY=1\n");
    assert!(send(dir.path().join("nobody").as_os_str(), b"x").is_err());
}
