use super::*;

#[test]
fn bytes_are_of_what_was_made_durable() {
    assert_eq!(for_a_byte(8192, 700), Some(8192.0 / 700.0));
    assert_eq!(for_a_byte(8192, 0), None, "a program that did nothing has no ratio");
}
