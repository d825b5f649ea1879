//! A row of the table.

/// What a row's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time of one operation; less is better.
    Latency,
    /// Operations of all threads together in a second; more is better.
    Operations,
    /// MiB in a second; more is better.
    Bytes,
    /// Bytes written at the disk for each byte that a program made durable; less is better.
    Written,
}

impl Metric {
    /// Is less better?
    pub fn falls(self) -> bool {
        matches!(self, Self::Latency | Self::Written)
    }

    /// Whether a ratio keeps its target: what falls may not be more, the others not less.
    pub fn met(self, ratio: f64, target: f64) -> bool {
        if self.falls() { ratio <= target } else { ratio >= target }
    }
}

/// A row of the table.
pub struct Row {
    /// Short name, for the command line and JSON.
    pub name: &'static str,
    /// What the row does.
    pub what: &'static str,
    /// What its number is.
    pub metric: Metric,
    /// The ratio to ext4 that SiftFS through FUSE is designed for: of times at most, of rates at
    /// least.
    pub target: Option<f64>,
}
