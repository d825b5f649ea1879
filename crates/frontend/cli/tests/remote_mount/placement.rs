//! Programs with private logs on mounts of a served volume: headers go to its server, data into
//! memory that both processes share.

use crate::support::serving::Server;
use crate::support::{libraries, patient};
use crate::{Mount, Served, siftfs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use siftfs_accel::{Leased, Session, Through};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LOGS: &str = "private_logs=daemon";
/// What the server gets in messages for each byte that a program writes.
const TARGET: f64 = 0.05;

/// A file that this program has open, and leased.
struct Held {
    file: File,
    leased: Leased,
    _session: Session,
}

impl Held {
    #[track_caller]
    fn of(path: &Path) -> Self {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).unwrap();
        let session = Session::enter(&file).expect("a session");
        for _ in 0..1000 {
            // A file that was closed just now is so for the server a moment later, and one that
            // others want again and again is nobody's for a second.
            match session.lease(&file) {
                Ok(leased) => return Self { file, leased, _session: session },
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(e) => panic!("{e}"),
            }
        }
        panic!("no lease")
    }

    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        assert_eq!(self.leased.write_at(at, bytes), Through::Lease(bytes.len()));
    }

    #[track_caller]
    fn append(&self, bytes: &[u8]) {
        assert_ne!(self.leased.append(bytes), Through::Mount, "the lease lasts");
    }

    #[track_caller]
    fn sync(&self) {
        assert_eq!(self.leased.sync(false).unwrap(), Through::Lease(()));
    }

    fn lasts(&self) -> bool {
        self.leased.len() != Through::Mount
    }
}

fn block(seed: usize) -> Vec<u8> {
    (0..4096).map(|at| (at * 7 + seed * 31 + (at >> 8)) as u8).collect()
}

/// What has crossed: `sent`, `lent`, `received`.
fn crossed(mount: &Mount) -> [u64; 3] {
    let status = mount.status();
    ["sent", "lent", "received"].map(|what| status["server"]["placement"][what].as_u64().unwrap())
}

fn logs(mount: &Mount) -> Value {
    mount.status()["mounts"][0]["private_logs"].clone()
}

/// What crosses for each byte of some writes.
fn ratio(mount: &Mount, written: u64, write: impl FnOnce()) -> f64 {
    let before = crossed(mount);
    write();
    let after = crossed(mount);
    let [sent, lent, received] = [0, 1, 2].map(|at| after[at] - before[at]);
    println!("{written} bytes written: {sent} to the server, {lent} lent, {received} back");
    assert!(lent >= written, "what a program writes is lent: {lent} of {written}");
    sent as f64 / written as f64
}

/// The number of the paper's placement. Each write is followed by an fsync(2), so that no two share
/// a header.
///
/// Seen to fail when data that are no whole blocks travel in the message, and when the server keeps
/// the slots of what it was lent.
#[test]
fn headers_cross_and_data_do_not() {
    let served = Served::start();
    let mount = served.mount("m", LOGS);
    let held = Held::of(&mount.path("f"));
    held.append(b"begin");
    held.sync();
    let synced = ratio(&mount, 2000 * 4096, || {
        for n in 0..2000 {
            held.write(n * 4096, &block(n as usize));
            held.sync();
        }
    });
    let unsynced = ratio(&mount, 2000 * 4096, || {
        for n in 0..2000 {
            held.write(n * 4096, &block(n as usize + 1));
        }
        held.sync();
    });
    // From the middle of a block to that of the next one.
    let odd = ratio(&mount, 500 * 4096, || {
        for n in 0..500 {
            held.write(n * 4096 + 24, &block(n as usize + 2));
            held.sync();
        }
    });
    println!("to the server per byte, 4 KiB: {synced:.4} synced, {unsynced:.4} not, {odd:.4} odd");
    assert!(synced <= TARGET, "{synced}");
    assert!(unsynced <= TARGET / 10.0, "{unsynced}");
    assert!(odd <= TARGET, "{odd}");
    let told = logs(&mount);
    assert_eq!((&told["programs"][0]["medium"], &told["file_logs"]), (&"daemon".into(), &0.into()));
    let text = siftfs(&["status", mount.dir()]).ok().out;
    assert!(text.contains("placement     1 connections of private logs"), "{text}");
    // Another mount reads it, which ends the lease.
    let other = served.mount("other", "");
    let bytes = fs::read(other.path("f")).unwrap();
    assert_eq!(bytes.len(), 2000 * 4096);
    assert!(bytes[499 * 4096 + 24..500 * 4096 + 24] == block(501), "the newest bytes are read");
    assert!(bytes[1999 * 4096..] == block(2000), "the newest bytes are read");
    assert!(!held.lasts());
    drop(held);
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
    mount.umount();
    other.umount();
    served.end();
}

