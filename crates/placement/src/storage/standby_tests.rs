use super::*;

fn turn(standing: Standing, take_over: Option<&str>) -> Option<Turn> {
    let mut standby = Standby { wait: None, owner: None, complained: None };
    let take_over = take_over.map(str::to_owned);
    standby.note(Look { standing, take_over, is_handed_over: false })
}

/// The cluster's word holds against this machine's view: an owner that was given up is fenced
/// although its process may live here, cut off. Without a name for it, opening the image refuses it
/// as in use by a process of this machine, for as long as that lives.
///
/// Seen to fail when only an administrator's word names the owner that is meant.
#[test]
fn an_owner_that_the_cluster_has_given_up_is_named() {
    let whom = |whose: &str| Some(Turn { take_over: Some(Whom::Described(whose.into())) });
    assert_eq!(turn(Standing::Dead("one".into()), None), whom("one"));
    assert_eq!(turn(Standing::Free, None), Some(Turn { take_over: None }));
    let had = || Standing::Had(Had { address: "a".into(), whose: "one".into() });
    assert_eq!(turn(had(), None), None);
    assert_eq!(turn(had(), Some("another")), None);
    assert_eq!(turn(had(), Some("one")), whom("one"));
}
