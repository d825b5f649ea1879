use super::*;

#[test]
fn each_module_has_its_newest_number() {
    let first: Vec<u64> = (0..MODULES).map(|m| u64::from(m == 1)).collect();
    assert_eq!(expected(1), format!("{first:?}"));
    let all: Vec<u64> = (0..MODULES).map(|m| if m == 0 { MODULES } else { m }).collect();
    assert_eq!(expected(MODULES), format!("{all:?}"));
}
