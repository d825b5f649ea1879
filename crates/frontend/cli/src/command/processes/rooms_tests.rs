use super::*;

fn known(volumes: &[(&str, &str)]) -> State {
    let known = volumes.iter().map(|(name, uuid)| (name.to_string(), uuid.to_string()));
    State { known: known.collect(), ..State::default() }
}

#[test]
fn a_client_calls_a_volume_by_name_or_uuid_and_the_only_one_by_nothing() {
    let two = known(&[("mail", "u-1"), ("web", "u-2")]);
    let name_of = |state: &State, said| state.name_of(said);
    assert_eq!(name_of(&two, "mail").as_deref(), Some("mail"));
    assert_eq!(name_of(&two, "u-2").as_deref(), Some("web"));
    // It may be made meanwhile, and so is looked for.
    assert_eq!(name_of(&two, "new").as_deref(), Some("new"));
    assert_eq!(name_of(&two, ""), None);
    assert_eq!(name_of(&known(&[]), ""), None);
    assert_eq!(name_of(&known(&[("mail", "u-1")]), "").as_deref(), Some("mail"));
    // A name counts more than a UUID that another one has.
    let odd = known(&[("a", "b"), ("b", "c")]);
    assert_eq!(name_of(&odd, "b").as_deref(), Some("b"));
}
