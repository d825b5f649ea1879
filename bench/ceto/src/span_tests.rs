use super::*;

#[test]
fn times_have_units() {
    assert_eq!(parse("7us"), Ok(Duration::from_micros(7)));
    assert_eq!(parse("900ns"), Ok(Duration::from_nanos(900)));
    assert_eq!(parse("0.5ms"), Ok(Duration::from_micros(500)));
    assert_eq!(parse("2s"), Ok(Duration::from_secs(2)));
    assert_eq!(parse("0ns"), Ok(Duration::ZERO));
    for wrong in ["7", "us", "", "-1us", "61s", "NaNus", "infs", "7 us x"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
