use super::*;

#[test]
fn a_script_passes_when_it_ran_and_nothing_failed() {
    let said = |line: &str| judge("atomic.test", 3, &format!("atomic-1.0... Ok\n{line}\nMemory"));
    assert_eq!(said("0 errors out of 4 tests on host Linux 64-bit").ok(), Some(4));
    assert!(said("1 errors out of 4 tests on host Linux 64-bit").is_err());
    assert!(said("0 errors out of 1 tests on host Linux 64-bit").is_err(), "hardly any");
    assert!(said("").is_err(), "it died");
    let skipped = "Skipping tests...\n0 errors out of 4 tests";
    assert!(said(skipped).is_err());
}
