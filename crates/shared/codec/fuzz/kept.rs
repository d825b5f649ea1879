//! The kept corpus of a protocol's messages: it is replayed as it is and changed, and what reading
//! allocates is counted. `SIFTFS_CORPUS=write` writes it anew from the samples.

use super::messages::any::{Seen, Way, input, stream};
use siftfs_base::{Rng, crc32c};
use siftfs_codec::{Encoded, Message, Protocol};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longest sample that is kept: the status document has a form of its own.
const LONGEST: usize = 1000;
/// What reading may have allocated at a time, beyond [`EACH`] for each byte of the input: the
/// frames' reader allocates that much ahead of their bytes.
const AHEAD: usize = 512 << 10;
const EACH: usize = 64;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no counts any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(live.get())));
    });
}

// SAFETY: the system's allocator, with counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The most bytes that `f` had allocated at a time.
fn most_allocated<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    MOST.set(before);
    let done = f();
    (done, (MOST.get() - before).try_into().unwrap_or_default())
}

/// A corpus, and what is done with an input.
pub struct Corpus {
    folder: PathBuf,
    each: fn(&[u8]) -> Seen,
}

impl Corpus {
    /// That of the crate at `root`.
    pub fn new(root: &str, each: fn(&[u8]) -> Seen) -> Self {
        Self { folder: Path::new(root).join("fuzz/corpus"), each }
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let listed = std::fs::read_dir(&self.folder).expect("the corpus is in the repository");
        let paths = listed.map(|entry| entry.expect("an entry").path());
        let paths: BTreeSet<PathBuf> = paths.collect();
        let read = |path: PathBuf| {
            let bytes = std::fs::read(&path).expect("a file of the corpus");
            (path, bytes)
        };
        paths.into_iter().map(read).collect()
    }

    /// Reads an input. What that has allocated has bounds.
    fn read(&self, bytes: &[u8]) -> Seen {
        let (seen, most) = most_allocated(|| (self.each)(bytes));
        let blocks = bytes.get(1).map_or(0, |second| usize::from(second % 8)) << 12;
        // The input itself, its frames and what was read twice are counted, too.
        let bound = AHEAD + EACH * bytes.len() + 16 * blocks;
        assert!(most <= bound, "{} bytes have {most} bytes allocated: {bytes:?}", bytes.len());
        seen
    }

    /// Each sample has its file, in the form that messages have today, and so have streams of them.
    /// With `SIFTFS_CORPUS=write` they are written, beside what was found that is read still.
    pub fn has<P: Protocol>(&self, to: &[P::ToServer], from: &[P::FromServer]) {
        let mut wanted = inputs::<P, _>(Way::ToServer, to);
        wanted.extend(inputs::<P, _>(Way::FromServer, from));
        if std::env::var_os("SIFTFS_CORPUS").is_some_and(|word| word == "write") {
            self.renew(&wanted);
        }
        let kept: BTreeSet<Vec<u8>> = self.files().into_iter().map(|(_, bytes)| bytes).collect();
        let missing = wanted.iter().filter(|input| !kept.contains(*input)).count();
        assert!(
            missing == 0,
            "{missing} of {} messages and streams are not in the corpus in their form: \
             SIFTFS_CORPUS=write (testing/README.md, \"Messages\")",
            wanted.len()
        );
    }

    fn renew(&self, inputs: &BTreeSet<Vec<u8>>) {
        for (path, bytes) in self.files() {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name.starts_with(b"sample-") || (self.each)(&bytes) == Seen::default() {
                std::fs::remove_file(path).expect("a file of the corpus");
            }
        }
        for input in inputs {
            let name = format!("sample-{:08x}", crc32c(input));
            std::fs::write(self.folder.join(name), input).expect("a file of the corpus");
        }
    }

    /// All are read or refused. At least this many are messages, and streams.
    pub fn replay(&self, messages: usize, frames: usize) {
        let files = self.files();
        let seen: Vec<Seen> = files.iter().map(|(_, bytes)| self.read(bytes)).collect();
        let read = seen.iter().filter(|seen| seen.messages > 0 && seen.frames == 0).count();
        let streams = seen.iter().filter(|seen| seen.frames > 0).count();
        println!("{} files: {read} messages, {streams} streams with frames", files.len());
        assert!(read >= messages, "{read} of {} files are messages", files.len());
        assert!(streams >= frames, "{streams} of {} files are streams", files.len());
    }

    /// Each is changed `times` times, and what comes of it is read or refused.
    pub fn changed(&self, times: usize) {
        let files = self.files();
        let (mut rng, mut messages, mut all) = (Rng::new(32), 0, 0);
        for (_, bytes) in &files {
            for _ in 0..times {
                let mut input = bytes.clone();
                for _ in 0..=rng.below(3) {
                    change(&mut rng, &mut input, &files);
                }
                messages += usize::from(self.read(&input).messages > 0);
                all += 1;
            }
        }
        println!("{all} inputs: {messages} are messages");
        assert!(messages > all / 20, "{messages} of {all} are messages");
        assert!(messages < all, "something is refused");
    }
}

/// Inputs of samples: each, and all of them in a few streams.
fn inputs<P: Protocol, M: Message>(way: Way, samples: &[M]) -> BTreeSet<Vec<u8>> {
    let encoded = samples.iter().map(|sample| sample.encode().expect("a message"));
    let short: Vec<Encoded> = encoded.filter(|sample| sample.head.len() < LONGEST).collect();
    let streams = short.iter().filter(|sample| sample.blocks.is_empty()).cloned();
    let streams: Vec<Encoded> = streams.collect();
    let streams = streams.chunks(streams.len().div_ceil(2)).map(|part| stream::<P>(way, part));
    short.iter().filter_map(|sample| input(way, sample)).chain(streams).collect()
}

/// Flips a bit, changes a length, cuts, doubles, or puts in a piece of another input.
fn change(rng: &mut Rng, input: &mut Vec<u8>, others: &[(PathBuf, Vec<u8>)]) {
    let at = rng.below(input.len() as u64 + 1) as usize;
    match rng.below(5) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            let lengths = [0, 1, 2, 255, 4096, 65_536, 65_537, 1 << 20, u32::MAX >> 1, u32::MAX];
            let length = rng.pick(&lengths).expect("ten").to_le_bytes();
            let end = input.len().min(at + length.len());
            input[at..end].copy_from_slice(&length[..end - at]);
        }
        2 => input.truncate(at),
        3 => {
            let end = input.len().min(at + rng.below(40) as usize);
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        _ => {
            let (_, other) = rng.pick(others).expect("a corpus");
            let from = rng.below(other.len() as u64 + 1) as usize;
            let end = other.len().min(from + rng.below(40) as usize);
            let to = input.len().min(at + end - from);
            input.splice(at..to, other[from..end].iter().copied());
        }
    }
}
