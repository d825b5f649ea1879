//! The configurations that the tests explore completely.

use super::config::Call::{
    self, Append, Close, Commit, Create, Fill, Fsync, Hold, Lease, Lookup, Put, Read, Return,
    Start, Stat, Store, Unlink, Write,
};
use super::config::{Config, Faults};
use super::judge::landmarks as seen;
use super::state::{EMBEDDED, Thing};

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

const PAGE: Thing = Thing::Page(0);
const OTHER: Thing = Thing::Page(1);
const NAME: Thing = Thing::Name;
const ATTRIBUTES: Thing = Thing::Attributes;

/// Two kernels write one page that both have, and read it.
pub fn one_page() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Write(0), Read(0)]), (1, &[Write(0), Read(0)]), (1, &[Read(0), Read(0)])];
    let config = Config::new("one page", programs).knowing(&[(0, PAGE), (1, PAGE)]);
    Case { config, reaches: &[seen::READING] }
}

/// The same where neither has it any more, so that each write locks it.
pub fn locked_page() -> Case {
    let mut case = one_page();
    case.config.name = "locked page";
    case.config.drops = vec![(0, 0), (1, 0)];
    case.reaches = &[seen::CIRCLE, seen::READING];
    case
}

/// Two kernels write and read two pages, partly mapped.
pub fn two_pages() -> Case {
    let programs: &[(usize, &[Call])] = &[
        (0, &[Write(0), Read(1)]),
        (1, &[Write(1), Read(0)]),
        (1, &[Read(0), Read(0)]),
        (EMBEDDED, &[Write(0)]),
    ];
    let mut config = Config::new("two pages", programs);
    config = config.knowing(&[(0, OTHER), (1, PAGE), (1, OTHER)]);
    config.maps = vec![(0, 1), (1, 0)];
    Case { config, reaches: &[seen::MAPPED, seen::READING] }
}

/// A kernel writes what the other one reads, and the embedded session, too.
pub fn whole_pages() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Fill(0), Read(0)]), (1, &[Read(0), Write(0)]), (EMBEDDED, &[Write(0), Read(0)])];
    Case { config: Config::new("whole pages", programs), reaches: &[seen::READING] }
}

/// Attributes, of a kernel that has not looked the file up, too.
pub fn attributes() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Write(0), Stat]), (1, &[Stat, Stat]), (EMBEDDED, &[Write(1), Stat])];
    let mut config = Config::new("attributes", programs).knowing(&[(0, ATTRIBUTES)]);
    config.stranger = Some(1);
    config.faults = Faults { total: 1, death: 1, stray: 1, ..Faults::default() };
    Case { config, reaches: &[seen::STALE, seen::STRANGER] }
}

/// Two kernels change one name that both know, and look it up; time passes.
pub fn names() -> Case {
    let programs: &[(usize, &[Call])] = &[
        (0, &[Create, Lookup]),
        (1, &[Create, Lookup]),
        (1, &[Lookup, Lookup]),
        (EMBEDDED, &[Create]),
    ];
    let mut config = Config::new("names", programs).knowing(&[(0, NAME), (1, NAME)]);
    config.clock = true;
    config.faults = Faults { total: 1, sleep: 1, death: 1, ..Faults::default() };
    let reaches = &[seen::LOCKED, seen::DIRECTORIES, seen::NO_VALIDITY];
    Case { config, reaches }
}

/// A user keeps a directory's lock, and a kernel does not do what it is asked for.
pub fn held_up() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Hold]), (1, &[Create, Write(0)]), (0, &[Read(0), Stat]), (1, &[Lookup])];
    let mut config = Config::new("held up", programs).knowing(&[(0, NAME), (0, PAGE)]);
    config.clock = true;
    config.faults = Faults { total: 2, silence: 1, sleep: 1, stray: 1, ..Faults::default() };
    Case { config, reaches: &[seen::LOCKED] }
}

/// Stores through mappings, of both kernels to one page.
pub fn stores() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Store(0), Fsync]), (1, &[Store(0), Fsync, Read(0)]), (EMBEDDED, &[Read(0)])];
    let config = Config::new("stores", programs).knowing(&[(0, PAGE), (1, PAGE)]);
    Case { config, reaches: &[seen::DEBTS, seen::MAPPED] }
}

