//! Tests of what the Service was asked.

use super::*;

fn report(batch: u64) -> CheckpointReport {
    CheckpointReport { batch, ..CheckpointReport::default() }
}

/// A shared checkpoint is open until its answer comes, and nobody waits for its report; others are
/// waited for by number.
#[test]
fn shared_checkpoints_are_open_until_answered() {
    let mut questions = Questions::default();
    questions.ask_background();
    questions.ask_for_credits(3);
    questions.checkpointed(9, Urgency::Background, report(1));
    assert!(!questions.is_open(Urgency::Background) && questions.is_open(Urgency::Emergency));
    questions.checkpointed(4, Urgency::Emergency, report(2));
    assert!(questions.is_open(Urgency::Emergency), "the answer is to another caller");
    questions.checkpointed(3, Urgency::Emergency, report(3));
    assert!(!questions.is_open(Urgency::Emergency));
    assert_eq!(questions.take_report(3), None);
    assert_eq!((questions.take_report(4), questions.take_report(4)), (Some(report(2)), None));
}

#[test]
fn statistics_are_given_out_once() {
    let mut questions = Questions::default();
    assert!(questions.take_statistics().is_none());
    questions.counted(ServiceStatistics::default());
    assert!(questions.take_statistics().is_some() && questions.take_statistics().is_none());
}
