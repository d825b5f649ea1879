//! A log that fails over: each property is broken by a fault planted in the protocol, and in the
//! number of steps of the shortest run to it nothing else breaks it. `SIFTFS_TRACE=1` with
//! `--nocapture` prints the runs.

use siftfs_protocol::planted;
use siftfs_protocol::spare::Mutation::*;
use siftfs_protocol::spare::judge::{self, names::*};
use siftfs_protocol::spare::{Config, Spare, cases};

fn fsyncs(fsyncs: u8) -> Config {
    Config::new("fault", fsyncs, [2, 3])
}

planted! { Spare:
    acknowledged_before_restaging: AckBeforeRestaging breaks KEPT in fsyncs(2);
    acknowledged_behind_a_hole: AckBehindAHole breaks KEPT in fsyncs(2);
    late_write_over_newer: SpareThenFirst breaks KEPT in fsyncs(2);
    copy_over_newer: FirstThenSpare breaks KEPT in fsyncs(2);
    back_before_home: BackBeforeHome breaks KEPT in fsyncs(2);
    place_is_free_at_the_copy: FreeAtCopy breaks KEPT in Config::new("fault", 4, [1, 3]);
    alone_before_the_copies: AloneBeforeCopies breaks KEPT in fsyncs(1).failing(1);
    first_is_believed: FirstIsBelieved breaks KEPT in fsyncs(2).failing(1);

    back_before_home_and_no_spare: BackBeforeHome breaks BEFORE in fsyncs(3);

    applied_over_a_gap: ApplyOverAGap breaks ORDER in fsyncs(3);
    sure_by_the_watermark: SureByWatermark breaks TORN in fsyncs(3);
    home_before_the_answer: HomeBeforeAnswer breaks SOURCES in fsyncs(1);
    failure_is_forgotten: FailureIsForgotten breaks DONE in fsyncs(4).failing(1);
    only_the_unanswered_is_copied: CopyTheUnanswered breaks PROMPT in fsyncs(2);
    back_before_the_answer: BackBeforeAnswer breaks PROMPT in fsyncs(2);
    waits_for_the_first: WaitForFirst breaks PROMPT in fsyncs(1);
}

/// The configurations themselves have no fault planted.
#[test]
fn the_cases_are_the_protocol_as_it_is() {
    assert!(cases::everyday().iter().all(|case| case.config.mutation.is_none()));
}
