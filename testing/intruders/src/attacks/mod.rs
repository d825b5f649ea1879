//! What hostile clients do. Each attack is drawn, takes seconds at most, and may end with its
//! connection at any time.

mod asking;
mod breaking;
mod crowding;
mod staying;
mod walking;

use crate::wire::{Door, Needle, Wire};
use siftfs_base::{InodeNr, Rng};
use siftfs_calls::{Claim, FromServer, Leases, Opening, Returning, ToServer};
use siftfs_proto::{Credentials, Reply, Request, Rights};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long answers are waited for.
const ANSWERS: Duration = Duration::from_millis(500);
/// How long an attack that holds something goes on.
const HOLDS: Duration = Duration::from_secs(3);

/// An attack.
type Attack = fn(&mut Intruder) -> io::Result<()>;

/// All of them, by their names.
pub const ALL: [(&str, Attack); 12] = [
    ("claims", asking::claims),
    ("requests", asking::requests),
    ("canaries", asking::canaries),
    ("walks", walking::walks),
    ("handles", asking::handles),
    ("slots", breaking::slots),
    ("frames", breaking::frames),
    ("greetings", breaking::greetings),
    ("crowd", crowding::crowd),
    ("deaf", staying::deaf),
    ("greedy", staying::greedy),
    ("returning", staying::returning),
];

/// A hostile client.
pub struct Intruder {
    /// How it gets in.
    pub door: Door,
    /// What it is searched for.
    pub needle: Arc<Needle>,
    /// What it does.
    pub rng: Rng,
    /// Inodes that it knows of, by whatever way: those of the canaries among them.
    pub inodes: Vec<InodeNr>,
    /// The user that it is, by the socket; with a key whatever it likes.
    pub user: Option<u32>,
    /// The number of a client that comes back, which is another's.
    pub other: u64,
    /// The campaign is over.
    pub is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Rights that nobody has given it.
fn rights() -> Rights {
    Rights { groups: vec![0, 1, 4, 1000], ..Rights::all() }
}

/// Root, with everything.
fn root() -> Credentials {
    Credentials { rights: Some(Box::new(rights())), ..Credentials::default() }
}

impl Intruder {
    /// One of the attacks, and its name.
    pub fn attack(&mut self) -> &'static str {
        let (name, attack) = ALL[self.rng.below(ALL.len() as u64) as usize];
        // Most of them end with an error: the server has cut the connection.
        let _ = attack(self);
        name
    }

    fn ino(&mut self) -> InodeNr {
        match self.rng.below(4) {
            0 => 1 + self.rng.below(64) as InodeNr,
            _ => self.inodes[self.rng.below(self.inodes.len() as u64) as usize],
        }
    }

    fn claim(&mut self) -> Claim {
        let (uid, gid) = match self.rng.below(3) {
            0 => (0, 0),
            1 => (1000, 0),
            _ => (65_534, 65_534),
        };
        match self.rng.below(4) {
            0 => Claim::Owner,
            1 => Claim::Kernel,
            _ => Claim::User { uid, gid, rights: rights() },
        }
    }

    /// A claim that its channel bears out.
    fn borne_out(&mut self) -> Claim {
        match self.user {
            Some(user) => Claim::User { uid: user, gid: user, rights: rights() },
            None if self.rng.chance(50) => Claim::Kernel,
            None => Claim::User { uid: 0, gid: 0, rights: rights() },
        }
    }

    fn greet(&self) -> io::Result<Wire> {
        Wire::greet(&self.door, &self.needle)
    }

    /// Opens a session, and whether it is open.
    fn open(&self, opening: Opening) -> io::Result<(Wire, bool)> {
        let mut wire = self.greet()?;
        wire.send(&ToServer::Open(Box::new(opening)))?;
        let answer = wire.receive(Duration::from_secs(5))?;
        Ok((wire, matches!(answer, Some(FromServer::Opened { .. }))))
    }

    /// A session of its own.
    fn session(&mut self, caches: bool) -> io::Result<Wire> {
        let claim = self.borne_out();
        let (wire, _) = self.open(opening(claim, caches, None))?;
        Ok(wire)
    }
}

fn opening(claim: Claim, caches: bool, returning: Option<Returning>) -> Opening {
    Opening { volume: String::new(), claim, caches, leases: Leases::None, returning }
}

/// A call in the slot's order.
fn call(wire: &mut Wire, slot: u32, credentials: Credentials, request: Request) -> ToServer {
    let place = &mut wire.numbers[slot as usize];
    let number = *place;
    *place += 1;
    ToServer::Call {
        slot,
        number,
        credentials,
        request: Box::new(request),
        change: None,
        proofs: None,
    }
}

/// What an answer says, if it is not an error.
fn reply(answer: Option<FromServer>) -> Option<Reply> {
    match answer {
        Some(FromServer::Answer { result: Ok(reply), .. }) => Some(*reply),
        _ => None,
    }
}

/// Makes a call and waits for its answer.
fn ask(wire: &mut Wire, request: Request) -> io::Result<Option<FromServer>> {
    let message = call(wire, 0, root(), request);
    wire.send(&message)?;
    let begun = Instant::now();
    while begun.elapsed() < ANSWERS * 4 {
        match wire.receive(ANSWERS)? {
            Some(answer @ (FromServer::Answer { .. } | FromServer::Owing { .. })) => {
                return Ok(Some(answer));
            }
            Some(FromServer::Notice { notice, .. }) => wire.send(&ToServer::Taken { notice })?,
            _ => {}
        }
    }
    // A call that waits for ever has the slot.
    Err(io::ErrorKind::TimedOut.into())
}
