use super::*;

#[test]
fn each_kind_has_its_own_counter() {
    let counts = Counts::default();
    for opcode in [abi::WRITE, abi::FSYNC, abi::WRITE, 0, 7, LAST, LAST + 1, u32::MAX] {
        counts.add(opcode);
    }
    let want = [("write", 2), ("fsync", 1), ("statx", 1), ("other", 4)];
    assert_eq!(counts.by_name(), BTreeMap::from(want));
    assert!(Counts::default().by_name().is_empty());
}

#[test]
fn names_are_each_of_one_opcode() {
    for (i, (opcode, name)) in NAMES.iter().enumerate() {
        assert!((1..=LAST).contains(opcode), "{name}");
        assert!(NAMES.iter().skip(i + 1).all(|(o, n)| o != opcode && n != name), "{name}");
    }
}
