//! A cache beside a file that it is to be like.

use super::*;
use siftfs_base::Rng;

struct File {
    bytes: Vec<u8>,
    cache: Cache,
    all: AtomicUsize,
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let size = self.bytes.len();
        self.bytes.resize(size.max(offset + bytes.len()), 0);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.cache.wrote(offset as u64, bytes, size as u64, &self.all);
    }

    /// Reads from the cache, or has it take the pages in, as they were in that state.
    fn read(&mut self, offset: usize, len: usize) -> bool {
        let end = self.bytes.len().min(offset + len);
        let mut into = vec![9; end.saturating_sub(offset)];
        if self.cache.read(offset as u64, &mut into) {
            assert!(into == self.bytes[offset.min(end)..end]);
            return true;
        }
        let state = self.cache.state();
        let begin = offset / PAGE * PAGE;
        let behind = end.next_multiple_of(PAGE).min(self.bytes.len());
        let pages = self.bytes[begin.min(behind)..behind].to_vec();
        self.cache.insert(state, begin as u64, &pages, &self.all);
        let there = self.cache.read(offset as u64, &mut into);
        assert!(there && into == self.bytes[offset.min(end)..end]);
        false
    }
}

#[test]
fn what_is_read_is_what_was_written() {
    let mut found = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (bytes, all) = (Vec::new(), AtomicUsize::new(0));
        let mut file = File { bytes, cache: Cache::default(), all };
        for _ in 0..400 {
            let offset = rng.below(40_000) as usize;
            let len = rng.between(1, 9000) as usize;
            match rng.below(4) {
                0 => file.write(offset, &rng.bytes(len)),
                1 => file.write(file.bytes.len(), &rng.bytes(len)),
                2 if rng.chance(10) => file.cache.clear(&file.all),
                _ => found += u32::from(file.read(offset, len)),
            }
            assert_eq!(file.all.load(Ordering::Relaxed), file.cache.pages.len());
        }
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn what_was_written_since_it_was_asked_is_not_undone() {
    let all = AtomicUsize::new(0);
    let mut cache = Cache::default();
    let state = cache.state();
    cache.wrote(0, b"new", 3, &all);
    cache.insert(state, 0, b"old", &all);
    assert!(!cache.read(0, &mut [0; 3]));
}

#[test]
fn pages_are_bounded() {
    let all = AtomicUsize::new(0);
    let mut caches = [const { None }; 20].map(|_: Option<()>| Cache::default());
    for (i, cache) in caches.iter_mut().enumerate() {
        let state = cache.state();
        cache.insert(state, 0, &vec![1; 2000 * PAGE], &all);
        let pages = (cache.pages.len(), all.load(Ordering::Relaxed));
        assert!(pages.0 <= MOST && pages.1 <= MOST_OF_ALL, "{i}: {pages:?}");
    }
    // Nothing is kept of a file that is not read.
    let mut cache = Cache::default();
    cache.wrote(0, &[1; PAGE], 0, &all);
    assert!(cache.pages.is_empty());
}
