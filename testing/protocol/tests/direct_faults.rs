//! A direct data plane: each property is broken by a fault planted in the protocol, and in the
//! number of steps of the shortest run to it nothing else breaks it. `SIFTFS_TRACE=1` with
//! `--nocapture` prints the runs.

use siftfs_protocol::direct::Call::{self, Atomic, Read, Sync, Write};
use siftfs_protocol::direct::Mutation::*;
use siftfs_protocol::direct::Op::{self, Extend, Free, Give, Look};
use siftfs_protocol::direct::judge::{self, names::*};
use siftfs_protocol::direct::{Config, Direct, Faults, cases};
use siftfs_protocol::planted;

fn new(program: &[Call], host: &[Op]) -> Config {
    Config::new("fault", program, host)
}

/// A block is written, taken, and given to another file.
fn reused(program: &[Call]) -> Config {
    new(program, &[Free(0), Give(0)])
}

/// The same where one fault happens.
fn failing(mut config: Config, faults: Faults) -> Config {
    config.faults =
        Faults { total: faults.host + faults.target + faults.program + faults.power, ..faults };
    config
}

fn power() -> Faults {
    Faults { power: 1, ..Faults::default() }
}

fn target() -> Faults {
    Faults { target: 1, ..Faults::default() }
}

fn host() -> Faults {
    Faults { host: 1, ..Faults::default() }
}

fn program() -> Faults {
    Faults { program: 1, ..Faults::default() }
}

planted! { Direct:
    acknowledged_before_it_drains: AckRevokeBeforeDrain breaks INTACT in reused(&[Write(0)]);
    checked_when_it_comes: CheckAtArrival breaks INTACT in reused(&[Write(0)]);
    freed_first: FreeFirst breaks INTACT in reused(&[Write(0)]);
    freed_before_it_is_replayed: FreeBeforeReplay breaks INTACT in reused(&[Atomic(0, 1)]);
    tail_later: TailLater breaks INTACT in failing(reused(&[Atomic(0, 1)]), power());
    linked_before_it_is_replayed: LinkBeforeReplay breaks INTACT in
        failing(reused(&[Atomic(0, 1)]), target());
    grant_outlives_its_epoch: GrantOutlivesEpoch breaks INTACT in
        failing(reused(&[Write(0)]), host());

    read_before_it_drains: AckRevokeBeforeDrain breaks SECRET in reused(&[Read(0)]);
    changed_beside_readers: ReadersStay breaks SECRET in
        new(&[], &[Free(0), Give(0)]).beside(&[0]);
    a_reader_before_it_drains: AckReaderBeforeDrain breaks SECRET in
        new(&[], &[Free(0), Give(0)]).beside(&[0]);
    a_readers_grant_outlives_its_epoch: GrantOutlivesEpoch breaks SECRET in
        failing(new(&[], &[Free(0), Give(0)]).beside(&[0]), host());
    unwritten_is_readable: UnwrittenReadable breaks SECRET in new(&[Read(2)], &[Extend(2)]);

    written_before_the_flush: WrittenBeforeFlush breaks WRITTEN in
        failing(new(&[Write(2)], &[Extend(2)]), power());
    program_is_believed: ProgramIsBelieved breaks WRITTEN in new(&[Sync], &[Extend(2)]);

    redo_over_newer: RedoOverNewer breaks NEWEST in new(&[Atomic(0, 1), Write(0), Read(0)], &[]);
    index_later: IndexLater breaks NEWEST in
        failing(new(&[Atomic(0, 1), Read(0)], &[]), target());
    nobody_is_recalled: NoRecall breaks NEWEST in new(&[Atomic(0, 1)], &[Look(0)]);

    committed_before_the_flush: CommitBeforeFlush breaks LASTING in
        failing(new(&[Atomic(0, 1)], &[]), power());
    synced_before_the_flush: SyncBeforeFlush breaks LASTING in
        failing(new(&[Write(0), Sync], &[]), power());

    uncommitted_is_replayed: ReplayUncommitted breaks WHOLE in
        failing(new(&[Atomic(0, 1)], &[]), power());

    no_term: NoTerm breaks DONE in failing(new(&[Write(0)], &[]), program());
}

/// The configurations themselves have no fault planted.
#[test]
fn the_cases_are_the_protocol_as_it_is() {
    assert!(cases::everyday().iter().all(|case| case.config.mutation.is_none()));
}
