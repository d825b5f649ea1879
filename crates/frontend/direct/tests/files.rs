//! Files that are read and written at the target, as a program sees them, and as the others do.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::Rng;
use siftfs_direct::DirectFile;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::machine::{Machine, Way};
use support::{all, ask, bytes, create, find, host, open, session, until_direct, user, volume};

/// A file is one file, whichever way its bytes go, and whatever others do in between.
#[test]
fn one_file_by_all_ways() {
    for (way, seed) in [(Way::SharedMemory, 1), (Way::Unix, 2), (Way::Tcp, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(48 << 20), way, dir.path());
        let v = host(&machine);
        let (program, other, mut rng) = (session(&v), user(&v), Rng::new(seed));
        let file = create(&program, "f");
        let (mut model, mut direct) = (Vec::new(), 0);
        for round in 0..400 {
            let len = [1, 100, 4096, 5000, 70_000][rng.below(5) as usize];
            let at = rng.below(model.len() as u64 + 9000);
            match rng.below(40) {
                // Not so often that the host leaves the file alone.
                0 if rng.chance(20) => {
                    // Another one that wants the file has it, with all that was written.
                    let handle = open(&other, "f");
                    assert!(all(&other, handle) == model, "{way:?}, round {round}");
                    let place = rng.below(model.len() as u64 + 1);
                    ask(&other, Request::write(handle, place, b"others".to_vec()));
                    let end = model.len().max(place as usize + 6);
                    model.resize(end, 0);
                    model[place as usize..place as usize + 6].copy_from_slice(b"others");
                    ask(&other, Request::Release { handle });
                }
                1 => file.sync_all().unwrap(),
                2..5 => file.sync_data().unwrap(),
                5 if !model.is_empty() && rng.chance(20) => {
                    let size = rng.below(2 * model.len() as u64) as usize;
                    file.set_len(size as u64).unwrap();
                    model.resize(size, 0);
                }
                6..20 => {
                    let found = file.read_at(at, len).unwrap();
                    let end = model.len().min(at as usize + len);
                    assert!(found == model.get(at as usize..end).unwrap_or(&[]), "round {round}");
                }
                kind => {
                    let data = bytes(&mut rng, len);
                    match kind {
                        20..23 => file.write_durable_at(at, &data).unwrap(),
                        _ => file.write_at(at, &data).unwrap(),
                    }
                    model.resize(model.len().max(at as usize + len), 0);
                    model[at as usize..at as usize + len].copy_from_slice(&data);
                }
            }
            if round % 40 == 0 {
                // A block at least, which the host brings home when it may.
                file.write_at(0, &[7; 4096]).unwrap();
                model.resize(model.len().max(4096), 0);
                model[..4096].fill(7);
                until_direct(&file);
            }
            direct += u32::from(file.is_direct());
        }
        assert!(direct >= 10, "{way:?}: {direct} of 400 rounds had something granted");
        drop(file);
        let handle = open(&other, "f");
        assert!(all(&other, handle) == model, "{way:?}");
        drop(program);
        v.close().unwrap();
    }
}

