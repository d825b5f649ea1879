//! Programs that have a volume by its server, without a mount: the server dies, and comes back, and
//! they go on.

use crate::Served;
use crate::returns::MOST_FILES;
use crate::support::Setup;
use crate::support::keys::Keys;
use crate::support::served::Served as AtTcp;
use crate::support::serving::Server;
use rustix::process::Signal;
use siftfs::{
    Address, Checksum, ConnectOptions, Error, File, RenameMode, Rights, Trust, Volume, WhenLost,
    transport,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(300);

fn all(file: &File) -> Vec<u8> {
    file.read_at(0, 1 << 20).unwrap()
}

fn read(volume: &Volume, path: &str) -> Vec<u8> {
    all(&volume.open_file(path).unwrap())
}

fn errno<T>(result: siftfs::Result<T>) -> i32 {
    result.err().expect("it fails").errno()
}

/// What was not synced is there again, under the names and numbers that it had: open files stay
/// open, and the sync that comes afterwards covers what was written before.
#[test]
fn a_program_goes_on_after_its_server_was_killed() {
    let mut served = Served::start();
    let volume = Volume::connect(served.address()).unwrap();
    volume.create_dir("/d", 0o755).unwrap();
    let file = volume.create("/d/first", 0o644).unwrap();
    file.write_at(0, &[1; 5000]).unwrap();
    file.sync_all().unwrap();
    file.write_at(5000, &[2; 5000]).unwrap();
    let unsynced = volume.create("/d/second", 0o644).unwrap();
    unsynced.append(b"never synced").unwrap();
    volume.rename("/d/second", "/third", RenameMode::Replace).unwrap();
    volume.create("/d/gone", 0o644).unwrap().write_at(0, b"x").unwrap();
    volume.remove_file("/d/gone").unwrap();
    let before = unsynced.stat().unwrap();
    let begun = Instant::now();
    let again = served.restart_after(Signal::KILL, PAUSE);
    // It waits for the server, and covers what was written before its death.
    file.write_at(10_000, &[3; 100]).unwrap();
    file.sync_all().unwrap();
    unsynced.sync_all().unwrap();
    assert!(begun.elapsed() > PAUSE);
    served.server = Some(again.join().unwrap());
    let after = unsynced.stat().unwrap();
    assert_eq!((before.ino, before.size), (after.ino, after.size));
    assert_eq!(volume.stat("/third").unwrap().ino, before.ino);
    assert_eq!(errno(volume.stat("/d/gone")), libc::ENOENT);
    assert_eq!(errno(volume.stat("/d/second")), libc::ENOENT);
    // What the server has now is there after one more death, without this program.
    volume.abandon();
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let fresh = Volume::connect(served.address()).unwrap();
    let expected = [vec![1; 5000], vec![2; 5000], vec![3; 100]].concat();
    assert!(read(&fresh, "/d/first") == expected);
    assert_eq!(read(&fresh, "/third"), b"never synced");
    fresh.close().unwrap();
    served.end();
}

/// A server that ends in order, as for an upgrade; tickets and sections of it are lost, which is
/// told.
#[test]
fn a_program_goes_on_after_its_server_was_restarted() {
    let mut served = Served::start();
    let volume = Volume::connect(served.address()).unwrap();
    let file = volume.create("/f", 0o644).unwrap();
    file.write_at(0, b"before").unwrap();
    let ticket = file.stage().unwrap();
    let section = file.section().unwrap();
    let again = served.restart_after(Signal::TERM, PAUSE);
    file.append(b" and after").unwrap();
    assert_eq!(all(&file), b"before and after");
    served.server = Some(again.join().unwrap());
    assert_eq!(errno(ticket.wait()), libc::EIO);
    assert_eq!(errno(section.write_at(0, b"x")), libc::EIO);
    drop(section);
    let section = file.section().unwrap();
    section.write_at(0, b"BEFORE").unwrap();
    section.commit().unwrap();
    assert_eq!(all(&file), b"BEFORE and after");
    file.stage().unwrap().wait().unwrap();
    drop(file);
    volume.close().unwrap();
    served.end();
}

/// Calls of a soft session fail after its time, and the session goes on when the server is there;
/// one that ends with its connection does not come back.
#[test]
fn soft_sessions_wait_no_longer_than_they_say() {
    let mut served = Served::start();
    let limit = Duration::from_secs(1);
    let by = |when_lost| ConnectOptions { when_lost };
    let soft = Volume::connect_by(served.address(), "", &by(WhenLost::Soft(limit))).unwrap();
    let once = Volume::connect_by(served.address(), "", &"once".parse().unwrap()).unwrap();
    let file = soft.create("/f", 0o644).unwrap();
    file.write_at(0, b"kept").unwrap();
    let address = served.address().to_string();
    let begun = Instant::now();
    served.server.take().unwrap().end(Signal::KILL);
    assert!(matches!(file.stat(), Err(Error::Link(_))));
    assert!(begun.elapsed() >= limit && begun.elapsed() < 10 * limit, "{:?}", begun.elapsed());
    assert_eq!(errno(file.sync_all()), libc::EIO);
    assert!(matches!(once.stat("/f"), Err(Error::Link(_))));
    // Nobody waits for a server that is not there when a program begins.
    assert!(matches!(Volume::connect(&address), Err(Error::Refused(_) | Error::Link(_))));
    served.server = Some(Server::start(served.setup.volume()));
    let patience = Instant::now() + Duration::from_secs(30);
    while file.stat().is_err() {
        assert!(Instant::now() < patience, "it does not come back");
        std::thread::sleep(PAUSE);
    }
    file.sync_all().unwrap();
    assert_eq!(all(&file), b"kept");
    assert!(matches!(once.stat("/f"), Err(Error::Link(_))));
    drop((file, once));
    soft.close().unwrap();
    served.end();
}

/// A compound that nobody can repeat is not lost in silence, and one that is durable is there.
#[test]
fn a_lost_compound_is_told() {
    let mut served = Served::start();
    let volume = Volume::connect(served.address()).unwrap();
    let (data, other) =
        (volume.create("/data", 0o644).unwrap(), volume.create("/o", 0o644).unwrap());
    data.sync_all().unwrap();
    other.sync_all().unwrap();
    let compound = |byte: u8| {
        let mut steps = volume.compound();
        let sum = steps.checksum(Checksum::Crc32c, vec![byte; 100]);
        steps.write(&data, 0, vec![byte; 100]);
        steps.write(&data, 100, sum);
        steps
    };
    compound(1).durable().unwrap();
    compound(2).visible().unwrap();
    data.sync_all().unwrap();
    let mut opening = volume.compound();
    let opened = opening.open("/o", siftfs::Access::Both);
    let opened = opening.visible().unwrap().file(opened).unwrap();
    compound(3).visible().unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    // The handle that a compound has opened is one as any other.
    opened.write_at(0, b"through it").unwrap();
    served.server = Some(again.join().unwrap());
    assert_eq!(errno(data.sync_all()), libc::EIO, "what the third one wrote may be lost");
    data.sync_all().unwrap();
    other.sync_all().unwrap();
    assert_eq!(errno(volume.sync()), libc::EIO, "so it is for all of the volume, once");
    volume.sync().unwrap();
    assert_eq!(all(&data)[..100], [2; 100]);
    assert_eq!(read(&volume, "/o"), b"through it");
    drop((data, other, opened));
    volume.close().unwrap();
    served.end();
}

/// What a ticket has made durable is not kept any more, as after a sync: a compound was carried out
/// behind it, which nobody repeats.
///
/// Seen to fail, and to empty a RocksDB's manifest, when a sync alone counts.
#[test]
fn nothing_older_is_repeated_over_what_a_ticket_covers() {
    let mut served = Served::start();
    let volume = Volume::connect(served.address()).unwrap();
    let files = ["/waited", "/polled", "/all"].map(|path| {
        let file = volume.create(path, 0o644).unwrap();
        file.write_at(0, &[1; 8192]).unwrap();
        file.set_len(0).unwrap();
        let mut steps = volume.compound();
        steps.write(&file, 0, vec![2; 4000]);
        steps.visible().unwrap();
        file
    });
    files[0].stage().unwrap().wait().unwrap();
    let ticket = files[1].stage().unwrap();
    while !ticket.is_durable().unwrap() {
        std::thread::sleep(PAUSE / 30);
    }
    drop(files[2].stage().unwrap());
    volume.barrier().unwrap().wait().unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    served.server = Some(again.join().unwrap());
    for file in &files {
        file.sync_all().unwrap();
        assert!(all(file) == [2; 4000]);
    }
    drop(files);
    volume.close().unwrap();
    served.end();
}

/// What is durable when it is answered is not kept, and so nothing that was written before may be
/// repeated over it: neither over a section, nor over compounds of open files and of paths.
#[test]
fn nothing_older_is_repeated_over_what_is_final() {
    let mut served = Served::start();
    let volume = Volume::connect(served.address()).unwrap();
    let [section, open, path] = ["/section", "/open", "/path"].map(|path| {
        let file = volume.create(path, 0o644).unwrap();
        file.write_at(0, &[9; 8192]).unwrap();
        file
    });
    volume.sync().unwrap();
    for file in [&section, &open, &path] {
        file.write_at(0, &[1; 5000]).unwrap();
        file.set_len(4000).unwrap();
    }
    let shared = section.section().unwrap();
    shared.write_at(2000, &[2; 4000]).unwrap();
    shared.commit().unwrap();
    let mut steps = volume.compound();
    steps.write(&open, 2000, vec![2; 4000]);
    steps.durable().unwrap();
    let mut steps = volume.compound();
    let opened = steps.open("/path", siftfs::Access::Both);
    steps.write(opened, 2000, vec![2; 4000]);
    steps.durable().unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    let expected = [vec![1; 2000], vec![2; 4000]].concat();
    let are = [&section, &open, &path].map(|file| all(file) == expected);
    served.server = Some(again.join().unwrap());
    assert_eq!(are, [true; 3]);
    drop((section, open, path));
    volume.close().unwrap();
    served.end();
}

fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % below
}

