//! What a value was, and since when.

/// Point in a sequence: how many operations had begun. 0 is the state at the start.
pub type Time = u32;

/// All values that may still be found after a power cut: the durable one and every later one.
#[derive(Clone, Debug)]
pub struct History<T> {
    // Never empty; times grow.
    values: Vec<(Time, T)>,
}

impl<T> History<T> {
    /// A value that is durable since `time`.
    pub fn new(time: Time, value: T) -> Self {
        Self { values: vec![(time, value)] }
    }

    /// The value became `value` at `time`. Two values of one time are both possible, as inside
    /// an operation that is under way.
    pub fn push(&mut self, time: Time, value: T) {
        debug_assert!(self.values.last().is_some_and(|(t, _)| *t <= time));
        self.values.push((time, value));
    }

    /// The value as of `time` is durable: what it had replaced by then is not possible any more.
    pub fn raise(&mut self, time: Time) {
        let keep = self.values.iter().rposition(|(t, _)| *t <= time).unwrap_or(0);
        self.values.drain(..keep);
    }

    /// The newest value.
    pub fn last(&self) -> &T {
        &self.values.last().expect("a history is never empty").1
    }

    /// The newest value, to be told more about.
    pub fn last_mut(&mut self) -> &mut T {
        &mut self.values.last_mut().expect("a history is never empty").1
    }

    /// When the newest value appeared.
    pub fn changed(&self) -> Time {
        self.values.last().expect("a history is never empty").0
    }

    /// Every possible value with the time it appeared.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Time, &T)> {
        self.values.iter().map(|(t, v)| (*t, v))
    }

    /// The values that are possible if the one of `time` is durable.
    pub fn since(&self, time: Time) -> impl Iterator<Item = (Time, &T)> {
        let from = self.values.iter().rposition(|(t, _)| *t <= time).unwrap_or(0);
        self.values[from..].iter().map(|(t, v)| (*t, v))
    }
}
