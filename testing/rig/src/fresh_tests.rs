use super::*;
use std::collections::BTreeSet;

/// No eight bytes come twice, in one thread or in several.
#[test]
fn bytes_are_new_each_time() {
    let draw = || -> Vec<[u8; 64]> { (0..200).map(|_| fresh()).collect() };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
    let mut all = draw();
    all.extend(threads.into_iter().flat_map(|t| t.join().unwrap()));
    let words: BTreeSet<&[u8]> = all.iter().flat_map(|block| block.chunks(8)).collect();
    assert_eq!(words.len(), 5 * 200 * 8);
}

#[test]
fn odd_lengths_are_filled_to_their_end() {
    let mut bytes = [0; 4099];
    let before = refresh(&mut bytes).to_vec();
    let differ = before.iter().zip(refresh(&mut bytes)).filter(|(a, b)| a != b).count();
    assert!(differ > 4000, "{differ} bytes changed");
    assert!(before[4096..].iter().any(|b| *b != 0));
}
