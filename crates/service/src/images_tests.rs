use super::*;

fn tables() -> InodeTables {
    let run = |start, len| BlockRun { start, len };
    InodeTables { runs: vec![run(10, 2), run(20, 1)], inode_size: 256 }
}

#[test]
fn the_newest_image_stays_and_inodes_are_counted_once_each() {
    let (t, mut images) = (tables(), Images::default());
    let mut block = vec![0; BLOCK_SIZE];
    let slot = images.put(&t, 11, &block, 0);
    for round in 1..=10 {
        // Inodes 2 and 5 change in each round.
        block[2 * 256 + 8] = round;
        block[5 * 256 + 200] = round;
        assert_eq!(images.put(&t, 11, &block, u32::from(round)), slot);
    }
    assert_eq!(images.raw_inodes, 1 + 10 * 2);
    assert_eq!((images.inodes(slot), images.txn(slot)), (2, 10));
    assert_eq!(images.data(slot)[5 * 256 + 200], 10);
    // An image that changes no inode was an update nevertheless.
    images.put(&t, 11, &block, 11);
    assert_eq!(images.raw_inodes, 22);
}

#[test]
fn other_metadata_is_folded_and_counts_no_inode() {
    let (t, mut images) = (tables(), Images::default());
    for block in [9, 12, 21] {
        let slot = images.put(&t, block, &[1; BLOCK_SIZE], 0);
        assert_eq!(images.put(&t, block, &[2; BLOCK_SIZE], 1), slot);
        assert_eq!((images.inodes(slot), images.data(slot)[0]), (0, 2));
    }
    assert_eq!(images.raw_inodes, 0);
    let only = images.put(&t, 20, &[1; BLOCK_SIZE], 0);
    assert_eq!((images.raw_inodes, images.inodes(only)), (1, 1));
}
