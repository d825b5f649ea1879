use super::*;

#[test]
fn a_slot_has_one_call_at_a_time_with_its_next_number() {
    let slots = Slots::default();
    slots.begin(5, 0).unwrap();
    slots.begin(6, 0).unwrap();
    let refused = |slot, number, why: &str| {
        let said = slots.begin(slot, number).unwrap_err();
        assert!(said.contains(why), "{said}");
    };
    refused(5, 1, "a second call in slot 5");
    slots.end(5);
    refused(5, 0, "call 0 in slot 5 instead of 1");
    refused(5, 2, "call 2 in slot 5 instead of 1");
    refused(SLOTS, 0, "does not exist");
    slots.begin(5, 1).unwrap();
}
