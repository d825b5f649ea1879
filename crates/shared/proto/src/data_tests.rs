use super::*;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 3) as u8).collect()
}

#[test]
fn whole_blocks_travel_as_blocks() {
    let data = bytes(MANY);
    for len in [BLOCK_SIZE, MANY] {
        let blocks = WriteData::copy_of(8192, &data[..len]);
        assert!(matches!(&blocks, WriteData::Blocks(b) if b.len() == len / BLOCK_SIZE));
        assert_eq!((blocks.len(), blocks.into_bytes()), (len, data[..len].to_vec()));
    }
    for (offset, len) in [(8192, MANY - 1), (8192, 1), (8191, MANY), (0, BLOCK_SIZE + 1), (0, 0)] {
        let part = WriteData::copy_of(offset, &data[..len]);
        assert_eq!(part, WriteData::Bytes(data[..len].to_vec()), "{offset} {len}");
        assert_eq!(part.is_empty(), len == 0);
    }
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
