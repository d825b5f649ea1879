//! Clients over a wire: each property is broken by a fault planted in the protocol, and in the
//! number of steps of the shortest run to it nothing else breaks it. `SIFTFS_TRACE=1` with
//! `--nocapture` prints the runs.

use siftfs_protocol::planted;
use siftfs_protocol::wire::Call::{self, Compound, Fsync, Lock, Name, Read, Unlock, Write};
use siftfs_protocol::wire::Mutation::*;
use siftfs_protocol::wire::judge::{self, names::*};
use siftfs_protocol::wire::{Config, Faults, Wire, cases};

fn new(programs: &[&[Call]]) -> Config {
    Config::new("fault", programs)
}

/// The same where `lose` connections are lost and the server is killed `kill` times.
fn failing(mut config: Config, lose: u8, kill: u8) -> Config {
    config.faults = Faults { total: lose + kill, lose, kill, ..Faults::default() };
    config
}

/// The same where a connection is lost, and its client is away for too long.
fn away(mut config: Config, kill: u8) -> Config {
    config.keeps = true;
    config.faults = Faults { total: 2 + kill, lose: 1, late: 1, kill, ..Faults::default() };
    config
}

/// The same where one more connection is lost.
fn lost_again(mut config: Config) -> Config {
    (config.faults.total, config.faults.lose) = (3, 2);
    config
}

/// The same where a client does not come back to a server in time.
fn late(mut config: Config) -> Config {
    config.faults = Faults { total: 2, kill: 1, late: 1, ..Faults::default() };
    config
}

/// The same where the server makes durable what clients keep.
fn keeping(mut config: Config) -> Config {
    config.keeps = true;
    config
}

/// The same where the Runtime makes things durable by itself.
fn committing(mut config: Config) -> Config {
    config.commits = true;
    config
}

/// The same where the server ends in order, once a connection may have been lost, or
/// the server before was killed.
fn ending(mut config: Config, lose: u8, kill: u8) -> Config {
    config.faults = Faults { total: 1 + lose + kill, end: 1, lose, kill, ..Faults::default() };
    config
}

/// One change of names.
fn renamed() -> Config {
    new(&[&[Name(0)]])
}

/// Two clients write one file.
fn shared() -> Config {
    new(&[&[Write(0)], &[Write(0)]])
}

/// One client reads, and the other one writes.
fn read() -> Config {
    new(&[&[Read(0), Read(0)], &[Write(0)]])
}

/// Both clients write, and the second one makes that durable.
fn synced() -> Config {
    new(&[&[Write(0)], &[Write(0), Fsync(0)]])
}

/// Two clients take the lock.
fn locked() -> Config {
    new(&[&[Lock], &[Lock]])
}

