//! Files over a real Runtime, however the back end takes in what is written to them.

use siftfs_accel::{Leased, Session, Through};
use siftfs_base::{InodeNr, Rng};
use siftfs_grantor::{Bounds, How, Locate};
use siftfs_holders::user::User;
use siftfs_holders::world::{Setting, World};

/// How volume and grantor are, if a test does not say. `served.rs` has another one.
#[allow(dead_code)]
fn setting() -> Setting {
    Setting::default()
}

const FILES: usize = 3;
const STEPS: u64 = 400;

fn hows() -> Vec<How> {
    let usual = How { batch: (8, 64 << 10), ..How::default() };
    vec![
        How { threads: 1, merge: false, locate: Locate::Off, ..usual },
        How { threads: 1, ..usual },
        How { threads: 2, locate: Locate::Uncached, ..usual },
        How { threads: 3, locate: Locate::Lines(4), ..usual },
        How { threads: 4, ..usual },
        How { threads: 4, fold_fetch: false, ..usual },
        How::default(),
    ]
}

/// A program, its files and what should be in them.
struct Writes<'a> {
    world: &'a World,
    user: User,
    session: Session,
    files: Vec<(InodeNr, Option<Leased>, Vec<u8>)>,
    rng: Rng,
}

impl Writes<'_> {
    fn write(&mut self, number: usize) {
        let (ino, leased, wanted) = &mut self.files[number];
        let leased = leased.get_or_insert_with(|| {
            let token = self.world.tokens.mint(*ino, std::process::id(), true);
            self.session.lease_with(&token).expect("nobody else writes it")
        });
        let offset = match self.rng.below(4) {
            0 => wanted.len() as u64,
            1 => self.rng.below(20) * 4096,
            _ => self.rng.below(300_000),
        };
        let len = match self.rng.below(3) {
            0 => 4096 * (1 + self.rng.below(8)),
            1 => 1 + self.rng.below(600),
            _ => 1 + self.rng.below(40_000),
        };
        let bytes: Vec<u8> = (0..len).map(|_| self.rng.below(256) as u8).collect();
        assert_eq!(leased.write_at(offset, &bytes), Through::Lease(bytes.len()));
        let end = offset as usize + bytes.len();
        wanted.resize(wanted.len().max(end), 0);
        wanted[offset as usize..end].copy_from_slice(&bytes);
    }

    /// Another program reads a file, and so its lease ends.
    fn read(&mut self, number: usize) {
        let (ino, leased, wanted) = &mut self.files[number];
        let before = self.user.stat(*ino);
        assert!(self.user.read(*ino) == *wanted, "file {number}");
        let after = self.user.stat(*ino);
        assert_eq!((before.size, before.mtime), (after.size, after.mtime), "as it was shown");
        *leased = None;
    }
}

#[test]
fn files_are_the_same_however_they_are_taken_in() {
    for (seed, ingest) in (0..).zip(hows()) {
        let bounds = Bounds { ingest, ..crate::setting().bounds };
        // Recalled again and again, a file may be leased again soon.
        let world = World::new(Setting { bounds, hasty: true, ..crate::setting() });
        let user = world.user();
        let files =
            (0..FILES).map(|i| (user.make(&format!("f{i}"), b"begin"), None, b"begin".to_vec()));
        let files: Vec<_> = files.collect();
        let token = world.tokens.mint(files[0].0, std::process::id(), true);
        let session = Session::enter_with(&world.socket(), &token).expect("enter");
        let mut writes = Writes { world: &world, user, session, files, rng: Rng::new(seed) };
        for _ in 0..STEPS {
            let number = writes.rng.below(FILES as u64) as usize;
            match writes.rng.below(60) {
                0 => writes.read(number),
                1 => world.ingest(),
                _ => writes.write(number),
            }
        }
        (0..FILES).for_each(|number| writes.read(number));
        let Writes { session, user, .. } = writes;
        drop((session, user));
        let counts = world.counts().ingested;
        assert_eq!(counts.pipelined > 0, ingest.threads > 1, "{ingest:?}: {counts:?}");
        assert_eq!(counts.pieces < counts.records, ingest.merge, "{ingest:?}: {counts:?}");
        assert_eq!(counts.hits > 0, matches!(ingest.locate, Locate::Lines(_)), "{counts:?}");
        world.close();
    }
}
