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

/// Where bytes begin in the tests of byte media.
const BYTES: u64 = 32 * 1024;

fn mixed() -> VolatileCache {
    cache().with_bytes_from(BYTES)
}

/// Words survive by themselves, lines too, and nothing is torn inside a word.
#[test]
fn stores_are_torn_at_words_and_lines() {
    let mut c = mixed();
    put(&mut c, 0, BYTES, 7, 256, false);
    let (mut words, mut lines) = (0, 0);
    for seed in 0..200 {
        let bytes = c.image_with(|_| Fate::Torn(seed)).bytes(BYTES, 256);
        let whole = |unit| bytes.chunks(unit).all(|part| part.iter().all(|b| *b == part[0]));
        assert!(whole(8), "torn inside a word");
        let torn = bytes.contains(&0) && bytes.contains(&7);
        words += u32::from(torn && !whole(64));
        lines += u32::from(torn && whole(64));
    }
    assert!(words > 50 && lines > 50, "{words} {lines}");
    let cuts: HashSet<Vec<u8>> =
        (0..2000).map(|seed| c.image(Cut::Random(seed)).bytes(BYTES, 256)).collect();
    assert!(cuts.iter().any(|b| b[..8] == [0; 8] && b[64..72] == [7; 8]), "a later line alone");
    assert!(cuts.iter().any(|b| b[..72] == [7; 72] && b[248..] == [0; 8]), "a prefix of words");
}

#[test]
fn a_part_of_a_word_rewrites_that_word_alone() {
    let mut c = mixed();
    put(&mut c, 0, BYTES, 1, 64, false);
    put(&mut c, 1, BYTES + 12, 2, 8, false);
    let second = &c.pending()[1];
    assert_eq!((second.offset, second.len), (BYTES + 8, 16));
    let image = c.image_with(|p| if p.op == 1 { Fate::Keep } else { Fate::Lose });
    assert_eq!(image.bytes(BYTES, 12), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(image.bytes(BYTES + 12, 14), [2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0]);
}

#[test]
fn persisted_stores_are_never_lost() {
    let mut c = mixed();
    put(&mut c, 0, BYTES + 64, 1, 64, false);
    put(&mut c, 1, BYTES + 80, 2, 24, true);
    put(&mut c, 2, BYTES + 256, 3, 64, false);
    flush(&mut c, 3);
    put(&mut c, 4, BYTES + 320, 4, 64, false);
    for seed in 0..300 {
        let image = c.image(Cut::Random(seed));
        assert_eq!(image.bytes(BYTES + 64, 16), [1; 16]);
        assert_eq!(image.bytes(BYTES + 80, 24), [2; 24]);
        assert_eq!(image.bytes(BYTES + 104, 24), [1; 24]);
        assert_eq!(image.bytes(BYTES + 256, 64), [3; 64]);
    }
    assert_eq!(c.image(Cut::LoseAll).bytes(BYTES + 320, 1), [0]);
}

/// Disk and area fail apart, and a flush of one says nothing of the other.
#[test]
fn disk_and_bytes_are_flushed_and_cut_apart() {
    for (range, kept) in [(0..BYTES, [1, 0]), (BYTES..u64::MAX, [0, 2])] {
        let mut c = mixed();
        put(&mut c, 0, 512, 1, 512, false);
        put(&mut c, 1, BYTES + 64, 2, 64, false);
        let seen = |i: &Image| [i.bytes(512, 1)[0], i.bytes(BYTES + 64, 1)[0]];
        assert_eq!(seen(&c.image(Cut::KeepBefore(BYTES))), [1, 0]);
        assert_eq!(seen(&c.image(Cut::KeepFrom(BYTES))), [0, 2]);
        c.apply(&Event::StartFlush { op: 2, range });
        c.apply(&Event::FinishFlush { op: 2 });
        assert_eq!(seen(c.durable()), kept);
    }
}

#[test]
fn a_write_over_the_border_is_two() {
    let mut c = mixed();
    put(&mut c, 0, BYTES - 4, 5, 12, false);
    let places: Vec<_> = c.pending().iter().map(|p| (p.offset, p.len)).collect();
    assert_eq!(places, [(BYTES - 512, 512), (BYTES, 8)]);
    assert_eq!(c.cached().bytes(BYTES - 5, 14), [0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0]);
}
