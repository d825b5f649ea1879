//! Each property is broken by a fault planted in the protocol, and in the number of steps of the
//! shortest run to it takes nothing else breaks it. `SIFTFS_TRACE=1` with `--nocapture` prints the
//! runs.

use siftfs_protocol::Mutation::*;
use siftfs_protocol::config::Step::{Fsync, Unlink, Write};
use siftfs_protocol::judge::{self, names::*};
use siftfs_protocol::planted;
use siftfs_protocol::{Config, Faults, Protocol, Replay, Step};

const REUSE: &[Step] = &[Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)];
const AA: &[Step] = &[Write(0), Fsync(0), Write(0), Fsync(0)];
const A: &[Step] = &[Write(0), Fsync(0)];
const B: &[Step] = &[Write(1), Fsync(1)];

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

planted! { Protocol:
    completion_is_durable: AckBeforeFlush breaks COMPLETION in base();
    a_takeover_flushes_what_it_found: TakeoverWithoutFlush breaks COMPLETION in with(base(), [0, 1, 0, 0]);
    publish_after_fix: PublishBeforeFix breaks PUBLISH in base();
    replay_after_commit: ReplayBeforeCommit breaks ELIGIBLE in base();
    recovery_flushes_before_it_replays: RecoverWithoutFlush breaks ELIGIBLE in with(base(), [1, 1, 0, 0]);
    a_takeover_flushes_tails_alone: TakeoverTrustsTails breaks RECLAIM in with(base(), [0, 1, 0, 0]);
    credits_after_the_tail: CreditsBeforeTail breaks RECLAIM in base();
    r01_one_cut: RecoverWithoutCut breaks R01 in with(base(), [1, 0, 0, 0]);
    r01_recovery_is_not_torn: RecoverWithoutFlush breaks R01 in with(base(), [1, 1, 0, 1]);
    r03_no_hole: FlushCoversUnwritten breaks R03 in Config::new("two clients", &[A, B]);
    r04_journaled_is_complete: SubmitBeforeFlush breaks R04 in base();
    r05_what_is_staged_keeps_its_space: FreeWhatIsStaged breaks COMPLETION in with(full(), [1, 0, 0, 0]);
    r08_old_records_stay_dead: KeepKey breaks R08 in with(Config::new("epochs", &[AA, B]), [1, 0, 0, 1]);
    r09_the_lock_decides: TakeoverWithoutLock breaks R09 in two_devices();
    r09_no_other_epoch: AnyEpoch breaks R09 in with(base(), [1, 0, 0, 0]);
    r09_one_host: MountWithoutLock breaks R09 in two_hosts();
    r09_a_stalled_host_wakes: MountWithoutLock breaks COMPLETION in two_hosts();
    r09_the_lock_is_waited_for: ByeIsTheLock breaks R09 in with(unmounting(), [0, 0, 1, 0]);
    r11_area_before_tail: NoAreaFlush breaks R11 in base();
    r11_index_until_reclaimed: ForgetIndexAtJournaled breaks READS in base();
    r11_direct_data_is_kept: ForgetDirect breaks READS in with(unsynced(), [0, 1, 0, 0]);
    r21_a_failed_flush_is_no_flush: RetryFlush breaks COMPLETION in failing(base());
    r21_the_host_promises_nothing_more: RetryFlush breaks R21 in failing(Config::new("host alone", &[A]));
    r21_the_service_promises_nothing_more: RetryAreaFlush breaks R21 in failing(base());
    r21_a_failed_area_flush_reclaims_nothing: RetryAreaFlush breaks R11 in failing(base());
    r22_late_write_wins: FirstWriteWins breaks R22 in coalescing();
    r44_its_own_record_is_not_passed: PassItsOwnRecord breaks COMPLETION in two_media(AA, A);
    r44_an_ordered_record_is_not_passed: PassAnOrderedRecord breaks COMPLETION in two_media(A, B);
    r44_recovery_would_build_on_nothing: PassItsOwnRecord breaks R44 in with(two_media(AA, A), [0, 0, 0, 1]);
    r44_completion_is_a_persist: AckBeforePersist breaks COMPLETION in two_media(A, B);
    r44_no_hole_in_the_area: AckOverAHole breaks R03 in two_media(A, B);
    r44_no_wait_for_bulk: WaitForBulk breaks ALONE in two_media(AA, B);
    r44_the_area_outlives_a_gap: DropWithTheDisk breaks LOST in with(two_media(AA, B), [0, 0, 0, 1]);
    r44_the_disk_goes_with_the_area: KeepOverTheArea breaks R44 in with(two_media(AA, B), [0, 0, 0, 1]);
    r44_recovery_persists_before_it_journals: RecoverWithoutPersist breaks R04 in with(two_media(A, B), [1, 0, 0, 0]);
    r42_digested_with_its_transaction: DigestLate breaks READS in passed_on();
    r42_digested_up_to_the_cut: DigestBeyondCut breaks R01 in with(overwritten(Replay::Ordered), [1, 0, 0, 1]);
    r42_digested_under_the_tags: DigestLast breaks READS in overwritten(Replay::Ordered);
    r42_digested_at_recovery: ReplayWithoutDigest breaks R01 in with(overwritten(Replay::Coalesce), [1, 1, 0, 0]);
    clean_is_whole: CleanTooEarly breaks CLEAN in unmounting();
    nothing_acknowledged_is_lost: TakeoverWithoutFlush breaks LOST in with(base(), [0, 1, 0, 1]);
    nothing_recovered_is_lost: RecoverWithoutFlush breaks LOST in with(base(), [1, 1, 0, 1]);
    nothing_stale_is_replayed: ReuseAtJournaled breaks STALE in one_block();
    no_space_is_reused_early: ReuseAtJournaled breaks EARLY in one_block();
    r05_discarded_before_it_is_reused: ReuseBeforeDiscarded breaks EARLY in discarding();
    r05_a_late_discard_loses_what_is_acknowledged: ReuseBeforeDiscarded breaks COMPLETION in discarding();
    nobody_is_refused: ResendJournaled breaks REFUSED in with(base(), [0, 0, 1, 0]);
    waits_end_with_an_emergency: NoEmergency breaks PROGRESS in tight();
    waits_end_after_a_takeover: AskOnce breaks PROGRESS in with(tight(), [0, 1, 0, 0]);
    waits_end_when_the_old_device_finished: WelcomeIsNoAnswer breaks PROGRESS in with(unmounting(), [0, 0, 1, 0]);
}
