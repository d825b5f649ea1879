use super::*;
use crate::spare::test_util::*;

fn part(offset: u64, value: u8) -> Part {
    Part { offset, data: Arc::new(AlignedBuf::copy_of(&block(value))), from: 0, len: 4096 }
}

/// Batches are read in order, up to the first place without a whole one.
#[test]
fn batches_come_back_in_order() {
    let rig = Rig::new();
    let slot = Slot::read(&*rig.spare).unwrap();
    let one = encode(&slot.header, Tail::FIRST, &[part(0, 1), part(8192, 2)]);
    rig.spare.write(SPARE_FIRST, &one, true).unwrap();
    let tail = Tail { pos: SPARE_FIRST + one.len() as u64, index: 1 };
    let two = encode(&slot.header, tail, &[part(0, 3)]);
    rig.spare.write(tail.pos, &two, true).unwrap();
    let mut told = Vec::new();
    let end = scan(&*rig.spare, &slot.header, &mut |block, place| told.push((block, place)));
    assert_eq!(end.unwrap(), Tail { pos: tail.pos + 8192, index: 2 });
    assert_eq!(told, [(0, SPARE_FIRST + 4096), (2, SPARE_FIRST + 8192), (0, tail.pos + 4096)]);
}

/// The next generation has no batches, and the header of the one before stays until it is whole.
#[test]
fn a_generation_ends_with_a_header() {
    let rig = Rig::new();
    let slot = Slot::read(&*rig.spare).unwrap();
    let batch = encode(&slot.header, Tail::FIRST, &[part(0, 1)]);
    rig.spare.write(SPARE_FIRST, &batch, true).unwrap();
    let next = slot.write_next(&*rig.spare, EPOCH, 9).unwrap();
    let read = Slot::read(&*rig.spare).unwrap();
    assert_eq!((read.header, read.index), (next.header, next.index));
    assert_eq!(scan(&*rig.spare, &read.header, &mut |_, _| ()).unwrap(), Tail::FIRST);
    rig.device.flip_bits(LOG + SPARE_SLOTS[next.index] + 20, 1);
    assert_eq!(Slot::read(&*rig.spare).unwrap().header, slot.header);
}

/// The head of a batch is whole, and its extents reach over the place of the image: the batch does
/// not count.
///
/// Seen to fail when only the device's end bounds a batch.
#[test]
fn a_batch_ends_before_the_image() {
    let rig = Rig::roomy();
    let slot = Slot::read(&*rig.spare).unwrap();
    assert_eq!(slot.header.image, MIN_SPARE);
    let short = SpareHeader { image: SPARE_FIRST + 4096, ..slot.header };
    let batch = encode(&slot.header, Tail::FIRST, &[part(0, 1)]);
    rig.spare.write(SPARE_FIRST, &batch, true).unwrap();
    let end = |header| scan(&*rig.spare, header, &mut |_, _| ()).unwrap();
    assert_eq!((end(&short).index, end(&slot.header).index), (0, 1));
}
