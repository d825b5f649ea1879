use super::*;

/// The ratio is of each round, and its median is what is judged.
#[test]
fn ratios_are_of_rounds() {
    let (of, to) = ([10.0, 30.0, 90.0], [10.0, 20.0, 30.0]);
    let judged = |target| Compared::ratio("of to to", &of, &to, Some(target));
    assert_eq!(judged(Target::AtMost(1.5)).met(), Some(true));
    assert_eq!(judged(Target::AtMost(1.4)).met(), Some(false));
    assert_eq!(judged(Target::AtLeast(1.5)).met(), Some(true));
    assert_eq!(judged(Target::AtLeast(1.6)).met(), Some(false));
    assert_eq!(judged(Target::AtLeast(1.6)).beside("1.7").paper, Some("1.7"));
    let sides = vec![Side::new("of", of.into()), Side::new("to", to.into())];
    let compared = vec![judged(Target::AtMost(1.4))];
    let shown = show(&[Row { name: "what".into(), unit: "us", sides, compared }], "below");
    assert!(shown.text.contains("of to to: 1.50 (1.00 to 3.00); target at most 1.4: missed"));
    assert!(shown.text.ends_with("below\n"), "{}", shown.text);
    assert_eq!(shown.json["rows"][0]["compared"][0]["met"], false);
    assert_eq!(shown.json["rows"][0]["sides"][1]["us"]["median"], 20.0);
}
