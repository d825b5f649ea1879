use super::*;

#[test]
fn pgbench_works_in_whole_seconds_and_not_too_few() {
    let of = |millis| seconds(Duration::from_millis(millis));
    assert_eq!((of(10), of(600), of(900), of(1000)), (3, 3, 5, 5));
}
