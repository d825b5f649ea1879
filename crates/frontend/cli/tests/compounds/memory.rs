//! How much memory compounds take, however many programs ask at once.

use crate::calls::{Child, File, START, as_user};
use crate::refused::bomb;
use crate::support::{Setup, siftfs};
use crate::{mounted, root};
use rustix::fs::OFlags;
use siftfs_client::{Access, Codec, Compound, Level};
use siftfs_proto::compound::{BytesArg, NumberArg, StepNr};
use siftfs_proto::ioctl::compound::{self as raw, Step};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What status says of the memory for operations.
fn status(s: &Setup, field: &str) -> u64 {
    let status = siftfs(&["status", s.dir(), "--json"]).ok();
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    status["runtime"]["operations"][field].as_u64().unwrap()
}

const EACH: u32 = 15 << 20;
/// Most bytes of one user.
const SHARE: u64 = 192 << 20;

/// Many processes that decompress 15 MiB each: together they take no more than a user may have,
/// each of them gets its turn, and another user is not kept from a small compound meanwhile.
#[test]
fn many_processes_that_decompress() {
    let frame = bomb(&vec![0; EACH as usize]);
    let s = mounted("writethrough");
    File::create(&s.path("frame"), &frame).sync();
    File::create(&s.path("small"), b"small").sync();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(s.tmp.path(), open).unwrap();
    let steps = vec![
        (Step::Open { path: b"frame".into(), access: Access::Read, truncate: false }, false),
        (
            Step::Read {
                file: raw::File::Step(StepNr(0)),
                offset: NumberArg::Given(0),
                len: u32::try_from(frame.len()).unwrap(),
            },
            false,
        ),
        (
            Step::Decompress { codec: Codec::Zstd, data: BytesArg::Step(StepNr(1)), most: EACH },
            false,
        ),
    ];
    let (command, buffer) = raw::Compound { steps, level: Level::Visible }.encode(100).unwrap();
    let dir = root(&s);
    let fd = dir.0.as_raw_fd();
    let ask = |mut buffer: Vec<u8>| {
        move || {
            // Those that there is no memory for come again.
            for _ in 0..100_000 {
                // SAFETY: as many bytes as the command says.
                match unsafe { libc::ioctl(fd, command.into(), buffer.as_mut_ptr()) } {
                    0 => return i32::from(buffer[..8] != [0; 8]),
                    // SAFETY: the calling thread's errno.
                    _ if unsafe { *libc::__errno_location() } != libc::EAGAIN => return 2,
                    // SAFETY: no memory is passed.
                    _ => drop(unsafe { libc::usleep(1000) }),
                }
            }
            3
        }
    };
    let children: Vec<Child> = (0..40).map(|_| Child::start(ask(buffer.clone()))).collect();
    for _ in 0..20 {
        as_user(4711, || {
            let dir = root(&s);
            let mut steps = Compound::on(&dir.0);
            let file = steps.open("small", Access::Read);
            let text = steps.read(file, 0, 10);
            steps.want(text);
            let results = steps.run(Level::Visible).expect("there is memory for other users");
            assert_eq!(results.bytes(text), Some(&b"small"[..]));
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    for child in children {
        assert_eq!(child.wait(), 0);
    }
    let (now, peak, most) =
        (status(&s, "bytes"), status(&s, "bytes_peak"), status(&s, "bytes_most"));
    assert_eq!(now, 0, "all of it is given back");
    assert!(peak >= u64::from(EACH) && peak <= SHARE && SHARE < most, "{peak} of {most}");
    drop(dir);
    s.umount();
}

/// Sections are in the same bound: what they hold is counted as long as they last.
#[test]
fn sections_are_counted() {
    let s = mounted("writethrough");
    let file = File::open(&s.path(""), OFlags::RDONLY);
    let f = File::create(&s.path("f"), b"f");
    f.call(START).unwrap();
    f.write(0, &[1; 3 * 4096]);
    f.write(4096, &[2; 100]);
    let held = status(&s, "bytes");
    assert!((3 * 4096..4 * 4096).contains(&held), "{held}");
    drop((f, file));
    let ended = (0..1000).any(|_| status(&s, "bytes") == 0);
    assert!(ended, "it ends with its file");
    s.umount();
}
