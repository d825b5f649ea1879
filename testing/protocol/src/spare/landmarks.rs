//! Situations that a configuration must get into.

use super::state::{FIRST, Logs, Mode, SPARE};

/// Their names.
pub mod names {
    /// A late write.
    pub const LATE: &str = "a write lands late, whose copy was acknowledged";
    /// Twice there.
    pub const TWICE: &str = "a record lies in both logs";
    /// Going back.
    pub const DRAINS: &str = "records go to the first log while the spare one has some";
    /// Again.
    pub const AGAIN: &str = "the first log is left while the spare one has some of the last time";
    /// R21.
    pub const ALONE: &str = "the spare log is the only one, and has reused a place";
    /// R21.
    pub const FIRST_ALONE: &str = "the first log is the only one";
    /// R21.
    pub const NO_ROOM: &str = "a log fails whose records find no room";
}

/// Is this state such a situation?
pub(crate) fn is_at(s: &Logs, landmark: &str) -> bool {
    use names::*;
    let [first, spare] = &s.logs;
    let lies = |log: usize, lsn| s.logs[log].ring.iter().flatten().any(|record| record.lsn == lsn);
    match landmark {
        LATE => first.away.iter().any(|away| away.landed && away.record.lsn <= s.acked),
        TWICE => (s.home + 1..=s.newest()).any(|lsn| lies(FIRST, lsn) && lies(SPARE, lsn)),
        DRAINS => s.mode == Mode::To(FIRST) && spare.taken.iter().any(|record| !record.copy),
        AGAIN => {
            let newest = spare.taken.back().is_some_and(|record| record.copy);
            s.mode == Mode::To(SPARE) && newest && spare.taken.iter().any(|record| !record.copy)
        }
        ALONE => s.mode == Mode::Alone(SPARE) && s.home > 0 && spare.tail > 0,
        FIRST_ALONE => s.mode == Mode::Alone(FIRST),
        NO_ROOM => s.mode == Mode::Latched && s.faults[0] == 1,
        other => unreachable!("no landmark has this name: {other}"),
    }
}
