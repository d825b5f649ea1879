use super::*;

fn shown(text: &str) -> String {
    text.parse::<Addresses>().unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

fn hosts(text: &str) -> (String, String) {
    let found = served_by_hosts(text, 7400).unwrap_or_else(|e| panic!("{text}: {e}"));
    let (addresses, volume) = found.unwrap_or_else(|| panic!("{text} is another form"));
    (addresses.to_string(), volume)
}

#[test]
fn a_list_reads_back_as_it_was_written() {
    for text in [
        "tcp:a:1",
        "tcp:a:1,tcp:b:2",
        "tcp:[::1]:1,tcp:[::1]:2",
        "tcp:a:1,tcp:a:2,tcp:b:1",
        "unix:/run/a,unix:/run/b",
        // A comma in a path.
        "unix:/run/a,b",
        "unix:/run/a,b,unix:/run/c,",
    ] {
        assert_eq!(shown(text), text);
    }
    let two: Addresses = "unix:/run/a,b,unix:/run/c".parse().unwrap();
    assert_eq!(two.all(), [Address::Unix("/run/a,b".into()), Address::Unix("/run/c".into())]);
    assert!(two.are_several() && !two.are_remote());
    let one = Addresses::one("tcp:a:1".parse().unwrap());
    assert!(!one.are_several() && one.are_remote());
}

#[test]
fn hosts_of_a_volume_have_ports_or_the_usual_one() {
    for (text, addresses) in [
        ("a:/v", "tcp:a:7400"),
        ("a:7401:/v", "tcp:a:7401"),
        ("a,b:/v", "tcp:a:7400,tcp:b:7400"),
        ("a:7401,b:7402:/v", "tcp:a:7401,tcp:b:7402"),
        ("a,b:7402,c:/v", "tcp:a:7400,tcp:b:7402,tcp:c:7400"),
        ("[::1]:/v", "tcp:[::1]:7400"),
        ("[::1]:7401,[fe80::2],10.0.0.1:/v", "tcp:[::1]:7401,tcp:[fe80::2]:7400,tcp:10.0.0.1:7400"),
        ("a:7401,a:7402:/v", "tcp:a:7401,tcp:a:7402"),
        (
            "h1,h2,h3,h4,h5,h6,h7,h8:/v",
            &*(1..9).map(|n| format!("tcp:h{n}:7400")).collect::<Vec<_>>().join(","),
        ),
    ] {
        assert_eq!(hosts(text), (addresses.into(), "v".into()), "{text}");
    }
    // A colon in the volume's name is one.
    assert_eq!(hosts("a:/v:w"), ("tcp:a:7400".into(), "v:w".into()));
    for path in ["/dev/sdb", "volume", "./a:/v", "dir/a,b:/v", ":/v", "", "tcp:a:1", "unix:/a:/v"] {
        assert_eq!(served_by_hosts(path, 7400).unwrap(), None, "{path}");
    }
}

#[test]
fn each_wrong_list_is_refused_with_its_reason() {
    let long = vec!["tcp:h:1"; 100_000].join(",");
    for (text, why) in [
        ("tcp:a:1,", "one of them is empty"),
        (",tcp:a:1", "one of them is empty"),
        ("tcp:a:1,,tcp:b:1", "one of them is empty"),
        ("", "neither a unix socket nor a TCP address"),
        ("tcp:a:1,b", "neither a unix socket nor a TCP address"),
        ("tcp:a:1,tcp:b", "the port is missing"),
        ("tcp:a:1,tcp:a:1", "tcp:a:1 is named twice"),
        ("tcp:a:1,tcp:b:1,tcp:A:1", "tcp:A:1 is named twice"),
        ("unix:/a,unix:/a", "unix:/a is named twice"),
        ("unix:/a,tcp:b:1", "by the way that it comes"),
        ("tcp:b:1,unix:/a", "by the way that it comes"),
        (&*long, ": 9 are more than 8"),
    ] {
        let said = text.parse::<Addresses>().map(|list| list.to_string());
        let said = said.expect_err(text).to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
    let many = format!("{}:/v", vec!["h"; 100_000].join(","));
    for (text, why) in [
        ("a,:/v", "one of them is empty"),
        (",a:/v", "one of them is empty"),
        ("a,a:/v", "named twice"),
        ("a,a:7400:/v", "named twice"),
        ("a,A:/v", "named twice"),
        ("a,b:/", "without directories"),
        ("a,b:/v/w", "without directories"),
        ("a,b:x:/v", "'x' is no port"),
        ("a,b:70000:/v", "'70000' is no port"),
        ("a,::1:/v", "brackets"),
        ("a,[::1:/v", "brackets"),
        ("a,[]:/v", "the host is missing"),
        ("a,b c:/v", "the host is missing"),
        (&*many, ": 9 are more than 8"),
    ] {
        let said = served_by_hosts(text, 7400).expect_err(text).to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
    let name = format!("a:/{}", "v".repeat(256));
    assert!(served_by_hosts(&name, 1).unwrap_err().to_string().contains("without directories"));
}
