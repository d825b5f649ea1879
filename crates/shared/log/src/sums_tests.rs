use super::*;
use siftfs_base::Epoch;

const KEY: LogKey = LogKey { epoch: Epoch(3), nonce: 11 };

fn section(len: usize) -> (Vec<u8>, DataSums) {
    let data: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
    let sums = data.chunks(DATA_CHUNK).map(|c| KEY.crc(c)).collect();
    let sums = DataSums::new(&KEY, len as u32, sums).unwrap();
    (data, sums)
}

#[test]
fn parts_are_verified_alone() {
    for len in [0, 1, 4095, 4096, 4097, 20_000] {
        let (mut data, sums) = section(len);
        assert!(sums.verify_data(&data));
        for from in (0..=len).step_by(DATA_CHUNK) {
            assert!(sums.verify_part(from, &data[from..]), "{len}, from {from}");
            let end = (from + DATA_CHUNK).min(len);
            assert!(sums.verify_part(from, &data[from..end]));
        }
        for i in (0..len).step_by(997) {
            data[i] ^= 1;
            assert!(!sums.verify_data(&data), "{len}, byte {i}");
            data[i] ^= 1;
        }
    }
}

#[test]
fn what_is_no_run_of_chunks_is_refused() {
    let (data, sums) = section(10_000);
    assert!(!sums.verify_data(&data[..9_999]));
    assert!(!sums.verify_part(1, &data[1..4096]));
    assert!(!sums.verify_part(0, &data[..100]));
    assert!(!sums.verify_part(4096, &data[..4096]));
    assert!(!sums.verify_part(usize::MAX - 5, &data[..4096]));
    let longer = [&data[..], &[0; 4096]].concat();
    assert!(!sums.verify_part(0, &longer[..12_288]), "beyond the section's end");
    assert_eq!(DataSums::new(&KEY, 4097, Box::new([1])), None);
    assert_eq!(DataSums::new(&KEY, 0, Box::new([1])), None);
}

#[test]
fn sections_are_cut_at_chunks() {
    for (len, parts) in [(0, 0), (4096, 1), (8192, 1), (8193, 2), (20_000, 3)] {
        let (data, sums) = section(len);
        let cut: Vec<DataSums> = sums.split(2).collect();
        assert_eq!(cut.len(), parts, "{len}");
        assert_eq!(cut.iter().map(|s| s.data_len() as usize).sum::<usize>(), len);
        assert_eq!(cut.iter().map(DataSums::memory).sum::<usize>(), sums.memory());
        let pieces = data.chunks(2 * DATA_CHUNK).zip(&cut);
        assert!(pieces.into_iter().all(|(d, s)| s.verify_data(d)), "{len}");
    }
}
