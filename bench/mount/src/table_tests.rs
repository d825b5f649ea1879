use super::*;

#[test]
fn columns_are_aligned() {
    let mut table = Table::new(["row", "n"]);
    assert!(table.is_empty());
    table.add(vec!["long name".into(), "1.5".into()]);
    table.add(vec!["a|b".into()]);
    let text = table.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "| row       |   n |");
    assert_eq!(lines[1], "|-----------|----:|");
    assert_eq!(lines[2], "| long name | 1.5 |");
    assert_eq!(lines[3], "| a\\|b      |     |");
    assert!(!table.is_empty());
}