/// Works on until it is over. What every file has in the end.
fn work(volume: &Volume, dir: &str, mut seed: u64, over: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut ledger = BTreeMap::new();
    let open = volume.create(&format!("{dir}/open"), 0o644).unwrap();
    ledger.insert("open".to_string(), Vec::new());
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        if ledger.len() > MOST_FILES {
            let (name, _) = ledger.pop_first().unwrap();
            volume.remove_file(&format!("{dir}/{name}")).unwrap();
        }
        match draw(&mut seed, 5) {
            0 => open.sync_data().unwrap(),
            1 | 2 => {
                let (at, byte) = (draw(&mut seed, 40_000), draw(&mut seed, 256) as u8);
                let bytes = vec![byte; draw(&mut seed, 9000) as usize + 1];
                open.write_at(at, &bytes).unwrap();
                let all = ledger.get_mut("open").unwrap();
                let (at, end) = (at as usize, at as usize + bytes.len());
                all.resize(all.len().max(end), 0);
                all[at..end].copy_from_slice(&bytes);
            }
            3 if ledger.len() > 1 => {
                let name = ledger.keys().next().unwrap().clone();
                let to = format!("moved-{number}");
                let (from, path) = (format!("{dir}/{name}"), format!("{dir}/{to}"));
                volume.rename(&from, &path, RenameMode::Replace).unwrap();
                let bytes = ledger.remove(&name).unwrap();
                ledger.insert(to, bytes);
            }
            _ => {
                let name = format!("made-{number}");
                let file = volume.create(&format!("{dir}/{name}"), 0o644).unwrap();
                let bytes = vec![draw(&mut seed, 256) as u8; draw(&mut seed, 5000) as usize];
                file.write_at(0, &bytes).unwrap();
                if draw(&mut seed, 3) == 0 {
                    file.sync_all().unwrap();
                }
                ledger.insert(name, bytes);
            }
        }
    }
    ledger
}

