use super::*;

fn taken() -> Taken {
    Taken { leases: 1, file_logs: 1, records: 9, bytes: 900, ..Taken::default() }
}

#[test]
fn a_program_without_leases_was_not_accelerated() {
    taken().verdict(Needs::Leases).expect("it was");
    for none in [Taken { file_logs: 0, ..taken() }, Taken { records: 0, ..taken() }] {
        let Failed(why) = none.verdict(Needs::Leases).expect_err("it was not");
        assert!(why.contains("not accelerated"), "{why}");
        none.verdict(Needs::Nothing).expect("it need not be");
    }
}

#[test]
fn a_program_that_made_no_request_at_its_target_was_not_accelerated() {
    let at = |requests| Taken { at_target: Some(requests), file_logs: 0, records: 0, ..taken() };
    at(1).verdict(Needs::Leases).expect("it was");
    at(0).verdict(Needs::Leases).expect_err("it was not");
    at(0).verdict(Needs::Nothing).expect("it need not be");
}

#[test]
fn a_session_that_broke_a_rule_is_a_failure() {
    for bad in [Taken { ended: 1, ..taken() }, Taken { lost: 1, ..taken() }] {
        bad.verdict(Needs::Nothing).expect_err("whatever the program");
    }
}
