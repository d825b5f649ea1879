use std::collections::HashSet;

use super::*;

fn cache() -> VolatileCache {
    VolatileCache::new(Image::new(64 * 1024))
}

fn put(cache: &mut VolatileCache, op: u64, offset: u64, byte: u8, len: usize, fua: bool) {
    cache.apply(&Event::StartWrite { op, offset, data: vec![byte; len].into(), fua });
    cache.apply(&Event::FinishWrite { op });
}

fn flush(cache: &mut VolatileCache, op: u64) {
    cache.apply(&Event::StartFlush { op, range: 0..u64::MAX });
    cache.apply(&Event::FinishFlush { op });
}

fn first(image: &Image) -> u8 {
    image.bytes(0, 1)[0]
}

#[test]
fn a_write_is_seen_at_once_and_durable_after_a_flush() {
    let mut c = cache();
    put(&mut c, 0, 0, 1, 512, false);
    assert_eq!((first(c.cached()), first(c.durable())), (1, 0));
    flush(&mut c, 1);
    assert_eq!(first(c.durable()), 1);
    assert!(c.pending().is_empty());
}

#[test]
fn a_flush_covers_only_what_had_returned_when_it_began() {
    let mut c = cache();
    c.apply(&Event::StartWrite { op: 0, offset: 0, data: vec![1; 512].into(), fua: false });
    put(&mut c, 1, 512, 2, 512, false);
    c.apply(&Event::StartFlush { op: 2, range: 0..u64::MAX });
    c.apply(&Event::FinishWrite { op: 0 });
    put(&mut c, 3, 1024, 3, 512, false);
    c.apply(&Event::FinishFlush { op: 2 });
    assert_eq!(c.durable().bytes(512, 1), [2]);
    assert_eq!(first(c.durable()), 0);
    assert_eq!(c.durable().bytes(1024, 1), [0]);
    let left: Vec<u64> = c.pending().iter().map(|p| p.op).collect();
    assert_eq!(left, [0, 3]);
}

#[test]
fn fua_is_durable_alone_and_never_undone_by_an_older_write() {
    let mut c = cache();
    put(&mut c, 0, 0, 1, 1024, false);
    put(&mut c, 1, 0, 2, 512, true);
    assert_eq!(first(c.durable()), 2);
    assert_eq!(c.durable().bytes(512, 1), [0]);
    for seed in 0..100 {
        assert_eq!(first(&c.image(Cut::Random(seed))), 2);
    }
    assert_eq!(first(&c.image(Cut::KeepAll)), 2);
    flush(&mut c, 2);
    assert_eq!(first(c.durable()), 2);
    assert_eq!(c.durable().bytes(512, 1), [1]);
}

#[test]
fn a_failed_flush_leaves_doubt_that_only_a_new_write_ends() {
    let mut c = cache();
    put(&mut c, 0, 0, 1, 512, false);
    c.apply(&Event::StartFlush { op: 1, range: 0..u64::MAX });
    c.apply(&Event::FailFlush { op: 1 });
    flush(&mut c, 2);
    assert_eq!(first(c.durable()), 0, "the second flush says nothing of the first one's writes");
    assert!(c.pending()[0].abandoned);
    assert_eq!(first(&c.image(Cut::KeepAll)), 1);
    put(&mut c, 3, 0, 3, 512, false);
    flush(&mut c, 4);
    assert_eq!(first(c.durable()), 3);
    assert_eq!(first(&c.image(Cut::KeepAll)), 3);
}

#[test]
fn a_partial_sector_rewrites_the_whole_sector() {
    let mut c = cache();
    put(&mut c, 0, 0, 1, 512, false);
    put(&mut c, 1, 100, 2, 10, false);
    let image = c.image_with(|p| if p.op == 1 { Fate::Keep } else { Fate::Lose });
    assert_eq!(image.bytes(99, 12), [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(c.pending()[1].len, 512);
}

/// Every combination of kept and lost of three writes occurs, the later one without the earlier
/// ones included; so do torn ones, at sectors only; and equal seeds give equal images.
#[test]
fn random_cuts_lose_keep_and_tear_independently() {
    let mut c = cache();
    for op in 0..3 {
        put(&mut c, op, op * 8192, op as u8 + 1, 4096, false);
    }
    c.apply(&Event::StartWrite { op: 3, offset: 30000, data: vec![9; 1024].into(), fua: false });
    let (mut whole, mut torn, mut flying) = (HashSet::new(), 0, HashSet::new());
    for seed in 0..500 {
        let image = c.image(Cut::Random(seed));
        assert_eq!(image, c.image(Cut::Random(seed)));
        let mut combination = Vec::new();
        for op in 0..3u64 {
            let bytes = image.bytes(op * 8192, 4096);
            for sector in bytes.chunks(512) {
                assert!(sector.iter().all(|b| *b == sector[0]), "torn inside a sector");
            }
            let kept = bytes.iter().filter(|b| **b == op as u8 + 1).count();
            combination.push(kept);
            torn += u32::from(kept != 0 && kept != 4096);
        }
        flying.insert(image.bytes(30000, 1)[0]);
        if combination.iter().all(|n| *n == 0 || *n == 4096) {
            whole.insert(combination);
        }
    }
    assert_eq!(whole.len(), 8);
    assert!(torn > 50);
    assert_eq!(flying, HashSet::from([0, 9]));
    assert_eq!(c.image(Cut::LoseAll), Image::new(64 * 1024));
}

#[test]
fn fates_are_obeyed() {
    let mut c = cache();
    put(&mut c, 0, 0, 7, 2048, false);
    let image = c.image_with(|_| Fate::Prefix(3));
    assert_eq!(image.bytes(0, 1536), vec![7; 1536]);
    assert_eq!(image.bytes(1536, 512), vec![0; 512]);
    assert_eq!(c.image_with(|_| Fate::Torn(5)), c.image_with(|_| Fate::Torn(5)));
}
