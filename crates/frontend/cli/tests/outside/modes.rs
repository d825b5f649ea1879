//! Which users may read what the program makes: a volume and its log hold the contents of every
//! file.

use crate::support::{Ran, SIFTFS, Setup, siftfs};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The program with a umask that forbids nothing.
fn open_handed(args: &[&str]) -> Ran {
    let script = "umask 0; exec \"$0\" \"$@\"";
    Command::new("sh").args(["-c", script, SIFTFS]).args(args).output().unwrap().into()
}

/// Regular files and sockets below a directory.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if !kind.is_symlink() {
            found.push(entry.path());
        }
    }
}

/// Whatever is made anew is its owner's alone: volume, log, log file, sockets, the place that is
/// remembered.
#[test]
fn what_is_made_is_its_owners_alone() {
    let s = Setup::empty();
    let at = |name: &str| s.tmp.path().join(name).to_str().unwrap().to_string();
    open_handed(&["mkfs", s.volume(), "--size", "64M"]).ok();
    open_handed(&[
        "mkfs",
        &at("apart"),
        "--size",
        "64M",
        "--log",
        &at("apart.log"),
        "--log-size",
        "8M",
    ])
    .ok();
    let made =
        crate::support::run("mke2fs", &["-q", "-t", "ext4", "-b", "4096", &at("plain"), "32M"]);
    assert_eq!(made.code, 0, "{made:?}");
    fs::set_permissions(at("plain"), Permissions::from_mode(0o600)).unwrap();
    open_handed(&["adopt", &at("plain"), "--log", &at("adopted.log"), "--log-size", "8M"]).ok();
    let mut device = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" \"$@\"", SIFTFS, "device", s.volume(), "--listen"])
        .args([&format!("unix:{}", at("device.sock")), "--log-file", &at("device.messages")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&at("device.sock"));
    let options = format!("metrics={},log_file={}", at("metrics.sock"), at("messages"));
    let service = format!("unix:{}", at("device.sock"));
    open_handed(&["mount", s.volume(), s.dir(), "-o", &options, "--service", &service]).ok();
    fs::write(s.path("f"), vec![7; 1 << 20]).unwrap();
    siftfs(&["sync", s.dir()]).ok();
    let mut found = Vec::new();
    files(s.tmp.path(), &mut found);
    found.retain(|path| !path.starts_with(s.dir()));
    let names = |name: &str| found.iter().any(|path| path.ends_with(name));
    for name in
        ["volume", "apart.log", "adopted.log", "metrics.sock", "messages", "device.messages"]
    {
        assert!(names(name), "no {name} in {found:?}");
    }
    for path in &found {
        assert_eq!(mode(path) & 0o077, 0, "{}: {:o}", path.display(), mode(path));
    }
    let entry = siftfs_fuse::top_mount(Path::new(s.dir())).unwrap().unwrap();
    let control = format!("/run/siftfs/{}-{}.sock", entry.major, entry.minor);
    assert_eq!(mode(control), 0o600);
    if Path::new("/run/mount/utab.lock").exists() {
        assert_eq!(mode("/run/mount/utab.lock") & 0o022, 0, "others may lock the table of mounts");
    }
    s.umount();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&device),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(device.wait().unwrap().success());
    s.assert_plain_ext4();
}

fn wait_for(path: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while !Path::new(path).exists() {
        assert!(Instant::now() < end, "{path} never appeared");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Another user reads neither a file's contents nor the log's secret.
#[test]
fn others_cannot_read_a_volume() {
    let s = Setup::empty();
    fs::set_permissions(s.tmp.path(), Permissions::from_mode(0o755)).unwrap();
    open_handed(&["mkfs", s.volume(), "--size", "64M"]).ok();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "head", "-c", "1", s.volume()];
    let ran = crate::support::run("setpriv", &user);
    assert!(ran.code != 0 && ran.err.contains("Permission denied"), "{ran:?}");
}

/// A file that exists already keeps its mode, which is its maker's choice. If all users may open
/// it, a warning says so.
#[test]
fn an_open_file_is_warned_of() {
    let s = Setup::empty();
    let log = s.tmp.path().join("log");
    for (given, warned) in [(0o644, true), (0o602, true), (0o640, false), (0o600, false)] {
        for path in [Path::new(s.volume()), &log] {
            fs::File::create(path).unwrap().set_len(64 << 20).unwrap();
            fs::set_permissions(path, Permissions::from_mode(given)).unwrap();
        }
        let log = log.to_str().unwrap();
        let ran = siftfs(&["mkfs", s.volume(), "--log", log, "--force"]).ok();
        assert_eq!((mode(s.volume()), mode(log)), (given, given));
        for path in [s.volume(), log] {
            assert_eq!(
                ran.err.contains(&format!("{path}: everybody may open it")),
                warned,
                "{ran:?}"
            );
        }
        assert_eq!(ran.err.lines().count(), if warned { 2 } else { 0 }, "{ran:?}");
    }
}
