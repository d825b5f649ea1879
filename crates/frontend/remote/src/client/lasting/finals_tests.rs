use super::*;
use siftfs_proto::compound::{Access, BytesArg, Compound, NumberArg, Wanted};
use siftfs_proto::{Handle, Level, ROOT_INO, Rights, SectionId};

fn compound(steps: Vec<Step>) -> Request {
    let (level, rights, wanted) = (Level::Durable, Rights::default(), Wanted::All);
    Request::Compound(Box::new(Compound { base: ROOT_INO, steps, level, rights, wanted }))
}

fn write(file: FileArg) -> Step {
    Step::Write { file, offset: NumberArg::Given(0), data: BytesArg::Given(vec![1]) }
}

fn about_of(request: &Request) -> About {
    about(request, |own| (own != 3).then_some(Target::Inode(100 + own as InodeNr)))
}

#[test]
fn sections_are_about_their_files() {
    let sections = vec![SectionId(1), SectionId(2), SectionId(3)];
    let commit = Request::SectionCommit { sections, durable: true, times: true };
    assert_eq!(about_of(&commit), About::Files(vec![Target::Inode(101), Target::Inode(102)]));
}

/// What a compound finds by a path may be any file; one that it makes, or reads, is none of those
/// that were changed before.
#[test]
fn compounds_are_about_what_they_change() {
    let open = |truncate| Step::Open { path: b"f".to_vec(), access: Access::Both, truncate };
    let create = || Step::Create { path: b"f".to_vec(), perm: 0o600 };
    let (given, found) = (FileArg::Open(Handle(7)), || FileArg::Step(StepNr(0)));
    let read = Step::Read { file: FileArg::Open(Handle(8)), offset: NumberArg::Given(0), len: 1 };
    let of_given = compound(vec![write(given), read]);
    assert_eq!(about_of(&of_given), About::Files(vec![Target::Open(Handle(7))]));
    assert_eq!(about_of(&compound(vec![open(false), write(found())])), About::Any);
    assert_eq!(about_of(&compound(vec![open(true)])), About::Any);
    assert_eq!(about_of(&compound(vec![create(), write(found())])), About::Files(Vec::new()));
    assert_eq!(about_of(&compound(vec![open(false)])), About::Files(Vec::new()));
}
