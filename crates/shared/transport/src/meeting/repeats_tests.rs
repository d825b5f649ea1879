use super::{APART, LONGEST, Repeats, TERM, key};
use std::time::{Duration, Instant};

fn silent(port: u32) -> String {
    format!("the client at 10.0.0.7:{port} said nothing within 5s")
}

#[test]
fn a_thousand_of_a_kind_are_two_lines() {
    let (repeats, begun) = (Repeats::default(), Instant::now());
    assert_eq!(repeats.note(&silent(1000), begun), [silent(1000)]);
    for port in 1..1000 {
        let now = begun + Duration::from_millis(port.into());
        assert_eq!(repeats.note(&silent(1000 + port), now), [""; 0]);
    }
    assert_eq!(repeats.due(begun + TERM - Duration::from_millis(1)), [""; 0]);
    let later = begun + TERM;
    assert_eq!(repeats.due(later), [format!("{}, and 999 more in the last 10 s", silent(1999))]);
    // They go on: one line for each term, and none for a term without any.
    assert_eq!(repeats.note(&silent(1), later), [""; 0]);
    let line = format!("{}, and 1 more in the last 10 s", silent(1));
    assert_eq!(repeats.note(&silent(2), later + TERM), [line]);
    assert_eq!(repeats.due(later + 2 * TERM).len(), 1);
    assert_eq!(repeats.due(later + 3 * TERM), [""; 0]);
    assert_eq!(repeats.note(&silent(3), later + 3 * TERM), [silent(3)]);
}

#[test]
fn other_reasons_and_other_machines_are_said() {
    let (repeats, now) = (Repeats::default(), Instant::now());
    for text in [
        "the client at 10.0.0.7:1 said nothing within 5s",
        "the client at 10.0.0.8:1 said nothing within 5s",
        "the client at 10.0.0.7:1 has no key",
        "the client in process 5 at unix:/a has no key",
    ] {
        assert_eq!(repeats.note(text, now), [text]);
    }
    assert_eq!(repeats.note("the client in process 64 at unix:/a has no key", now), [""; 0]);
    assert_eq!(key("the client at [fe80::1]:77, 3 of 4"), "the client at [fe80::#]:#, 3 of 4");
}

/// A peer that makes up reasons has neither lines nor memory for each.
#[test]
fn reasons_without_end_are_bounded() {
    let (repeats, begun) = (Repeats::default(), Instant::now());
    let said = |text: String, now| repeats.note(&text, now).len();
    let lines: usize = (0..5000).map(|n| said(format!("no volume is called v{n}x"), begun)).sum();
    assert_eq!(lines, APART + 1);
    let due = repeats.due(begun + TERM);
    assert_eq!(due.len(), 1, "{due:?}");
    assert!(due[0].ends_with(&format!("and {} more in the last 10 s", 5000 - APART - 1)));
    let long = repeats.note(&"ä".repeat(1 << 20), begun + 3 * TERM);
    assert!(long.iter().all(|line| line.len() <= LONGEST + 3), "{}", long[0].len());
}
