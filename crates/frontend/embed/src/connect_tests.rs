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

#[test]
fn addresses_and_hosts_name_servers_and_hosts_name_the_volume_too() {
    let shown = |address: &str, volume: &str| {
        named(address, volume).map(|(addresses, volume)| (addresses.to_string(), volume))
    };
    let is = |addresses: &str, volume: &str| Ok((addresses.to_owned(), volume.to_owned()));
    assert_eq!(shown("unix:/run/a", ""), is("unix:/run/a", ""));
    assert_eq!(shown("tcp:a:1,tcp:b:2", "v"), is("tcp:a:1,tcp:b:2", "v"));
    assert_eq!(shown("a,b:7401:/v", ""), is("tcp:a:7400,tcp:b:7401", "v"));
    assert_eq!(shown("a,b:/v", "v"), is("tcp:a:7400,tcp:b:7400", "v"));
    for (address, volume, why) in [
        ("a,b:/v", "w", "names another volume than w"),
        ("a,a:/v", "", "named twice"),
        ("tcp:a:1,", "v", "one of them is empty"),
        ("a,b", "v", "neither a unix socket nor a TCP address"),
    ] {
        let said = shown(address, volume).expect_err(address).to_string();
        assert!(said.contains(why), "{address}: {said}");
    }
}
