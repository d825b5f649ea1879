use super::*;

fn parsed(text: &str) -> Address {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn error(text: &str) -> String {
    match text.parse::<Address>() {
        Ok(address) => panic!("{text} is {address:?}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn addresses_read_back_as_they_were_written() {
    for text in ["unix:/run/siftfs/device.sock", "tcp:localhost:7400", "tcp:[::1]:0", "unix:a:b"] {
        assert_eq!(parsed(text).to_string(), text);
    }
    assert_eq!(parsed("tcp:[::1]:80"), Address::Tcp { host: "::1".into(), port: 80 });
    assert_eq!(parsed("unix:a:b"), Address::Unix("a:b".into()));
}

#[test]
fn each_wrong_address_is_refused_with_its_reason() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (text, why) in [
        ("", "neither a unix socket nor a TCP address"),
        ("/run/x", "neither a unix socket nor a TCP address"),
        ("UNIX:/x", "neither"),
        ("unix:", "the path is missing"),
        (&*long, "at most 107 bytes, this one 108"),
        ("unix:a\0b", "no zero byte"),
        ("tcp:localhost", "the port is missing"),
        ("tcp::7400", "the host is missing"),
        ("tcp:[]:7400", "the host is missing"),
        ("tcp:a b:1", "the host is missing"),
        ("tcp:::1:7400", "brackets"),
        ("tcp:[::1:7400", "brackets"),
        ("tcp:h:70000", "'70000' is no port"),
        ("tcp:h:-1", "'-1' is no port"),
        ("tcp:h:", "'' is no port"),
    ] {
        let message = error(text);
        assert!(message.contains(why) && message.contains("write unix:PATH"), "{text}: {message}");
    }
}
