//! `siftfs volumes`, and one server of a directory of volumes. Needs e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use siftfs::{ConnectOptions, Volume, WhenLost};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{SIFTFS, run, siftfs};

/// A directory of volumes, and a place beside it for sockets.
struct Shelf {
    tmp: tempfile::TempDir,
}

impl Shelf {
    fn new(names: &[&str]) -> Self {
        let shelf = Self { tmp: tempfile::tempdir().unwrap() };
        std::fs::create_dir(shelf.tmp.path().join("volumes")).unwrap();
        names.iter().for_each(|name| shelf.create(name));
        shelf
    }

    fn text(&self, name: &str) -> String {
        self.tmp.path().join(name).into_os_string().into_string().unwrap()
    }

    fn dir(&self) -> String {
        self.text("volumes")
    }

    fn volume(&self, name: &str) -> String {
        format!("{}/{name}", self.dir())
    }

    fn create(&self, name: &str) {
        siftfs(&["volumes", "create", &self.volume(name), "--size", "64M"]).ok();
    }

    /// Names and states.
    fn list(&self) -> Vec<(String, String)> {
        let said = siftfs(&["volumes", "list", &self.dir(), "--json"]).ok();
        let listed: Value = serde_json::from_str(&said.out).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let each = |v: &Value| (text(&v["name"]), text(&v["state"]));
        listed.as_array().unwrap().iter().map(each).collect()
    }

    fn states(&self, wanted: &[(&str, &str)]) {
        let wanted = wanted.iter().map(|(name, state)| (name.to_string(), state.to_string()));
        assert_eq!(self.list(), wanted.collect::<Vec<_>>());
    }

    /// Waits until a volume is in this state.
    fn wait_for(&self, name: &str, state: &str) {
        let wanted = (name.to_string(), state.to_string());
        let until = Instant::now() + Duration::from_secs(60);
        while !self.list().contains(&wanted) {
            assert!(Instant::now() < until, "{:?}, and not {wanted:?}", self.list());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn uuid(&self, name: &str) -> String {
        let said = siftfs(&["volumes", "list", &self.dir(), "--json"]).ok();
        let listed: Value = serde_json::from_str(&said.out).unwrap();
        let found = listed.as_array().unwrap().iter().find(|v| v["name"] == name).unwrap();
        found["uuid"].as_str().unwrap().to_string()
    }
}

fn is_plain_ext4(volume: &str) {
    let checked = run("e2fsck", &["-fn", volume]);
    assert_eq!(checked.code, 0, "{checked:?}");
}

/// A server of a directory; killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(shelf: &Shelf, volumes: usize) -> Self {
        Self::start_with(shelf, volumes, &[])
    }