/// 1, 2 and 4 front ends, each with a program that writes files of its own and then one that has
/// gone around.
#[test]
fn several_front_ends() {
    for mounts in [1, 2, 4] {
        // Each program has 21 MiB set aside.
        let served = Served::of_size("256M");
        let fronts: Vec<_> = (0..mounts).map(|n| served.mount(&format!("m{n}"), LOGS)).collect();
        std::thread::scope(|scope| {
            for (n, front) in fronts.iter().enumerate() {
                scope.spawn(move || {
                    let held = Held::of(&front.path(&format!("f{n}")));
                    for at in 0..200 {
                        held.write(at * 4096, &block(n));
                        if at % 10 == 0 {
                            held.sync();
                        }
                    }
                });
            }
        });
        for front in &fronts {
            let [sent, lent, _] = crossed(front);
            assert!(lent >= 200 * 4096 && (sent as f64) < TARGET * 200.0 * 4096.0, "{sent} {lent}");
            for n in 0..mounts {
                let bytes = fs::read(front.path(&format!("f{n}"))).unwrap();
                assert!(bytes == block(n).repeat(200), "f{n} as {} sees it", front.dir());
            }
        }
        let mut wanted = String::new();
        for round in 0..2 {
            for (n, front) in fronts.iter().enumerate() {
                let held = Held::of(&front.path("shared"));
                let line = format!("round {round} of {n}\n");
                held.append(line.as_bytes());
                wanted += &line;
                // Its size is asked of the program, by way of a recall, and so are its bytes.
                let other = fronts[(n + 1) % mounts].path("shared");
                assert_eq!(fs::metadata(&other).unwrap().len(), wanted.len() as u64);
                assert_eq!(fs::read_to_string(&other).unwrap(), wanted);
            }
        }
        fronts.iter().for_each(Mount::umount);
        served.end();
    }
}

