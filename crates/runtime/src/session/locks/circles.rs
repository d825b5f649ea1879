//! Does a wait close a circle?

use super::owned::OwnerId;
use std::collections::HashSet;

/// Does somebody among `from` wait for `target`, perhaps through others? `next` says for whom an
/// owner waits. Each owner is asked once.
pub(super) fn reaches(
    from: impl IntoIterator<Item = OwnerId>,
    target: OwnerId,
    next: impl Fn(OwnerId) -> Vec<OwnerId>,
) -> bool {
    let mut open: Vec<OwnerId> = from.into_iter().collect();
    let mut seen: HashSet<OwnerId> = open.iter().copied().collect();
    while let Some(owner) = open.pop() {
        if owner == target {
            return true;
        }
        open.extend(next(owner).into_iter().filter(|other| seen.insert(*other)));
    }
    false
}