fn check(volume: &Volume, dir: &str, ledger: &BTreeMap<String, Vec<u8>>) {
    assert!(ledger.len() > 1, "nothing was done");
    let names = volume.read_dir(dir).unwrap().into_iter();
    let mut names: Vec<_> = names.map(|e| String::from_utf8(e.name.clone()).unwrap()).collect();
    names.sort();
    assert_eq!(names, ledger.keys().cloned().collect::<Vec<_>>());
    for (name, bytes) in ledger {
        assert!(read(volume, &format!("{dir}/{name}")) == *bytes, "{name}");
    }
}

/// Two programs work on, one by the socket of the server's machine and one by a key, while their
/// server is killed again and again: no call fails, and in the end everything is as they were told.
#[test]
fn two_ledgers_of_programs_survive_many_deaths() {
    let setup = Setup::new();
    let keys = Keys::new(setup.tmp.path(), "role=client");
    let socket = format!("unix:{}", setup.tmp.path().join("s.sock").display());
    let admits = keys.admits();
    let more = ["--listen", &socket].into_iter().chain(admits.iter().map(String::as_str));
    let more: Vec<&str> = more.collect();
    let mut server = AtTcp::at(&setup, "tcp:127.0.0.1:0", &more);
    let address = server.address.clone();
    let own = Volume::connect(&socket).unwrap();
    own.create_dir("/own", 0o755).unwrap();
    own.create_dir("/user", 0o755).unwrap();
    let give = siftfs::SetAttr { uid: Some(1000), gid: Some(1000), ..Default::default() };
    own.set_attr("/user", give).unwrap();
    let user = as_user(&keys, &address);
    let over = Arc::new(AtomicBool::new(false));
    let (own, user) = (Arc::new(own), Arc::new(user));
    let workers = [(own.clone(), "/own"), (user.clone(), "/user")].map(|(volume, dir)| {
        let over = over.clone();
        std::thread::spawn(move || work(&volume, dir, 77, &over))
    });
    for death in 0..6 {
        std::thread::sleep(Duration::from_millis(300 + 170 * death));
        server.end(if death == 4 { Signal::TERM } else { Signal::KILL });
        std::thread::sleep(PAUSE / 4);
        server = AtTcp::at(&setup, &address, &more);
    }
    std::thread::sleep(Duration::from_secs(1));
    over.store(true, Ordering::Relaxed);
    let [owns, users] = workers.map(|worker| worker.join().unwrap());
    check(&own, "/own", &owns);
    check(&user, "/user", &users);
    check(&own, "/user", &users);
    // It may do no more than before.
    assert_eq!(errno(user.create("/own/x", 0o644)), libc::EACCES);
    drop((own, user));
    assert!(server.end(Signal::TERM).success());
    setup.assert_plain_ext4();
}