/// No lease for a file that another mount's program has open to be written.
#[test]
fn another_mounts_writer_is_another_program() {
    let served = Served::start();
    let (one, other) = (served.mount("one", LOGS), served.mount("other", LOGS));
    fs::write(one.path("f"), "").unwrap();
    let theirs = File::options().write(true).open(other.path("f")).unwrap();
    let own = File::options().read(true).write(true).open(one.path("f")).unwrap();
    let session = Session::enter(&own).unwrap();
    for _ in 0..20 {
        let refused = session.lease(&own).map(|_| ()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    }
    drop((theirs, own, session));
    drop(Held::of(&one.path("f")));
    one.umount();
    other.umount();
    served.end();
}

/// f's last write is in the server's memory, and g's in the ring.
fn taken_in_and_published(mount: &Mount) -> (Held, Held) {
    let (f, g) = (Held::of(&mount.path("f")), Held::of(&mount.path("g")));
    f.write(0, &block(1));
    f.sync();
    g.write(0, &block(2));
    g.sync();
    f.write(0, &block(3));
    let mut bytes = [0; 4096];
    assert_eq!(f.leased.read_at(8192, &mut bytes).unwrap(), Through::Lease(0));
    g.write(0, &block(4));
    (f, g)
}

fn leases_end(held: [&Held; 2]) {
    let begun = Instant::now();
    while held.iter().any(|held| held.lasts()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "a lease lasts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server is killed: what a program published is there with the next one, taken in or not, and
/// its fsync(2) waits for that. It gets leases again, and all of it is durable.
///
/// Seen to fail when the mount keeps nothing of what was taken in, and when rings are not emptied
/// before the mount has come back.
#[test]
fn a_killed_server_loses_nothing() {
    let mut served = Served::start();
    let (mount, other) = (served.mount("m", LOGS), served.mount("other", ""));
    let (f, g) = taken_in_and_published(&mount);
    let again = served.restart_after(Signal::KILL, Duration::from_millis(300));
    // Another one waits for what these had alone.
    let theirs = other.path("g");
    let reads = std::thread::spawn(move || {
        let file = fs::OpenOptions::new().append(true).open(&theirs).unwrap();
        file.set_len(4095).unwrap();
        // The server dies once more, and both mounts with it.
        file.sync_all().unwrap();
        fs::read(theirs).unwrap()
    });
    leases_end([&f, &g]);
    for held in [&f, &g] {
        assert_eq!(held.leased.sync(false).unwrap(), Through::Mount);
        held.file.sync_all().unwrap();
    }
    served.server = Some(again.join().unwrap());
    assert!(reads.join().unwrap() == block(4)[..4095], "it came before its program's write");
    assert!(fs::read(other.path("f")).unwrap() == block(3));
    let leased = loop {
        match f._session.lease(&f.file) {
            Ok(leased) => break leased,
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EAGAIN)),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(leased.write_at(0, &block(5)), Through::Lease(4096));
    assert_eq!(leased.sync(false).unwrap(), Through::Lease(()));
    served.server.take().unwrap().end(Signal::KILL);
    mount.kill();
    drop((leased, f, g));
    other.kill();
    served.server = Some(Server::start(served.setup.volume()));
    let fresh = served.mount("fresh", "");
    assert!(fs::read(fresh.path("f")).unwrap() == block(5));
    assert!(fs::read(fresh.path("g")).unwrap() == block(4)[..4095]);
    fresh.umount();
    served.end();
}

/// A mount that does not wait for its server tells so, and what its programs published is there
/// when the server is.
#[test]
fn a_killed_server_is_told() {
    let mut served = Served::start();
    let mount = served.mount("m", "soft,timeo=1,private_logs=daemon");
    let (f, g) = taken_in_and_published(&mount);
    served.server.take().unwrap().end(Signal::KILL);
    leases_end([&f, &g]);
    for held in [&f, &g] {
        assert_eq!(held.leased.write_at(0, b"x"), Through::Mount);
        assert_eq!(held.leased.sync(false).unwrap(), Through::Mount);
        assert_eq!(held.file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    served.server = Some(Server::start(served.setup.volume()));
    let begun = Instant::now();
    while mount.status()["server"]["lost"].as_str().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    for (held, name, wanted) in [(&f, "f", 3), (&g, "g", 4)] {
        held.file.sync_all().unwrap();
        assert!(fs::read(mount.path(name)).unwrap() == block(wanted), "{name}");
    }
    drop((f, g));
    patient(|| siftfs(&["umount", mount.dir()])).ok();
    served.end();
}

const LEDGER: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
n = 0
while not os.path.exists(sys.argv[2]):
    os.pwrite(fd, n.to_bytes(8, 'little') * 64, n % 64 * 512)
    os.fsync(fd)
    n += 1
    print(n, flush=True)
";

/// A program that knows nothing of it works on while the server dies again and again: no call
/// fails, and what it was told is there.
#[test]
fn an_unmodified_program_survives_servers() {
    let mut served = Served::start();
    let mount = served.mount("m", LOGS);
    let (file, over) = (mount.path("f"), served.setup.tmp.path().join("over"));
    let library = libraries().join("libsiftfs_preload.so");
    let mut program = Command::new("python3");
    program.args(["-c", LEDGER]).arg(&file).arg(&over).env("LD_PRELOAD", library);
    let program = program.env("SIFTFS_ACCEL", "eager").stdout(std::process::Stdio::piped());
    let program = program.spawn().unwrap();
    let mut leases = Vec::new();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(900));
        leases.push(logs(&mount)["bytes"].as_u64().unwrap());
        let again = served.restart_after(Signal::KILL, Duration::from_millis(50));
        served.server = Some(again.join().unwrap());
    }
    std::thread::sleep(Duration::from_millis(900));
    fs::write(&over, "").unwrap();
    let ran = program.wait_with_output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8(ran.stdout).unwrap();
    let told: u64 = said.lines().last().unwrap().parse().unwrap();
    assert!(leases[0] > 0 && told > 64, "{leases:?} bytes by the log, {told} writes");
    println!("{told} writes, by the log before each death: {leases:?} bytes");
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let bytes = fs::read(&file).unwrap();
    for n in told - 64..told {
        let at = (n % 64 * 512) as usize;
        assert_eq!(bytes[at..at + 512], n.to_le_bytes().repeat(64), "write {n} of {told}");
    }
    mount.umount();
    served.end();
}

/// A server that is asked to end has programs' writes taken in first.
///
/// Seen to fail when it ends sessions that lend as it ends others.
#[test]
fn a_server_that_is_asked_to_end() {
    let mut served = Served::start();
    let mount = served.mount("m", "soft,timeo=1,private_logs=daemon");
    let held = Held::of(&mount.path("f"));
    held.append(b"not synced");
    assert!(served.server.take().unwrap().end(Signal::TERM).success());
    assert_eq!(held.leased.append(b"x"), Through::Mount);
    drop(held);
    patient(|| siftfs(&["umount", mount.dir()]));
    served.server = Some(Server::start(served.setup.volume()));
    let again = served.mount("again", "");
    assert_eq!(fs::read(again.path("f")).unwrap(), b"not synced");
    again.umount();
    served.end();
}

/// The mount's process is killed: others go on with the file at once, and what was synced is there.
#[test]
fn a_killed_agent_keeps_nothing() {
    let served = Served::start();
    let (mount, other) = (served.mount("m", LOGS), served.mount("other", LOGS));
    let held = Held::of(&mount.path("f"));
    held.write(0, &block(1));
    held.sync();
    held.write(0, &block(2));
    let pid = mount.status()["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let begun = Instant::now();
    let bytes = fs::read(other.path("f")).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(bytes == block(1) || bytes == block(2));
    while held.leased.write_at(0, b"x") != Through::Mount {
        assert!(begun.elapsed() < Duration::from_secs(20), "the words of a dead agent count");
    }
    let theirs = Held::of(&other.path("f"));
    theirs.write(0, &block(3));
    theirs.sync();
    drop((theirs, held, mount));
    assert!(fs::read(other.path("f")).unwrap() == block(3));
    other.umount();
    served.end();
}

/// The mount's process is stopped: its program does not believe it for long, and the server does
/// not wait for it for long.
#[test]
fn a_stopped_agent_is_given_up() {
    stopped(Duration::ZERO);
}

/// The same where the mount's own session is lost, too, and the server lives: what others have read
/// since is not what was before a write that comes late.
///
/// Seen to fail when a mount that is back takes the server for another one.
#[test]
fn a_stopped_agent_writes_nothing_late() {
    stopped(Duration::from_secs(5));
}

/// A process that was stopped, and goes on when this is dropped: a test that fails does not wait
/// for it for ever.
struct Awake(Pid);

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A mount's process is stopped until another mount has read the file, and for this time more.
fn stopped(more: Duration) {
    let served = Served::start();
    let (mount, other) = (served.mount("m", LOGS), served.mount("other", ""));
    let held = Held::of(&mount.path("f"));
    held.write(0, &block(1));
    held.sync();
    let pid = mount.status()["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // At once: what a daemon has taken in of a log, which it does now and then, others may read.
    held.write(0, &block(2));
    kill_process(pid, Signal::STOP).unwrap();
    let awake = Awake(pid);
    let begun = Instant::now();
    let theirs = other.path("f");
    let reads = std::thread::spawn(move || (fs::read(theirs).unwrap(), begun.elapsed()));
    while held.leased.write_at(0, b"x") != Through::Mount {
        assert!(begun.elapsed() < Duration::from_secs(8), "a program believes a stopped agent");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!reads.is_finished(), "nobody reads older bytes while a program believes its lease");
    let (bytes, waited) = reads.join().unwrap();
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    let found: Vec<u8> = bytes.iter().step_by(512).copied().collect();
    assert!(bytes == block(1), "what was synced is there, not {} of {found:?}", bytes.len());
    std::thread::sleep(more);
    drop(awake);
    // It is told that what it wrote is lost, or finds that its session is over.
    while let Ok(Through::Lease(())) = held.leased.sync(false) {
        assert!(begun.elapsed() < Duration::from_secs(60), "what is lost is durable");
    }
    drop(held);
    // Its own session may have been heard of in time.
    patient(|| siftfs(&["umount", mount.dir()]));
    assert!(!mount.is_there());
    assert!(fs::read(other.path("f")).unwrap() == block(1));
    other.umount();
    served.end();
}

/// A mount that is taken away takes in what its programs wrote.
#[test]
fn an_unmount_takes_logs_in() {
    let served = Served::start();
    let (mount, other) = (served.mount("m", LOGS), served.mount("other", ""));
    let Held { file, leased, _session } = Held::of(&mount.path("f"));
    assert_ne!(leased.append(b"kept"), Through::Mount);
    drop(file);
    mount.umount();
    assert_eq!(leased.append(b"x"), Through::Mount);
    assert_eq!(fs::read(other.path("f")).unwrap(), b"kept");
    other.umount();
    served.end();
}

/// What a log holds is part of `siftfs sync`, which the server carries out.
#[test]
fn sync_takes_logs_in() {
    let mut served = Served::start();
    let mount = served.mount("m", LOGS);
    let held = Held::of(&mount.path("f"));
    held.append(b"in the log");
    siftfs(&["sync", mount.dir()]).ok();
    served.server.take().unwrap().end(Signal::KILL);
    drop(held);
    patient(|| siftfs(&["umount", mount.dir()]));
    served.server = Some(Server::start(served.setup.volume()));
    let again = served.mount("again", "");
    assert_eq!(fs::read(again.path("f")).unwrap(), b"in the log");
    again.umount();
    served.end();
}

const PROGRAM: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for n in range(300):
    os.pwrite(fd, bytes([n % 251]) * 4096, n * 4096)
    if n < 200:
        os.fsync(fd)
os.kill(os.getpid(), 9)
";

/// A program that knows nothing of it, and is killed in the end: what it wrote is there (rule R47).
#[test]
fn an_unmodified_program_that_is_killed() {
    let served = Served::start();
    let (mount, other) = (served.mount("m", LOGS), served.mount("other", ""));
    let file = mount.path("f");
    let library = libraries().join("libsiftfs_preload.so");
    let mut program = Command::new("python3");
    program.args(["-c", PROGRAM]).arg(&file).env("LD_PRELOAD", library);
    let ended = program.env("SIFTFS_ACCEL", "eager").status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    let bytes = fs::read(other.path("f")).unwrap();
    let wanted: Vec<u8> = (0..300).flat_map(|n| [(n % 251) as u8; 4096]).collect();
    assert!(bytes == wanted, "{} of {} bytes", bytes.len(), wanted.len());
    let (told, [sent, lent, _]) = (logs(&mount), crossed(&mount));
    let written = told["bytes"].as_u64().unwrap();
    println!("{written} bytes by the log, {sent} to the server in messages, {lent} lent");
    assert!(written >= 250 * 4096, "{told}");
    assert!((sent as f64) < 1.2 * TARGET * written as f64, "{sent} of {written}");
    mount.umount();
    other.umount();
    served.end();
}
