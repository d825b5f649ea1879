//! The ways of remote mounts to their server break at random: cut, so that both ends learn of it,
//! or the server alone; cut for a while; swallowing what is sent, of which nobody learns; slow.

use siftfs_base::Rng;
use siftfs_rig::proxy::Proxy;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Between two breaks of a way, at most, in milliseconds.
const WELL: u64 = 800;
/// How long a break lasts at most, in milliseconds. A server takes back nothing from a kernel
/// without a connection for 4 s, and a connection that is silent is lost after 10 s.
const BROKEN: u64 = 7000;
/// How long bytes are on a slow way at most, in milliseconds.
const SLOW: u64 = 1200;

/// The ways of a stage's remote mounts.
#[derive(Default)]
pub struct Ways {
    ways: Vec<Proxy>,
    broken: Mutex<u64>,
}

impl Ways {
    /// A way to the server at this address, which has the form `tcp:HOST:PORT`, and its own
    /// address.
    pub fn lead(&mut self, to: &str) -> String {
        let way = Proxy::start(to);
        let address = way.address.clone();
        self.ways.push(way);
        address
    }

    /// How often one was broken.
    #[must_use]
    pub fn broken(&self) -> u64 {
        *self.broken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Breaks them, each by a thread of its own, while `act` goes on. All is well after that.
    pub fn while_breaking<T>(&self, seed: u64, act: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let mut ends = Vec::new();
            for (at, way) in self.ways.iter().enumerate() {
                let (end, ended) = channel::<()>();
                ends.push(end);
                let rng = Rng::new(seed.wrapping_mul(31).wrapping_add(at as u64));
                scope.spawn(move || self.break_one(way, rng, &ended));
            }
            let done = act();
            drop(ends);
            done
        })
    }

    fn break_one(&self, way: &Proxy, mut rng: Rng, ended: &Receiver<()>) {
        let wait = |most: u64, rng: &mut Rng| {
            let time = Duration::from_millis(rng.below(most));
            ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
        };
        // At once for the first time: on fast storage a history is over in less than a second.
        let mut begins = true;
        while std::mem::take(&mut begins) || wait(WELL, &mut rng) {
            *self.broken.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
            match rng.below(5) {
                0 => way.part(),
                1 => {
                    way.part();
                    wait(BROKEN, &mut rng);
                }
                2 | 3 => {
                    match rng.chance(50) {
                        true => way.part_from_server(),
                        false => way.swallow(),
                    }
                    wait(BROKEN, &mut rng);
                    // What came through behind what did not would make no sense.
                    way.part();
                }
                _ => {
                    way.delay(Duration::from_millis(rng.below(SLOW)));
                    wait(BROKEN, &mut rng);
                }
            }
            way.delay(Duration::ZERO);
            way.fill();
            way.join();
        }
    }
}
