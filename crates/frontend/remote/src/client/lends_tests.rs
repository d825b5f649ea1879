use super::*;
use siftfs_codec::Message;
use siftfs_proto::LeaseId;

fn lent(offset: u64, data: WriteData) -> (ToServer, Vec<u8>) {
    let skip = (offset % BLOCK_BYTES) as usize;
    let request =
        Request::LeaseWrite { lease: LeaseId(1), offset, data, time: None, durable: false };
    let message = message((1, 2), Credentials::default(), request);
    let ToServer::Lent { slot: 1, number: 2, lease: LeaseId(1), offset: at, len, blocks, .. } =
        &message
    else {
        panic!("{message:?}")
    };
    assert_eq!(*at, offset);
    let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
    assert_eq!(blocks.len(), (skip + *len as usize).div_ceil(BLOCK_SIZE));
    let data = bytes[skip..skip + *len as usize].to_vec();
    (message, data)
}

/// Whatever is written lies in blocks, so that no byte of it is in the message itself.
///
/// Seen to fail when bytes stay bytes.
#[test]
fn no_byte_is_in_the_message() {
    for (offset, len) in [(0, 1), (4095, 1), (4095, 2), (4096, 4096), (10, 9000), (8192, 4097)] {
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let (message, data) = lent(offset, WriteData::Bytes(bytes.clone()));
        assert_eq!(data, bytes);
        assert!(message.encode().unwrap().head.len() < 100);
    }
}

/// Whole blocks go as they are.
#[test]
fn whole_blocks_are_not_copied() {
    let block = SharedBlock::from([7; BLOCK_SIZE]);
    let (message, _) = lent(4096, WriteData::Blocks(vec![block.clone()]));
    let ToServer::Lent { blocks, .. } = message else { panic!("{message:?}") };
    assert!(blocks[0].is_same(&block));
}

/// What says nothing about data is a call as any other, and so is a write of nothing.
#[test]
fn other_calls_stay_calls() {
    let lease = LeaseId(1);
    let nothing = WriteData::Bytes(Vec::new());
    let write = Request::LeaseWrite { lease, offset: 5, data: nothing, time: None, durable: false };
    for request in [Request::LeaseKeep { lease }, write] {
        let message = message((0, 0), Credentials::default(), request);
        assert!(matches!(message, ToServer::Call { .. }), "{message:?}");
    }
}