/// Two programs, and several threads of each, that want one file all the time: each write is there,
/// and nobody waits for ever.
#[test]
fn programs_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (first, second) = (session(&v), session(&v));
    let file = create(&first, "f");
    let (handle, ino) = find(second.service(), "f");
    let other = second.file(handle, ino);
    file.write_at(0, &[0; 64 << 12]).unwrap();
    file.sync_all().unwrap();
    until_direct(&file);
    let over = AtomicBool::new(false);
    let work = |file: &DirectFile, own: u8| {
        let (mut newest, mut round, at) = (0, 0, u64::from(own) * 8000);
        while !over.load(Ordering::SeqCst) {
            round = round % 250 + 1;
            file.write_at(at, &[round; 5000]).unwrap();
            newest = round;
            assert!(file.read_at(at, 5000).unwrap() == [round; 5000], "thread {own}");
            if round % 16 == 0 {
                file.sync_data().unwrap();
            }
        }
        newest
    };
    let newest: Vec<u8> = thread::scope(|scope| {
        let of = |own: u8| if own.is_multiple_of(2) { &file } else { &other };
        let threads: Vec<_> = (0..6).map(|own| scope.spawn(move || work(of(own), own))).collect();
        thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let reader = user(&v);
    let handle = open(&reader, "f");
    let found = all(&reader, handle);
    for (own, newest) in newest.into_iter().enumerate() {
        assert!(found[own * 8000..][..5000] == [newest; 5000], "thread {own}");
    }
    drop((file, other, first, second));
    v.close().unwrap();
}

/// Several programs read a file at the target at once. When one changes it, by whatever way, each
/// reads that from then on; and when it is left alone, they go to the target again.
#[test]
fn several_programs_read() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (writer, other, mut rng) = (session(&v), user(&v), Rng::new(4));
    let file = create(&writer, "f");
    let mut model = bytes(&mut rng, (40 << 12) + 500);
    file.write_at(0, &model).unwrap();
    file.sync_all().unwrap();
    let readers = [(); 3].map(|()| session(&v));
    let files: Vec<_> = readers
        .iter()
        .map(|reader| {
            let found =
                ask(reader.service(), Request::Lookup { parent: ROOT_INO, name: "f".into() });
            let ino = found.attr().unwrap().ino;
            let opened = ask(reader.service(), Request::open(ino, Access::Read));
            reader.file_to_read(opened.opened().unwrap(), ino)
        })
        .collect();
    for round in 0..12 {
        // Read until all of them are direct, and a little longer.
        let begun = Instant::now();
        let mut direct = 0;
        while direct < 20 {
            for file in &files {
                let at = rng.below(model.len() as u64 + 4000);
                let len = [1, 4096, 9000][rng.below(3) as usize];
                let end = model.len().min(at as usize + len);
                let want = model.get(at as usize..end).unwrap_or(&[]);
                assert!(file.read_at(at, len).unwrap() == want, "round {round}, at {at}");
            }
            direct += usize::from(files.iter().all(DirectFile::is_direct));
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is granted");
        }
        match round % 4 {
            0 => {
                let at = rng.below(30 << 12);
                file.write_at(at, &[round; 9000]).unwrap();
                model[at as usize..][..9000].fill(round);
            }
            1 => {
                let handle = open(&other, "f");
                ask(&other, Request::write(handle, model.len() as u64, vec![round; 5000]));
                ask(&other, Request::Release { handle });
                model.resize(model.len() + 5000, round);
            }
            2 => {
                file.set_len(37 << 12).unwrap();
                model.truncate(37 << 12);
            }
            _ => {
                file.write_durable_at(0, &[round; 4096]).unwrap();
                model[..4096].fill(round);
            }
        }
    }
    let refused = files[0].write_at(0, b"x").unwrap_err();
    assert_eq!(refused.errno(), libc::EBADF);
    drop((files, file, readers, writer));
    v.close().unwrap();
}

/// What was written outlives the target's power, synced or not: the program keeps what no flush has
/// covered, and gives it to the host. The file is direct again after that.
#[test]
fn a_target_that_loses_its_power() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine);
        let program = session(&v);
        let (file, mut rng) = (create(&program, "f"), Rng::new(seed));
        let mut model = bytes(&mut rng, 40 << 12);
        file.write_at(0, &model).unwrap();
        file.sync_all().unwrap();
        for round in 0..3 {
            until_direct(&file);
            for _ in 0..20 {
                let (at, data) = (rng.below(39 << 12), bytes(&mut rng, 4096));
                file.write_at(at, &data).unwrap();
                model[at as usize..][..4096].copy_from_slice(&data);
            }
            file.sync_data().unwrap();
            let (at, data) = (rng.below(39 << 12), bytes(&mut rng, 4096));
            file.write_durable_at(at, &data).unwrap();
            model[at as usize..][..4096].copy_from_slice(&data);
            for _ in 0..rng.below(4) {
                let (at, data) = (rng.below(39 << 12), bytes(&mut rng, 4096));
                file.write_at(at, &data).unwrap();
                model[at as usize..][..4096].copy_from_slice(&data);
            }
            machine = machine.power_fails(Way::SharedMemory, rng.below(u64::MAX));
            match rng.below(3) {
                0 => file.sync_data().unwrap(),
                1 => file.sync_all().unwrap(),
                _ => {}
            }
            assert!(file.read_at(0, 40 << 12).unwrap() == model, "seed {seed}, round {round}");
            file.sync_data().unwrap();
        }
        drop(file);
        drop(program);
        v.close().unwrap();
    }
}

/// A lease that nobody uses ends with its term, and the grant with it. What is written then is done
/// by the next one: nothing of it was carried out.
#[test]
fn a_file_that_was_idle() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let program = session(&v);
    let file = create(&program, "f");
    file.write_at(0, &[1; 40 << 12]).unwrap();
    file.sync_all().unwrap();
    until_direct(&file);
    for round in 2..4u8 {
        thread::sleep(Duration::from_secs(5));
        file.write_durable_at(4096, &[round; 9000]).unwrap();
        file.write_at(30_000, &[round; 10]).unwrap();
        file.sync_data().unwrap();
        assert!(file.read_at(4096, 9000).unwrap() == [round; 9000]);
        until_direct(&file);
    }
    drop(file);
    drop(program);
    v.close().unwrap();
}