planted! { Wire:
    twice_after_a_lost_connection: RunTwice breaks TWICE in failing(renamed(), 1, 0);
    twice_after_a_death: RunTwice breaks TWICE in committing(failing(renamed(), 0, 1));
    twice_at_a_second_death: RunTwice breaks TWICE in committing(failing(renamed(), 0, 2));
    writes_twice: WriteTwice breaks TWICE in failing(new(&[&[Write(0)]]), 1, 0);
    writes_after_the_term: WriteAfterTerm breaks TWICE in away(new(&[&[Write(0)]]), 0);
    ended_is_same: EndedIsSame breaks TWICE in away(renamed(), 0);
    heard_once: HeardOnce breaks TWICE in lost_again(away(renamed(), 0));
    effect_alone: EffectWithoutReply breaks TWICE in committing(failing(renamed(), 0, 1));
    tried_is_forgotten: TriedForgotten breaks TWICE in committing(failing(renamed(), 0, 2));
    only_the_last_is_told: OnlyLastTried breaks TWICE in committing(failing(renamed(), 0, 3));
    found_is_not_written: FoundUnwritten breaks TWICE in committing(failing(renamed(), 0, 2));
    any_epoch: AnyEpoch breaks TWICE in committing(failing(renamed(), 0, 2));
    end_forgets_a_call: EndForgets breaks TWICE in ending(renamed(), 1, 0);
    end_forgets_what_was_repeated: EndForgets breaks TWICE in ending(renamed(), 0, 1);
    compound_again: CompoundAgain breaks TWICE in failing(new(&[&[Compound(0)]]), 0, 1);

    reply_alone: ReplyWithoutEffect breaks KEPT in
        failing(new(&[&[Name(0)], &[Fsync(1)]]), 0, 1);
    by_slot_only: BySlotOnly breaks KEPT in
        committing(failing(new(&[&[Name(0), Name(0)]]), 0, 1));
    told_before_the_book: BookAfterTold breaks KEPT in keeping(failing(shared(), 0, 1));
    without_a_mark: NoMark breaks KEPT in failing(synced(), 0, 1);
    synced_is_told: SyncedIsTold breaks KEPT in
        failing(new(&[&[Write(0), Fsync(0)], &[Write(0), Fsync(0)]]), 0, 1);
    own_order_only: OwnOrderOnly breaks KEPT in failing(shared(), 0, 1);
    order_by_number: OrderByNumber breaks KEPT in failing(shared(), 0, 2);
    grace_is_not_awaited: GraceNotAwaited breaks KEPT in
        failing(new(&[&[Write(0)], &[Write(0)]]), 0, 1);
    loss_is_returned: LossIsReturned breaks KEPT in failing(shared(), 1, 1);
    client_is_not_written: ClientUnwritten breaks KEPT in {
        let mut config = away(new(&[&[Name(1), Write(0)], &[]]), 1);
        config.faults.total = 3;
        config
    };
    kept_is_forgotten: KeptForgotten breaks KEPT in failing(new(&[&[Write(0)]]), 0, 1);
    ended_with_kept: EndedWithKept breaks KEPT in away(synced(), 1);

    fsync_goes_first: FsyncFirst breaks PROMISE in
        failing(new(&[&[Write(0)], &[Fsync(0)]]), 0, 1);
    dropped_in_silence: DroppedInSilence breaks SILENCE in
        late(new(&[&[Write(0), Fsync(0)], &[]]));

    before_it_is_invalidated: AnswerBeforeInvalidate breaks STALE in read();
    answered_before_it_settled: AnsweredBeforeSettled breaks STALE in failing(read(), 1, 0);
    away_is_invalidated: AwayIsInvalidated breaks STALE in failing(read(), 1, 0);
    no_book_no_wait: NoBookNoWait breaks STALE in {
        let mut config = failing(read(), 0, 1);
        (config.faults.total, config.faults.book) = (2, 1);
        config
    };

    epoch_goes_first: EpochFirst breaks KNOWN in failing(renamed(), 0, 2);
    last_is_forgotten: LastForgotten breaks KNOWN in failing(renamed(), 0, 3);

    half_a_compound: HalfCompound breaks WHOLE in failing(new(&[&[Compound(0)]]), 0, 1);

    lock_ends_with_connection: EndsWithConnection breaks LOCK in failing(locked(), 1, 0);
    lock_in_the_grace_time: GraceNotAwaited breaks LOCK in failing(locked(), 0, 1);
    lock_taken_late: LateReclaim breaks LOCK in
        away(new(&[&[Lock], &[Lock, Unlock]]), 0);

    waits_for_the_dead: WaitsForTheDead breaks ANSWERED in {
        let mut config = locked();
        config.programs = vec![vec![Lock, Unlock], vec![Lock, Unlock]];
        config.faults = Faults { total: 1, dies: 1, ..Faults::default() };
        config
    };
    no_grace_time: NoGraceTime breaks ANSWERED in {
        let mut config = shared();
        config.faults = Faults { total: 2, dies: 1, kill: 1, ..Faults::default() };
        config
    };
}

/// The configurations themselves have no fault planted.
#[test]
fn the_cases_are_the_protocol_as_it_is() {
    assert!(cases::everyday().iter().all(|case| case.config.mutation.is_none()));
}
