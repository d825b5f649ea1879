use super::*;

/// Every operation on small random ranges agrees with a plain set of values.
#[test]
fn agrees_with_a_naive_set() {
    let mut rng = crate::Rng::new(1);
    let mut next = move |n: u64| rng.below(n);
    for _ in 0..200 {
        let mut set = RangeSet::<Bytes>::new();
        let mut naive = [false; 64];
        for _ in 0..60 {
            let (a, b) = (next(64), next(65));
            let (s, e) = (a.min(b), a.max(b));
            let put = next(2) == 0;
            if put {
                set.insert(s, e);
            } else {
                set.remove(s, e);
            }
            for v in s..e {
                naive[v as usize] = put;
            }
            for v in 0..64u64 {
                assert_eq!(set.contains(v), naive[v as usize]);
            }
            let total = naive.iter().filter(|x| **x).count() as u64;
            assert_eq!(set.total(), total);
            let (a, b) = (next(64), next(65));
            let (s, e) = (a.min(b), a.max(b));
            let inside: u64 = set.overlapping(s, e).map(|(x, y)| y - x).sum();
            let outside: u64 = set.gaps(s, e).iter().map(|(x, y)| y - x).sum();
            assert_eq!(inside, (s..e).filter(|v| naive[*v as usize]).count() as u64);
            assert_eq!(inside + outside, e - s);
            let mut last = None;
            for (s, e) in set.iter() {
                assert!(s < e && last.is_none_or(|l| l < s));
                last = Some(e);
            }
        }
    }
}

/// An intersection has exactly the values of both.
#[test]
fn an_intersection_has_what_both_have() {
    let set = |ranges: &[(u64, u64)]| {
        let mut set = RangeSet::<Bytes>::new();
        ranges.iter().for_each(|(s, e)| set.insert(*s, *e));
        set
    };
    let (a, b) = (set(&[(0, 10), (20, 30), (40, 50)]), set(&[(5, 25), (29, 41), (60, 70)]));
    let both = a.intersection(&b);
    assert_eq!(both, set(&[(5, 10), (20, 25), (29, 30), (40, 41)]));
    assert_eq!(both, b.intersection(&a));
    assert!(a.intersection(&RangeSet::new()).is_empty());
}
