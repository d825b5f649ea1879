//! What those are told who watch servers and mounts.

use crate::support::Setup;
use crate::support::keys::Keys;
use crate::support::served::Served as Server;
use crate::{Served, siftfs};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A page of a process that is watched at a socket.
fn page(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// `siftfs status --healthy --json`, and its exit status.
fn said(target: &str, more: &[&str]) -> (i32, Value) {
    let ran = siftfs(&[&["status", target, "--healthy", "--json"], more].concat());
    let value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    (ran.code, value)
}

#[test]
fn a_mount_and_its_server_are_healthy_while_both_live() {
    let mut served = Served::start();
    let address = served.address().to_string();
    let mount = served.mount("m", "");
    for target in [&*address, mount.dir()] {
        let ran = siftfs(&["status", target, "--healthy"]).ok();
        assert_eq!(ran.out, format!("{target}: healthy, at {address}\n"));
        let (code, value) = said(target, &[]);
        assert_eq!(
            (code, &value["healthy"], &value["state"]),
            (0, &true.into(), &"serving".into())
        );
    }
    let other = siftfs(&["status", &address, "--healthy", "-o", "volume=other"]);
    other.fails(1, &[&address, "no volume is called"]);
    siftfs(&["status", &address, "--healthy", "-o", "soft=1"]).fails(2, &["soft"]);
    siftfs(&["status", "unix:", "--healthy"]).fails(2, &["the path is missing"]);
    served.server.take().unwrap().end(Signal::KILL);
    let ran = siftfs(&["status", mount.dir(), "--healthy"]).fails(1, &["the server is lost"]);
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    let (code, value) = said(mount.dir(), &[]);
    assert_eq!(
        (code, &value["healthy"], &value["state"]),
        (1, &false.into(), &"recovering".into())
    );
    let (code, value) = said(&address, &[]);
    assert_eq!((code, &value["healthy"], &value["state"]), (1, &false.into(), &Value::Null));
    assert!(value["why"].as_str().unwrap().contains("nobody listens there"), "{value}");
    siftfs(&["status", "/proc", "--healthy"]).fails(1, &["not on a SiftFS mount"]);
    served.server = Some(crate::support::serving::Server::start(served.setup.volume()));
    served.end();
}

/// A server that is stopped answers nobody, and those that watch it are told so in a bounded time.
#[test]
fn a_server_that_is_stopped_is_not_healthy() {
    let served = Served::start();
    let server = served.server.as_ref().unwrap();
    server.signal(Signal::STOP);
    let begun = Instant::now();
    let ran = siftfs(&["status", served.address(), "--healthy"]);
    server.signal(Signal::CONT);
    ran.fails(1, &[served.address(), "did not finish its greeting within"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    siftfs(&["status", served.address(), "--healthy"]).ok();
    served.end();
}

/// Over TCP it takes an administrator's key: to others the server says nothing of the whole volume.
#[test]
fn an_administrator_is_told_over_tcp() {
    for (line, told) in [("role=admin squash=none", true), ("role=client squash=none", false)] {
        let setup = Setup::new();
        let keys = Keys::new(setup.tmp.path(), &format!("{line} volumes=volume"));
        let admits = keys.admits();
        let more: Vec<&str> = admits.iter().map(String::as_str).collect();
        let server = Server::at(&setup, "tcp:127.0.0.1:0", &more);
        let host = server.address.trim_start_matches("tcp:");
        let target = format!("127.0.0.1:1,{host}:/volume");
        let ran = siftfs(&["status", &target, "--healthy", "-o", &keys.option()]);
        match told {
            true => assert!(ran.ok().out.contains(&server.address)),
            false => drop(ran.fails(1, &[&target, "tcp:127.0.0.1:1", "role=admin"])),
        }
        assert!(server.end(Signal::TERM).success());
    }
}

#[test]
fn a_server_and_a_mount_say_so_by_http() {
    let served = Served::start();
    let dir = served.setup.tmp.path();
    let (there, here) = (dir.join("server.http"), dir.join("mount.http"));
    let setup = Setup::new();
    let metrics = there.display().to_string();
    let at = format!("unix:{}", dir.join("watched.sock").display());
    let server = Server::at(&setup, &at, &["--metrics", &metrics]);
    let mount = served.mount("m", &format!("metrics={}", here.display()));
    for socket in [&there, &here] {
        for (path, body) in [("/healthz", "alive\n"), ("/readyz", "serving\n")] {
            let page = page(socket, path);
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with(body), "{page}");
        }
        let page = page(socket, "/metrics");
        assert!(page.contains("\nsiftfs_state{state=\"serving\"} 1\n"), "{page}");
        assert!(page.contains("\nsiftfs_state{state=\"latched\"} 0\n"), "{page}");
    }
    assert!(page(&there, "/metrics").contains(setup.volume()));
    mount.umount();
    assert!(server.end(Signal::TERM).success());
    assert!(!there.exists(), "the socket is taken away");
    siftfs(&[
        "serve",
        dir.to_str().unwrap(),
        "--listen",
        "unix:/nowhere/x",
        "--metrics",
        "0.0.0.0:1",
    ])
    .fails(2, &["only the loopback"]);
    served.end();
}
