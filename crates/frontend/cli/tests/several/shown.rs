//! Status, `top` and metrics name each mount.

use crate::support::siftfs;
use crate::{Beside, THROUGH, status};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The page of metrics.
fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn each_is_named() {
    let s = crate::support::Setup::new();
    let socket = s.tmp.path().join("metrics");
    s.mount(&format!("{THROUGH},shared,metrics={}", socket.display()));
    let dir = Beside::of(&s, "other");
    fs::create_dir_all(s.path("a/b")).unwrap();
    dir.attach(&s, "ro,subdir=a/b").ok();
    for _ in 0..5 {
        let _ = fs::metadata(dir.path("missing"));
        let _ = fs::read_dir(dir.path("")).unwrap().count();
    }
    // The one that was asked about, and all.
    let (first, second) = (status(s.dir()), status(dir.dir()));
    assert_eq!((&first["dir"], &second["dir"]), (&s.dir().into(), &dir.dir().into()));
    let mounts = second["mounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 2);
    assert_eq!((&mounts[0]["dir"], &mounts[1]["dir"]), (&s.dir().into(), &dir.dir().into()));
    assert_eq!(mounts[1]["subdir"], "a/b");
    assert!(mounts[0]["subdir"].is_null());
    assert!(mounts[1]["options"].as_str().unwrap().ends_with("ro,subdir=a/b"), "{mounts:?}");
    let count =
        |mount: &serde_json::Value, kind: &str| mount["requests"][kind].as_u64().unwrap_or(0);
    assert!(count(&mounts[1], "init") == 1 && count(&mounts[0], "mkdir") == 2, "{mounts:?}");
    assert_eq!(count(&mounts[1], "mkdir"), 0);
    assert_eq!(second["requests"], mounts[1]["requests"]);
    for text in [
        siftfs(&["status", dir.dir()]).ok().out,
        siftfs(&["top", dir.dir(), "--count", "1"]).ok().out,
    ] {
        let lines = text.lines().filter(|l| l.trim_start().starts_with("mount "));
        assert_eq!(lines.count(), 2, "{text}");
        assert!(text.contains(s.dir()) && text.contains(dir.dir()), "{text}");
    }
    let page = scrape(&socket);
    let device = mounts[1]["device"].as_str().unwrap();
    for series in [
        format!(
            "siftfs_mount_requests_total{{device=\"{device}\",dir=\"{}\",kind=\"init\"}} 1\n",
            dir.dir()
        ),
        format!("dir=\"{}\",subdir=\"\",", s.dir()),
        format!("dir=\"{}\",subdir=\"a/b\",", dir.dir()),
    ] {
        assert!(page.contains(&series), "no {series} in {page}");
    }
    dir.umount();
    let now = status(s.dir());
    assert_eq!(now["mounts"].as_array().unwrap().len(), 1);
    assert!(!scrape(&socket).contains(dir.dir()));
    s.umount();
    s.assert_plain_ext4();
}
