//! Each property is broken by a fault planted in the protocol, and in the number of steps of the
//! shortest run to it takes nothing else breaks it. `SIFTFS_TRACE=1` with `--nocapture` prints the
//! runs.

use siftfs_protocol::Mutation::{self, *};
use siftfs_protocol::config::Step::{Fsync, Unlink, Write};
use siftfs_protocol::judge::{self, names::*};
use siftfs_protocol::{Action, Config, Faults, Protocol, Replay, Step};
use stateright::{Checker, Model};

const REUSE: &[Step] = &[Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)];
const AA: &[Step] = &[Write(0), Fsync(0), Write(0), Fsync(0)];
const A: &[Step] = &[Write(0), Fsync(0)];
const B: &[Step] = &[Write(1), Fsync(1)];

/// The shortest run to a state that breaks `property`.
fn shortest(config: Config, property: &'static str, steps: Option<usize>) -> Option<Vec<Action>> {
    let mut checker = Protocol::new(config).only(property).checker();
    if let Some(steps) = steps {
        checker = checker.target_max_depth(steps + 2);
    }
    let found = checker.spawn_bfs().join().discovery(property);
    found.map(|path| path.into_actions())
}

fn bites(mutation: Mutation, property: &'static str, config: Config) {
    let run = shortest(config.clone().mutated(mutation), property, None);
    let run = run.unwrap_or_else(|| panic!("{mutation:?} does not break: {property}"));
    println!("{mutation:?} | {property} | {} steps", run.len());
    if std::env::var_os("SIFTFS_TRACE").is_some() {
        run.iter().for_each(|action| println!("    {action:?}"));
    }
    let without = shortest(config, property, Some(run.len()));
    assert_eq!(without, None, "broken without {mutation:?} too: {property}");
}

/// One file's block passes to the other; checkpoints run without need.
fn base() -> Config {
    let mut config = Config::new("base", &[REUSE]);
    config.background = true;
    config
}

/// The same with a lane of one record, and checkpoints only when credits are waited for.
fn tight() -> Config {
    let mut config = Config::new("tight", &[REUSE]);
    config.lane_slots = 1;
    config
}

/// The same with direct data, a single block and a longer journal.
fn one_block() -> Config {
    let mut config = base();
    (config.direct, config.blocks, config.journal_slots) = (true, 1, 3);
    config
}

/// The same, and freed blocks go back to the storage.
fn discarding() -> Config {
    let mut config = one_block();
    config.discard = true;
    config
}

fn unmounting() -> Config {
    let mut config = Config::new("unmounting", &[A]);
    (config.direct, config.unmount, config.devices) = (true, true, 2);
    config
}

fn unsynced() -> Config {
    let mut config = Config::new("unsynced", &[&[Write(0), Write(1)]]);
    (config.direct, config.background) = (true, true);
    config
}

fn coalescing() -> Config {
    let mut config = Config::new("coalescing", &[AA]);
    (config.replay, config.background) = (Replay::Coalesce, true);
    config
}

/// The same with faults of host, device, link and power.
fn with(mut config: Config, [host, device, link, power]: [u8; 4]) -> Config {
    config.faults =
        Faults { total: host + device + link + power, host, device, link, power, flush: 0 };
    config
}

/// The same with one flush that fails.
fn failing(mut config: Config) -> Config {
    config.faults.total += 1;
    config.faults.flush = 1;
    config
}

/// A removed file's data is in a record alone, and there is one block.
fn full() -> Config {
    let mut config = Config::new("full", &[REUSE]);
    config.blocks = 1;
    config
}

/// Two clients, and a second host that wants the volume.
fn two_hosts() -> Config {
    let mut config = Config::new("two hosts", &[A, B]);
    config.stalls = 2;
    config
}

/// A lane on the disk, and a record area; two clients.
fn two_media(first: &[Step], second: &[Step]) -> Config {
    let mut config = Config::new("two media", &[first, second]);
    (config.lanes, config.area) = (2, true);
    config
}

/// The same with physical records, of one file that is overwritten.
fn overwritten(replay: Replay) -> Config {
    const AAA: &[Step] = &[Write(0), Fsync(0), Write(0), Fsync(0), Write(0), Fsync(0)];
    let mut config = Config::new("overwritten", &[AAA]);
    (config.lanes, config.area, config.physical) = (2, true, true);
    (config.replay, config.background) = (replay, true);
    config
}

/// ... and of one whose block passes to another file.
fn passed_on() -> Config {
    let mut config = overwritten(Replay::Ordered);
    config.programs =
        vec![vec![Write(0), Fsync(0), Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)]];
    (config.blocks, config.direct) = (1, true);
    config
}

fn two_devices() -> Config {
    let mut config = with(base(), [0, 0, 1, 0]);
    config.devices = 2;
    config
}

macro_rules! mutations {
    ($($name:ident: $mutation:ident, $property:ident, $config:expr;)*) => {
        $(
            #[test]
            fn $name() {
                bites($mutation, $property, $config);
            }
        )*
        const BROKEN: &[&str] = &[$($property),*];
    };
}