/// A program of user 1000, by the machine's key.
fn as_user(keys: &Keys, address: &str) -> Volume {
    let trust = Trust {
        key: Some(keys.file("client").into()),
        known_servers: Some(keys.file("known_servers").into()),
        fingerprint: Some(keys.fingerprint().parse().unwrap()),
        insecure: false,
    };
    let (address, options): (Address, _) = (address.parse().unwrap(), transport());
    let secured = trust.secure(&address, &options, None).unwrap();
    let claim = siftfs::Claim::User { uid: 1000, gid: 1000, rights: Rights::default() };
    Volume::connect_with(&address, (&options, secured.as_ref()), "", claim).unwrap()
}

/// A program of another user, by a socket that lets it in, keeps open what it may not open any
/// more, and gets nothing else.
#[test]
fn r52_a_program_has_what_it_had() {
    let mut served = Served::start();
    let own = Volume::connect(served.address()).unwrap();
    own.create("/secret", 0o600).unwrap().write_at(0, b"root's own").unwrap();
    let shared = siftfs::SetAttr { perm: Some(0o777), ..Default::default() };
    own.set_attr("/", shared).unwrap();
    let claim = siftfs::Claim::User { uid: 1000, gid: 1000, rights: Rights::default() };
    let address: Address = served.address().parse().unwrap();
    let user = Volume::connect_with(&address, (&transport(), None), "", claim).unwrap();
    let file = user.create("/f", 0o600).unwrap();
    file.sync_all().unwrap();
    file.write_at(0, b"before").unwrap();
    user.set_attr("/f", siftfs::SetAttr { perm: Some(0), ..Default::default() }).unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    file.write_at(6, b" and behind").unwrap();
    file.sync_all().unwrap();
    served.server = Some(again.join().unwrap());
    assert_eq!(all(&file), b"before and behind");
    assert_eq!(errno(user.open_file("/f")), libc::EACCES);
    assert_eq!(errno(user.open_file("/secret")), libc::EACCES);
    assert_eq!(errno(user.checkpoint()), libc::EPERM);
    own.checkpoint().unwrap();
    drop(file);
    user.close().unwrap();
    own.close().unwrap();
    served.end();
}