    fn start_with(shelf: &Shelf, volumes: usize, options: &[&str]) -> Self {
        let address = format!("unix:{}", shelf.text("sock"));
        let mut child = Command::new(SIFTFS)
            .args(["serve", &shelf.dir(), "--listen", &address, "--json"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..volumes {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            let value: Value =
                serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(value["listening"], address.as_str());
        }
        Self { child, address }
    }

    fn connect(&self, name: &str) -> Result<Volume, siftfs::Error> {
        let by = ConnectOptions { when_lost: WhenLost::Ends };
        Volume::connect_by(&self.address, name, &by)
    }

    fn end(mut self) -> ExitStatus {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(volume: &Volume, path: &str, bytes: &[u8]) -> Result<(), siftfs::Error> {
    let file = volume.create(path, 0o644)?;
    file.write_at(0, bytes)?;
    file.sync_all()
}

#[test]
fn volumes_are_made_listed_grown_and_removed() {
    let shelf = Shelf::new(&[]);
    assert!(siftfs(&["volumes", "list", &shelf.dir()]).ok().out.contains("no volume is here"));
    shelf.create("b");
    shelf.create("a");
    shelf.states(&[("a", "clean"), ("b", "clean")]);
    let b = shelf.volume("b");
    siftfs(&["volumes", "create", &b, "--size", "64M"]).fails(1, &["is there already"]);
    siftfs(&["volumes", "grow", &b, "--size", "65M"]).fails(1, &["its log moves", "--size"]);
    siftfs(&["volumes", "grow", &b, "--size", "32M"]).fails(1, &["not made shorter"]);
    siftfs(&["volumes", "grow", &b, "--size", "100G"]).fails(1, &["group descriptors", "--size"]);
    let grown = siftfs(&["volumes", "grow", &b, "--size", "512M", "--json"]).ok();
    let grown: Value = serde_json::from_str(&grown.out).unwrap();
    assert_eq!((&grown["recovered"], &grown["log_moved"]), (&false.into(), &true.into()));
    assert!(grown["area_bytes"].as_u64() > Some(490 << 20), "{grown}");
    is_plain_ext4(&b);
    siftfs(&["fsck", &b]).ok();
    let listed = siftfs(&["volumes", "list", &shelf.dir()]).ok().out;
    assert!(listed.lines().count() == 2 && listed.contains("512.0 MiB"), "{listed}");
    siftfs(&["volumes", "remove", &shelf.volume("a")]).ok();
    siftfs(&["volumes", "remove", &shelf.volume("a")]).fails(1, &["cannot look at"]);
    siftfs(&["volumes", "remove", "/dev/null"]).fails(1, &["only a volume that is a file"]);
    shelf.states(&[("b", "clean")]);
}

/// A growth that is killed leaves a volume with its files, and growing it again goes on.
#[test]
fn a_killed_growth_leaves_a_volume() {
    let shelf = Shelf::new(&[]);
    for round in 0..12u64 {
        let volume = shelf.volume(&format!("v{round}"));
        siftfs(&["volumes", "create", &volume, "--size", "64M"]).ok();
        let mut child = Command::new(SIFTFS)
            .args(["volumes", "grow", &volume, "--size", "600M"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(3 * round * round / 2));
        let _ = child.kill();
        child.wait().unwrap();
        siftfs(&["recover", &volume]).ok();
        is_plain_ext4(&volume);
        let again = siftfs(&["volumes", "grow", &volume, "--size", "600M"]);
        let whole = again.err.contains("too few to grow it");
        assert!(again.code == 0 || whole, "{again:?}");
        is_plain_ext4(&volume);
        siftfs(&["fsck", &volume]).ok();
        siftfs(&["volumes", "remove", &volume]).ok();
    }
}

#[test]
fn a_directory_is_served_by_names() {
    let shelf = Shelf::new(&["a", "b"]);
    let server = Server::start(&shelf, 2);
    shelf.states(&[("a", "used"), ("b", "used")]);
    for name in ["a", "b"] {
        put(&server.connect(name).unwrap(), "/f", name.as_bytes()).unwrap();
    }
    for (name, other) in [("a", "b"), ("b", "a")] {
        let volume = server.connect(name).unwrap();
        assert_eq!(volume.open_file("/f").unwrap().read_at(0, 9).unwrap(), name.as_bytes());
        let used = shelf.volume(other);
        siftfs(&["volumes", "remove", &used]).fails(1, &["in use"]);
        siftfs(&["volumes", "grow", &used, "--size", "512M"]).fails(1, &["in use"]);
    }
    // One that is made meanwhile is opened when it is asked for; what is no volume is not.
    assert!(server.connect("c").is_err());
    shelf.create("c");
    put(&server.connect("c").unwrap(), "/f", b"c").unwrap();
    std::fs::write(shelf.volume("notes"), b"no volume").unwrap();
    std::os::unix::fs::symlink(shelf.volume("a"), shelf.text("outside")).unwrap();
    for name in ["", "notes", "../outside", ".", "..", "/", "a/", "A"] {
        assert!(server.connect(name).is_err(), "{name:?}");
    }
    assert!(server.end().success());
    shelf.states(&[("a", "clean"), ("b", "clean"), ("c", "clean")]);
    for name in ["a", "b", "c"] {
        is_plain_ext4(&shelf.volume(name));
        let read = run("debugfs", &["-R", "cat /f", &shelf.volume(name)]);
        assert_eq!(read.out, name);
    }
}

/// A volume whose storage fails latches, and its neighbours go on and are closed as ever.
#[test]
fn a_fault_is_the_affair_of_its_volume_alone() {
    let shelf = Shelf::new(&["a", "b"]);
    let server = Server::start(&shelf, 2);
    let (a, b) = (server.connect("a").unwrap(), server.connect("b").unwrap());
    put(&a, "/before", b"one").unwrap();
    put(&b, "/before", b"one").unwrap();
    let file = File::options().write(true).open(shelf.volume("b")).unwrap();
    file.set_len(20 << 20).unwrap();
    assert_eq!(put(&b, "/after", b"two").unwrap_err().errno(), libc::EIO);
    assert!(put(&server.connect("b").unwrap(), "/again", b"two").is_err());
    assert!(b.status().unwrap().failed.is_some());
    for round in 0..50u8 {
        put(&a, &format!("/after{round}"), &[round; 5000]).unwrap();
    }
    assert_eq!(a.status().unwrap().failed, None);
    drop((a, b));
    assert!(!server.end().success(), "one volume could not be closed");
    is_plain_ext4(&shelf.volume("a"));
    assert!(
        run("debugfs", &["-R", "stat /after49", &shelf.volume("a")]).out.contains("Size: 5000")
    );
}

/// A damaged volume keeps no other from being served.
#[test]
fn a_damaged_volume_keeps_no_other_from_being_served() {
    let shelf = Shelf::new(&["a", "b"]);
    let path = shelf.volume("a");
    let mut bytes = std::fs::read(&path).unwrap();
    // Magic and checksum of the superblock are gone, and both copies of the header.
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(Path::new(&path), bytes).unwrap();
    let server = Server::start(&shelf, 1);
    put(&server.connect("b").unwrap(), "/f", b"b").unwrap();
    assert!(server.connect("a").is_err());
    assert!(server.end().success());
    is_plain_ext4(&shelf.volume("b"));
}

/// A volume that nobody uses is closed while the server goes on: it is grown, removed and made
/// anew, and the next client has it opened again, by its name or its UUID.
#[test]
fn a_volume_that_nobody_uses_is_closed_until_the_next_client_comes() {
    let shelf = Shelf::new(&["a", "b"]);
    let (b, uuid) = (shelf.volume("b"), shelf.uuid("b"));
    let server = Server::start_with(&shelf, 2, &["--close-after", "1"]);
    let user = server.connect("a").unwrap();
    put(&user, "/before", b"a").unwrap();
    shelf.wait_for("b", "clean");
    is_plain_ext4(&b);
    siftfs(&["volumes", "grow", &b, "--size", "512M"]).ok();
    for (nr, name) in ["b", &uuid].into_iter().enumerate() {
        let client = server.connect(name).unwrap();
        put(&client, &format!("/f{nr}"), name.as_bytes()).unwrap();
        shelf.states(&[("a", "used"), ("b", "used")]);
        siftfs(&["volumes", "remove", &b]).fails(1, &["in use"]);
        drop(client);
        shelf.wait_for("b", "clean");
    }
    let read = run("debugfs", &["-R", "cat /f1", &b]);
    assert_eq!(read.out, uuid);
    siftfs(&["volumes", "remove", &b]).ok();
    assert!(server.connect("b").is_err() && server.connect(&uuid).is_err());
    shelf.create("b");
    put(&server.connect("b").unwrap(), "/new", b"b").unwrap();
    // The one that was used all the time was not closed under its user.
    put(&user, "/after", b"a").unwrap();
    assert!(server.end().success());
    shelf.states(&[("a", "clean"), ("b", "clean")]);
}

/// With a bound of zero none is closed, and one volume has no such bound.
#[test]
fn volumes_stay_open_where_an_option_says_so() {
    let shelf = Shelf::new(&["a"]);
    let server = Server::start_with(&shelf, 1, &["--close-after", "0"]);
    std::thread::sleep(Duration::from_millis(2500));
    shelf.states(&[("a", "used")]);
    assert!(server.end().success());
    let address = format!("unix:{}", shelf.text("sock2"));
    siftfs(&["serve", &shelf.volume("a"), "--listen", &address, "--close-after", "9"])
        .fails(2, &["this is one volume"]);
}
