//! The end of a session beside its requests, under every order of the threads: a request that names
//! an inode finds it until it is answered, and nothing of the session is left behind (rule R31).

use loom::sync::{Arc, Mutex};
use loom::thread;
use siftfs_interleave::life::Life;

/// What the Runtime has of a session, under its lock.
struct Held {
    open: bool,
    /// The session has looked the inode up.
    knows: bool,
    handles: usize,
    sections: usize,
}

struct World {
    life: Life,
    state: Mutex<Held>,
}

impl World {
    fn new() -> Arc<Self> {
        let state = Mutex::new(Held { open: true, knows: true, handles: 0, sections: 0 });
        Arc::new(Self { life: Life::default(), state })
    }

    /// A request that opens an inode by its number, as `admission` and `endpoint` carry it out: it
    /// is looked for under one hold of the lock, and used under another.
    fn open(&self) -> bool {
        if self.life.is_over() {
            return false;
        }
        let _named = self.life.name();
        if !self.state.lock().unwrap().knows {
            return false;
        }
        let mut held = self.state.lock().unwrap();
        assert!(held.knows, "the number may be another inode's by now");
        if held.open {
            held.handles += 1;
        }
        true
    }

    /// A section starts on an open file, which names no inode.
    fn start_section(&self) {
        if self.life.is_over() {
            return;
        }
        let mut held = self.state.lock().unwrap();
        if held.open {
            held.sections += 1;
        }
    }

    fn end(&self) -> bool {
        let ended = self.life.end(
            || {},
            || {
                *self.state.lock().unwrap() =
                    Held { open: false, knows: false, handles: 0, sections: 0 }
            },
        );
        ended.is_some()
    }

    fn forget(&self) {
        let _forgetting = self.life.forget();
        self.state.lock().unwrap().knows = false;
    }

    fn is_empty(&self) -> bool {
        let held = self.state.lock().unwrap();
        !held.open && !held.knows && held.handles == 0 && held.sections == 0
    }
}

/// Seen to fail when the end, or a forget, does not wait for requests that name inodes.
#[test]
fn a_request_finds_its_inode_until_it_is_answered() {
    loom::model(|| {
        let world = World::new();
        let (one, other) = (world.clone(), world.clone());
        let asks = thread::spawn(move || one.open());
        let forgets = thread::spawn(move || other.forget());
        assert!(world.end());
        asks.join().unwrap();
        forgets.join().unwrap();
        assert!(world.is_empty());
    });
}

/// Seen to fail when a section starts in a session that has ended.
#[test]
fn nothing_is_left_of_a_session_that_ended() {
    loom::model(|| {
        let world = World::new();
        let (one, other) = (world.clone(), world.clone());
        let asks = thread::spawn(move || {
            one.open();
            one.start_section();
        });
        let ends = thread::spawn(move || other.end());
        let first = world.end();
        let second = ends.join().unwrap();
        asks.join().unwrap();
        assert!(first != second, "it ends once");
        assert!(world.is_empty());
    });
}
