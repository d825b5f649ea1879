//! A program that reads and writes a file's blocks at the target by itself: three processes, of
//! which the target and the host die.

use crate::support::{SIFTFS, Setup};
use crate::{Device, address, await_that};
use rustix::process::Signal;
use siftfs::{Direct, DirectFile, Volume};
use siftfs_base::Rng;
use siftfs_rig::device::Device as Server;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The host: it serves the volume, whose storage the target at `target` has.
fn host(setup: &Setup, target: &str) -> Server {
    let listen = format!("unix:{}", setup.tmp.path().join("host.sock").display());
    let (place, log) = (format!("target:{target}/volume"), setup.tmp.path().join("host.log"));
    Server::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &[]).unwrap()
}

fn until_direct(file: &DirectFile) {
    await_that("something is granted", || file.is_direct());
}

/// What the program has synced is there, whatever process has died; others see what it writes.
#[test]
fn a_program_a_host_and_a_target() {
    let setup = Setup::of_size("256M");
    let target = Device::start(&setup, &[]);
    let server = host(&setup, &address(&setup));
    let direct = Direct::connect(server.address(), "").unwrap();
    let file = direct.create("/f", 0o644).unwrap();
    let mut model = vec![1; 300_000];
    file.write_at(0, &model).unwrap();
    file.sync_all().unwrap();
    until_direct(&file);
    file.write_at(5000, &[2; 9000]).unwrap();
    file.sync_data().unwrap();
    model[5000..14_000].fill(2);
    // Another program has the file recalled, and sees it.
    let other = Volume::connect(server.address()).unwrap();
    let theirs = other.open_file("/f").unwrap();
    assert!(theirs.read_at(0, 300_000).unwrap() == model);
    theirs.write_at(0, &[3; 10]).unwrap();
    model[..10].fill(3);
    until_direct(&file);
    assert!(file.read_at(0, 300_000).unwrap() == model);
    file.write_at(20_000, &[4; 4096]).unwrap();
    file.sync_data().unwrap();
    model[20_000..24_096].fill(4);
    // The target dies: what was synced is there, and the program goes on.
    target.kill();
    let target = Device::start(&setup, &[]);
    assert!(file.read_at(0, 300_000).unwrap() == model);
    file.write_at(40_000, &[5; 4096]).unwrap();
    file.sync_all().unwrap();
    model[40_000..44_096].fill(5);
    until_direct(&file);
    file.write_at(60_000, &[6; 4096]).unwrap();
    file.sync_data().unwrap();
    model[60_000..64_096].fill(6);
    drop((theirs, other));
    // The host dies: the program's session with it, and nothing that was synced.
    server.kill().unwrap();
    let lost = file.sync_all();
    assert!(lost.is_err(), "the session was the host's");
    drop((file, direct));
    let server = host(&setup, &address(&setup));
    let volume = Volume::connect(server.address()).unwrap();
    let found = volume.open_file("/f").unwrap().read_at(0, 300_000).unwrap();
    assert!(found == model);
    volume.close().unwrap();
    server.end().unwrap();
    assert_eq!(target.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

/// A volume whose storage the host has itself grants nothing, and says so; files work all the same.
#[test]
fn without_a_target_nothing_is_granted() {
    let setup = Setup::new();
    let listen = format!("unix:{}", setup.tmp.path().join("host.sock").display());
    let log = setup.tmp.path().join("host.log");
    let image = Path::new(setup.volume());
    let server = Server::serve(Path::new(SIFTFS), image, &listen, &log, &[]).unwrap();
    let direct = Direct::connect(server.address(), "").unwrap();
    let file = direct.create("/f", 0o644).unwrap();
    file.write_at(3, b"bytes").unwrap();
    file.sync_all().unwrap();
    assert!(!file.is_direct());
    assert_eq!(file.read_at(0, 100).unwrap(), b"\0\0\0bytes");
    assert_eq!(direct.names().stat("/f").unwrap().size, 8);
    drop((file, direct));
    server.end().unwrap();
    let volume = Volume::open(image).unwrap();
    let refused = Direct::of(&volume).map(drop).unwrap_err().to_string();
    assert!(refused.contains("whose storage a target has"), "{refused}");
    volume.close().unwrap();
}

/// Blocks of the ledger's file.
const BLOCKS: usize = 48;

/// What a block may hold: the newest number that was durable, or one that was tried behind it.
#[derive(Clone, Copy, Default)]
struct Entry {
    durable: u64,
    tried: u64,
}

/// The program (`embed/examples/direct_ledger.rs`), and what it has said.
struct Ledger {
    entries: [Entry; BLOCKS],
    next: u64,
    direct: u32,
}

impl Ledger {
    fn start(&self, address: &str) -> Child {
        let program = Path::new(SIFTFS).with_file_name("examples").join("direct_ledger");
        assert!(program.exists(), "`cargo build -p siftfs --example direct_ledger` makes it");
        let (blocks, next) = (BLOCKS.to_string(), self.next.to_string());
        Command::new(program)
            .args([address, "/f", &blocks, &next])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Takes what a program has said that has ended.
    fn take(&mut self, said: &str) {
        // The last line may be a part of one.
        for line in said.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<_> = line.split_whitespace().collect();
            let (block, number): (usize, u64) =
                (words[1].parse().unwrap(), words[2].parse().unwrap());
            self.next = self.next.max(number + 1);
            let entry = &mut self.entries[block];
            match words[0] {
                "try" => entry.tried = number,
                _ => {
                    entry.durable = number;
                    self.direct += u32::from(words[3] == "direct");
                }
            }
        }
    }

    /// What is there is what may be; from here on it is that.
    fn judge(&mut self, address: &str, round: u32) {
        let volume = Volume::connect(address).unwrap();
        let bytes = volume.open_file("/f").unwrap().read_at(0, BLOCKS << 12).unwrap();
        for (block, (entry, bytes)) in self.entries.iter_mut().zip(bytes.chunks(4096)).enumerate() {
            let found = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert!(
                [entry.durable, entry.tried].contains(&found),
                "round {round}, block {block}: {found}, durable {}, tried {}",
                entry.durable,
                entry.tried
            );
            assert!(bytes.chunks(8).all(|word| word == found.to_le_bytes()), "block {block}");
            *entry = Entry { durable: found, tried: found };
        }
        volume.close().unwrap();
    }
}

/// Program, host and target are killed in turn, under load: what was durable is there, and nothing
/// but what was tried behind it.
#[test]
fn deaths_beside_a_direct_program() {
    let setup = Setup::of_size("256M");
    let mut target = Device::start(&setup, &[]);
    let mut server = host(&setup, &address(&setup));
    let made = Volume::connect(server.address()).unwrap();
    let file = made.create("/f", 0o644).unwrap();
    file.write_at(0, &vec![0; BLOCKS << 12]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    made.close().unwrap();
    let mut ledger = Ledger { entries: [Entry::default(); BLOCKS], next: 1, direct: 0 };
    let mut rng = Rng::new(11);
    for round in 0..16 {
        let mut program = ledger.start(server.address());
        let mut out = program.stdout.take().unwrap();
        let said = thread::spawn(move || {
            let mut said = String::new();
            out.read_to_string(&mut said).unwrap();
            said
        });
        let pause = |rng: &mut Rng| thread::sleep(Duration::from_millis(150 + rng.below(300)));
        pause(&mut rng);
        match round % 4 {
            // The program alone.
            0 => {}
            1 => {
                target.kill();
                target = Device::start(&setup, &[]);
                pause(&mut rng);
                assert!(program.try_wait().unwrap().is_none(), "it outlives its target");
            }
            2 => {
                server.kill().unwrap();
                server = host(&setup, &address(&setup));
            }
            _ => {
                target.kill();
                server.kill().unwrap();
                target = Device::start(&setup, &[]);
                server = host(&setup, &address(&setup));
            }
        }
        // Where the host has died, so has its session, and it has ended by itself.
        let _ = program.kill();
        program.wait().unwrap();
        ledger.take(&said.join().unwrap());
        ledger.judge(server.address(), round);
    }
    assert!(ledger.direct > 500, "{} blocks were written directly", ledger.direct);
    server.end().unwrap();
    assert_eq!(target.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}
