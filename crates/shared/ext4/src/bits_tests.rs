use super::*;

/// Search, count and fill agree with a plain array of booleans.
#[test]
fn agrees_with_a_naive_bitmap() {
    let (mut rng, mut map) = (siftfs_base::Rng::new(7), Box::new([0u8; BLOCK_SIZE]));
    let mut naive = vec![false; 1000];
    for _ in 0..3000 {
        let (a, b) = (rng.below(1000) as u32, rng.below(1001) as u32);
        let (from, end) = (a.min(b), a.max(b).min(a.min(b) + 90));
        let set = rng.below(2) == 0;
        fill(&mut map, from, end, set);
        naive[from as usize..end as usize].fill(set);
        let (from, end) = (rng.below(1000) as u32, rng.below(1001) as u32);
        let find = |v: bool| {
            let hit = (from..end).find(|i| naive[*i as usize] == v);
            hit.unwrap_or(end)
        };
        assert_eq!(next_one(&map, from, end), find(true));
        assert_eq!(next_zero(&map, from, end), find(false));
        let zeros = naive[..end as usize].iter().filter(|b| !**b).count();
        assert_eq!(count_zeros(&map, end) as usize, zeros);
        assert_eq!(test(&map, a.min(999)), naive[a.min(999) as usize]);
    }
}
