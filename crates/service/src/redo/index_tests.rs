use super::*;
use siftfs_base::Rng;
use std::sync::RwLock;

fn commit(index: &mut Index, number: u64, runs: &[(u64, usize)], data: Vec<u8>) {
    let live = Live { number, owner: number % 3, end: 0, crc: 0, memory: data.len() };
    index.commit(live, runs, &Arc::new(data));
}

/// Against a plain array: what shows is the newest bytes, also when some were forgotten.
#[test]
fn it_shows_the_newest_bytes_of_each_place() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut index = Index::default();
        let mut newest = vec![(0u64, 0u8); 40_000];
        for number in 1..60u64 {
            let count = rng.between(1, 5);
            let runs: Vec<(u64, usize)> =
                (0..count).map(|_| (rng.below(30_000), rng.between(1, 9000) as usize)).collect();
            let len = runs.iter().map(|(_, len)| len).sum();
            let data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            let mut from = 0;
            for (offset, len) in &runs {
                for i in 0..*len {
                    newest[*offset as usize + i] = (number, data[from + i]);
                }
                from += len;
            }
            commit(&mut index, number, &runs, data);
            if rng.chance(20) {
                let upto = rng.below(number + 1);
                index.forget(upto);
                let gone = |(of, _): &&mut (u64, u8)| *of <= upto;
                newest.iter_mut().filter(gone).for_each(|place| *place = (0, 0));
            }
            let lock = RwLock::new(index);
            let held = Held(lock.read().unwrap());
            let (offset, len) = (rng.below(20_000), rng.between(1, 20_000) as usize);
            let mut read = vec![0; len];
            held.patch(offset, &mut read);
            let shown: Vec<u8> = newest[offset as usize..][..len].iter().map(|(_, b)| *b).collect();
            assert_eq!(read, shown, "seed {seed}, transaction {number}");
            let blocks =
                offset as usize / 4096 * 4096..(offset as usize + len).next_multiple_of(4096);
            let any = newest[blocks.start..blocks.end.min(40_000)].iter().any(|(of, _)| *of > 0);
            assert_eq!(held.meets(&(offset..offset + len as u64)), any);
            drop(held);
            index = lock.into_inner().unwrap();
        }
        index.forget(60);
        assert_eq!((index.memory(), index.pieces().len(), index.newest().is_none()), (0, 0, true));
    }
}

#[test]
fn it_knows_whose_transactions_are_there() {
    let mut index = Index::default();
    commit(&mut index, 1, &[(0, 4)], vec![1; 4]);
    // The second one covers it, and it is there all the same, because its record is.
    commit(&mut index, 2, &[(0, 4)], vec![2; 4]);
    assert!(index.has(1) && index.has(2) && !index.has(0));
    index.forget(1);
    assert!(!index.has(1) && index.has(2));
}
