//! Which of two ways makes the records of concurrent callers durable: a flush that they share, or a
//! durable write of its own for each, several in flight. Which is quicker depends on the device, so
//! it is measured: how long a record takes from its publication to its acknowledgement, smoothed,
//! for each way and for a few numbers of callers. One window of records goes the other way now and
//! then.
//!
//! No I/O, and time is a parameter: the same calls give the same choices.

use std::str::FromStr;

/// A way of making the records of concurrent callers durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Written plainly; then one flush serves all that are written.
    Shared,
    /// Each is a durable write (FUA), and no record waits for another's write to begin.
    Parallel,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Shared => Self::Parallel,
            Self::Parallel => Self::Shared,
        }
    }

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Parallel => "parallel",
        }
    }
}

/// What chooses the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Measurements.
    #[default]
    Measured,
    /// A setting: always this way.
    Fixed(Way),
}

impl FromStr for Group {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "auto" => Ok(Self::Measured),
            "shared" => Ok(Self::Fixed(Way::Shared)),
            "parallel" => Ok(Self::Fixed(Way::Parallel)),
            _ => Err(()),
        }
    }
}

/// Records of one measurement.
const WINDOW: u64 = 64;
/// Windows between two probes of the other way, at first and at most: each probe that changes
/// nothing doubles it.
const LOOK_FIRST: u64 = 16;
const LOOK_MOST: u64 = 256;
/// Numbers of callers that are told apart: 2, 3 to 4, 5 to 8, more.
const CROWDS: usize = 4;

/// What is known for one number of callers.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    way: Way,
    /// Nanoseconds per record by either way, smoothed.
    costs: [Option<u64>; 2],
    /// Windows until the other way is probed.
    left: u64,
    /// What `left` will be after that probe.
    pause: u64,
}

impl Crowd {
    const NEW: Self = Self { way: Way::Shared, costs: [None; 2], left: 1, pause: LOOK_FIRST };

    /// A window went one way; which one the next goes.
    fn measured(&mut self, way: Way, cost: u64) -> Way {
        let known = &mut self.costs[way as usize];
        *known = Some(known.map_or(cost, |old| old / 4 * 3 + cost / 4));
        let looked = way != self.way;
        if let [Some(shared), Some(parallel)] = self.costs {
            let (mine, others) = match self.way {
                Way::Shared => (shared, parallel),
                Way::Parallel => (parallel, shared),
            };
            // Not for a little: both vary.
            if others < mine - mine / 16 {
                self.way = self.way.other();
                (self.left, self.pause) = (LOOK_FIRST, LOOK_FIRST);
                return self.way;
            }
        }
        if looked {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(LOOK_MOST);
            return self.way;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { self.way.other() } else { self.way }
    }
}

/// The window being measured, and what is known.
#[derive(Debug)]
pub struct Ways {
    group: Group,
    crowds: [Crowd; CROWDS],
    way: Way,
    /// Records of this window, their time together, and the most that were under way at once.
    records: u64,
    nanos: u64,
    most: usize,
}

impl Ways {
    /// A choice that knows nothing yet: the first window shares, unless `group` fixes the way.
    pub fn new(group: Group) -> Self {
        let way = match group {
            Group::Measured => Way::Shared,
            Group::Fixed(way) => way,
        };
        Self { group, crowds: [Crowd::NEW; CROWDS], way, records: 0, nanos: 0, most: 0 }
    }

    /// The way of the next record.
    pub fn way(&self) -> Way {
        self.way
    }

    /// A caller's record is published; `under_way` are not acknowledged, it included.
    pub fn published(&mut self, under_way: usize) {
        self.most = self.most.max(under_way);
    }

    /// A record that went `way` is acknowledged, `nanos` after it was published.
    pub fn acknowledged(&mut self, way: Way, nanos: u64) {
        if way != self.way {
            return;
        }
        self.records += 1;
        self.nanos = self.nanos.saturating_add(nanos);
        if self.records < WINDOW {
            return;
        }
        let (cost, most) = (self.nanos / self.records, self.most);
        (self.records, self.nanos, self.most) = (0, 0, 0);
        // A caller alone goes the same way in both.
        if self.group == Group::Measured && most > 1 {
            self.way = self.crowds[crowd_of(most)].measured(way, cost);
        }
    }

    /// What was measured, for the status report.
    pub fn report(&self) -> WaysReport {
        let names = ["2", "3 to 4", "5 to 8", "more"];
        let crowds = names.iter().zip(&self.crowds).filter(|(_, c)| c.costs != [None; 2]);
        let measured = crowds.map(|(callers, c)| Measured {
            callers,
            way: c.way.name(),
            shared_ns: c.costs[Way::Shared as usize],
            parallel_ns: c.costs[Way::Parallel as usize],
        });
        WaysReport {
            by_measurement: self.group == Group::Measured,
            way: self.way.name(),
            measured: measured.collect(),
        }
    }
}

/// What is measured, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaysReport {
    /// The way is chosen by measurement, not by a setting.
    pub by_measurement: bool,
    /// The way of the window under way.
    pub way: &'static str,
    /// What is known, by the number of callers.
    pub measured: Vec<Measured>,
}

/// What is known of one number of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The number of callers, for people.
    pub callers: &'static str,
    /// The better way for this number.
    pub way: &'static str,
    /// Nanoseconds from publication to acknowledgement, smoothed, when a flush is shared.
    pub shared_ns: Option<u64>,
    /// Nanoseconds from publication to acknowledgement, smoothed, with durable writes in parallel.
    pub parallel_ns: Option<u64>,
}

/// Index of the crowd for this many callers (two at least).
fn crowd_of(callers: usize) -> usize {
    let index = (callers - 1).ilog2() as usize;
    index.min(CROWDS - 1)
}

#[cfg(test)]
#[path = "ways_tests.rs"]
mod tests;
