//! A change that is durable when it is answered, beside what another client keeps of the same file:
//! the server dies at each operation of its storage (`docs/design/lost-server.md`, "What a client
//! keeps").

use siftfs_base::InodeNr;
use siftfs_crash::fault_device;
use siftfs_device::{Cut, Device, FaultDevice};
use siftfs_placement::{MkfsOptions, mkfs_on};
use siftfs_proto::compound::{Access, BytesArg, Compound, FileArg, NumberArg, Step, Wanted};
use siftfs_proto::{Handle, Level, ROOT_INO, Request, Rights};
use siftfs_served::returning::{Mount, leave_books, open, serve};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PART: usize = 4096;

/// Writes two parts of a file, between which there is another one.
fn compound(handle: Handle) -> Request {
    let write = |part: u64| Step::Write {
        file: FileArg::Open(handle),
        offset: NumberArg::Given(part * PART as u64),
        data: BytesArg::Given(vec![b'y'; PART]),
    };
    let (base, level, wanted) = (ROOT_INO, Level::Durable, Wanted::All);
    let (steps, rights) = (vec![write(0), write(2)], Rights::all());
    Request::Compound(Box::new(Compound { base, steps, level, rights, wanted }))
}

fn write(mount: &Mount, ino: InodeNr, bytes: Vec<u8>) {
    mount.ask(Request::write(ino, 0, bytes)).unwrap();
}

/// The server dies at the operation `at` after the compound was sent. What is in the file then, and
/// whether the compound was answered.
fn dies(at: u64, cut: Cut) -> (Vec<u8>, bool) {
    let [alive, books] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let device = Arc::new(FaultDevice::new(32 << 20, 1));
    mkfs_on(device.clone() as Arc<dyn Device>, &MkfsOptions::default()).unwrap();
    let volume = open(&device, &device.contents(), alive.path()).unwrap();
    let setup = serve(&volume);
    let [one, other] = [(), ()].map(|()| Mount::new(&setup.address));
    let ino = one.create("f");
    write(&one, ino, vec![b'0'; 3 * PART]);
    one.fsync(ino).unwrap();
    let handle = one.ask(Request::open(ino, Access::Both)).unwrap().opened().unwrap();
    let file = other.find("f").unwrap();
    write(&other, file, vec![b'x'; PART]);
    device.cut_at(device.ops() + at);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| one.ask(compound(handle)).is_ok());
        let begun = Instant::now();
        while !call.is_finished() && !device.is_cut() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{at}: no answer, and no death");
            std::thread::sleep(Duration::from_millis(1));
        }
        let answered = call.is_finished() && !device.is_cut();
        [&one, &other].into_iter().for_each(Mount::loses);
        leave_books(alive.path(), books.path());
        let image = device.image(cut);
        drop(setup);
        volume.abandon();
        let device = Arc::new(fault_device(image.clone(), 1));
        let volume = open(&device, &image, books.path()).unwrap();
        let setup = serve(&volume);
        [&one, &other].into_iter().for_each(|mount| mount.finds(&setup.address));
        other.fsync(file).unwrap();
        let found = other.read("f").unwrap();
        let _told = call.join().unwrap();
        [&one, &other].into_iter().for_each(|mount| mount.session.leave());
        drop(setup);
        volume.close().unwrap();
        (found, answered)
    })
}

/// What the other client wrote was answered before, so it is not over any part of the compound.
///
/// Seen to fail, with half of the compound, when what others keep is made durable behind it alone.
#[test]
fn what_others_keep_does_not_come_over_half_of_a_compound() {
    let (mut at, mut whole) = (0, 0);
    while whole < 2 {
        let cut = [Cut::KeepAll, Cut::LoseAll][(at % 2) as usize];
        let (found, answered) = dies(at, cut);
        let parts: Vec<_> = found.chunks(PART).map(|part| part[0] as char).collect();
        assert!(found.chunks(PART).all(|part| part.iter().all(|byte| *byte == part[0])));
        match &parts[..] {
            ['y', '0', 'y'] => {}
            ['x', '0', '0'] if !answered => {}
            other => panic!("{at}, {cut:?}, answered: {answered}: {other:?}"),
        }
        whole += u32::from(answered);
        at += 1;
    }
    assert!(at > 4, "a compound of {at} operations");
}
