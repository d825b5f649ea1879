use super::*;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 3) as u8).collect()
}

#[test]
fn much_data_on_block_boundaries_travels_as_blocks() {
    let data = bytes(MANY);
    let blocks = WriteData::copy_of(8192, &data);
    assert!(matches!(&blocks, WriteData::Blocks(b) if b.len() == MANY / BLOCK_SIZE));
    assert_eq!((blocks.len(), blocks.into_bytes()), (MANY, data.clone()));
    for (offset, len) in [(8192, MANY - 1), (8192, MANY - BLOCK_SIZE), (8191, MANY), (0, 0)] {
        let small = WriteData::copy_of(offset, &data[..len]);
        assert_eq!(small, WriteData::Bytes(data[..len].to_vec()), "{offset} {len}");
        assert_eq!(small.is_empty(), len == 0);
    }
    assert!(matches!(WriteData::copy_of(0, &bytes(MANY + 1)), WriteData::Bytes(_)));
}

#[test]
fn blocks_give_exactly_their_bytes() {
    let data = bytes(3 * BLOCK_SIZE);
    let blocks: Vec<SharedBlock> =
        data.as_chunks::<BLOCK_SIZE>().0.iter().map(|b| SharedBlock::from(*b)).collect();
    for (skip, len) in [(0, 3 * BLOCK_SIZE), (1, 3 * BLOCK_SIZE - 1), (4095, 2 + BLOCK_SIZE)] {
        let some = Blocks::new(blocks.clone(), skip, len);
        assert_eq!((some.len(), some.to_vec()), (len, data[skip..skip + len].to_vec()));
    }
    let one = Blocks::new(blocks[..1].to_vec(), 5, 7);
    assert_eq!(one.to_vec(), data[5..12]);
    assert_eq!(one.parts().count(), 1);
}

#[test]
#[should_panic(expected = "blocks fit their bytes")]
fn blocks_that_hold_none_of_the_bytes_are_refused() {
    let _ = Blocks::new(vec![SharedBlock::from([0; BLOCK_SIZE]); 2], 0, BLOCK_SIZE);
}
