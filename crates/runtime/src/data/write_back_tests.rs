use super::*;

#[test]
fn a_difference_is_exact_and_a_large_one_is_all() {
    let old = [7; 4096];
    assert_eq!(difference(&old, &old), None);
    for (at, len) in [(0, 1), (4095, 1), (100, 512), (4000, 96)] {
        let mut new = old;
        new[at..at + len].fill(9);
        assert_eq!(difference(&old, &new), Some((at, at + len)));
    }
    let mut new = old;
    (new[1], new[3000]) = (0, 0);
    assert_eq!(difference(&old, &new), Some((0, 4096)));
    assert_eq!(difference(&old[..10], &new[..10]), Some((1, 2)));
}
