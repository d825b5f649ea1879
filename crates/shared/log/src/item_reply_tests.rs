use super::*;
use crate::item_codec::{decode_all, encode as encode_item, encoded_len};

const REPLY: ReplyItem = ReplyItem { client: 7, slot: 3, number: 9, lsn: Lsn(20), ino: 12 };

/// The item is the one of the specification, byte by byte.
#[test]
fn places_are_those_of_the_specification() {
    use crate::spec::{check_list, fields};
    let all = fields!(RawReply { client, number, lsn, slot, ino });
    check_list("### Items", "0x8000 reply (32)", 0, &all);
}

/// A reader that does not know the kind skips it: its number is an optional one's.
#[test]
fn an_older_reader_may_skip_it() {
    let item = Item::Reply(REPLY);
    let mut bytes = vec![0; encoded_len(&item)];
    encode_item(&item, &mut bytes);
    assert_eq!(bytes[..8], [0x00, 0x80, 0, 0, 32, 0, 0, 0]);
    assert_eq!(decode_all(&bytes, 1).unwrap(), [item]);
}

#[test]
fn what_cannot_be_is_refused() {
    let of = |change: fn(&mut ReplyItem)| {
        let mut item = REPLY;
        change(&mut item);
        check(&item).is_ok()
    };
    assert!(of(|_| {}));
    assert!(!of(|item| item.client = 0));
    assert!(!of(|item| item.lsn = Lsn(0)));
    assert!(!of(|item| item.ino = 0));
}

/// The length is the one that a layout computes, also of the longest record.
#[test]
fn a_record_of_replies_is_as_long_as_its_layout_says() {
    for replies in [1, 99, 100, 101, 1000, REPLIES_PER_RECORD] {
        let layout = crate::RecordLayout::new(&vec![Item::Reply(REPLY); replies], 0);
        let layout = layout.unwrap_or_else(|| panic!("{replies} replies fit a record"));
        assert_eq!(u64::from(layout.len), replies_len(replies), "{replies}");
    }
}
