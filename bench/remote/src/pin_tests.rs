use super::*;

#[test]
fn two_processors_or_none() {
    let pinned = |text: &str| text.parse::<Pin>().map(|pin| pin.0);
    assert_eq!(pinned("3,1"), Ok(Some((3, 1))));
    assert_eq!(pinned("none"), Ok(None));
    for wrong in ["1,1", "1", "", "0,1,2", "0,-1"] {
        assert!(pinned(wrong).is_err(), "{wrong}");
    }
}
