use super::*;

/// The messages say all parts in their order, and none is larger than one may be.
#[test]
fn parts_are_cut_into_messages() {
    let large = vec![1; 3 * PIECE + 5];
    let parts = [(100, &large[..10]), (7, &large[..]), (4096, &large[..PIECE - 20])];
    let messages = messages(&parts);
    let bytes = |message: &Message<'_>| message.iter().map(|(_, data)| data.len()).sum::<usize>();
    assert!(messages.iter().all(|message| bytes(message) <= PIECE));
    let all: Vec<u64> =
        messages.iter().flatten().flat_map(|(at, data)| *at..*at + data.len() as u64).collect();
    let wanted: Vec<u64> =
        parts.iter().flat_map(|(at, data)| *at..*at + data.len() as u64).collect();
    assert!(all == wanted);
    assert_eq!(messages.len(), 4);
    let small: Vec<(u64, &[u8])> = (0..3000).map(|i| (2 * i, &large[..1])).collect();
    let messages = super::messages(&small);
    assert!(messages.iter().all(|message| message.len() <= ATOMIC_MAX_RUNS));
    assert_eq!(messages.concat(), small);
    assert_eq!(super::messages(&[]), [Message::new()], "a commit of nothing");
    let StorageCall::AtomicWrite { commit, runs, blocks, .. } = call(true, &messages[2]) else {
        panic!("another call")
    };
    assert_eq!((commit, runs.len(), blocks.len()), (true, 3000 - 2 * ATOMIC_MAX_RUNS, 1));
}

/// The bytes of all parts follow each other in the blocks, and zeros fill the last one.
#[test]
fn a_message_has_its_bytes_in_order() {
    let parts = [(70_000, vec![1; 5000]), (9, vec![2; 3]), (4096, vec![3; 4000])];
    let message: Message<'_> = parts.iter().map(|(at, data)| (*at, &**data)).collect();
    let StorageCall::AtomicWrite { commit, runs, blocks, .. } = call(true, &message) else {
        panic!("another call");
    };
    assert!(commit);
    let named: Vec<_> = runs.iter().map(|run| (run.offset, run.len as usize)).collect();
    assert_eq!(named, [(70_000, 5000), (9, 3), (4096, 4000)]);
    let sent: Vec<u8> = blocks.iter().flat_map(|block| block.to_vec()).collect();
    let mut expected = parts.map(|(_, data)| data).concat();
    expected.resize(3 * BLOCK_SIZE, 0);
    assert!(sent == expected, "other bytes than the parts have");
}
