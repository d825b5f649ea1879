use super::*;
use siftfs_base::SharedBlock;
use siftfs_transport::{TransportOptions, in_process};
use siftfs_wire::{BlockProtocol, StorageCall, ToService};

/// A write's blocks count with its fields, once, and a connection that is not to be counted counts
/// nothing.
#[test]
fn what_is_received_is_counted_with_its_blocks() {
    let blocks = 3;
    let write = || StorageCall::Write {
        device: 0,
        offset: 0,
        len: blocks * 4096,
        durable: true,
        blocks: (0..blocks).map(|_| SharedBlock::from([7; 4096])).collect(),
    };
    let before = crossed();
    for (counts, times) in [(false, 0), (true, 1)] {
        let (caller, server) = in_process::<BlockProtocol>(TransportOptions::default());
        let mut server = counted(server, counts);
        caller.sender.send(ToService::Storage { id: 1, call: write() }).unwrap();
        assert!(matches!(server.receiver.recv(None).unwrap(), Received::Message(_)));
        let (found, data) = (crossed() - before, u64::from(blocks) * 4096);
        assert!(found >= times * data && found <= times * (data + 200), "{found} for {data}");
    }
}
