use super::*;

fn set(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[test]
fn ends_on_a_processor_each_are_not_on_one() {
    assert!(!is_one(&set(&[1]), Some(&set(&[0]))));
    assert!(!is_one(&set(&[1]), Some(&set(&[0, 1]))), "it has another one to go to");
    assert!(!is_one(&set(&[0, 1]), Some(&set(&[1]))), "this side has another one to go to");
    assert!(is_one(&set(&[1]), Some(&set(&[1]))));
}

#[test]
fn a_peer_that_is_not_seen_may_be_on_the_same_one() {
    assert!(is_one(&set(&[0]), None));
    assert!(!is_one(&set(&[0, 1]), None));
}
