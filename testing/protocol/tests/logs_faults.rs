//! A private log: each property is broken by a fault planted in the protocol, and in the number of
//! steps of the shortest run to it nothing else breaks it. `SIFTFS_TRACE=1` with `--nocapture`
//! prints the runs.

use siftfs_protocol::logs::Call::{
    self, Forget, Fsync, Lease, Order, Read, Stat, Sync, Unmount, Write,
};
use siftfs_protocol::logs::Mutation::*;
use siftfs_protocol::logs::Who::{self, Holder, Mount};
use siftfs_protocol::logs::judge::{self, names::*};
use siftfs_protocol::logs::{Config, Faults, Logs, cases};
use siftfs_protocol::planted;
use stateright::{Checker, Model};

fn new(programs: &[(Who, &[Call])]) -> Config {
    Config::new("fault", programs)
}

/// The same with `power` power cuts.
fn cut(mut config: Config, power: u8) -> Config {
    config.faults = Faults { total: power, power, ..Faults::default() };
    config
}

/// The same where the daemon is killed.
fn orphaned(mut config: Config) -> Config {
    config.faults = Faults { total: 1, daemon: 1, ..Faults::default() };
    config
}

/// The same where the program is killed.
fn killed(mut config: Config) -> Config {
    config.faults = Faults { total: 1, program: 1, ..Faults::default() };
    config
}

/// The same where the program is stopped.
fn stopped(mut config: Config) -> Config {
    config.faults = Faults { total: 1, stop: 1, ..Faults::default() };
    config
}

/// The same where the grantor takes in by age.
fn aging(mut config: Config) -> Config {
    config.ages = true;
    config
}

/// The same where the registry cannot be written, and then power fails.
fn given_up(mut config: Config) -> Config {
    config.faults = Faults { total: 2, row: 1, power: 1, ..Faults::default() };
    config
}

/// The same where a batch cannot be written, and then power fails.
fn failed(mut config: Config) -> Config {
    config.faults = Faults { total: 2, log: 1, power: 1, ..Faults::default() };
    config
}

/// A file is leased, written and read by both.
fn shared() -> Config {
    new(&[(Holder, &[Write(0), Read(0)]), (Mount, &[Write(0), Read(0)])]).leasing(&[0], &[0])
}

/// A program has written, and another one reads.
fn written() -> Config {
    new(&[(Holder, &[Write(0)]), (Mount, &[Read(0), Read(0)])]).leasing(&[0], &[0])
}

/// A file grows, and others look at its size.
fn grown() -> Config {
    new(&[(Holder, &[Write(0)]), (Mount, &[Stat(0), Stat(0)])]).leasing(&[0], &[])
}

/// Two writes made durable one after the other, by the log.
fn logged() -> Config {
    new(&[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)])]).leasing(&[0], &[0])
}

/// A program of the mount orders something before an fsync by the log.
fn ordered() -> Config {
    new(&[(Holder, &[Write(0), Fsync(0), Fsync(0)]), (Mount, &[Order])]).leasing(&[0], &[0])
}

/// A lease that the registry does not have yet.
fn first() -> Config {
    new(&[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)])]).leasing(&[0], &[])
}

/// Both files are written by the log and by the daemon.
fn both() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Fsync(1)]), (Mount, &[Order])];
    new(programs).leasing(&[0, 1], &[0, 1])
}

/// The lease's file is written and made durable by the mount afterwards.
fn ended() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Write(0), Fsync(0)])];
    new(programs).leasing(&[0], &[0])
}

/// `siftfs sync` while the log has something older.
fn synced() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(0)]), (Mount, &[Sync])];
    new(programs).leasing(&[0], &[0])
}

/// The same of a file whose records lie in the log, and whose lease the registry does not have.
fn synced_unregistered() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(1), Fsync(0), Write(1), Fsync(1)]), (Mount, &[Sync])];
    new(programs).leasing(&[0, 1], &[0])
}

/// The log is full, and is forgotten.
fn full() -> Config {
    let calls: &[Call] = &[Write(0), Fsync(0), Write(0), Fsync(0), Forget, Write(0), Fsync(0)];
    new(&[(Holder, calls)]).leasing(&[0], &[0])
}

