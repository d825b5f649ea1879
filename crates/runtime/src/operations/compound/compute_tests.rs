use super::*;
use siftfs_base::Error;

const BOTH: [Codec; 2] = [Codec::Lz4Frame, Codec::Zstd];

fn refused<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    match result {
        Err(Error::Posix(errno)) => errno,
        other => panic!("not refused: {other:?}"),
    }
}

/// The check values of the algorithms' own descriptions: CRC-32C of "123456789" and of 32 zeros
/// (RFC 3720), LevelDB's mask of the former, XXH3 of nothing.
#[test]
fn checksums_are_the_well_known_ones() {
    let of = |kind, data: &[u8]| match sum(kind, data) {
        Computed::Number(value, width) => (value, width.bytes()),
        Computed::Bytes(_) => panic!("a number"),
    };
    assert_eq!(of(Checksum::Crc32c, b"123456789"), (0xE306_9283, 4));
    assert_eq!(of(Checksum::Crc32c, &[0; 32]), (0x8A91_36AA, 4));
    let masked = 0xE306_9283_u32.rotate_right(15).wrapping_add(0xA282_EAD8);
    assert_eq!(of(Checksum::MaskedCrc32c, b"123456789"), (masked.into(), 4));
    assert_eq!(of(Checksum::Xxh3, b""), (0x2D06_8005_38D3_94C2, 8));
}

#[test]
fn what_is_compressed_comes_back() {
    let text = b"staging, journal, checkpoint, ".repeat(1000);
    for codec in BOTH {
        for data in [&b""[..], b"x", &text] {
            let frame = compress(codec, data).unwrap();
            assert_eq!(decompress(codec, &frame, data.len()).unwrap(), data, "{codec:?}");
        }
        assert!(compress(codec, &text).unwrap().len() < text.len() / 10, "{codec:?}");
    }
}

/// A bomb: 64 MiB of zeros in some kilobytes. No more is made than was asked for.
#[test]
fn r28_output_is_bounded_before_it_is_made() {
    let zeros = vec![0; 64 << 20];
    for codec in BOTH {
        let bomb = compress(codec, &zeros).unwrap();
        for most in [0, 1, 4096, (64 << 20) - 1] {
            assert_eq!(refused(decompress(codec, &bomb, most)), libc::EOVERFLOW, "{codec:?}");
        }
        let mut out = Vec::new();
        let limited = match codec {
            Codec::Lz4Frame => {
                read_some(&mut lz4_flex::frame::FrameDecoder::new(&*bomb), 4096, &mut out)
            }
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(&*bomb).unwrap();
                read_some(&mut decoder, 4096, &mut out)
            }
        };
        assert_eq!(refused(limited), libc::EOVERFLOW);
        assert!(out.capacity() < 64 << 10, "{codec:?}: {} bytes were made", out.capacity());
    }
}

#[test]
fn what_is_no_frame_is_refused() {
    let data = b"one two three four five six seven eight".repeat(10);
    for codec in BOTH {
        let frame = compress(codec, &data).unwrap();
        let of = |bytes: &[u8]| refused(decompress(codec, bytes, 1 << 20));
        assert_eq!(of(b""), libc::EILSEQ);
        assert_eq!(of(b"no frame at all"), libc::EILSEQ);
        for cut in 1..frame.len() {
            assert_eq!(of(&frame[..cut]), libc::EILSEQ, "{codec:?}, {cut} bytes of a frame");
        }
        assert_eq!(of(&[&frame[..], b"x"].concat()), libc::EILSEQ, "{codec:?}, and more behind it");
    }
}

fn is_job(result: std::result::Result<Computed, NotComputed>) -> bool {
    matches!(result, Err(NotComputed::Job(_)))
}

fn fails(result: std::result::Result<Computed, NotComputed>, errno: i32) -> bool {
    matches!(result, Err(NotComputed::Failed(Error::Posix(e))) if e == errno)
}

/// Much work is done without the lock, once for each input, and not for ever.
#[test]
fn jobs_are_done_once_for_an_input() {
    let mut memo = Memo::default();
    let task = Task::Sum(Checksum::Crc32c);
    let much = |byte: u32| Arc::new(vec![u8::try_from(byte).unwrap(); LITTLE + 1]);
    let compute = |memo: &Memo, step, input: &Arc<Vec<u8>>| {
        memo.compute(&mut Budget::default(), step, task, Data::Kept(input.clone()))
    };
    for round in 0..PATIENCE {
        let input = much(round);
        let Err(NotComputed::Job(job)) = compute(&memo, 3, &input) else { panic!("round {round}") };
        memo.carry_out(job);
        let again = Arc::new(input.to_vec());
        assert_eq!(compute(&memo, 3, &again).ok(), Some(sum(Checksum::Crc32c, &input)));
        assert!(is_job(compute(&memo, 4, &input)), "another step");
    }
    let changed = compute(&memo, 3, &much(99));
    assert!(fails(changed, libc::EAGAIN), "no job again");
}

/// Under the lock there is little work in all, however many steps there are.
#[test]
fn work_under_the_lock_is_bounded() {
    let (memo, mut budget) = (Memo::default(), Budget::default());
    let quarter = vec![1; LITTLE / 4];
    let task = Task::Compress(Codec::Zstd);
    let mut at =
        |task, len: usize| memo.compute(&mut budget, 0, task, Data::Given(&quarter[..len]));
    assert!(is_job(at(Task::Decompress(Codec::Zstd, 1 << 20), 100)), "a bomb");
    for _ in 0..4 {
        assert!(at(task, LITTLE / 4).is_ok());
    }
    assert!(is_job(at(task, 1)), "what is left is done without it");
    let refusals = (0..MOST_STEPS).filter(|_| fails(at(task, 0), libc::E2BIG)).count();
    assert_eq!(refusals, 6, "steps that compute are counted");
    let mut budget = Budget::default();
    let many = vec![0; MOST_WORK / 2 + 1];
    let mut more = || memo.compute(&mut budget, 0, task, Data::Given(&many));
    assert!(is_job(more()));
    assert!(fails(more(), libc::E2BIG));
}
