use super::*;
use siftfs_base::{Epoch, Lsn};
use siftfs_log::{Item, LogKey, RecordParams};

fn page(byte: u8) -> SharedBlock {
    [byte; 4096].into()
}

fn builder() -> RecordBuilder {
    let key = LogKey { epoch: Epoch(3), nonce: 5 };
    RecordBuilder { key, lane: LaneId(0) }
}

/// Two whole pages and a part of a third.
fn plan(pages: &[SharedBlock; 3]) -> (Plan, Vec<Item>) {
    let range = |start, end, data_offset| Range { data_offset, ..Range::of(12, start, end) };
    let ranges = vec![range(0, 8192, 0), range(12_388, 12_488, 8192)];
    let data = |&Range { ino, start: offset, end, data_offset, .. }: &Range| {
        let len = u32::try_from(end - offset).unwrap();
        Item::Data { ino, generation: 1, offset, len, data_offset, home: None }
    };
    let items: Vec<Item> = ranges.iter().map(data).collect();
    let layout = RecordLayout::new(&items, 8292).unwrap();
    let [a, b, c] = pages.clone();
    let pieces = vec![(a, 0, 4096), (b, 0, 4096), (c, 100, 200)];
    (Plan { ranges, pieces, layout, builder: builder() }, items)
}

#[test]
fn a_record_encoded_in_two_steps_is_the_same() {
    let pages = [page(1), page(2), page(3)];
    let (plan, items) = plan(&pages);
    let params = RecordParams { lsn: Lsn(9), ..RecordParams::default() };
    let layout = plan.layout;
    let mut whole = vec![0; layout.len as usize];
    let data: [&[u8]; 3] = [&pages[0][..], &pages[1][..], &pages[2][100..200]];
    let crc = builder().encode(&params, &layout, &items, &data, &mut whole);

    for used in [0, 4096, 60 << 10] {
        let (plan, _) = self::plan(&pages);
        let buffers = RecordBuffers::default();
        let mut memory = buffers.take(used);
        memory.fill(0xee);
        buffers.give(memory);
        let mut buf = plan.encode(&buffers).into_buf();
        assert_eq!(builder().encode_head(&params, &layout, &items, &mut buf), crc);
        assert!(buf[..] == whole[..]);
    }
}

#[test]
fn a_page_that_was_changed_is_seen() {
    let mut pages = [page(1), page(2), page(3)];
    let encoded = plan(&pages).0.encode(&RecordBuffers::default());
    assert!(encoded.is_of(pages.iter()));
    pages[2].make_mut()[150] = 9;
    assert!(!encoded.is_of(pages.iter()));
    assert_eq!(encoded.plan.pieces[2].0[150], 3, "what was planned stays");
}
