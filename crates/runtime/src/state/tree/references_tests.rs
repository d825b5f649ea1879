//! Tests of what each session refers to.

use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const THREE: SessionId = SessionId(3);

fn sessions() -> References {
    let mut references = References::default();
    [ONE, TWO, THREE].into_iter().for_each(|session| references.begin(session));
    references
}

fn held(references: &References, session: SessionId) -> (u64, u64) {
    let Held { handles, inodes } = references.held(session).unwrap();
    (handles, inodes)
}

#[test]
fn each_session_counts_its_own_lookups() {
    let mut references = sessions();
    for session in [ONE, ONE, TWO, THREE, TWO, ONE] {
        references.looked_up(session, 12);
    }
    references.looked_up(ONE, 13);
    assert_eq!((held(&references, ONE), held(&references, TWO)), ((0, 2), (0, 1)));
    references.forget(ONE, 12, 2);
    references.forget(TWO, 12, 99);
    let knows = |references: &References| {
        [ONE, TWO, THREE].map(|session| references.has_looked_up(session, 12))
    };
    assert_eq!(knows(&references), [true, false, true]);
    references.forget(TWO, 12, 1);
    references.forget(ONE, 12, 1);
    assert_eq!((knows(&references), held(&references, ONE)), ([false, false, true], (0, 1)));
    references.forget(THREE, 12, 1);
    assert!(!references.is_looked_up(12) && references.is_looked_up(13));
    assert_eq!(held(&references, THREE), (0, 0));
}

/// Rule R31: all that a session has ends with it, and nothing of another one.
#[test]
fn r31_what_a_session_has_ends_with_it() {
    let mut references = sessions();
    let handle = |references: &mut References, session, ino| references.open(session, ino, None).0;
    let own = handle(&mut references, ONE, 12);
    let other = handle(&mut references, TWO, 12);
    handle(&mut references, ONE, 14);
    for (session, ino) in [(ONE, 12), (TWO, 12), (ONE, 13), (ONE, 13)] {
        references.looked_up(session, ino);
    }
    let LetGo { mut handles, mut lookups } = references.end(ONE);
    handles.sort_unstable();
    lookups.sort_unstable();
    assert_eq!((handles, lookups), (vec![12, 14], vec![12, 13]));
    assert!(references.opened(ONE, own).is_none() && references.opened(TWO, own).is_none());
    assert!(references.opened(TWO, other).is_some_and(|opened| opened.ino == 12));
    assert!(references.has_looked_up(TWO, 12) && !references.is_looked_up(13));
    assert_eq!(references.end(ONE), LetGo::default());
}

/// An answer that comes after the end leaves nothing behind.
#[test]
fn a_session_that_has_ended_gets_nothing() {
    let mut references = sessions();
    references.end(ONE);
    let (handle, open) = references.open(ONE, 12, None);
    references.looked_up(ONE, 12);
    assert!(!open && references.opened(ONE, handle).is_none() && !references.is_looked_up(12));
    assert_eq!(references.held(ONE), None);
}

/// Handles that may write are counted by inode and session, but not those of sessions that lend.
#[test]
fn writers_are_counted() {
    const LENDER: SessionId = SessionId(4);
    let mut references = sessions();
    references.begin_lending(LENDER);
    let beside =
        |references: &References| [ONE, TWO, LENDER].map(|s| references.writers_beside(s, 12));
    let mut open = |session, access| references.open(session, 12, access).0;
    let writes = open(ONE, Some(Access::Write));
    let both = open(ONE, Some(Access::Both));
    for (session, access) in [(ONE, None), (TWO, Some(Access::Read)), (LENDER, Some(Access::Both))]
    {
        open(session, access);
    }
    open(TWO, Some(Access::Both));
    assert_eq!(beside(&references), [1, 2, 3]);
    assert_eq!(references.writers_beside(THREE, 13), 0);
    references.close(ONE, writes);
    assert_eq!(beside(&references), [1, 1, 2]);
    references.end(TWO);
    assert_eq!(beside(&references), [0, 1, 1]);
    references.end(LENDER);
    assert!(references.lending.is_empty());
    references.close(ONE, both);
    assert!(references.writers.is_empty());
}

/// What a machine has had open, it may use by number until it forgets the inode.
#[test]
fn a_machine_may_use_what_it_has_had_open() {
    let mut references = sessions();
    let machine = SessionId(4);
    references.begin_machine(machine);
    assert_eq!(references.granted(ONE, 12), None);
    references.looked_up(machine, 12);
    references.looked_up(machine, 13);
    references.looked_up(machine, 13);
    let granted = |references: &References, ino| references.granted(machine, ino).unwrap();
    let (hold, _) = references.open(machine, 12, None);
    assert_eq!(granted(&references, 12), None);
    let (reads, _) = references.open(machine, 12, Some(Access::Read));
    assert_eq!(granted(&references, 12), Some(Access::Read));
    let (again, _) = references.open(machine, 12, Some(Access::Read));
    assert_eq!(granted(&references, 12), Some(Access::Read));
    let (writes, _) = references.open(machine, 12, Some(Access::Write));
    assert_eq!((granted(&references, 12), granted(&references, 13)), (Some(Access::Both), None));
    for handle in [hold, reads, again, writes] {
        references.close(machine, handle);
    }
    references.open(ONE, 13, Some(Access::Both));
    assert_eq!((granted(&references, 12), granted(&references, 13)), (Some(Access::Both), None));
    references.open(machine, 13, Some(Access::Write));
    references.forget(machine, 12, 1);
    references.forget(machine, 13, 1);
    assert_eq!((granted(&references, 12), granted(&references, 13)), (None, Some(Access::Write)));
    references.end(machine);
    assert_eq!(references.granted(machine, 13), None);
}