/// The volume is unmounted after an fsync by the log.
fn unmounted() -> Config {
    new(&[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Unmount])]).leasing(&[0], &[0])
}

/// No log is made yet.
fn unmade() -> Config {
    let mut config = new(&[(Holder, &[Lease(0), Write(0), Fsync(0), Write(0), Fsync(0)])]);
    config.unmade = true;
    config
}

/// The Runtime cannot write what is taken in.
fn unwritable() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Read(0), Read(0)])];
    let mut config = new(programs).leasing(&[0], &[0]);
    config.faults = Faults { total: 1, io: 1, ..Faults::default() };
    config
}

planted! { Logs:
    r37_a_write_looks_after_it_is_published: NoLookAfterPublish breaks OLDER in written();
    r37_a_read_looks_afterwards: NoLookAfterRead breaks OLDER in shared();
    r37_what_a_recall_did_not_cover_is_not_done: UncoveredIsDone breaks OLDER in written();
    l2_a_size_is_shown_after_its_record: SizeBeforeHead breaks OLDER in killed(grown());
    l2_a_size_waits_for_the_end_of_a_recall: SizeBesideRecall breaks OLDER in recalled_and_shown();
    r38_an_fsync_looks_at_the_order: NoLookAtOrder breaks ORDER in cut(ordered(), 1);
    r38_the_order_is_read_before_the_fsync: OrderReadLate breaks ORDER in cut(late_order(), 1);
    r38_the_word_is_counted_up_before_the_answer: OrderAfterAnswer breaks ORDER in cut(ordered(), 1);
    r36_an_fsync_looks_whether_the_registry_has_the_lease: NoLookAtCovered breaks PROMISE in cut(first(), 1);
    r37_an_fsync_looks_whether_the_daemon_vouches: NoLookAtUntil breaks PROMISE in orphaned(logged());
    r37_an_fsync_looks_at_the_lease: NoLookAtLease breaks OLDER in unwritable();
    r37_an_fsync_looks_when_its_batch_is_persistent: LookBeforeOnly breaks PROMISE in orphaned(logged());
    l3_an_fsync_waits_for_its_batch: AckBeforePersist breaks PROMISE in cut(logged(), 1);
    l3_a_batch_has_what_was_taken_in: BatchWithoutIngested breaks PROMISE in cut(aging(logged()), 1);
    r37_the_word_changes_before_the_head_is_read: HeadBeforeWord breaks OLDER in written();
    r47_a_death_takes_in_what_is_published: IngestTheDurable breaks OLDER in killed(written());
    r48_a_reader_recalls: DoorWithoutRecall breaks OLDER in written();
    r36_a_lease_is_returned_when_its_end_is_durable: ReturnBeforeUnlogged breaks PROMISE in cut(ended(), 1);
    r36_a_lease_ends_in_the_registry: NeverUnlogged breaks PROMISE in cut(ended(), 1);
    r36_its_file_is_durable_before: UnlogBeforeSync breaks PROMISE in cut(ended(), 1);
    r36_files_are_durable_before_the_log_forgets: BeginBeforeSync breaks PROMISE in cut(forgotten(), 1);
    r36_all_files_of_the_log_are: SyncOwnAlone breaks PROMISE in cut(both(), 1);
    r36_a_promise_by_the_daemon_empties_the_log: PromiseKeepsLog breaks PROMISE in cut(by_the_daemon(), 1);
    r36_nothing_is_written_over_before_it_is_forgotten: ForgotBeforeRow breaks PROMISE in cut(full(), 1);
    r36_the_registry_has_a_lease_before_its_first_answer: RegisterAfterAnswer breaks PROMISE in cut(first(), 1);
    r36_the_log_forgets_before_the_registry_has_a_lease: RegisterBeforeForget breaks PROMISE in cut(synced_unregistered(), 1);
    r36_a_sync_ends_leases_of_the_log: SyncKeepsLeases breaks PROMISE in cut(synced(), 1);
    r36_the_registry_is_named_before_a_log_is_passed: NamedLate breaks PROMISE in cut(unmade(), 1);
    r36_a_log_that_is_given_up_is_left_to_its_program: EmptiedInPlace breaks PROMISE in given_up(crossed());
    r36_a_log_is_given_up_before_it_is_emptied: GivenUpUntold breaks PROMISE in given_up(both_logged());
    r36_files_are_durable_before_it_is: GivenUpBeforeSync breaks PROMISE in given_up(crossed());
    r36_a_log_that_is_given_up_is_empty: GivenUpFull breaks PROMISE in given_up(crossed());
    r36_a_batch_that_failed_is_forgotten: FailedBatchStays breaks PROMISE in failed(logged());
    r16_a_log_goes_after_its_row: FileBeforeRow breaks MISSING in dead_and_cut();
    l4_nobody_waits_for_a_program: AsksTheHolder breaks ANSWERED in stopped(written());
    l4_a_program_waits_for_no_dead_daemon: WaitsForTheDead breaks ANSWERED in orphaned(first());
    r37_a_dead_daemons_words_run_out: DeadWordsCount breaks DEAD in orphaned(written());
    r36_a_volume_is_closed_after_its_sessions: ClosedBesideLogs breaks PROMISE in unmounted();
    l1_no_clock_ends_what_is_taken_in: TermEndsRecalls breaks OLDER in written();
    l3_no_clock_ends_what_was_promised: TermEndsRecalls breaks PROMISE in cut(ended(), 1);
    r37_recovery_waits: NoWait breaks PROMISE in orphaned(logged());
    r36_recovery_takes_in_leases_of_the_row: ReplayAll breaks PROMISE in cut(ended_beside(), 1);
    r36_recovery_begins_at_begin: ReplayForgotten breaks PROMISE in cut(by_the_daemon(), 1);
    r36_durable_before_the_registry_goes: UnnamedBeforeDurable breaks PROMISE in cut(logged(), 2);
    r36_clean_names_no_registry: CleanWhileNamed breaks PROMISE in cut(ended_by_death(), 3);
    r16_logs_go_after_the_registry: RemovedWhileNamed breaks MISSING in cut(logged(), 2);
}

