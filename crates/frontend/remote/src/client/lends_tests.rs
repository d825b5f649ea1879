use super::*;
use siftfs_codec::Message;
use siftfs_proto::LeaseId;

fn lent(offset: u64, data: WriteData) -> Blocks {
    let request = Request::LeaseWrite { lease: LeaseId(1), offset, data, time: None };
    match message((1, 2), Credentials::default(), request) {
        ToServer::Lent { slot: 1, number: 2, lease: LeaseId(1), offset: at, data, .. } => {
            assert_eq!(at, offset);
            data
        }
        other => panic!("{other:?}"),
    }
}

/// Whatever is written lies in blocks, so that no byte of it is in the message itself.
///
/// Seen to fail when bytes stay bytes.
#[test]
fn no_byte_is_in_the_message() {
    for (offset, len) in [(0, 1), (4095, 1), (4095, 2), (4096, 4096), (10, 9000), (8192, 4097)] {
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let data = lent(offset, WriteData::Bytes(bytes.clone()));
        assert_eq!(data.to_vec(), bytes);
        assert_eq!(data.whole().1 as u64, offset % BLOCK_BYTES);
        let message = ToServer::Lent {
            slot: 0,
            number: 0,
            credentials: Credentials::default(),
            lease: LeaseId(1),
            offset,
            time: None,
            data,
        };
        assert!(message.encode().unwrap().head.len() < 100);
    }
}

/// Whole blocks go as they are.
#[test]
fn whole_blocks_are_not_copied() {
    let block = SharedBlock::from([7; BLOCK_SIZE]);
    let data = lent(4096, WriteData::Blocks(vec![block.clone()]));
    assert!(data.whole().0.first().unwrap().is_same(&block));
}

/// What says nothing about data is a call as any other, and so is a write of nothing.
#[test]
fn other_calls_stay_calls() {
    let lease = LeaseId(1);
    let nothing = WriteData::Bytes(Vec::new());
    let write = Request::LeaseWrite { lease, offset: 5, data: nothing, time: None };
    for request in [Request::LeaseKeep { lease }, write] {
        let message = message((0, 0), Credentials::default(), request);
        assert!(matches!(message, ToServer::Call { .. }), "{message:?}");
    }
}
