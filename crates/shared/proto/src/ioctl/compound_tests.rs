use super::*;
use siftfs_base::Error;

fn every_step() -> Vec<(Step, bool)> {
    let (file, other) = (File::Descriptor(7), File::Step(StepNr(1)));
    let (given, number) = (BytesArg::Given(b"bytes".to_vec()), NumberArg::Given(1 << 40));
    let part = BytesArg::Part { step: StepNr(3), start: 1, len: 2 };
    let (of_step, number_of) = (BytesArg::Step(StepNr(3)), NumberArg::Step(StepNr(4)));
    let path = b"a/b".to_vec();
    let time = |sec| SetTime::At(Timestamp { sec, nsec: 999_999_999 });
    let set = NewAttributes {
        perm: Some(0o644),
        uid: None,
        gid: Some(5),
        atime: Some(SetTime::Now),
        mtime: Some(time(-3)),
    };
    let steps = vec![
        Step::Lookup { path: path.clone() },
        Step::Open { path: path.clone(), access: Access::Write, truncate: true },
        Step::Create { path: path.clone(), perm: 0o600 },
        Step::Read { file, offset: number.clone(), len: 9 },
        Step::Write { file: other, offset: number_of.clone(), data: given.clone() },
        Step::Append { file, data: part.clone() },
        Step::Checksum { kind: Checksum::Xxh3, data: of_step.clone() },
        Step::Compress { codec: Codec::Zstd, data: given.clone() },
        Step::Decompress { codec: Codec::Lz4Frame, data: of_step, most: 4096 },
        Step::Join { first: part.clone(), second: given.clone() },
        Step::Patch { file, offset: number.clone(), data: given.clone() },
        Step::Add { file, offset: number.clone(), width: Width::U32, addend: number_of.clone() },
        Step::CompareAndSet { file, offset: number, expected: given, new: part },
        Step::Rename { from: path.clone(), to: b"c".to_vec(), replace: true },
        Step::Link { file: other, to: path.clone() },
        Step::Unlink { path },
        Step::SetSize { file, size: number_of },
        Step::SetAttributes { file, set },
        Step::Close { file: File::Step(StepNr(1)) },
    ];
    (0..).zip(steps).map(|(i, step)| (step, i % 2 == 0)).collect()
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    match result {
        Err(Error::Posix(errno)) => errno,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn every_step_is_read_as_it_was_written() {
    let compound = Compound { steps: every_step(), level: Level::Atomic };
    for answer in [0, 8000] {
        let (command, bytes) = compound.encode(answer).unwrap();
        assert!(is_compound(command) && bytes.len() >= answer + ANSWER_HEAD);
        assert_eq!(buffer_len(command), bytes.len());
        assert_eq!(Compound::decode(&bytes), Ok(compound.clone()));
    }
    assert_eq!(refused(compound.encode(16_380)), libc::E2BIG);
}

/// The bytes that programs build: a change of one is a change of the interface.
#[test]
fn bytes_of_a_small_one() {
    let read = Step::Read { file: File::Descriptor(3), offset: NumberArg::Given(1), len: 2 };
    let compound = Compound { steps: vec![(read, true)], level: Level::Durable };
    let (command, bytes) = compound.encode(6).unwrap();
    let expected: [&[u8]; 8] = [
        &[44, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 1, 0],
        &[0, 0, 0, 0, 3, 0, 0, 0],
        &[0, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0],
        &[],
        &[],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(command, 0xC02C_E520);
}

#[test]
fn answers_come_back() {
    let refusal = Compounded::Refused { step: StepNr(4), errno: libc::ENOENT };
    let bytes = Answer::of(&refusal, &[StepNr(0)]).encode();
    assert_eq!(Answer::decode(&bytes, 1), Ok(Answer::Refused(StepNr(4), libc::ENOENT)));
    let values = vec![
        Value::None,
        Value::Bytes(b"some".to_vec()),
        Value::Number { value: 0x0102_0304, width: Width::U32 },
        Value::File { ino: 12, generation: 3, handle: None },
    ];
    let (names, files, written) = (Vec::new(), Vec::new(), Vec::new());
    let done = Compounded::Done { values, names, files, written };
    let wanted = [StepNr(1), StepNr(2), StepNr(3)];
    let bytes = Answer::of(&done, &wanted).encode();
    let results = vec![b"some".to_vec(), vec![4, 3, 2, 1], vec![12, 0, 0, 0, 0, 0, 0, 0]];
    assert_eq!(Answer::decode(&bytes, 3), Ok(Answer::Done(results)));
    assert_eq!(refused(Answer::decode(&bytes, 4)), libc::EINVAL);
}

#[test]
fn what_is_no_argument_is_refused() {
    let compound = Compound { steps: every_step(), level: Level::Visible };
    let (_, bytes) = compound.encode(0).unwrap();
    for len in 0..bytes.len() {
        assert_eq!(refused(Compound::decode(&bytes[..len])), libc::EINVAL, "{len} bytes");
    }
    let changed = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        refused(Compound::decode(&bytes))
    };
    assert_eq!(changed(4, 65_537), libc::E2BIG, "65,537 steps");
    assert_eq!(changed(4, 20), libc::EINVAL, "one more step");
    assert_eq!(changed(8, 3), libc::EINVAL, "an unknown level");
    assert_eq!(changed(12, 1), libc::EINVAL, "what must be zero");
    assert_eq!(changed(16, 20), libc::EINVAL, "an unknown step");
    assert_eq!(changed(16, 1 | 2 << 16), libc::EINVAL, "an unknown flag");
}
