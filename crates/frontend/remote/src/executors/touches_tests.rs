use super::*;
use siftfs_proto::compound::{BytesArg, Compound, NumberArg, StepNr, Wanted};
use siftfs_proto::{Handle, Level, ROOT_INO, Rights, SetAttr};

fn open(number: u64) -> Target {
    Handle(number).into()
}

fn changes(numbers: &[u64]) -> Touches {
    Touches::Changes(numbers.iter().map(|number| File::Open(*number)).collect())
}

fn write(number: u64) -> Step {
    let (file, offset) = (FileArg::Open(Handle(number)), NumberArg::Given(0));
    Step::Write { file, offset, data: BytesArg::Given(vec![1]) }
}

fn compound(steps: Vec<Step>) -> Request {
    let (base, level, rights, wanted) = (ROOT_INO, Level::Visible, Rights::all(), Wanted::All);
    Request::Compound(Box::new(Compound { base, steps, level, rights, wanted }))
}

#[test]
fn data_calls_are_about_their_file() {
    let read = Request::Read { file: open(3), offset: 0, len: 1 };
    assert_eq!(Touches::of(&read), Touches::Reads(File::Open(3)));
    let fsync = Request::Fsync { file: Target::Inode(12), datasync: true };
    assert_eq!(Touches::of(&fsync), Touches::Reads(File::Inode(12)));
    assert_eq!(Touches::of(&Request::write(open(4), 0, vec![1])), changes(&[4]));
    let set = Request::SetAttr { file: open(5), set: SetAttr::default(), times: true };
    assert_eq!(Touches::of(&set), changes(&[5]));
    // What may wait for another call, or is nobody's data, is not ordered.
    for request in [
        Request::StatFs,
        Request::GetAttr { file: open(3) },
        Request::Release { handle: Handle(3) },
        Request::CancelLock { number: 3 },
    ] {
        assert_eq!(Touches::of(&request), Touches::Nothing);
    }
}

#[test]
fn a_compound_is_about_the_open_files_that_it_names() {
    assert_eq!(Touches::of(&compound(vec![write(7), write(9), write(7)])), changes(&[7, 9]));
    let found = Step::Lookup { path: b"a".into() };
    let close = Step::Close { file: FileArg::Step(StepNr(0)) };
    assert_eq!(Touches::of(&compound(vec![found, close])), Touches::Nothing);
    // More than a few are not counted one by one.
    let many = (0..4096).map(write).collect();
    assert_eq!(Touches::of(&compound(many)), Touches::All);
    let eight = (0..8).map(write).collect();
    assert_eq!(Touches::of(&compound(eight)).files().count(), 8);
}

/// What may take long is not brief, however little of it there is.
#[test]
fn small_calls_are_brief() {
    let read = |len| Request::Read { file: open(3), offset: 0, len };
    assert!(is_brief(&read(256)) && is_brief(&read(65_536)) && !is_brief(&read(65_537)));
    let write = |len| Request::write(open(3), 0, vec![0; len]);
    assert!(is_brief(&write(4096)) && !is_brief(&write(1 << 20)));
    assert!(is_brief(&Request::GetAttr { file: open(3) }));
    let fsync = Request::Fsync { file: open(3), datasync: true };
    for request in [compound(Vec::new()), fsync, Request::SyncAll, Request::StatFs] {
        assert!(!is_brief(&request));
    }
}
