use super::*;
use crate::mount::mountinfo::mounts_in;
use siftfs_base::Error;

const TABLE: &str = "\
20 1 8:1 / / rw - ext4 /dev/a rw
30 20 0:57 / /m rw,nosuid - fuse.siftfs /v rw
31 20 0:57 /sub /view ro - fuse.siftfs /v rw
32 20 0:57 / /mapped rw,idmapped - fuse.siftfs /v rw
33 20 0:58 / /other rw - fuse.siftfs /w rw
40 30 0:60 / /m/d/secret rw - tmpfs none rw
41 31 8:1 /null /view/f rw - ext4 /dev/a rw
42 33 0:61 / /other/free rw - tmpfs none rw
43 40 0:62 / /m/d/secret/free rw - tmpfs none rw
";

/// The view by the mount of this number.
fn view(id: u64) -> Result<Option<View>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), TABLE).expect("written");
    let mounts = mounts_in(file.path()).expect("read");
    View::of(&mounts, &mounts[1], id)
}

fn refusal(result: Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Error::Posix(errno)) => errno,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_a_mount_says() {
    let [rw, ro] = [30, 31].map(|id| view(id).expect("no ids are mapped").expect("it is there"));
    assert_eq!((refusal(rw.may_change()), refusal(ro.may_change())), (0, libc::EROFS));
    assert_eq!((refusal(rw.may_link(&rw)), refusal(rw.may_link(&ro))), (0, libc::EXDEV));
    assert_eq!(view(32).expect_err("ids are mapped").errno(), libc::EOPNOTSUPP);
    for other in [20, 33, 40, 99] {
        assert!(view(other).expect("no ids are mapped").is_none(), "{other}");
    }
}

/// Whatever is mounted on the volume counts, by any of its mounts; what is mounted elsewhere, or on
/// what is mounted, does not.
#[test]
fn places_that_are_covered() {
    for id in [30, 31] {
        let view = view(id).expect("no ids are mapped").expect("it is there");
        for (path, errno) in [
            ("f", libc::EBUSY),
            ("a//f", libc::EBUSY),
            ("f/", libc::EBUSY),
            ("f/a", libc::EXDEV),
            ("d/secret/key", libc::EXDEV),
            ("renamed/secret/x/y", libc::EXDEV),
            ("secret", libc::EBUSY),
            ("d/free", 0),
            ("d/secrets/key", 0),
            ("", 0),
        ] {
            assert_eq!(refusal(view.may_follow(path.as_bytes())), errno, "{path}");
        }
    }
}

/// Each step that changes something by a path asks for a mount that can be changed, and no other
/// step does.
#[test]
fn steps_that_change() {
    use siftfs_proto::compound::{Access, BytesArg, Checksum, Codec, NumberArg, StepNr, Width};
    let ro = view(31).expect("no ids are mapped").expect("it is there");
    let (path, to) = (b"a".to_vec(), b"b".to_vec());
    let (number, data) = (|| NumberArg::Given(0), || BytesArg::Given(Vec::new()));
    let set = siftfs_proto::compound::NewAttributes::default;
    let open = |access, truncate| Step::Open { path: b"a".to_vec(), access, truncate };
    let by = |file: File| {
        [
            Step::Write { file, offset: number(), data: data() },
            Step::Append { file, data: data() },
            Step::Patch { file, offset: number(), data: data() },
            Step::Add { file, offset: number(), width: Width::U32, addend: number() },
            Step::CompareAndSet { file, offset: number(), expected: data(), new: data() },
            Step::SetSize { file, size: number() },
            Step::SetAttributes { file, set: set() },
        ]
    };
    let descriptor = File::Descriptor(3);
    let changing = [
        Step::Create { path: path.clone(), perm: 0o600 },
        Step::Rename { from: path.clone(), to: to.clone(), replace: true },
        Step::Link { file: descriptor, to },
        Step::Unlink { path: path.clone() },
        open(Access::Write, false),
        open(Access::Both, false),
        open(Access::Read, true),
    ];
    for step in changing.iter().chain(&by(File::Step(StepNr(0)))) {
        assert_eq!(refusal(ro.may_step(step)), libc::EROFS, "{step:?}");
    }
    let other = [
        Step::Lookup { path },
        open(Access::Read, false),
        Step::Read { file: descriptor, offset: number(), len: 1 },
        Step::Checksum { kind: Checksum::Xxh3, data: data() },
        Step::Compress { codec: Codec::Zstd, data: data() },
        Step::Decompress { codec: Codec::Zstd, data: data(), most: 1 },
        Step::Close { file: File::Step(StepNr(0)) },
    ];
    for step in other.iter().chain(&by(descriptor)) {
        assert_eq!(refusal(ro.may_step(step)), 0, "{step:?}");
    }
    // A descriptor that only reads is enough to set attributes, and to link.
    let rw = view(30).expect("no ids are mapped").expect("it is there");
    for step in by(descriptor) {
        let (purpose, sets) = (Purpose::of(&step), matches!(step, Step::SetAttributes { .. }));
        assert_eq!(refusal(rw.may_use(&ro, purpose)), if sets { libc::EROFS } else { 0 });
        assert_eq!(refusal(rw.may_use(&rw, purpose)), 0);
    }
    let link = Step::Link { file: descriptor, to: b"b".to_vec() };
    assert_eq!(refusal(rw.may_use(&ro, Purpose::of(&link))), libc::EXDEV);
}
