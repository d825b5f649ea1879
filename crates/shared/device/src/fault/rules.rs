//! When a device misbehaves, and how.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which calls a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// Reads.
    Read,
    /// Writes, with `fua` or without.
    Write,
    /// Flushes; a write with `fua` does not count as one.
    Flush,
    /// Discards.
    Discard,
}

#[derive(Clone)]
enum Action {
    Fail(i32),
    FailTorn(i32),
    Swallow,
    Misdirect(u64),
    Flip { offset: u64, mask: u8 },
    Delay(Duration),
    Hold(Gate),
}

/// One way to misbehave; by default at every call of its class.
#[derive(Clone)]
pub struct Fault {
    class: OpClass,
    range: Option<Range<u64>>,
    skip: u64,
    times: u64,
    action: Action,
}

impl Fault {
    fn new(class: OpClass, action: Action) -> Self {
        Self { class, range: None, skip: 0, times: u64::MAX, action }
    }

    /// The call returns this errno and does nothing. A failed flush leaves the writes it
    /// should have covered in doubt for good: no later flush makes them durable.
    pub fn fail(class: OpClass, errno: i32) -> Self {
        Self::new(class, Action::Fail(errno))
    }
    /// A write returns this errno, and some of its sectors are written all the same.
    pub fn fail_torn(errno: i32) -> Self {
        Self::new(OpClass::Write, Action::FailTorn(errno))
    }
    /// A write returns success and is not done; a flush returns success and makes nothing
    /// durable; reads have no such fault.
    pub fn swallow(class: OpClass) -> Self {
        Self::new(class, Action::Swallow)
    }
    /// A write returns success and lands at `offset` instead, or nowhere when it does not fit
    /// there.
    pub fn misdirect(offset: u64) -> Self {
        Self::new(OpClass::Write, Action::Misdirect(offset))
    }
    /// Reads of the byte at `offset` see the bits of `mask` flipped; the medium keeps them.
    pub fn flip_on_read(offset: u64, mask: u8) -> Self {
        Self::new(OpClass::Read, Action::Flip { offset, mask }).within(offset..offset + 1)
    }
    /// The call takes this much longer; its effect is at its end.
    pub fn delay(class: OpClass, time: Duration) -> Self {
        Self::new(class, Action::Delay(time))
    }
    /// The call waits at the gate; its effect is at its end.
    pub fn hold(class: OpClass, gate: &Gate) -> Self {
        Self::new(class, Action::Hold(gate.clone()))
    }

    /// Only calls that touch this range of the device; a flush touches none, unless it is that of
    /// a part.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }
    /// Not the first `n` calls that would match.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }
    /// At most `n` times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
    /// Once.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    fn concerns(&self, class: OpClass, offset: u64, len: usize) -> bool {
        let touched = |r: &Range<u64>| offset < r.end && r.start < offset + len as u64;
        self.class == class && self.range.as_ref().is_none_or(touched)
    }
}

/// Names an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// What the matching faults do to one call.
#[derive(Default)]
pub(super) struct Effects {
    pub fail: Option<i32>,
    pub torn: bool,
    pub swallow: bool,
    pub misdirect: Option<u64>,
    pub flips: Vec<(u64, u8)>,
    pub delay: Duration,
    pub gates: Vec<Gate>,
}

struct Armed {
    id: FaultId,
    fault: Fault,
    seen: u64,
    fired: u64,
}

/// The faults of a device.
#[derive(Default)]
pub(super) struct Rules {
    armed: Vec<Armed>,
    next: u64,
}

impl Rules {
    pub fn add(&mut self, fault: Fault) -> FaultId {
        let id = FaultId(self.next);
        self.next += 1;
        self.armed.push(Armed { id, fault, seen: 0, fired: 0 });
        id
    }

    pub fn remove(&mut self, id: FaultId) {
        self.armed.retain(|a| a.id != id);
    }

    pub fn clear(&mut self) {
        self.armed.clear();
    }

    pub fn fired(&self, id: FaultId) -> u64 {
        self.armed.iter().find(|a| a.id == id).map_or(0, |a| a.fired)
    }

    /// Opens every gate that a fault holds.
    pub fn open_gates(&self) {
        for armed in &self.armed {
            if let Action::Hold(gate) = &armed.fault.action {
                gate.open();
            }
        }
    }

    /// What happens to this call; counts it.
    pub fn effects(&mut self, class: OpClass, offset: u64, len: usize) -> Effects {
        let mut effects = Effects::default();
        for armed in &mut self.armed {
            if !armed.fault.concerns(class, offset, len) {
                continue;
            }
            armed.seen += 1;
            if armed.seen <= armed.fault.skip || armed.fired >= armed.fault.times {
                continue;
            }
            armed.fired += 1;
            match &armed.fault.action {
                Action::Fail(errno) => effects.fail = Some(*errno),
                Action::FailTorn(errno) => {
                    effects.fail = Some(*errno);
                    effects.torn = true;
                }
                Action::Swallow => effects.swallow = true,
                Action::Misdirect(to) => effects.misdirect = Some(*to),
                Action::Flip { offset, mask } => effects.flips.push((*offset, *mask)),
                Action::Delay(time) => effects.delay += *time,
                Action::Hold(gate) => effects.gates.push(gate.clone()),
            }
        }
        effects
    }
}

#[derive(Default)]
struct GateState {
    open: bool,
    arrived: u64,
}

/// A place where calls wait until the test lets them go; clones are the same gate. A power cut
/// opens it.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all calls through, now and later.
    pub fn open(&self) {
        self.lock().open = true;
        self.shared.1.notify_all();
    }

    /// Number of calls that came to the gate so far.
    pub fn arrived(&self) -> u64 {
        self.lock().arrived
    }

    /// Waits until `n` calls have come; false when they have not after `limit`.
    pub fn wait_arrived(&self, n: u64, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self.shared.1.wait_timeout_while(state, limit, |s| s.arrived < n);
        waited.unwrap_or_else(PoisonError::into_inner).0.arrived >= n
    }

    pub(super) fn pass(&self) {
        let mut state = self.lock();
        state.arrived += 1;
        self.shared.1.notify_all();
        while !state.open {
            state = self.shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
