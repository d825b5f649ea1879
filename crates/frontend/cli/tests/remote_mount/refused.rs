//! What is refused, and what is said.

use crate::support::keys::Keys;
use crate::support::serving::{Server, address_of};
use crate::{Served, siftfs};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

#[test]
fn what_belongs_to_the_volume_is_refused() {
    let served = Served::start();
    let (address, dir) = (served.address(), served.setup.dir());
    for (option, why) in [
        ("cache=64M", "cache: this belongs to the volume"),
        ("commit=1", "commit: this belongs to the volume"),
        ("write_cache=writeback", "leave it out"),
        ("private_logs=on", "private_logs=daemon"),
        ("private_logs=/var/tmp", "private_logs=daemon"),
        ("noatime", "access times"),
        ("service=unix:/x", "service"),
        ("port=7", "port"),
    ] {
        siftfs(&["mount", address, dir, "-o", option]).fails(2, &[why]);
    }
    siftfs(&["mount", address, dir, "--log", "/x"]).fails(2, &["--log"]);
    siftfs(&["mount", address, dir, "-o", "volume=other"])
        .fails(1, &[address, "no volume is called \"other\" here"]);
    siftfs(&["mount", address, dir, "-o", "volume=volume"]).ok();
    // A change of the volume's settings is refused later, too; the mount's own are changed.
    siftfs(&["mount", address, dir, "-o", "remount,commit=1"]).fails(1, &["commit"]);
    siftfs(&["mount", address, dir, "-o", "remount,ro"]).ok();
    assert_eq!(crate::errno(std::fs::write(served.setup.path("f"), "")), libc::EROFS);
    siftfs(&["mount", address, dir, "-o", "remount,rw"]).ok();
    std::fs::write(served.setup.path("f"), "").unwrap();
    siftfs(&["mount", address, dir]).fails(1, &["already mounted", address]);
    siftfs(&["umount", dir]).ok();
    served.end();
}

#[test]
fn an_address_without_a_server_is_said() {
    let served = Served::start();
    let dir = served.setup.dir();
    for (address, code, why) in [
        ("unix:/nowhere/x.sock", 1, "/nowhere/x.sock"),
        ("unix:", 2, "the path is missing"),
        ("tcp:127.0.0.1", 2, "the port is missing"),
        ("tcp:127.0.0.1:1", 1, "127.0.0.1:1"),
        ("host.invalid:/v/w", 2, "HOST:/VOLUME"),
        ("host.invalid:/v", 1, "host.invalid"),
    ] {
        let said = siftfs(&["mount", address, dir]).fails(code, &[why]);
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    }
    siftfs(&["mount", served.setup.volume(), dir, "-o", "volume=x"]).fails(2, &["volume="]);
    served.end();
}

/// A server of another version: one message, with the versions that both speak.
#[test]
fn a_server_of_another_version_is_said() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("later.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut hello = b"SiftLink".to_vec();
    for number in [99u32, 99, 4, 1000] {
        hello.extend(number.to_le_bytes());
    }
    for number in [0u64, 1 << 20, 0] {
        hello.extend(number.to_le_bytes());
    }
    hello.extend([0; 4]);
    hello.extend(siftfs_base::crc32c(&hello).to_le_bytes());
    let length = hello.len();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut theirs = vec![0; length];
        stream.read_exact(&mut theirs).unwrap();
        stream.write_all(&hello).unwrap();
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        String::from_utf8_lossy(&told).into_owned()
    });
    let (address, dir) = (format!("unix:{}", path.display()), tmp.path().join("mnt"));
    std::fs::create_dir(&dir).unwrap();
    let said = siftfs(&["mount", &address, dir.to_str().unwrap()]);
    let said = said.fails(1, &["speaks versions 99 to 99 of the file protocol"]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    let told = server.join().unwrap();
    assert!(
        told.contains("99 to 99 of the file protocol, this program"),
        "the server, too: {told}"
    );
}

/// What programs write would have to travel in messages.
#[test]
fn private_logs_are_refused_over_tcp() {
    let served = Served::start();
    for address in ["tcp:127.0.0.1:1", "host.invalid:/v"] {
        let said = siftfs(&["mount", address, served.setup.dir(), "-o", "private_logs=daemon"]);
        let said = said.fails(2, &["private_logs", "would get every byte", "unix socket"]);
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    }
    served.end();
}

/// Over TCP nothing says which kernel it is.
#[test]
fn a_kernel_is_not_believed_over_tcp() {
    let setup = crate::support::Setup::new();
    let mut child = Command::new(crate::SIFTFS)
        .args(["serve", setup.volume(), "--listen", "tcp:127.0.0.1:0", "--insecure", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = said["listening"].as_str().unwrap();
    let ran = siftfs(&["mount", address, setup.dir(), "-o", "insecure"]);
    let _ = child.kill();
    let _ = child.wait();
    ran.fails(1, &["speaks for a kernel", "by its unix socket"]);
}

/// A volume has one process, and a path that looks like an address is told apart.
#[test]
fn a_served_volume_is_not_mounted_by_its_path() {
    let served = Served::start();
    let (volume, dir) = (served.setup.volume(), served.setup.dir());
    siftfs(&["mount", volume, dir]).fails(1, &["in use"]);
    let second = Server::try_start(volume).err().expect("it is served");
    assert!(second.err.contains("another process listens there"), "{second:?}");
    assert_eq!(served.address(), address_of(volume));
    served.end();
}

/// With keys a machine has a mount over TCP, whatever its line leaves of its users. A host's key is
/// for blocks alone.
#[test]
fn a_kernel_with_a_key_is_believed_over_tcp() {
    for (line, why) in [
        ("role=client squash=none", None),
        ("role=client", None),
        ("role=host", Some("a host's: it may reach a device process")),
    ] {
        let setup = crate::support::Setup::new();
        siftfs(&["mount", setup.volume(), setup.dir()]).ok();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(setup.dir(), all).unwrap();
        crate::patient(|| siftfs(&["umount", setup.dir()])).ok();
        let keys = Keys::new(setup.tmp.path(), &format!("{line} volumes=volume"));
        let admits = keys.admits();
        let more: Vec<&str> = admits.iter().map(String::as_str).collect();
        let server = crate::support::served::Served::at(&setup, "tcp:127.0.0.1:0", &more);
        let mounted = siftfs(&["mount", &server.address, setup.dir(), "-o", &keys.option()]);
        match why {
            Some(why) => drop(mounted.fails(1, &[why])),
            None => {
                mounted.ok();
                std::fs::write(setup.path("f"), "by a key").unwrap();
                assert_eq!(std::fs::read(setup.path("f")).unwrap(), b"by a key");
                crate::patient(|| siftfs(&["umount", setup.dir()])).ok();
            }
        }
        assert!(server.end(rustix::process::Signal::TERM).success());
        setup.assert_plain_ext4();
    }
}
