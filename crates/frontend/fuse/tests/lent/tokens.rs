//! A program asks for a token of a file that it has open, and what that says of the program.

use crate::program::Program;
use crate::world::{World, each, with_logs};
use siftfs_fuse::{MountOptions, Peer, Redeemed, Requests};
use siftfs_proto::commands::{GRANT, GrantOut};
use std::path::Path;

const READ: i32 = libc::O_RDONLY;
const BOTH: i32 = libc::O_RDWR | libc::O_CREAT;
const SOCKET: &str = "/run/siftfs/7:7.logs";

/// What the ioctl says, as the program got it.
fn granted(program: &mut Program, name: &str) -> Result<GrantOut, String> {
    let said = program.say(&format!("ioctl({name:?}, {GRANT}, {})", GRANT >> 16 & 0x3FFF));
    // Bytes are in quotes, and the name of an errno is not.
    let Some(hex) = said.strip_prefix('\'').and_then(|hex| hex.strip_suffix('\'')) else {
        return Err(said);
    };
    let byte =
        |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
    Ok(GrantOut::decode(&bytes).expect("an answer"))
}

fn redeemed(world: &World, program: &mut Program, name: &str) -> Redeemed {
    let token = granted(program, name).expect("a token").token;
    let peer = Peer { pid: program.pid(), uid: 0 };
    world.tokens.redeem(token, peer).expect("it is the program's")
}

fn socket(world: &World) {
    world.tokens.listen_at(Path::new(SOCKET)).expect("the first one");
}

#[test]
fn a_token_stands_for_an_open_file() {
    each(&with_logs(), |world| {
        let (mut program, mut other) = (Program::new(), Program::new());
        program.open("f", &world.path("f"), BOTH);
        assert_eq!(granted(&mut program, "f"), Err("ENOTTY".into()), "there is no socket yet");
        socket(world);
        let first = granted(&mut program, "f").expect("a token");
        assert_eq!(first.path.split(|byte| *byte == 0).next(), Some(SOCKET.as_bytes()));
        let theirs = Peer { pid: other.pid(), uid: 0 };
        assert!(world.tokens.redeem(first.token, theirs).is_err(), "another's");
        let file = redeemed(world, &mut program, "f");
        assert_eq!((file.ino, file.process), (world.ino("f"), program.pid()));
        assert!(file.reads && file.credentials.uid == 0);
        program.open("w", &world.path("f"), libc::O_WRONLY);
        assert!(!redeemed(world, &mut program, "w").reads);
        assert_eq!(program.say("os.close(FILES['w'])"), "None");
        let lender = world.lender();
        let handle = lender.open(file.ino);
        let lease = lender.lease(handle, 1);
        assert_eq!(file.writers(), 1);
        lender.give_back(lease);
        // Another program's is no writer of this one's, and keeps it from the lease.
        other.open("f", &world.path("f"), BOTH);
        program.open("g", &world.path("f"), READ);
        assert_eq!(file.writers(), 1);
        assert_eq!(lender.try_lease(handle, file.writers()), Err(libc::EAGAIN));
        // Several handles of one program share it.
        assert_eq!(other.say("os.close(FILES['f'])"), "None");
        program.open("h", &world.path("f"), BOTH);
        assert_eq!(file.writers(), 2);
        lender.lease(handle, 2);
        assert_eq!(redeemed(world, &mut program, "h").ino, file.ino);
    });
}

#[test]
fn who_gets_no_token() {
    each(&with_logs(), |world| {
        socket(world);
        let mut program = Program::new();
        program.open("f", &world.path("f"), BOTH);
        program.open("reads", &world.path("f"), READ);
        program.open("dir", world.dir.path(), READ | libc::O_DIRECTORY);
        assert_eq!(granted(&mut program, "reads"), Err("EBADF".into()));
        assert_eq!(granted(&mut program, "dir"), Err("EBADF".into()));
        world.operations.set(false);
        assert_eq!(granted(&mut program, "f"), Err("ENOTTY".into()));
        world.operations.set(true);
        assert!(granted(&mut program, "f").is_ok());
    });
    let device = |options| MountOptions { requests: Requests::Device, ..options };
    for (options, why) in [
        (MountOptions { shared: true, ..MountOptions::default() }, "ENOTTY"),
        (MountOptions { sync: true, ..with_logs() }, "ENOTSUP"),
    ] {
        each(&device(options), |world| {
            socket(world);
            let mut program = Program::new();
            program.open("f", &world.path("f"), BOTH);
            assert_eq!(granted(&mut program, "f"), Err(why.into()));
        });
    }
}

/// What the holder's own program opens does not end its lease, unless it truncates; what another
/// one opens to write does.
#[test]
fn a_program_opens_its_own_file_beside_its_lease() {
    each(&with_logs(), |world| {
        socket(world);
        let (mut program, mut other) = (Program::new(), Program::new());
        program.open("f", &world.path("f"), BOTH);
        let file = redeemed(world, &mut program, "f");
        let lender = world.lender();
        let handle = lender.open(file.ino);
        let lease = lender.lease(handle, file.writers());
        world.tokens.holds(file.process, file.ino);
        for name in ["g", "h"] {
            program.open(name, &world.path("f"), BOTH);
        }
        assert_eq!(file.writers(), 3);
        assert!(lender.told.try_recv().is_err(), "nobody recalled");
        let opens = |flags: i32| format!("opens('x', '{}', {flags})", world.path("f").display());
        other.tell(&opens(libc::O_WRONLY));
        assert_eq!(lender.recalled(), lease);
        lender.give_back(lease);
        assert_eq!(
            (other.answer(), other.say("os.close(FILES['x'])")),
            ("None".into(), "None".into())
        );
        let lease = lender.lease(handle, file.writers());
        program.tell(&opens(libc::O_WRONLY | libc::O_TRUNC));
        assert_eq!(lender.recalled(), lease);
        lender.give_back(lease);
        assert_eq!(program.answer(), "None");
        world.tokens.returns(file.process, file.ino);
        let lease = lender.lease(handle, file.writers());
        program.tell(&opens(libc::O_WRONLY));
        assert_eq!(lender.recalled(), lease);
        lender.give_back(lease);
        assert_eq!(program.answer(), "None");
    });
}
