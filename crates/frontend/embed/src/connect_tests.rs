use super::*;

#[test]
fn the_options_are_those_of_a_mount() {
    let of = |text: &str| text.parse::<ConnectOptions>().map(|options| options.when_lost);
    assert_eq!(of(""), Ok(WhenLost::Hard));
    assert_eq!(of("hard"), Ok(WhenLost::Hard));
    assert_eq!(of("soft"), Ok(WhenLost::Soft(TIMEO)));
    assert_eq!(of("timeo=5,soft"), Ok(WhenLost::Soft(Duration::from_secs(5))));
    assert_eq!(of("once"), Ok(WhenLost::Ends));
    let wrong =
        ["timeo=5", "hard,timeo=5", "soft,hard", "soft,once", "hard,once", "soft,timeo=0", "weak"];
    for text in wrong {
        assert!(matches!(of(text), Err(Error::Refused(_))), "{text}");
    }
}
