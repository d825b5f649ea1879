//! Several front ends: each property is broken by a fault planted in the protocol, and in the
//! number of steps of the shortest run to it takes nothing else breaks it. `SIFTFS_TRACE=1` with
//! `--nocapture` prints the runs.

use siftfs_protocol::fronts::Call::{
    self, Append, Close, Create, Fsync, Lease, Lookup, Put, Read, Return, Start, Stat, Store,
    Unlink, Write,
};
use siftfs_protocol::fronts::Mutation::*;
use siftfs_protocol::fronts::judge::{self, names::*};
use siftfs_protocol::fronts::state::{EMBEDDED, Thing};
use siftfs_protocol::fronts::{Config, Faults, Fronts};
use siftfs_protocol::planted;

const PAGE: Thing = Thing::Page(0);
const OTHER: Thing = Thing::Page(1);
const NAME: Thing = Thing::Name;

fn new(programs: &[(usize, &[Call])]) -> Config {
    Config::new("fault", programs)
}

/// The same with one fault of the outside.
fn with(mut config: Config, faults: Faults) -> Config {
    config.faults = Faults { total: 1, ..faults };
    config
}

fn death() -> Faults {
    Faults { death: 1, ..Faults::default() }
}

fn sleep() -> Faults {
    Faults { sleep: 1, ..Faults::default() }
}

fn stray() -> Faults {
    Faults { stray: 1, ..Faults::default() }
}

/// The same where a term may pass at any time.
fn timed(mut config: Config) -> Config {
    config.clock = true;
    config
}

/// One kernel writes what the other one has.
fn written() -> Config {
    new(&[(0, &[Write(0)]), (1, &[Read(0), Read(0)])]).knowing(&[(1, PAGE)])
}

/// Neither kernel has anything, and one writes twice.
fn written_twice() -> Config {
    new(&[(0, &[Write(0), Write(0)]), (1, &[Read(0), Read(0), Read(0)])]).knowing(&[(1, PAGE)])
}

/// Both write one page that neither has any more.
fn circle() -> Config {
    let mut config = new(&[(0, &[Write(0)]), (1, &[Write(0)])]).knowing(&[(0, PAGE), (1, PAGE)]);
    config.drops = vec![(0, 0), (1, 0)];
    config
}

/// One writes the other's page, which is being read, while that one writes another page.
fn beside_a_read() -> Config {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Write(0)]), (1, &[Write(1)]), (1, &[Read(0)]), (1, &[Read(0)])];
    let mut config = new(programs).knowing(&[(0, OTHER), (1, PAGE)]);
    config.maps = vec![(0, 1)];
    config.drops = vec![(1, 0)];
    config
}

/// One writes the other's page, while that one writes another page.
fn beside_a_write() -> Config {
    let programs: &[(usize, &[Call])] = &[(0, &[Write(0)]), (1, &[Write(1)]), (1, &[Read(0)])];
    let mut config = new(programs).knowing(&[(0, OTHER), (1, PAGE)]);
    config.maps = vec![(0, 1)];
    config
}

/// Both write one page that both have, and one reads it.
fn reread() -> Config {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Write(0)]), (1, &[Write(0), Read(0)]), (1, &[Read(0)])];
    new(programs).knowing(&[(0, PAGE), (1, PAGE)])
}

/// One kernel looks the file up, which the other one changes.
fn first_lookup() -> Config {
    let mut config = new(&[(0, &[Write(0)]), (1, &[Stat, Stat])]);
    config.stranger = Some(1);
    config
}

/// Both change one name that both know.
fn directories() -> Config {
    new(&[(0, &[Create]), (1, &[Create])]).knowing(&[(0, NAME), (1, NAME)])
}

/// One looks up a name that the other one changes.
fn name() -> Config {
    timed(new(&[(0, &[Create]), (1, &[Lookup, Lookup])]))
}

/// Two kernels make one name, of which the other one knew.
fn made_twice() -> Config {
    timed(new(&[(0, &[Create, Lookup]), (1, &[Create])]).knowing(&[(1, NAME)]))
}

/// Both store to one page and sync it.
fn stores() -> Config {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Store(0), Fsync]), (1, &[Store(0), Fsync]), (1, &[Read(0)])];
    new(programs).knowing(&[(0, PAGE), (1, PAGE)])
}

/// A lease beside a kernel that has the file, and reads it.
fn leased(calls: &[Call]) -> Config {
    timed(new(&[(EMBEDDED, calls), (0, &[Read(0)])]))
}

/// ... and writes it.
fn overwritten() -> Config {
    timed(new(&[(EMBEDDED, &[Lease, Put, Return]), (0, &[Write(0), Read(0)])]))
}