/// ... and beside a write.
pub fn stores_and_writes() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Store(0), Fsync]), (1, &[Write(0), Read(0)]), (0, &[Write(1)])];
    let mut config = Config::new("stores and writes", programs);
    config = config.knowing(&[(0, PAGE), (1, PAGE)]);
    config.maps = vec![(0, 0), (1, 0)];
    config.faults = Faults { total: 1, death: 1, ..Faults::default() };
    Case { config, reaches: &[seen::DEBTS, seen::MAPPED] }
}

/// A write lease, beside kernels that read and write; anything may fail once.
pub fn lease() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(EMBEDDED, &[Lease, Put, Put, Return]), (0, &[Read(0), Write(0)]), (1, &[Read(0), Stat])];
    let mut config = Config::new("lease", programs);
    config = config.knowing(&[(0, PAGE), (1, ATTRIBUTES)]);
    config.clock = true;
    config.faults =
        Faults { total: 1, death: 1, silence: 1, daemon: 1, sleep: 1, ..Faults::default() };
    let reaches = &[
        seen::RECALLED,
        seen::DRAINING,
        seen::EXPIRED,
        seen::PRIVATE,
        seen::LATE_LOOK,
        seen::LATE_RETURN,
    ];
    Case { config, reaches }
}

/// A lease and mapped pages that are dirty when it is asked for.
pub fn lease_and_stores() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(EMBEDDED, &[Lease, Put]), (0, &[Store(0), Fsync]), (1, &[Store(0), Read(0)])];
    let mut config = Config::new("lease and stores", programs);
    config = config.knowing(&[(0, PAGE), (1, PAGE)]);
    config.faults = Faults { total: 1, death: 1, daemon: 1, ..Faults::default() };
    Case { config, reaches: &[seen::DRAINING, seen::RECALLED, seen::DEBTS] }
}

/// A lease and sections.
pub fn sections() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(EMBEDDED, &[Lease, Put, Start, Commit]), (1, &[Start, Commit, Read(0)])];
    let mut config = Config::new("sections", programs).knowing(&[(1, PAGE)]);
    config.clock = true;
    config.faults = Faults { total: 2, death: 1, silence: 1, daemon: 1, ..Faults::default() };
    Case { config, reaches: &[seen::RECALLED, seen::PRIVATE, seen::LATE_LOOK] }
}

/// The file loses its name while it is open, is leased then, and closed.
pub fn removed() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(EMBEDDED, &[Lease, Put, Close, Return]), (0, &[Unlink, Create]), (1, &[Lookup, Stat])];
    let mut config = Config::new("removed", programs).knowing(&[(1, NAME)]);
    config.clock = true;
    config.faults = Faults { total: 1, death: 1, sleep: 1, ..Faults::default() };
    Case { config, reaches: &[seen::KEPT, seen::RECALLED, seen::LATE_RETURN] }
}

/// Two kernels append, and the embedded session.
pub fn appends() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(0, &[Append(1), Append(1)]), (1, &[Append(2), Append(2)]), (EMBEDDED, &[Append(3)])];
    let mut config = Config::new("appends", programs);
    config.faults = Faults { total: 1, death: 1, ..Faults::default() };
    Case { config, reaches: &[seen::OLD_END, seen::TOLD] }
}

/// A little of all.
pub fn together() -> Case {
    let programs: &[(usize, &[Call])] =
        &[(EMBEDDED, &[Lease, Put]), (0, &[Write(0), Create]), (1, &[Create, Read(0)])];
    let mut config = Config::new("together", programs);
    config = config.knowing(&[(0, PAGE), (1, NAME), (1, ATTRIBUTES)]);
    config.faults = Faults { total: 1, death: 1, silence: 1, ..Faults::default() };
    Case { config, reaches: &[seen::DRAINING, seen::RECALLED, seen::LOCKED] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![
        one_page(),
        locked_page(),
        two_pages(),
        whole_pages(),
        attributes(),
        names(),
        held_up(),
        stores(),
        stores_and_writes(),
        lease(),
        lease_and_stores(),
        sections(),
        removed(),
        appends(),
        together(),
    ]
}

/// Larger ones, for a machine with time and memory: time passes in all, and one fault more.
pub fn long() -> Vec<Case> {
    let mut all = everyday();
    for case in &mut all {
        case.config.clock = true;
        let f = &mut case.config.faults;
        f.total += 1;
        (f.death, f.silence, f.daemon) = (f.death + 1, f.silence.max(1), f.daemon.max(1));
        (f.sleep, f.stray) = (f.sleep.max(1), f.stray.max(1));
    }
    all
}
