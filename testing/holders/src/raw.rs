//! A program that does by itself what the library does, so that it can be stopped in the middle, or
//! do what no library does.

use siftfs_lease::{
    Answer, Ask, FULL, HEADER, Held, Memory, Own, Packets, Place, Publish, Published, Settled,
    Token, View, Words, Writer, open,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A session.
pub struct Raw {
    /// The connection.
    pub socket: Packets,
    /// The grantor's memory.
    pub view: Arc<View>,
    /// This program's.
    pub memory: Arc<Memory>,
    writer: Writer<View, Memory>,
}

impl Raw {
    /// Enters.
    pub fn enter(path: &Path, token: Token) -> Self {
        let socket = Packets::connect(path).expect("connect");
        socket.send_in_turn(&Ask::Enter(token).encode()).expect("send");
        let packet = socket.receive(HEADER, true).expect("receive").expect("an answer");
        let answer = Answer::decode(&packet.bytes).expect("an answer");
        let Answer::Entered { epoch, largest } = answer else { panic!("{answer:?}") };
        let passed = packet.descriptors.try_into().expect("two descriptors");
        let (view, memory) = open(&passed, epoch).expect("memories");
        let (view, memory) = (Arc::new(view), Arc::new(memory));
        let writer = Writer::new((view.clone(), memory.clone()), FULL, largest);
        Self { socket, view, memory, writer }
    }

    /// Asks, and waits.
    pub fn ask(&self, ask: Ask) -> Option<Answer> {
        self.socket.send_in_turn(&ask.encode()).ok()?;
        let packet = self.socket.receive(HEADER + (64 << 10), false).ok()??;
        Answer::decode(&packet.bytes).ok()
    }

    /// Takes a lease.
    pub fn lease(&mut self, token: Token) -> Held {
        let answer = self.ask(Ask::Lease(token));
        let Some(Answer::Leased { held, size, mtime, .. }) = answer else { panic!("{answer:?}") };
        assert!(self.writer.begin(held, size, mtime), "a lease that can be");
        held
    }

    /// Publishes a write, and does not look.
    pub fn publish(&mut self, held: Held, bytes: &[u8]) -> Published {
        match self.writer.publish(held, Place::End, bytes, 1) {
            Publish::Published(published) => published,
            other => panic!("{other:?}"),
        }
    }

    /// Looks. Was it done?
    pub fn look(&self, published: &Published) -> bool {
        if published.look(&*self.view) {
            return true;
        }
        loop {
            match published.settled(&*self.view) {
                Settled::Done => return true,
                Settled::Lost => return false,
                Settled::NotYet { index, value } => {
                    self.view.sleep_while(index, value, Duration::from_secs(1));
                }
            }
        }
    }

    /// Writes words anywhere into this program's memory, and packets of any kind to the socket,
    /// until the session has ended.
    pub fn rage(&mut self, held: Held, seed: u64) {
        let mut rng = siftfs_base::Rng::new(seed);
        let words = FULL.holder_words() as u64;
        for round in 0..1_000_000u64 {
            for _ in 0..64 {
                let index = match rng.below(4) {
                    0 => 0,
                    1 => 512 + rng.below(64) as usize,
                    2 => 512 + 8192 + rng.below(8192) as usize,
                    _ => rng.below(words) as usize,
                };
                let value = match rng.below(3) {
                    0 => rng.below(2000),
                    1 => self.memory.load(index, Ordering::Relaxed).wrapping_add(rng.below(9)),
                    _ => rng.bits(),
                };
                self.memory.store(index, value, Ordering::Relaxed);
            }
            let sent = match (rng.below(6), round) {
                (0, 8..) => {
                    let bytes: Vec<u8> =
                        (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
                    self.socket.send(&bytes, &[])
                }
                (1, _) => self.socket.send(&Ask::Ingest.encode(), &[]),
                (2, _) => {
                    self.socket.send(&Ask::Read { held, offset: 0, len: 64 << 10 }.encode(), &[])
                }
                (3, _) => {
                    self.socket.send(&Ask::Fsync { held, datasync: true, log: 0 }.encode(), &[])
                }
                _ => self.socket.send(&Ask::Nudge.encode(), &[]),
            };
            if sent.is_err_and(|e| e.raw_os_error() != Some(libc::EAGAIN)) || self.socket.is_over()
            {
                return;
            }
        }
    }
}