mutations! {
    completion_is_durable: AckBeforeFlush, COMPLETION, base();
    a_takeover_flushes_what_it_found: TakeoverWithoutFlush, COMPLETION, with(base(), [0, 1, 0, 0]);
    publish_after_fix: PublishBeforeFix, PUBLISH, base();
    replay_after_commit: ReplayBeforeCommit, ELIGIBLE, base();
    recovery_flushes_before_it_replays: RecoverWithoutFlush, ELIGIBLE, with(base(), [1, 1, 0, 0]);
    a_takeover_flushes_tails_alone: TakeoverTrustsTails, RECLAIM, with(base(), [0, 1, 0, 0]);
    credits_after_the_tail: CreditsBeforeTail, RECLAIM, base();
    r01_one_cut: RecoverWithoutCut, R01, with(base(), [1, 0, 0, 0]);
    r01_recovery_is_not_torn: RecoverWithoutFlush, R01, with(base(), [1, 1, 0, 1]);
    r03_no_hole: FlushCoversUnwritten, R03, Config::new("two clients", &[A, B]);
    r04_journaled_is_complete: SubmitBeforeFlush, R04, base();
    r05_what_is_staged_keeps_its_space: FreeWhatIsStaged, COMPLETION, with(full(), [1, 0, 0, 0]);
    r08_old_records_stay_dead: KeepKey, R08, with(Config::new("epochs", &[AA, B]), [1, 0, 0, 1]);
    r09_the_lock_decides: TakeoverWithoutLock, R09, two_devices();
    r09_no_other_epoch: AnyEpoch, R09, with(base(), [1, 0, 0, 0]);
    r09_one_host: MountWithoutLock, R09, two_hosts();
    r09_a_stalled_host_wakes: MountWithoutLock, COMPLETION, two_hosts();
    r09_the_lock_is_waited_for: ByeIsTheLock, R09, with(unmounting(), [0, 0, 1, 0]);
    r11_area_before_tail: NoAreaFlush, R11, base();
    r11_index_until_reclaimed: ForgetIndexAtJournaled, READS, base();
    r11_direct_data_is_kept: ForgetDirect, READS, with(unsynced(), [0, 1, 0, 0]);
    r21_a_failed_flush_is_no_flush: RetryFlush, COMPLETION, failing(base());
    r21_the_host_promises_nothing_more: RetryFlush, R21, failing(Config::new("host alone", &[A]));
    r21_the_service_promises_nothing_more: RetryAreaFlush, R21, failing(base());
    r21_a_failed_area_flush_reclaims_nothing: RetryAreaFlush, R11, failing(base());
    r22_late_write_wins: FirstWriteWins, R22, coalescing();
    r44_its_own_record_is_not_passed: PassItsOwnRecord, COMPLETION, two_media(AA, A);
    r44_an_ordered_record_is_not_passed: PassAnOrderedRecord, COMPLETION, two_media(A, B);
    r44_recovery_would_build_on_nothing:
        PassItsOwnRecord, R44, with(two_media(AA, A), [0, 0, 0, 1]);
    r44_completion_is_a_persist: AckBeforePersist, COMPLETION, two_media(A, B);
    r44_no_hole_in_the_area: AckOverAHole, R03, two_media(A, B);
    r44_no_wait_for_bulk: WaitForBulk, ALONE, two_media(AA, B);
    r44_the_area_outlives_a_gap: DropWithTheDisk, LOST, with(two_media(AA, B), [0, 0, 0, 1]);
    r44_the_disk_goes_with_the_area: KeepOverTheArea, R44, with(two_media(AA, B), [0, 0, 0, 1]);
    r44_recovery_persists_before_it_journals:
        RecoverWithoutPersist, R04, with(two_media(A, B), [1, 0, 0, 0]);
    r42_digested_with_its_transaction: DigestLate, READS, passed_on();
    r42_digested_up_to_the_cut:
        DigestBeyondCut, R01, with(overwritten(Replay::Ordered), [1, 0, 0, 1]);
    r42_digested_under_the_tags: DigestLast, READS, overwritten(Replay::Ordered);
    r42_digested_at_recovery:
        ReplayWithoutDigest, R01, with(overwritten(Replay::Coalesce), [1, 1, 0, 0]);
    clean_is_whole: CleanTooEarly, CLEAN, unmounting();
    nothing_acknowledged_is_lost: TakeoverWithoutFlush, LOST, with(base(), [0, 1, 0, 1]);
    nothing_recovered_is_lost: RecoverWithoutFlush, LOST, with(base(), [1, 1, 0, 1]);
    nothing_stale_is_replayed: ReuseAtJournaled, STALE, one_block();
    no_space_is_reused_early: ReuseAtJournaled, EARLY, one_block();
    r05_discarded_before_it_is_reused: ReuseBeforeDiscarded, EARLY, discarding();
    r05_a_late_discard_loses_what_is_acknowledged:
        ReuseBeforeDiscarded, COMPLETION, discarding();
    nobody_is_refused: ResendJournaled, REFUSED, with(base(), [0, 0, 1, 0]);
    waits_end_with_an_emergency: NoEmergency, PROGRESS, tight();
    waits_end_after_a_takeover: AskOnce, PROGRESS, with(tight(), [0, 1, 0, 0]);
    waits_end_when_the_old_device_finished:
        WelcomeIsNoAnswer, PROGRESS, with(unmounting(), [0, 0, 1, 0]);
}

/// Every property is in the list above.
#[test]
fn every_property_can_be_broken() {
    for property in judge::properties() {
        assert!(BROKEN.contains(&property.name), "nothing breaks: {}", property.name);
    }
}
