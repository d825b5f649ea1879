//! Access times.

use crate::support::{Setup, siftfs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A read of a file whose access time is old, and whether that moved.
fn moves(s: &Setup, name: &str) -> bool {
    let old = SystemTime::now() - Duration::from_secs(3 * 86_400);
    let path = s.path(name);
    fs::write(&path, b"contents").unwrap();
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let before = fs::metadata(&path).unwrap().atime();
    // Not from the kernel's cache.
    let file = fs::File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"contents");
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        &path,
        rustix::fs::AtFlags::STATX_FORCE_SYNC,
        rustix::fs::StatxFlags::BASIC_STATS,
    );
    stat.unwrap().stx_atime.tv_sec != before
}

fn shown(s: &Setup) -> String {
    siftfs_fuse::top_mount(std::path::Path::new(s.dir())).unwrap().unwrap().options
}

#[test]
fn noatime_is_kept_to() {
    let s = Setup::new();
    for (options, kept) in [("", true), ("noatime", false), ("noatime,relatime", true)] {
        s.mount(options);
        assert_eq!(moves(&s, "f"), kept, "{options}");
        assert_eq!(shown(&s).contains("noatime"), !kept, "{options}: {}", shown(&s));
        s.umount();
    }
    s.mount("noatime");
    for (options, kept) in [("remount,relatime", true), ("remount,noatime", false)] {
        siftfs(&["mount", s.volume(), s.dir(), "-o", options]).ok();
        assert_eq!(moves(&s, "g"), kept, "{options}");
        assert_eq!(shown(&s).contains("noatime"), !kept, "{options}: {}", shown(&s));
    }
    s.umount();
    s.assert_plain_ext4();
}

/// What cannot be kept to is refused, with one message.
#[test]
fn other_words_about_times_are_refused() {
    let s = Setup::new();
    for word in ["strictatime", "lazytime", "diratime"] {
        let ran =
            siftfs(&["mount", s.volume(), s.dir(), "-o", word]).fails(2, &[word, "leave it out"]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
}
