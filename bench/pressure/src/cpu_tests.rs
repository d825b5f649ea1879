use super::*;

#[test]
fn a_name_with_spaces_and_brackets_is_no_field() {
    let stat = "17 (a) b (c d) S 1 17 17 0 -1 4194560 9 8 7 6 250 31 5 4 20 0 7 0 99 1 2";
    assert_eq!(Cpu::parse(stat, 100.0), Some(Cpu { user: 2.5, system: 0.31 }));
    assert_eq!(Cpu::parse("17 (a) S 1 2", 100.0), None);
}

#[test]
fn work_of_this_process_is_seen() {
    let before = Cpu::of(std::process::id()).unwrap();
    let mut n = 0u64;
    while (Cpu::of(std::process::id()).unwrap() - before).total() < 0.05 {
        n = std::hint::black_box(n + 1);
    }
    assert!(n > 0);
}
