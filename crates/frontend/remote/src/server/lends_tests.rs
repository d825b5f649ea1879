use super::*;

fn call(offset: u64, data: Blocks) -> std::result::Result<WriteData, String> {
    let (credentials, lease) = (Credentials::default(), LeaseId(3));
    let message =
        ToServer::Lent { slot: 1, number: 2, credentials, lease, offset, time: None, data };
    as_call(message).map(|call| match call {
        ToServer::Call { slot: 1, number: 2, request, .. } => match *request {
            Request::LeaseWrite { lease: LeaseId(3), offset: at, data, time: None } => {
                assert_eq!(at, offset);
                data
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    })
}

fn blocks(n: u8) -> Vec<SharedBlock> {
    (0..n).map(|n| SharedBlock::from([n + 1; BLOCK_SIZE])).collect()
}

/// The Runtime's data are its own: a block that is lent goes back at once, and nothing of it
/// changes any more.
#[test]
fn what_is_lent_is_copied() {
    let given = blocks(2);
    let WriteData::Blocks(own) = call(8192, Blocks::new(given.clone(), 0, 8192)).unwrap() else {
        panic!("whole blocks stay blocks")
    };
    assert_eq!(own, given);
    assert!(own.iter().zip(&given).all(|(own, given)| !own.is_same(given)));
}

#[test]
fn parts_of_blocks_become_bytes() {
    for (skip, len) in [(4000, 200), (1, 4095), (0, 1), (5, 8187)] {
        let given = blocks(((skip + len) as u64).div_ceil(BLOCK_BYTES) as u8);
        let data = Blocks::new(given, skip, len);
        let wanted = data.to_vec();
        assert_eq!(call((7 << 12) + skip as u64, data), Ok(WriteData::Bytes(wanted)));
    }
}

#[test]
fn data_that_lie_elsewhere_are_refused() {
    assert!(call(1, Blocks::new(blocks(1), 0, 10)).unwrap_err().contains("byte 0 of a block"));
    assert!(call(4096, Blocks::new(blocks(1), 1, 10)).is_err());
}
