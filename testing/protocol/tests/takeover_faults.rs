//! A takeover: each property is broken by a fault planted in the protocol, and in the number of
//! steps of the shortest run to it nothing else breaks it. `SIFTFS_TRACE=1` with `--nocapture`
//! prints the runs.

use siftfs_protocol::explored::{Case, explore};
use siftfs_protocol::planted;
use siftfs_protocol::takeover::Mutation::*;
use siftfs_protocol::takeover::judge::{self, names::*};
use siftfs_protocol::takeover::{Config, Faults, Takeover, cases};

/// Two servers, where one fault happens.
fn two(fsyncs: u8, faults: Faults) -> Config {
    Config::new("fault", 2, fsyncs).failing(Faults { total: 1, ..faults })
}

/// Three servers, where two faults happen.
fn three(faults: Faults) -> Config {
    Config::new("fault", 3, 1).failing(Faults { total: 2, ..faults })
}

fn watch() -> Faults {
    Faults { watch: 1, ..Faults::default() }
}

fn operator() -> Faults {
    Faults { operator: 1, ..Faults::default() }
}

fn dies() -> Faults {
    Faults { dies: 1, ..Faults::default() }
}

fn by_hand() -> Faults {
    Faults { by_hand: 1, ..Faults::default() }
}

planted! { Takeover:
    recovered_before_the_fence: RecoverBeforeFence breaks ONE_WRITER in two(1, operator());
    recovered_before_the_fence_loses: RecoverBeforeFence breaks KEPT in two(1, operator());
    read_by_an_old_map: ReadByAnOldMap breaks ONE_WRITER in two(1, watch());
    lock_broken_before_the_entry: BreakBeforeEntry breaks ONE_WRITER in
        three(operator()).nameless();
    short_term_is_trusted: TrustShortTerm breaks ONE_WRITER in two(1, by_hand());
    extended_by_removing: ExtendByRemoving breaks ONE_WRITER in
        three(Faults { watch: 1, by_hand: 1, ..Faults::default() });
    left_to_librbd: LeaveItToLibrbd breaks ONE_WRITER in two(1, watch()).nameless();
    named_after_the_lock: NameAfterLock breaks ONE_WRITER in
        three(Faults { dies: 1, by_hand: 1, ..Faults::default() });
    name_cleared_early: ClearNameEarly breaks ONE_WRITER in
        two(1, Faults { ends: 1, ..Faults::default() });

    acknowledged_when_it_is_sent: AckAtSend breaks KEPT in two(1, dies());
    refused_is_done: RefusedIsDone breaks KEPT in two(1, watch());

    answered_from_memory: AnswerFromMemory breaks TRUE in two(1, watch()).reading(1);
    looked_at_the_lock: LookAtTheLock breaks TRUE in two(1, watch()).reading(1);

    own_view: TrustOwnView breaks BY_WORD in two(1, Faults::default());
    never_broken: NeverBreak breaks DONE in two(1, dies());
}

/// The configurations themselves have no fault planted.
#[test]
fn the_cases_are_the_protocol_as_it_is() {
    assert!(cases::everyday().iter().all(|case| case.config.mutation.is_none()));
}

/// With one server that waits, and nobody who is on its way to the lock beside it, a short entry
/// may be taken away and made again: nothing has been read that it protects. The name may be
/// written down behind the lock then, too.
#[test]
fn one_standby_may_do_what_two_must_not() {
    let faults = Faults { watch: 1, dies: 1, by_hand: 1, ends: 1, ..Faults::default() };
    for mutation in [ExtendByRemoving, NameAfterLock] {
        let config = two(2, faults).failing(Faults { total: 2, ..faults }).mutated(mutation);
        explore::<Takeover>(Case { config, reaches: &[] });
    }
}
