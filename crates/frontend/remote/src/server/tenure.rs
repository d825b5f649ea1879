//! Whether a server still is the one that has its volume (`docs/design/replicated.md`, "Takeover of
//! a served volume").

use std::fmt::Debug;

/// Knows whether this process still has the volume, where another one may take it over without this
/// one being told. It knows so for a term at a time, by this machine's clock, and a process that
/// takes the volume over waits that term out: so an answer that was formed, and found to count,
/// within a term is no older than the last change before the takeover.
pub trait Tenure: Debug + Send + Sync {
    /// Is this process known to have the volume at this moment? Does not wait.
    fn counts_now(&self) -> bool;
    /// Waits until it is known, as long as `over` is false. False if the volume is another
    /// process's by now, or `over` was true.
    fn wait(&self, over: &dyn Fn() -> bool) -> bool;
}
