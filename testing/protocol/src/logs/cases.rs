//! The configurations that the tests explore completely.

use super::config::Call::{
    self, Forget, Fsync, Kernel, Lease, Order, Read, Return, Stat, Sync, Unmount, Write,
};
use super::config::Who::{Holder, Mount};
use super::config::{Config, Faults, Who};
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

/// How many faults together, and how many deaths of the program, the daemon and the machine.
fn faults(total: u8, program: u8, daemon: u8, power: u8) -> Faults {
    Faults { total, program, daemon, power, ..Faults::default() }
}

/// One file, written and made durable by the log, and read and written by the mount.
pub fn one_file() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]),
        (Mount, &[Read(0), Write(0), Fsync(0)]),
    ];
    let mut config = Config::new("one file", programs).leasing(&[0], &[0]);
    config.faults = faults(3, 1, 2, 3);
    let reaches = &[
        seen::TORN,
        seen::COVERED,
        seen::UNCOVERED,
        seen::OUTLIVES,
        seen::WAITS,
        seen::COUNTS,
        seen::AGAIN,
        seen::ORPHANED,
    ];
    Case { config, reaches }
}

/// Two threads write and read under one lease, beside a program of the mount.
pub fn threads() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Read(0)]),
        (Holder, &[Write(0), Fsync(0)]),
        (Mount, &[Write(0), Read(0)]),
    ];
    let mut config = Config::new("threads", programs).leasing(&[0], &[0]);
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::COVERED, seen::UNCOVERED, seen::ORPHANED, seen::COUNTS] }
}

/// A lease's first fsync, its end, and the next lease of the file.
pub fn first_fsync() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (
            Holder,
            &[Lease(0), Write(0), Fsync(0), Write(0), Fsync(0), Return(0), Lease(0), Write(0)],
        ),
        (Mount, &[Write(0), Fsync(0)]),
    ];
    let mut config = Config::new("first fsync", programs);
    config.unmade = true;
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::COUNTS, seen::WAITS, seen::ORPHANED] }
}

/// Two files, of which the registry has one lease; `siftfs sync` comes between.
pub fn two_files() -> Case {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(1), Write(0), Fsync(0), Write(1), Fsync(1)]), (Mount, &[Sync])];
    let mut config = Config::new("two files", programs).leasing(&[0, 1], &[0]);
    config.faults = faults(3, 1, 2, 3);
    Case { config, reaches: &[seen::COUNTS, seen::PASSED, seen::AGAIN] }
}

/// Both leases are in the registry, and both files are made durable by either way.
pub fn both_files() -> Case {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(1), Fsync(1)]), (Mount, &[Order, Read(0)])];
    let mut config = Config::new("both files", programs).leasing(&[0, 1], &[0, 1]);
    config.faults = faults(3, 1, 2, 2);
    Case { config, reaches: &[seen::COUNTS, seen::PASSED, seen::ORDERED, seen::AGAIN] }
}

/// What others order between fsyncs.
pub fn ordered() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Fsync(0)]),
        (Mount, &[Order, Order]),
        (Mount, &[Fsync(1)]),
    ];
    let mut config = Config::new("ordered", programs).leasing(&[0], &[0]);
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::ORDERED, seen::COUNTS] }
}

/// More batches than the log has room for.
pub fn full() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Write(0), Fsync(0), Forget, Write(0), Fsync(0)]),
        (Mount, &[Read(0)]),
    ];
    let mut config = Config::new("full", programs).leasing(&[0], &[0]);
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::FULL, seen::BEHIND, seen::COUNTS] }
}

/// What waits is taken in and made durable by age.
pub fn ages() -> Case {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]), (Mount, &[Write(0), Fsync(0)])];
    let mut config = Config::new("ages", programs).leasing(&[0], &[0]);
    config.ages = true;
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::BEHIND, seen::COUNTS, seen::COVERED] }
}

/// Size of a file that grows, looked at without a recall.
pub fn sizes() -> Case {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Write(0)]), (Mount, &[Stat(0), Read(0), Stat(0)])];
    let mut config = Config::new("sizes", programs).leasing(&[0], &[]);
    config.ages = true;
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::COVERED, seen::UNCOVERED, seen::ORPHANED] }
}

/// The Runtime cannot write what is taken in.
pub fn unwritable() -> Case {
    let programs: &[(Who, &[Call])] =
        &[(Holder, &[Write(0), Fsync(0), Fsync(0)]), (Mount, &[Read(0), Read(0)])];
    let mut config = Config::new("unwritable", programs).leasing(&[0], &[0]);
    config.faults = Faults { io: 1, ..faults(3, 1, 2, 2) };
    Case { config, reaches: &[seen::COUNTS] }
}

/// A program goes by the kernel beside its own lease.
pub fn own_kernel() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Kernel(0), Fsync(0)]),
        (Holder, &[Lease(0), Write(0)]),
        (Mount, &[Read(0)]),
    ];
    let mut config = Config::new("own kernel", programs).leasing(&[0], &[0]);
    config.faults = Faults { stop: 1, ..faults(2, 1, 2, 2) };
    Case { config, reaches: &[seen::COUNTS, seen::UNCOVERED] }
}

/// The volume is unmounted while a program has a log, and mounted again.
pub fn unmounted() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Write(0), Fsync(0)]),
        (Mount, &[Unmount, Write(0), Fsync(0)]),
    ];
    let mut config = Config::new("unmounted", programs).leasing(&[0], &[0]);
    config.faults = faults(2, 1, 2, 2);
    Case { config, reaches: &[seen::COUNTS, seen::COVERED, seen::UNCOVERED] }
}

/// The log, or the registry, cannot be written.
pub fn unlogged() -> Case {
    let programs: &[(Who, &[Call])] = &[
        (Holder, &[Write(0), Fsync(0), Write(1), Write(0), Fsync(0), Fsync(1)]),
        (Mount, &[Write(1), Fsync(1)]),
    ];
    let mut config = Config::new("unlogged", programs).leasing(&[0, 1], &[0, 1]);
    config.faults = Faults { log: 1, row: 1, ..faults(3, 1, 2, 2) };
    Case { config, reaches: &[seen::COUNTS, seen::GIVEN_UP, seen::WITHOUT_LOG] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![
        one_file(),
        threads(),
        first_fsync(),
        two_files(),
        both_files(),
        ordered(),
        full(),
        ages(),
        sizes(),
        unwritable(),
        own_kernel(),
        unmounted(),
        unlogged(),
    ]
}

/// Larger ones, for a machine with time and memory: one fault more, of any kind but of writes.
pub fn long() -> Vec<Case> {
    let mut all = everyday();
    for case in &mut all {
        let f = &mut case.config.faults;
        f.total += 1;
        (f.daemon, f.power, f.stop) = (f.daemon + 1, f.power + 1, 1);
    }
    all
}
