//! Ways of a program to the target: a queue, and a connection that says what it likes.

use super::machine::Machine;
use siftfs_base::Result;
use siftfs_device_target::{Lines, Queue, RequestOrder};
use siftfs_placement::TransportOptions;
use siftfs_transport::{CallerEnd, Received, connect};
use siftfs_wire::{BlockProtocol, FromService, Place, StorageAnswer, StorageCall, ToService};
use std::time::Duration;

/// A program's queue, on connections of its own.
pub fn attach(machine: &Machine, token: [u8; 32]) -> Result<Queue> {
    Queue::open(Lines::new(machine.place()), token, RequestOrder::default())
}

pub struct Forger {
    pub end: CallerEnd<BlockProtocol>,
    id: u64,
    /// The number of the next request of queue 0.
    number: u64,
}

impl Forger {
    pub fn new(machine: &Machine) -> Self {
        let options = TransportOptions::default();
        Self {
            end: connect::<BlockProtocol>(&machine.place().address, &options).unwrap(),
            id: 0,
            number: 0,
        }
    }

    /// One call, which is answered, and nothing else is.
    pub fn ask(&mut self, call: StorageCall) -> StorageAnswer {
        self.id += 1;
        self.say(ToService::Storage { id: self.id, call })
    }

    /// One request of queue 0, in its order.
    pub fn request(&mut self, call: StorageCall) -> StorageAnswer {
        let place = Place { queue: 0, number: self.number, first: self.number };
        self.number += 1;
        self.place(place, call)
    }

    /// One request with any place.
    pub fn place(&mut self, place: Place, call: StorageCall) -> StorageAnswer {
        self.id += 1;
        self.say(ToService::Queued { id: self.id, place, call })
    }

    fn say(&mut self, message: ToService) -> StorageAnswer {
        self.end.sender.send(message).unwrap();
        match self.end.receiver.recv(Some(Duration::from_secs(20))) {
            Ok(Received::Message(FromService::Storage { id, answer })) => {
                assert_eq!(id, self.id);
                answer
            }
            other => panic!("{other:?}"),
        }
    }
}
