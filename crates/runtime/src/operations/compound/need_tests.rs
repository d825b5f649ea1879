use super::*;
use siftfs_proto::compound::{FileArg, MOST_STEPS, NumberArg, StepNr, Wanted};
use siftfs_proto::{Handle, Level, Rights};

const MIB: u64 = 1 << 20;

fn needs(steps: Vec<Step>) -> u64 {
    let (level, rights, wanted) = (Level::Visible, Rights::default(), Wanted::All);
    of(&Compound { base: 2, steps, level, rights, wanted })
}

fn read(len: u32) -> Step {
    Step::Read { file: FileArg::Open(Handle(1)), offset: NumberArg::Given(0), len }
}

fn decompress(from: u32, most: u32) -> Step {
    Step::Decompress { codec: Codec::Zstd, data: BytesArg::Step(StepNr(from)), most }
}

#[test]
fn what_steps_say() {
    assert!(needs(vec![read(10)]) < 100);
    assert!(needs(vec![Step::Lookup { path: b"a".to_vec() }]) < 100);
    let some = needs(vec![read(20_000), decompress(0, 15 << 20)]);
    assert!((31 * MIB..32 * MIB).contains(&some), "{some}: result and window");
    let written = |data: BytesArg| Step::Append { file: FileArg::Open(Handle(1)), data };
    let small = needs(vec![written(BytesArg::Given(vec![1; 10]))]);
    assert!((2 * 4096..3 * 4096).contains(&small), "{small}: on two pages");
    let copied = needs(vec![read(1 << 20), written(BytesArg::Step(StepNr(0)))]);
    assert!((2 * MIB..3 * MIB).contains(&copied), "{copied}: read, and written");
    let compressed = Step::Compress { codec: Codec::Lz4Frame, data: BytesArg::Step(StepNr(0)) };
    let compressed = needs(vec![read(1 << 20), compressed]);
    assert!((3 * MIB..4 * MIB).contains(&compressed), "{compressed}: read, kept, compressed");
    let twice = Step::Join { first: BytesArg::Step(StepNr(0)), second: BytesArg::Step(StepNr(0)) };
    let joined = needs(vec![read(1 << 20), twice.clone()]);
    assert!((3 * MIB..4 * MIB).contains(&joined), "{joined}: read, and joined");
    let doubled = needs([vec![read(1 << 20)], vec![twice; 4095]].concat());
    assert_eq!(doubled, MOST_RESULTS as u64, "no more than all results may have");
    assert!(needs(vec![decompress(7, 100)]) < 17 * MIB, "of a step that is not there");
}

/// However much the steps say, the bounds of a compound hold: nothing wraps round.
#[test]
fn the_most_that_steps_can_say() {
    let all = vec![read(u32::MAX); MOST_STEPS];
    assert_eq!(needs(all), MOST_RESULTS as u64);
    let mut steps = vec![read(u32::MAX)];
    steps.resize(MOST_STEPS, decompress(0, u32::MAX));
    let most = (MOST_RESULTS + MOST_WORK) as u64 + WINDOW;
    assert_eq!(needs(steps), most);
    assert!(most < crate::locks::allowance::SHARE, "whoever is alone computes what is allowed");
}
