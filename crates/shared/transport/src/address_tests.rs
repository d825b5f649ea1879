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

/// Without the feature an address of RDMA is refused, with how to get it.
#[test]
fn an_address_of_rdma_is_one_where_the_program_has_it() {
    let text = "rdma:[fe80::1]:7400";
    if !siftfs_rdma::BUILT_IN {
        let message = error(text);
        assert!(
            message.contains("without RDMA") && message.contains("libibverbs-dev"),
            "{message}"
        );
        return;
    }
    let address = parsed(text);
    assert_eq!(address, Address::Rdma { host: "fe80::1".into(), port: 7400 });
    assert_eq!(address.to_string(), text);
    assert_eq!(address.network(), Some(("fe80::1", 7400)));
    assert_eq!(address.at_port(7).to_string(), "rdma:[fe80::1]:7");
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
        ("rdma:h", "the port is missing"),
        ("rdma::7400", "the host is missing"),
        ("rdmah:1", "neither"),
    ] {
        let message = error(text);
        assert!(message.contains(why) && message.contains("write unix:PATH"), "{text}: {message}");
    }
}
