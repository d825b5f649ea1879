use super::*;

#[test]
fn lists() {
    assert_eq!(parse("0"), Ok(List(vec![0])));
    assert_eq!(parse("3,0-1,1"), Ok(List(vec![0, 1, 3])));
    for wrong in ["", "a", "1-", "2-1", "0,,1", "99999", "-1"] {
        assert!(parse(wrong).is_err_and(|e| e.contains("list of processors")), "{wrong}");
    }
}
