//! Several requests of one queue at a time, in groups: each property is broken by a fault planted
//! in the protocol, and in the number of steps of the shortest run to it nothing else breaks it.
//! `SIFTFS_TRACE=1` with `--nocapture` prints the runs.

use siftfs_protocol::explored::{Case, explore, shortest};
use siftfs_protocol::planted;
use siftfs_protocol::queues::Mutation::*;
use siftfs_protocol::queues::judge::{self, names::*};
use siftfs_protocol::queues::{Call, Config, Limits, Policy, Queues, cases, read, write};

fn basic(calls: &[Call]) -> Config {
    Config::new("fault", Policy::Basic, calls)
}

fn merging(calls: &[Call]) -> Config {
    Config::new("fault", Policy::Merging, calls)
}

fn ideal(calls: &[Call]) -> Config {
    Config::new("fault", Policy::Ideal, calls)
}

/// The same where connections break.
fn breaking(config: Config, breaks: u8) -> Config {
    config.failing(Limits { breaks, ..Limits::default() })
}

/// The same where a thread stops.
fn stopping(config: Config) -> Config {
    config.failing(Limits { stops: 1, ..Limits::default() })
}

/// The same where the grant is taken back.
fn revoked(config: Config) -> Config {
    config.failing(Limits { revokes: 1, ..Limits::default() })
}

/// The same where connections break, too.
fn breaking_and_revoked(config: Config) -> Config {
    config.failing(Limits { breaks: 1, revokes: 1, ..Limits::default() })
}

const WRITE_AND_READ: [Call; 2] = [write(0, 2), read(0, 2)];

planted! { Queues:
    a_read_joins_the_group_of_a_write: ReadJoinsWriteGroup breaks ORDER in basic(&WRITE_AND_READ);
    conflicts_join: ConflictJoins breaks ORDER in merging(&WRITE_AND_READ);
    numbers_after_the_lock: NumbersAfterSend breaks ORDER in basic(&WRITE_AND_READ);
    counted_when_it_begins: CountAtArrival breaks ORDER in basic(&WRITE_AND_READ);
    a_life_without_a_drain: LifeWithoutDrain breaks ORDER in
        breaking(basic(&[write(0, 1), write(0, 1)]), 1);
    an_old_life_is_accepted: OldLifeAccepted breaks ORDER in
        breaking(basic(&[write(0, 1), write(0, 1)]), 1);
    what_was_finished_is_repeated: RepeatsFinished breaks ORDER in
        breaking(basic(&[write(0, 1), write(0, 1), read(0, 1)]), 1);
    finished_numbers_are_forgotten: ForgetsAtAttach breaks ORDER in
        breaking(basic(&[write(0, 1), write(0, 1), read(0, 1)]), 2);
    finished_numbers_of_any_life: OrderOfAnyLife breaks ORDER in
        breaking(basic(&[write(0, 1), write(0, 1)]), 2);
    what_failed_is_done: FailedIsDone breaks ORDER in breaking(basic(&[write(0, 1).denied()]), 1);
    repeated_in_order: RepeatsInOrder breaks ORDER in
        breaking(basic(&[read(0, 2), write(0, 2).split()]), 1);
    new_calls_before_repeated_ones: NewBeforeRepeated breaks ORDER in
        breaking(basic(&[write(0, 2).split(), read(0, 2)]), 1);
    only_the_rest_is_repeated: RepeatsParts breaks ORDER in
        breaking(basic(&[read(0, 2).split(), write(0, 2)]), 1);

    begun_before_its_turn: CountAtArrival breaks TURN in basic(&WRITE_AND_READ);
    counted_and_taken_twice: CountNotBitmap breaks TURN in
        basic(&[write(0, 1), write(0, 1)]).forged(&[(0, 0), (0, 0), (2, 2)], 2);

    beyond_the_window: NoWindow breaks HONEST in basic(&[write(0, 1), write(0, 1)]).window(1);

    parked_for_ever: ParkForever breaks NEEDLESS in basic(&WRITE_AND_READ);
    what_failed_does_not_count: FailedDoesNotCount breaks NEEDLESS in
        basic(&[write(0, 1).denied(), write(0, 1)]);

    revoked_without_a_drain: RevokeWithoutDrain breaks REVOKED in revoked(basic(&[write(0, 1)]));
    counted_after_the_end: CountsLater breaks LEFT in
        breaking_and_revoked(basic(&[write(0, 1)]));

    parked_without_a_bound: NoBound breaks BOUNDED in
        basic(&[]).window(1).forged(&[(1, 1), (u64::MAX, 7)], 2);

    parked_with_a_thread: ParkHoldsThread breaks OTHERS in basic(&[]).forged(&[(1, 1)], 1);

    no_term: NoTerm breaks DONE in stopping(basic(&[write(0, 1), write(0, 1)]));
    a_term_for_parked_ones_alone: TermForParkedOnly breaks DONE in
        stopping(merging(&[write(0, 1), write(1, 1)]).window(1));
}

/// Without any order a read shows half of a write; by either policy it does not.
#[test]
fn without_groups_a_read_shows_half_of_a_write() {
    let half = |config| shortest::<Queues>(config, ORDER, None).map(|run| run.len());
    assert_eq!(half(ideal(&WRITE_AND_READ)), Some(11));
    assert_eq!(half(basic(&WRITE_AND_READ)), None);
    assert_eq!(half(merging(&WRITE_AND_READ)), None);
}

/// Where each call is one request no call is there by half: then it does not matter which calls
/// take numbers first in a new life.
#[test]
fn calls_of_one_request_are_repeated_in_any_order() {
    for mutation in [NewBeforeRepeated, RepeatsInOrder] {
        let config = breaking(merging(&[write(0, 1), read(0, 2), write(0, 2)]), 1);
        explore::<Queues>(Case { config: config.mutated(mutation), reaches: &[] });
    }
}

/// A request whose group begins behind itself stalls its own queue, as a gap does, if it is taken.
/// That it is refused only shows the program its mistake at once.
#[test]
fn a_group_behind_its_request_is_only_a_gap() {
    let config = cases::hostile().config.mutated(FirstBeyondNumber);
    explore::<Queues>(Case { config, reaches: &[] });
}

/// The configurations themselves have no fault planted.
#[test]
fn the_cases_are_the_protocol_as_it_is() {
    assert!(cases::everyday().iter().all(|case| case.config.mutation.is_none()));
}
