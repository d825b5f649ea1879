use super::*;
use siftfs_base::errno;

fn ways(text: &str) -> Ways {
    let dial = |address: &Address| Err(Error::Link(format!("{address} is not dialed here")));
    Ways::new(text.parse().unwrap(), Box::new(dial))
}

/// Tries them all, of which `alive` answers; which were tried, and which answered.
fn tried(ways: &Ways, alive: &str) -> (Vec<String>, Option<String>) {
    let mut asked = Vec::new();
    let found = ways.first_that(|address| {
        asked.push(address.to_string());
        let answers = address.to_string() == alive;
        answers.then(|| alive.to_owned()).ok_or_else(|| errno(libc::EIO))
    });
    (asked, found.ok())
}

#[test]
fn the_one_that_answered_last_is_tried_first_and_each_once() {
    let ways = ways("tcp:a:1,tcp:b:1,tcp:c:1");
    assert_eq!(ways.address().to_string(), "tcp:a:1");
    for (alive, order) in [
        ("tcp:b:1", vec!["tcp:a:1", "tcp:b:1"]),
        ("tcp:b:1", vec!["tcp:b:1"]),
        ("tcp:a:1", vec!["tcp:b:1", "tcp:c:1", "tcp:a:1"]),
        ("tcp:c:1", vec!["tcp:a:1", "tcp:b:1", "tcp:c:1"]),
        ("tcp:a:1", vec!["tcp:c:1", "tcp:a:1"]),
    ] {
        let (asked, found) = tried(&ways, alive);
        assert_eq!(
            (asked, found.as_deref()),
            (order.iter().map(|a| a.to_string()).collect(), Some(alive))
        );
        assert_eq!(ways.address().to_string(), alive);
    }
    // Where none answers, each is asked once, and the last one that answered stays the first.
    let (asked, found) = tried(&ways, "none");
    assert_eq!((asked.len(), found), (3, None));
    assert_eq!(tried(&ways, "none").0, asked);
    assert_eq!(ways.address().to_string(), "tcp:a:1");
}

#[test]
fn one_message_names_each_address_and_its_reason() {
    let several = ways("tcp:a:1,tcp:b:1,tcp:c:1");
    let refused = several.first_that(|address| -> Result<()> {
        let why = match address.to_string().as_str() {
            "tcp:a:1" => "cannot connect to tcp:a:1: nobody listens there",
            "tcp:b:1" => "it is a standby",
            _ => "no volume is called \"v\" here",
        };
        Err(Error::Refused(why.into()))
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "no server answers for the volume: cannot connect to tcp:a:1: nobody listens there; tcp:b:1: \
         it is a standby; tcp:c:1: no volume is called \"v\" here"
    );
    let one = ways("tcp:a:1");
    let error = one.first_that(|address| one.reach(address).map(drop)).unwrap_err();
    assert!(matches!(&error, Error::Link(why) if why == "tcp:a:1 is not dialed here"), "{error}");
}

/// A server that stands still is tried last, also if it answered before. One alone is tried as
/// before.
#[test]
fn one_that_says_nothing_is_tried_last() {
    let several = ways("tcp:a:1,tcp:b:1,tcp:c:1");
    assert_eq!(tried(&several, "tcp:c:1").1.as_deref(), Some("tcp:c:1"));
    several.pass_by();
    assert_eq!(tried(&several, "tcp:c:1").0, ["tcp:a:1", "tcp:b:1", "tcp:c:1"]);
    let one = ways("tcp:a:1");
    one.pass_by();
    assert_eq!(tried(&one, "tcp:a:1").0, ["tcp:a:1"]);
}
