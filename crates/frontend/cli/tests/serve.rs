//! `siftfs serve`: programs that have a volume by a socket. Needs e2fsprogs, and root to mount.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "serve/refused.rs"]
mod refused;

use rustix::process::Signal;
use siftfs::{Address, Claim, ConnectOptions, Rights, Trust, Volume, WhenLost};
use support::keys::Keys;
use support::served::{Served, address};
use support::{Setup, run, siftfs};

/// A session that ends with its server.
fn once(address: &str) -> Volume {
    let by = ConnectOptions { when_lost: WhenLost::Ends };
    Volume::connect_by(address, "", &by).unwrap()
}

/// A program's files survive a killed server, and the volume is plain ext4 after an orderly end.
#[test]
fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let setup = Setup::of_size("64M");
    let server = Served::start(&setup);
    let volume = once(&server.address);
    let file = volume.create("/kept", 0o644).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    file.sync_all().unwrap();
    server.end(Signal::KILL);
    assert_eq!(file.read_at(0, 1).unwrap_err().errno(), libc::EIO);
    assert_eq!(volume.stat("/kept").unwrap_err().errno(), libc::EIO);
    drop((file, volume));

    let server = Served::start(&setup);
    let volume = once(&server.address);
    assert_eq!(volume.open_file("/kept").unwrap().read_at(0, 20_000).unwrap(), [7; 10_000]);
    let other = once(&server.address);
    let written = volume.create("/both", 0o644).unwrap();
    written.write_at(0, b"seen").unwrap();
    assert_eq!(other.open_file("/both").unwrap().read_at(0, 10).unwrap(), b"seen");
    assert_eq!(volume.status().unwrap().failed, None);
    // A client that is still there does not keep the server from ending.
    assert!(server.end(Signal::TERM).success());
    assert_eq!(written.read_at(0, 1).unwrap_err().errno(), libc::EIO);
    siftfs(&["fsck", setup.volume()]).ok();
    setup.assert_plain_ext4();
    let read = run("debugfs", &["-R", "cat /both", setup.volume()]);
    assert_eq!(read.out, "seen");
}

/// A mount's daemon serves others beside it: each sees at once what the other has done.
#[test]
fn a_mount_serves_others() {
    let setup = Setup::of_size("64M");
    let listen = address(&setup);
    siftfs(&["mount", setup.volume(), setup.dir(), "--listen", &listen]).ok();
    let volume = once(&listen);
    std::fs::write(setup.path("mounted"), "one").unwrap();
    assert_eq!(volume.open_file("/mounted").unwrap().read_at(0, 9).unwrap(), b"one");
    for round in 0..20u8 {
        let file = volume.create(&format!("/connected{round}"), 0o644).unwrap();
        file.write_at(0, &[round; 5000]).unwrap();
        let seen = std::fs::read(setup.path(&format!("connected{round}"))).unwrap();
        assert_eq!(seen, [round; 5000]);
        std::fs::write(setup.path("mounted"), [round; 30]).unwrap();
        assert_eq!(volume.open_file("/mounted").unwrap().read_at(0, 99).unwrap(), [round; 30]);
        file.write_at(0, b"again").unwrap();
        let seen = std::fs::read(setup.path(&format!("connected{round}"))).unwrap();
        assert_eq!(&seen[..6], [b"again", &[round][..]].concat());
    }
    let other = setup.tmp.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let wrong = ["-o", "listen=here"];
    let said = siftfs(&[&["mount", setup.volume(), other.to_str().unwrap()], &wrong[..]].concat());
    assert_eq!(said.code, 2, "{}", said.err);
    let writeback = ["-o", "write_cache=writeback"];
    let mount = ["mount", setup.volume(), setup.dir(), "--listen", &listen];
    setup.umount().ok();
    assert_eq!(volume.stat("/mounted").unwrap_err().errno(), libc::EIO);
    assert!(Volume::connect(&listen).is_err());
    let said = siftfs(&[&mount[..], &writeback].concat());
    assert!(said.code == 2 && said.err.contains("exclude each other"), "{}", said.err);
    setup.assert_plain_ext4();
}

/// One process has a volume, and each of the others is told which has it.
#[test]
fn a_served_volume_is_in_use() {
    let setup = Setup::of_size("64M");
    let server = Served::start(&setup);
    let other = format!("{}-2", address(&setup));
    for words in [
        &["serve", setup.volume(), "--listen", &other][..],
        &["mount", setup.volume(), setup.dir()],
        &["fsck", setup.volume()],
    ] {
        let said = siftfs(words);
        assert!(said.code != 0 && said.err.contains("in use"), "{words:?}: {}", said.err);
    }
    let said = siftfs(&["serve", setup.volume(), "--listen", &server.address]);
    assert!(said.err.contains("another process listens there"), "{}", said.err);
    assert!(server.end(Signal::INT).success());
    setup.assert_plain_ext4();
}