/// The file is removed, and another one made, while its holder has neither name nor handle.
fn removed() -> Config {
    new(&[(EMBEDDED, &[Lease, Close]), (0, &[Unlink, Create])])
}

fn appended() -> Config {
    new(&[(0, &[Append(1), Append(1)]), (1, &[Append(2)])])
}

planted! { Fronts:
    p1_answered_when_all_have_forgotten: AnswerBeforeAcknowledged breaks OLDER in written();
    p1_remembered_before_it_is_read: RememberAfterRead breaks OLDER in written_twice();
    p1_what_was_told_since_is_not_forgotten: ForgetNewer breaks OLDER in written_twice();
    p1_a_kernel_without_the_inode_is_told_again: MissingIsAcknowledged breaks OLDER in first_lookup();
    p1_a_kernel_is_told_of_its_own_write: OwnPageUntold breaks OLDER in reread();
    p1_no_early_answer_over_a_read: EarlyOverReads breaks OLDER in beside_a_read();
    p1_no_early_answer_by_the_clock: EarlyByTime breaks OLDER in beside_a_write();
    p1_validity_counts_from_the_answer: ValidityFromChange breaks OLDER in made_twice();
    p1_validity_has_a_margin: NoMargin breaks OLDER in name();
    p1_validity_sleeps_with_the_kernel: NamesByBoottime breaks OLDER in with(name(), sleep());
    p5_an_fsync_pays_the_debts: DebtsForgotten breaks OLDER in stores();
    r32_an_acknowledgement_counts_once: CountTwice breaks COUNTED in with(written(), stray());
    r32_counted_twice_it_answers_too_early: CountTwice breaks OLDER in with(counted(), stray());
    r32_an_acknowledgement_is_its_sessions: CountForeign breaks COUNTED in with(written(), stray());
    r32_none_counts_after_its_session: CountAfterEnd breaks COUNTED in told_both();
    r51_a_circle_of_pages: NoEarlyAnswer breaks ANSWERED in circle();
    r51_a_circle_of_directories: NamesWithoutValidity breaks ANSWERED in directories();
    r51_a_circle_of_stored_pages: KernelsPagesWait breaks ANSWERED in stores();
    r51_the_blocked_one_is_not_aborted: AbortTheBlocked breaks ABORTED in silenced();
    r32_granted_when_drained: GrantBeforeDrained breaks ALONE in written_and_leased();
    r32_a_drain_takes_back_what_it_brings: DrainOnce breaks ANSWERED in stored_and_leased();
    r48_no_lease_beside_a_section: LeaseBesideSection breaks ALONE in section();
    a_lease_ends_with_its_session: LeaseOutlivesSession breaks ALONE in with(leased(&[Lease]), death());
    r47_what_is_published_is_not_lost: PublishedIsDropped breaks OLDER in with(leased(&[Lease, Put]), death());
    r36_nothing_after_the_end: LateReturn breaks AFTER_END in overwritten();
    r36_a_late_return_would_hide_newer_bytes: LateReturn breaks OLDER in overwritten();
    r37_told_when_ingested: ToldBeforeIngested breaks INGESTED in leased(&[Lease, Put, Return]);
    r54_the_word_decides: HoldersClock breaks OLDER in with(leased(&[Lease, Put]), sleep());
    r37_the_word_dies_with_the_daemon: WordOutlivesDaemon breaks OLDER in with(leased(&[Lease, Put]), daemon());
    r49_a_number_is_kept: ReuseWhileLeased breaks R49 in removed();
    r50_moved_to_the_end: AppendAtOffset breaks R50 in appended();
    r50_every_end_that_was_told: ToldEndForgotten breaks R50 in appended();
}

/// A write with two notices.
fn counted() -> Config {
    written().knowing(&[(1, PAGE), (1, Thing::Attributes)])
}

/// A write of which both kernels are told; one dies, and what it had on its way comes late.
fn told_both() -> Config {
    let mut config = new(&[(EMBEDDED, &[Write(0)])]).knowing(&[(0, PAGE), (1, PAGE)]);
    config.faults = Faults { total: 2, death: 1, stray: 1, ..Faults::default() };
    config
}

fn daemon() -> Faults {
    Faults { daemon: 1, ..Faults::default() }
}

/// A kernel goes silent, and the other one's write waits for it.
fn silenced() -> Config {
    let mut config = circle();
    config.faults = Faults { total: 1, silence: 1, ..Faults::default() };
    config
}

fn written_and_leased() -> Config {
    new(&[(EMBEDDED, &[Lease]), (0, &[Write(0)])])
}

fn stored_and_leased() -> Config {
    new(&[(EMBEDDED, &[Lease]), (0, &[Store(0)])]).knowing(&[(0, PAGE)])
}

fn section() -> Config {
    new(&[(EMBEDDED, &[Lease]), (0, &[Start])])
}
