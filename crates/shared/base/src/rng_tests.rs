//! Tests of the generator.

use super::*;

/// The numbers that the algorithm's authors publish for seed 1234567: a seed that a page names
/// means the same sequence for ever.
#[test]
fn seeds_mean_what_they_meant() {
    let mut rng = Rng::new(1_234_567);
    let first: Vec<u64> = (0..5).map(|_| rng.bits()).collect();
    let known = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(first, known);
}

#[test]
fn choices_stay_inside() {
    let mut rng = Rng::new(1);
    let mut seen = [false; 7];
    for _ in 0..1000 {
        seen[usize::try_from(rng.below(7)).unwrap()] = true;
        assert!((3..5).contains(&rng.between(3, 5)));
        assert!(rng.chance(100) && !rng.chance(0));
    }
    assert_eq!(seen, [true; 7]);
    assert_eq!(rng.pick(&[9]), Some(&9));
    assert_eq!(rng.pick::<u8>(&[]), None);
    assert_eq!(rng.bytes(100).len(), 100);
}
