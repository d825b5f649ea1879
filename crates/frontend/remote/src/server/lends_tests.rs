use super::*;

fn call(offset: u64, len: u32, blocks: Vec<SharedBlock>) -> std::result::Result<WriteData, String> {
    let (credentials, lease, time) = (Credentials::default(), LeaseId(3), None);
    let (slot, number) = (1, 2);
    let message = ToServer::Lent { slot, number, credentials, lease, offset, len, time, blocks };
    as_call(message).map(|call| match call {
        ToServer::Call { slot: 1, number: 2, request, .. } => match *request {
            Request::LeaseWrite {
                lease: LeaseId(3),
                offset: at,
                data,
                time: None,
                durable: false,
            } => {
                assert_eq!(at, offset);
                data
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    })
}

fn blocks(n: usize) -> Vec<SharedBlock> {
    (1..=n).map(|n| SharedBlock::from([n as u8; BLOCK_SIZE])).collect()
}

/// The Runtime's data are its own: a block that is lent goes back at once, and nothing of it
/// changes any more.
#[test]
fn what_is_lent_is_copied() {
    let given = blocks(2);
    let WriteData::Blocks(own) = call(8192, 8192, given.clone()).unwrap() else {
        panic!("whole blocks stay blocks")
    };
    assert_eq!(own, given);
    assert!(own.iter().zip(&given).all(|(own, given)| !own.is_same(given)));
}

#[test]
fn parts_of_blocks_become_bytes() {
    for (skip, len) in [(4000usize, 200usize), (1, 4095), (0, 1), (5, 8187), (4095, 4098)] {
        let given = blocks((skip + len).div_ceil(BLOCK_SIZE));
        let all: Vec<u8> = given.iter().flat_map(|block| block.iter().copied()).collect();
        let wanted = WriteData::Bytes(all[skip..skip + len].to_vec());
        assert_eq!(call((7 << 12) + skip as u64, len as u32, given), Ok(wanted));
    }
}

/// Lengths that an agent makes up: nothing is allocated for them.
#[test]
fn blocks_that_are_not_those_of_the_data_are_refused() {
    for (offset, len, n) in [(0, 0, 0), (0, 0, 1), (1, 4096, 1), (0, 4097, 1), (4095, 1, 2)] {
        assert!(call(offset, len, blocks(n)).unwrap_err().contains("blocks for"));
    }
    assert!(call(u64::MAX, u32::MAX, blocks(1)).is_err());
}
