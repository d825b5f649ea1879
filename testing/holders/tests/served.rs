//! The same programs, where the Runtime is behind shared memory as in another process: headers go
//! to it by messages, recalls come by messages (`docs/design/private-logs.md`, "NICFS's
//! placement").

#[path = "back_end.rs"]
mod back_end;
#[path = "hostile.rs"]
mod hostile;
#[path = "programs.rs"]
mod programs;

use siftfs_holders::program::Program;
use siftfs_holders::world::{Setting, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_siftfs-holders");

fn setting() -> Setting {
    Setting { served: true, ..Setting::default() }
}

/// The Runtime is lost: what a program has published cannot be taken in, and nobody can say that
/// what was taken in is durable. Both are errors of the next fsync(2), and the leases end, however
/// long they would last by their term.
///
/// Seen to fail when the end of a connection ends no lease, and when what was taken in is
/// forgotten.
#[test]
fn a_runtime_that_is_lost_is_told() {
    let world = World::new(Setting { deaf: true, ..setting() });
    let user = world.user();
    let files = [user.make("f", b""), user.make("g", b"")];
    let mut programs = files.map(|ino| Program::start(PROGRAM, &world, ino, false));
    for program in &mut programs {
        assert_eq!(program.tell("append durable"), "0");
        assert_eq!(program.tell("sync"), "durable");
        assert_eq!(program.tell("append newer"), "7");
    }
    // The first one's is taken in, the other's is in its ring.
    assert_eq!(programs[0].tell("read"), "durablenewer");
    world.stop_server();
    world.until("all leases end", |world| world.counts().leases == 0);
    for program in &mut programs {
        assert_eq!(program.tell("sync"), format!("error {}", libc::EIO));
        assert_eq!(program.tell("append x"), "mount");
    }
    assert_eq!(world.counts().lost, 1, "a record that was published");
    programs.into_iter().for_each(Program::wait);
    world.close();
}
