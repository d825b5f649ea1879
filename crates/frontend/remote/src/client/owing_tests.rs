use super::*;

#[test]
fn what_is_owed_is_settled_once() {
    let owing = Owing::default();
    assert!(owing.take((1, 0)).is_settled(), "most calls owe nothing");
    owing.owes((1, 2));
    let owed = owing.take((1, 2));
    assert!(!owed.is_settled());
    assert!(!owing.settled((1, 3)) && !owing.settled((2, 2)));
    assert!(!owed.is_settled());
    assert!(owing.settled((1, 2)) && owed.is_settled());
    assert!(!owing.settled((1, 2)), "it is settled already");
}

/// The server may settle it before the caller has asked what it owes.
#[test]
fn what_was_settled_early_is_settled() {
    let owing = Owing::default();
    owing.owes((1, 2));
    assert!(owing.settled((1, 2)));
    assert!(owing.take((1, 2)).is_settled());
}

#[test]
fn nothing_is_owed_when_the_session_is_over() {
    let owing = Owing::default();
    owing.owes((1, 2));
    let owed = owing.take((1, 2));
    owing.end();
    assert!(owed.is_settled());
    owing.owes((1, 3));
    assert!(owing.take((1, 3)).is_settled());
}

/// Other kernels may show what was before for a term, and the server may have died.
#[test]
fn what_is_owed_when_the_connection_is_lost_is_waited_for() {
    let owing = Owing::default();
    owing.owes((1, 2));
    let owed = owing.take((1, 2));
    owing.lost();
    assert!(!owed.wait_for(TERM - std::time::Duration::from_secs(1)));
    assert!(owed.wait_for(std::time::Duration::from_secs(10)));
    owing.owes((1, 3));
    assert!(owing.take((1, 3)).is_settled());
}
