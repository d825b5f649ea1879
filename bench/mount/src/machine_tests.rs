use super::*;

#[test]
fn a_field_with_tabs_and_spaces() {
    let text = "model\t\t: 1\nmodel name\t: A B 7\nMemTotal:       24 kB\n";
    assert_eq!(field(text, "model name"), "A B 7");
    assert_eq!(field(text, "MemTotal"), "24 kB");
    assert_eq!(field(text, "nothing"), "?");
}
