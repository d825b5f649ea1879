//! What the journal holds of staged data.

use siftfs_base::Error;
use std::fmt;
use std::str::FromStr;

/// What a background journal transaction holds of the staged data that its copy tags name. A
/// volume's header says which; it is chosen when the log is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum JournalData {
    /// References: staged record, offset, destination.
    #[default]
    Ref,
    /// The references, and the data a second time, as the journal of the SIFT paper has it (§4.1,
    /// §5.1.3): for comparison.
    Copy,
}

impl fmt::Display for JournalData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ref => "ref",
            Self::Copy => "copy",
        })
    }
}

impl FromStr for JournalData {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self, Error> {
        [Self::Ref, Self::Copy].into_iter().find(|d| d.to_string() == s).ok_or_else(|| {
            Error::Refused(format!("'{s}' is no form of journal data; there are ref and copy"))
        })
    }
}
