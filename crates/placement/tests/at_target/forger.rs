//! A connection to the target that says what it likes.

use super::machine::Machine;
use siftfs_placement::TransportOptions;
use siftfs_transport::{CallerEnd, Received, connect};
use siftfs_wire::{BlockProtocol, FromService, StorageAnswer, StorageCall, ToService};
use std::time::Duration;

pub struct Forger {
    pub end: CallerEnd<BlockProtocol>,
    id: u64,
}

impl Forger {
    pub fn new(machine: &Machine) -> Self {
        let options = TransportOptions::default();
        Self { end: connect::<BlockProtocol>(&machine.place().address, &options).unwrap(), id: 0 }
    }

    /// One call, which is answered, and nothing else is.
    pub fn ask(&mut self, call: StorageCall) -> StorageAnswer {
        self.id += 1;
        let id = self.id;
        self.end.sender.send(ToService::Storage { id, call }).unwrap();
        match self.end.receiver.recv(Some(Duration::from_secs(20))) {
            Ok(Received::Message(FromService::Storage { id: answered, answer })) => {
                assert_eq!(answered, id);
                answer
            }
            other => panic!("{other:?}"),
        }
    }
}
