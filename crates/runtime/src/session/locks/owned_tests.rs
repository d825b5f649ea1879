use super::*;

const BYTES: u64 = 24;

/// Numbers that look drawn.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn lock(kind: LockKind, handle: u64) -> Lock {
    Lock { kind, pid: 7, handle }
}

fn kind(n: u64) -> LockKind {
    if n == 0 { LockKind::Read } else { LockKind::Write }
}

/// What each byte is, by a walk over all parts.
fn bytes(owned: &Owned) -> Vec<Option<(LockKind, u64)>> {
    let mut all = vec![None; BYTES as usize];
    for (first, part) in &owned.parts {
        for byte in *first..=part.last {
            let place = &mut all[byte as usize];
            assert_eq!(*place, None, "parts have no byte in common");
            *place = Some((part.lock.kind, part.lock.handle));
        }
    }
    all
}

/// Beside a map with one entry for each byte.
#[test]
fn parts_are_what_each_byte_is() {
    for seed in 0..400 {
        let mut draw = Draw(seed);
        let (mut owned, mut model) = (Owned::of(0), vec![None; BYTES as usize]);
        let mut handles = std::collections::BTreeMap::new();
        for _ in 0..60 {
            let first = draw.below(BYTES);
            let last = first + draw.below(BYTES - first);
            let (of, handle) = (range(first, last), draw.below(2));
            let before = owned.len() as u64;
            let new = (draw.below(3) > 0).then(|| lock(kind(draw.below(2)), handle));
            let change = if draw.below(10) == 0 {
                model
                    .iter_mut()
                    .for_each(|b| *b = b.filter(|(_, h): &(LockKind, u64)| *h != handle));
                owned.close(handle)
            } else {
                let most = before + owned.grows(of, new.is_some());
                let slots = &mut model[first as usize..=last as usize];
                slots.fill(new.map(|l| (l.kind, l.handle)));
                let change = owned.set(of, new);
                assert!(owned.len() as u64 <= most, "seed {seed}: no more than was said");
                change
            };
            assert_eq!(bytes(&owned), model, "seed {seed}");
            let runs = model.iter().zip(std::iter::once(&None).chain(&model));
            let runs = runs.filter(|(now, before)| now.is_some() && now != before).count();
            assert_eq!(owned.len(), runs, "seed {seed}: parts that are alike are one");
            change.new.iter().for_each(|h| *handles.entry(*h).or_insert(0) += 1);
            change.gone.iter().for_each(|h| *handles.get_mut(h).unwrap() -= 1);
            for handle in 0..2 {
                let parts = owned.parts.values().filter(|p| p.lock.handle == handle).count();
                assert_eq!(handles.get(&handle).copied().unwrap_or(0), parts, "seed {seed}");
            }
            let (wanted, in_range) = (kind(draw.below(2)), &model[first as usize..=last as usize]);
            let held = in_range.iter().flatten().any(|(k, _)| k.conflicts(wanted));
            assert_eq!(owned.refuses(of, wanted).is_some(), held, "seed {seed}");
            let all = in_range.iter().all(|b| b.is_some_and(|(k, _)| k == wanted));
            assert_eq!(owned.has_all(of, wanted), all, "seed {seed}");
        }
    }
}

/// Through whichever handles it was taken, others are told of one lock.
#[test]
fn others_see_one_lock() {
    let mut owned = Owned::of(0);
    for (first, handle) in [(0, 1), (10, 2), (20, 1)] {
        owned.set(range(first, first + 9), Some(lock(LockKind::Read, handle)));
    }
    owned.set(range(30, 39), Some(lock(LockKind::Write, 1)));
    let told = owned.refuses(range(12, 13), LockKind::Write).unwrap();
    assert_eq!(told, HeldLock { kind: LockKind::Read, range: range(0, 29), pid: 7 });
    assert_eq!(owned.refuses(range(0, 29), LockKind::Read), None);
    let told = owned.refuses(LockRange::ALL, LockKind::Read).unwrap();
    assert_eq!(told.range, range(30, 39));
}

/// The last byte of all is one like others.
#[test]
fn to_the_end_of_everything() {
    let mut owned = Owned::of(0);
    owned.set(LockRange::ALL, Some(lock(LockKind::Write, 1)));
    owned.set(range(5, LockRange::LAST - 1), None);
    assert!(owned.has_all(range(LockRange::LAST, LockRange::LAST), LockKind::Write));
    assert!(!owned.has_all(range(LockRange::LAST - 1, LockRange::LAST), LockKind::Write));
    owned.set(range(LockRange::LAST, LockRange::LAST), None);
    assert_eq!((owned.len(), owned.has_all(range(0, 4), LockKind::Write)), (1, true));
}
