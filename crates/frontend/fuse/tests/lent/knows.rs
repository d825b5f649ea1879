//! What the kernel of a mount knows of a file is taken back before the file is leased, and what it
//! knows of all else stays.

use crate::program::Program;
use crate::world::{World, each, with_logs};
use siftfs_fuse::MountOptions;
use std::path::Path;

const READ: i32 = libc::O_RDONLY;
const BOTH: i32 = libc::O_RDWR;
const APPEND: i32 = libc::O_WRONLY | libc::O_APPEND;

/// A file with some bytes that the kernel knows, with all that is in it.
fn known(world: &World, program: &mut Program, name: &str) -> std::path::PathBuf {
    let path = world.path(name);
    program.open("made", &path, BOTH | libc::O_CREAT);
    assert_eq!(program.say("os.write(FILES['made'], b'old bytes')"), "9");
    assert_eq!(program.say("os.pread(FILES['made'], 100, 0)"), "b'old bytes'");
    assert_eq!(program.say("os.close(FILES['made'])"), "None");
    assert_eq!(program.size(&path), "9");
    path
}

/// How many requests of these kinds the next calls cost.
fn costs<T>(world: &World, kinds: &[&str], act: impl FnOnce() -> T) -> (Vec<u64>, T) {
    let counts = || kinds.iter().map(|kind| world.count(kind)).collect::<Vec<_>>();
    let before = counts();
    let result = act();
    (counts().iter().zip(before).map(|(now, before)| now - before).collect(), result)
}

fn both_kinds() -> [MountOptions; 2] {
    [with_logs(), MountOptions { shared: true, ..with_logs() }]
}

/// stat(2) shows what the holder shows, each time, and read(2) what it wrote.
#[test]
fn what_the_kernel_knows_is_taken_back_before_a_lease() {
    for options in both_kinds() {
        each(&options, |world| {
            let mut program = Program::new();
            let path = known(world, &mut program, "f");
            let other = known(world, &mut program, "g");
            program.open("f", &path, READ);
            assert_eq!(program.say("os.pread(FILES['f'], 100, 0)"), "b'old bytes'");
            let lender = world.lender();
            let handle = lender.open(world.ino("f"));
            lender.shows(9);
            let lease = lender.lease(handle, 0);
            for size in [9, 20, 5000] {
                lender.shows(size);
                assert_eq!(program.size(&path), size.to_string());
            }
            assert_eq!(program.size(&other), "9");
            assert_eq!(program.say(&listing(world)), "[('f', 5000), ('g', 9)]");
            program.open("again", &path, READ);
            assert!(lender.told.try_recv().is_err(), "nobody has asked for its bytes");
            program.tell("os.pread(FILES['f'], 100, 0)");
            assert_eq!(lender.recalled(), lease);
            lender.write(lease, 0, b"NEW");
            lender.write(lease, 9, b" and more");
            lender.give_back(lease);
            assert_eq!(program.answer(), "b'NEW bytes and more'");
            assert_eq!(program.size(&path), "18");
        });
    }
}

fn listing(world: &World) -> String {
    let dir = world.dir.path().display();
    let entries = format!("os.scandir('{dir}')");
    format!("sorted((e.name, e.stat().st_size) for e in {entries} if e.is_file())")
}

/// A mount that is alone keeps names, attributes and missing names for as long as ever, its locks
/// are the kernel's, and close(2) of what is only read asks nothing.
#[test]
fn what_is_not_leased_is_known_for_as_long_as_ever() {
    each(&with_logs(), |world| {
        let mut program = Program::new();
        let path = known(world, &mut program, "f");
        let leased = known(world, &mut program, "g");
        let exists = |program: &mut Program| {
            let missing = world.path("missing");
            assert_eq!(program.say(&format!("os.path.exists('{}')", missing.display())), "False");
        };
        exists(&mut program);
        assert_eq!(program.size(&path) + &program.size(&leased), "99");
        let lender = world.lender();
        let handle = lender.open(world.ino("g"));
        lender.shows(9);
        let lease = lender.lease(handle, 0);
        lender.give_back(lease);
        // Longer than names count where others change them.
        std::thread::sleep(std::time::Duration::from_millis(2300));
        let kinds = ["lookup", "getattr", "statx", "flush", "setlk", "setlkw", "read"];
        let (cost, ()) = costs(world, &kinds, || {
            for _ in 0..3 {
                exists(&mut program);
                assert_eq!(program.size(&path), "9");
                program.open("f", &path, READ);
                assert_eq!(program.say("fcntl.lockf(FILES['f'], fcntl.LOCK_SH)"), "None");
                assert_eq!(program.say("os.pread(FILES['f'], 100, 0)"), "b'old bytes'");
                assert_eq!(program.say("os.close(FILES['f'])"), "None");
            }
        });
        assert_eq!(cost, [0; 7]);
        let lease = lender.lease(handle, 0);
        // The kernel looks a name up again whose inode was opened by its number.
        let lookups = |program: &mut Program| {
            let (cost, _) = costs(world, &["lookup"], || program.size(&leased));
            cost[0]
        };
        assert_eq!((lookups(&mut program), lookups(&mut program)), (1, 0));
        let asked = |program: &mut Program| {
            let kinds = ["getattr", "statx"];
            let (cost, _) = costs(world, &kinds, || program.size(&leased));
            cost.iter().sum::<u64>()
        };
        assert_eq!([asked(&mut program), asked(&mut program)], [1, 1], "each time");
        lender.give_back(lease);
        asked(&mut program);
        assert_eq!(asked(&mut program), 0, "it counts again");
    });
}