/// A machine that has a key, for its users as its line says: root is nobody there.
#[test]
fn keys_admit_machines() {
    let setup = Setup::of_size("64M");
    let keys = Keys::new(setup.tmp.path(), "role=client volumes=volume");
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    let server = Served::at(&setup, "tcp:127.0.0.1:0", &admits);
    let address: Address = server.address.parse().unwrap();
    let trust = Trust {
        key: Some(keys.file("client").into()),
        known_servers: Some(keys.file("known_servers").into()),
        fingerprint: Some(keys.fingerprint().parse().unwrap()),
        insecure: false,
    };
    let options = siftfs::transport();
    let secured = trust.secure(&address, &options, None).unwrap();
    let open = |uid, gid, volume: &str| {
        let claim = Claim::User { uid, gid, rights: Rights::all() };
        Volume::connect_with(&address, (&options, secured.as_ref()), volume, claim)
    };
    let some = open(1000, 1000, "").unwrap();
    assert_eq!(some.create("/denied", 0o644).err().unwrap().errno(), libc::EACCES);
    drop(some);
    assert!(server.end(Signal::TERM).success());

    // Its owner makes a directory for that user.
    let owners = Served::start(&setup);
    let volume = Volume::connect(&owners.address).unwrap();
    volume.create_dir("/theirs", 0o777).unwrap();
    drop(volume);
    assert!(owners.end(Signal::TERM).success());

    let server = Served::at(&setup, &address.to_string(), &admits);
    for (uid, seen) in [(1000, 1000), (0, 65_534)] {
        let volume = open(uid, uid, "volume").unwrap();
        let name = format!("/theirs/{uid}");
        volume.create(&name, 0o600).unwrap().sync_all().unwrap();
        assert_eq!(volume.stat(&name).unwrap().uid, seen);
        assert_eq!(volume.status().unwrap_err().errno(), libc::EPERM);
    }
    let other = open(1000, 1000, "other").err().unwrap().to_string();
    assert!(other.contains("no volume is called"), "{other}");
    let owner = Volume::connect_with(&address, (&options, secured.as_ref()), "", Claim::Owner);
    let owner = owner.err().unwrap().to_string();
    assert!(owner.contains("role=admin squash=none"), "{owner}");
    let plain = Volume::connect_with(&address, (&options, None), "", Claim::Owner);
    assert!(plain.is_err());
    // The line is taken out: the next connection is refused.
    keys.admit("# nobody\n");
    let refused = open(1000, 1000, "").err().unwrap().to_string();
    assert!(refused.contains("does not admit the key"), "{refused}");
    assert!(server.end(Signal::TERM).success());
    setup.assert_plain_ext4();
}

/// Lines that are no log's.
fn told(said: &support::Ran) -> usize {
    said.err.lines().filter(|line| line.starts_with("siftfs: ")).count()
}

/// A port without keys is opened on request alone, and says why.
#[test]
fn a_port_is_opened_by_that_name() {
    let setup = Setup::of_size("64M");
    let missing = setup.tmp.path().join("missing").display().to_string();
    let listen = ["serve", setup.volume(), "--listen", "tcp:127.0.0.1:0", "--key", &missing];
    let said = siftfs(&listen);
    assert_eq!((said.code, told(&said)), (1, 1), "{}", said.err);
    assert!(said.err.contains("--insecure") && said.err.contains("siftfs key new"), "{}", said.err);
    let server = Served::at(&setup, "tcp:127.0.0.1:0", &["--insecure"]);
    let (address, options) = (server.address.parse().unwrap(), siftfs::transport());
    let nobody = Claim::User { uid: 1000, gid: 1000, rights: Rights::all() };
    drop(Volume::connect_with(&address, (&options, None), "", nobody).unwrap());
    let owner = Volume::connect_with(&address, (&options, None), "", Claim::Owner);
    assert!(owner.err().unwrap().to_string().contains("its connection does not"));
    assert!(server.end(Signal::TERM).success());
    for (address, why) in [
        ("unix:/nowhere/x.sock", "No such file"),
        ("here", "neither a unix socket nor a TCP address"),
    ] {
        let said = siftfs(&["serve", setup.volume(), "--listen", address]);
        assert!(said.code != 0 && said.err.contains(why), "{}", said.err);
    }
}
