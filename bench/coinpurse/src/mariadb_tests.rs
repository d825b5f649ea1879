use super::*;

#[test]
fn what_sysbench_prints() {
    let said = "SQL statistics:\n    transactions:                        1559   (155.86 per sec.)\n\
        General statistics:\n    total time:                          10.0021s\n";
    assert_eq!(inserted(said), Some((1559, 10.0021)));
    assert_eq!(inserted("FATAL: unable to connect"), None);
}
