//! What a recovery brought back, as the oracle looks at it.

use crate::tree::Seen;
use siftfs_base::InodeNr;
use std::collections::{BTreeMap, BTreeSet};

/// A directory and a name in it.
pub(crate) type Name = (InodeNr, Vec<u8>);

/// A recovered tree in the model's numbers.
pub(crate) struct Found<'a> {
    pub nodes: BTreeMap<InodeNr, &'a Seen>,
    pub bound: BTreeMap<Name, InodeNr>,
    pub names: BTreeMap<InodeNr, BTreeSet<Name>>,
}