/// A file's size is looked at while a reader's recall takes it in.
fn recalled_and_shown() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0)]), (Mount, &[Stat(0)]), (Mount, &[Read(0)])];
    new(programs).leasing(&[0], &[])
}

/// Something is ordered while the daemon makes a file durable, and then the log does.
fn late_order() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]), (Mount, &[Order])];
    new(programs).leasing(&[0], &[])
}

/// The daemon is told to forget what the log alone has.
fn forgotten() -> Config {
    new(&[(Holder, &[Write(0), Fsync(0), Forget])]).leasing(&[0], &[0])
}

/// The second fsync goes by the daemon.
fn by_the_daemon() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]), (Mount, &[Order])];
    new(programs).leasing(&[0], &[0])
}

/// One lease ends, and another one of the log goes on.
fn ended_beside() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Write(0), Fsync(0)])];
    new(programs).leasing(&[0, 1], &[0, 1])
}

/// The program is killed, and then power fails.
fn dead_and_cut() -> Config {
    let mut config = ended();
    config.faults = Faults { total: 2, program: 1, power: 1, ..Faults::default() };
    config
}

/// After a first recovery the mount writes what the log had.
fn ended_by_death() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Write(0), Fsync(0)])];
    new(programs).leasing(&[0], &[0])
}

/// While one file is made durable by the log another lease of it ends.
fn crossed() -> Config {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]), (Mount, &[Read(1)])];
    new(programs).leasing(&[0, 1], &[0, 1])
}

/// The same, and the log's file goes on.
fn both_logged() -> Config {
    let programs: &[(Who, &[Call])] = &[(Holder, &[Write(0), Fsync(0)]), (Mount, &[Read(1)])];
    new(programs).leasing(&[0, 1], &[0, 1])
}

/// Of the looks at *order* and *covered* one is enough, before the batch or after it.
#[test]
fn r46_an_fsync_covers_what_was_answered_before_it() {
    for case in [cases::ordered(), cases::both_files(), cases::unlogged()] {
        let mut config = case.config.mutated(OrderBeforeOnly);
        config.faults.total -= 1;
        let checker = Logs::new(config).checker().spawn_bfs().join();
        assert!(checker.is_done() && checker.discoveries().is_empty(), "it is no fault");
    }
}