/// A mapping from before shows what the holder wrote, and reaches to the end that the file has now.
#[test]
fn mappings_are_taken_back_too() {
    for options in both_kinds() {
        each(&options, |world| {
            let mut program = Program::new();
            let path = known(world, &mut program, "f");
            program.open("f", &path, READ);
            assert_eq!(program.say("maps('f', 9)"), "None");
            assert_eq!(program.say("MAPS['f'][:3]"), "b'old'");
            let lender = world.lender();
            let handle = lender.open(world.ino("f"));
            lender.shows(9);
            let lease = lender.lease(handle, 0);
            program.tell("MAPS['f'][:3]");
            assert_eq!(lender.recalled(), lease);
            lender.write(lease, 0, b"NEW");
            lender.give_back(lease);
            assert_eq!(program.answer(), "b'NEW'");
            // It grows under a mapping that is longer than it, and nobody asks for its size.
            let lease = lender.lease(handle, 0);
            lender.shows(9000);
            assert_eq!(program.size(&path), "9000");
            assert_eq!(program.say("maps('f', 9000)"), "None");
            lender.write(lease, 0, &[b'x'; 9000]);
            lender.give_back(lease);
            assert_eq!(program.say("MAPS['f'][8999:]"), "b'x'");
            let lease = lender.lease(handle, 0);
            lender.write(lease, 9000, &[b'y'; 9000]);
            lender.give_back(lease);
            // The kernel knows the end by itself: a page beyond it would be SIGBUS.
            let (cost, size) = costs(world, &["getattr", "statx"], || {
                program.say("os.lseek(FILES['f'], 0, os.SEEK_END)")
            });
            assert_eq!((cost, size.as_str()), (vec![0, 0], "18000"));
        });
    }
}

/// An append goes to the end that the holder made, not to the one that the kernel knows (rule R50).
#[test]
fn r50_an_append_goes_to_the_end_of_the_log() {
    for options in both_kinds() {
        each(&options, |world| {
            let mut program = Program::new();
            let path = known(world, &mut program, "f");
            program.open("f", &path, APPEND);
            let lender = world.lender();
            let handle = lender.open(world.ino("f"));
            for (turn, text) in
                ["old bytes", "old bytes+more+!", "old bytes+more+!+more+!"].into_iter().enumerate()
            {
                let end = text.len() as u64;
                lender.shows(end);
                let lease = lender.lease(handle, 1);
                // Once the kernel has seen a size that is not the end, once it has not.
                if turn == 1 {
                    lender.shows(end + 3);
                    assert_eq!(program.size(&path), (end + 3).to_string());
                }
                program.tell("os.write(FILES['f'], b'!')");
                assert_eq!(lender.recalled(), lease);
                lender.write(lease, end, b"+more+");
                lender.give_back(lease);
                assert_eq!(program.answer(), "1");
                assert_eq!(contents(&mut program, &path), format!("b'{text}+more+!'"));
                if turn == 1 {
                    // Three recalls within a second leave a file alone.
                    std::thread::sleep(std::time::Duration::from_millis(1100));
                }
            }
        });
    }
}

fn contents(program: &mut Program, path: &Path) -> String {
    program.say(&format!("open('{}', 'rb').read()", path.display()))
}

/// What a program writes through the kernel while pages are taken back, and reads meanwhile, is
/// there whatever comes of the lease.
#[test]
fn writes_beside_a_file_that_drains_are_seen() {
    each(&with_logs(), |world| {
        let mut program = Program::new();
        let path = known(world, &mut program, "f");
        program.open("f", &path, BOTH);
        let lender = world.lender();
        let handle = lender.open(world.ino("f"));
        lender.shows(9);
        for turn in 0..60 {
            let text = format!("{turn:09}");
            program.tell(&format!("os.pwrite(FILES['f'], b'{text}', 0)"));
            program.tell("os.pread(FILES['f'], 9, 0)");
            // Sometimes refused, sometimes recalled.
            let leased = lender.try_lease(handle, 1 + turn % 2);
            if let Ok(lease) = leased {
                lender.give_back(lease);
            }
            assert_eq!((program.answer(), program.answer()), ("9".into(), format!("b'{text}'")));
            assert_eq!(program.say("os.pread(FILES['f'], 9, 0)"), format!("b'{text}'"));
        }
    });
}

/// What is copied ends where the file does, not where its holder says.
#[test]
fn a_copy_goes_by_what_is_there() {
    each(&with_logs(), |world| {
        let mut program = Program::new();
        let path = known(world, &mut program, "f");
        let lender = world.lender();
        let handle = lender.open(world.ino("f"));
        lender.shows(20_000);
        let lease = lender.lease(handle, 0);
        assert_eq!(program.size(&path), "20000");
        program.open("f", &path, READ);
        program.open("g", &world.path("g"), BOTH | libc::O_CREAT);
        program.tell("os.copy_file_range(FILES['f'], FILES['g'], 15000)");
        assert_eq!(lender.recalled(), lease);
        lender.give_back(lease);
        assert_eq!(program.answer(), "9");
        assert_eq!(program.size(&world.path("g")), "9");
    });
}
